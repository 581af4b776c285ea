//! Puts a question together: the subject, its witnesses, an impossible name; and what the judge must know beside the answer.

use chrono::TimeDelta;
use rand::RngExt;
use sqlx::{PgConnection, PgPool};

use super::Doubt;
use crate::{
    config::destination::{AbsentByLag, Destination, Visibility},
    domain::{
        absence::{self, Doubtful, EarlierAnswer, Judged, Known, Rules},
        question::{Answer, Probe, Question, Role},
        rewind::LOST,
    },
    engine::folding::{Case, after},
    look_up::LookUp,
    store::{self, error::StoreError, witnesses::Witness},
};

/// More namesakes than this cannot be told apart in one answer.
const NAMESAKES: i64 = 500;

/// What the asked generation declares.
pub(super) fn rules(config: &Destination, look_up: &dyn LookUp) -> Option<Rules> {
    let declared = config.look_up.as_ref()?;
    let abilities = look_up.abilities();
    Some(Rules {
        lag: declared.lag,
        horizon: declared.horizon,
        need: declared.need,
        spacing: declared.spacing,
        ordered: declared.visibility == Visibility::Ordered,
        resend_by_lag: declared.absent_by_lag == AbsentByLag::Resend,
        shows_key: abilities.shows_key,
        lists: abilities.lists,
    })
}

/// The subject first, then the controls that the ledger can offer.
pub(super) async fn build(pool: &PgPool, doubt: &Doubt, rules: &Rules, key: String) -> Result<Question, StoreError> {
    let intent = &doubt.case.intent;
    let attempt = doubt.case.attempt(doubt.number);
    let started = attempt.map_or(intent.now, |a| a.claimed_at);
    let closure = attempt.map_or(intent.now, closure_of);
    let mut probes = vec![Probe {
        role: Role::Subject,
        key,
        reference: intent.reference.clone(),
        occurrence: intent.occurrence,
        recipient: intent.recipient.clone(),
        sent_from: started,
        sent_until: closure,
    }];
    let mut conn = pool.acquire().await?;
    let since = after(intent.now, std::time::Duration::ZERO)
        - TimeDelta::from_std(rules.horizon).unwrap_or(TimeDelta::days(3650));
    let (name, generation) = (&intent.destination, &doubt.generation);
    let elder = store::witnesses::elder(&mut conn, name, generation, started, since, None).await?;
    let younger = store::witnesses::younger(&mut conn, name, generation, closure, None).await?;
    drop(conn);
    probes.extend(elder.map(|w| witness(Role::Elder, w)));
    probes.extend(younger.map(|w| witness(Role::Younger, w)));
    probes.push(Probe {
        role: Role::Impossible,
        key: alike(&probes[0].key),
        reference: alike(&intent.reference),
        ..probes[0].clone()
    });
    Ok(Question { probes, now: intent.now })
}

/// From when the doubt was on record, for who asks whether the clock was watched since: a lost attempt was only after the
/// rewind that took it.
pub(super) fn began(doubt: &Doubt) -> chrono::DateTime<chrono::Utc> {
    let attempt = doubt.case.attempt(doubt.number);
    attempt.map_or(doubt.case.intent.created_at, |a| if doubt.number == LOST { closure_of(a) } else { a.claimed_at })
}

/// From when no byte of an attempt can leave any more.
fn closure_of(attempt: &store::attempts::AttemptRow) -> chrono::DateTime<chrono::Utc> {
    attempt.closure_at.unwrap_or(attempt.lease_until).max(attempt.lease_until)
}

fn witness(role: Role, w: Witness) -> Probe {
    Probe {
        role,
        key: w.key,
        reference: w.reference,
        occurrence: w.occurrence,
        recipient: w.recipient,
        sent_from: w.started_at,
        sent_until: w.ended_at,
    }
}

/// A made-up name of the same shape, so that the question takes the same path.
fn alike(name: &str) -> String {
    let mut rng = rand::rng();
    let hex = name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit());
    name.chars()
        .map(|c| {
            if hex {
                char::from_digit(rng.random_range(0..16), 16).unwrap_or('0')
            } else if c.is_ascii_digit() {
                char::from_digit(rng.random_range(0..10), 10).unwrap_or('0')
            } else if c.is_ascii_alphabetic() {
                char::from(rng.random_range(b'a'..=b'z'))
            } else {
                c
            }
        })
        .collect()
}

/// Judges an answer with everything that the ledger knows about the names in it.
pub(super) async fn judge(
    conn: &mut PgConnection,
    case: &Case,
    doubt: &Doubt,
    rules: &Rules,
    question: Question,
    answer: Answer,
    distrusted: Option<String>,
) -> Result<Judged, StoreError> {
    let intent = &case.intent;
    let namesakes = store::intents::namesakes(conn, &intent.reference, NAMESAKES).await?;
    let suspended = (i64::try_from(namesakes.len()).unwrap_or(i64::MAX) >= NAMESAKES)
        .then(|| format!("more than {NAMESAKES} intents carry this reference"))
        .or(distrusted);
    let known = namesakes
        .into_iter()
        .map(|n| Known {
            intent_id: n.id,
            is_subject: n.id == intent.id,
            same_effect: n.id != intent.id
                && n.tenant == intent.tenant
                && n.effect_scope == intent.effect_scope
                && n.recipient == intent.recipient
                && n.occurrence == intent.occurrence,
            other_tenant: n.tenant != intent.tenant,
            key: n.key,
            attempted: n.attempt > 0,
            sent_attempts: u32::try_from(n.possible).unwrap_or(0),
        })
        .collect();
    let earlier = case
        .look_ups_about(doubt.number)
        .filter(|told| told.generation == doubt.generation)
        .map(|told| EarlierAnswer { at: told.asked_at, nothing: told.nothing, error: told.error })
        .collect();
    let attempt = case.attempt(doubt.number);
    let doubtful = Doubtful {
        attempt: doubt.number,
        token: attempt.map_or_else(uuid::Uuid::nil, |a| a.token),
        generation: doubt.generation.clone(),
        started_at: attempt.map_or(intent.now, |a| a.claimed_at),
        closure_at: attempt.map_or(intent.now, closure_of),
        account: attempt.and_then(|a| a.ended.as_ref()).and_then(|e| e.report.account.clone()),
    };
    let judged = absence::Case {
        rules: rules.clone(),
        doubtful,
        question,
        answer,
        earlier,
        known,
        // Each question brings a known and an impossible name of its own; a failed test by hand weighs more.
        self_test_fresh: !store::generations::test_failed(conn, &intent.destination, &doubt.generation).await?,
        suspended,
        now: intent.now,
    }
    .judge();
    Ok(judged)
}
