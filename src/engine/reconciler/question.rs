//! Puts a question together: the subjects, their witnesses, an impossible name; and what the judge must know beside the answer.

use chrono::{DateTime, TimeDelta, Utc};
use rand::RngExt;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Doubt,
    round::{Round, Subject},
};
use crate::{
    config::destination::{AbsentByLag, Destination, Visibility},
    domain::{
        absence::{self, Doubtful, EarlierAnswer, Judged, Known, Rules},
        question::{Answer, Probe, Question, Role},
        rewind::LOST,
    },
    engine::{folding::Case, placement::closure_of},
    look_up::LookUp,
    store::{
        self,
        error::StoreError,
        intents::Intent,
        witnesses::{Around, Witness},
    },
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

/// What is looked for about an attempt in doubt, under one of the keys that it may have used.
pub(super) fn subject(doubt: &Doubt, key: String) -> Subject {
    let intent = &doubt.case.intent;
    let attempt = doubt.case.attempt(doubt.number);
    let started = attempt.map_or(intent.now, |a| a.claimed_at);
    let closure = attempt.map_or(intent.now, closure_of);
    let probe = Probe { key, ..probe_of(intent, doubt.spelled.clone(), started, closure) };
    Subject { intent_id: intent.id, probe, now: intent.now }
}

/// What is looked for about an intent that was sent between these times.
pub(in crate::engine) fn probe_of(
    intent: &Intent,
    spelled: Option<String>,
    sent_from: DateTime<Utc>,
    sent_until: DateTime<Utc>,
) -> Probe {
    Probe {
        role: Role::Subject,
        key: intent.key.clone().unwrap_or_default(),
        reference: intent.reference.clone(),
        spelled,
        occurrence: intent.occurrence,
        recipient: intent.recipient.clone(),
        sent_from,
        sent_until,
    }
}

/// The controls that the ledger can offer for all of these at once, and a name that cannot exist.
pub(super) async fn controls(
    conn: &mut PgConnection,
    name: &str,
    generation: &str,
    subjects: &[Subject],
    rules: &Rules,
    now: DateTime<Utc>,
) -> Result<Vec<Probe>, StoreError> {
    let starts = || subjects.iter().map(|subject| subject.probe.sent_from);
    let ends = || subjects.iter().map(|subject| subject.probe.sent_until);
    let lag = TimeDelta::from_std(rules.lag).unwrap_or(TimeDelta::days(3650));
    let visible = now.checked_sub_signed(lag).unwrap_or(DateTime::<Utc>::MIN_UTC);
    let ripe = ends().filter(|end| *end <= visible).max();
    let ids: Vec<Uuid> = subjects.iter().map(|subject| subject.intent_id).collect();
    let around = Around {
        first: starts().min().unwrap_or(now),
        last: ripe.or(ends().max()).unwrap_or(now),
        first_closure: ends().min().unwrap_or(now),
        last_start: starts().max().unwrap_or(now),
        visible,
        since: now - TimeDelta::from_std(rules.horizon).unwrap_or(TimeDelta::days(3650)),
        but: &ids,
    };
    let (elder, younger) = store::witnesses::around(conn, name, generation, &around).await?;
    let mut controls: Vec<Probe> = elder.map(|w| witness(Role::Elder, w)).into_iter().collect();
    controls.extend(younger.map(|w| witness(Role::Younger, w)));
    controls.extend(subjects.first().map(|Subject { probe, .. }| {
        let made_up = alike(probe.spelled.as_ref().unwrap_or(&probe.reference));
        Probe {
            role: Role::Impossible,
            key: alike(&probe.key),
            reference: made_up.to_ascii_lowercase(),
            spelled: probe.spelled.as_ref().map(|_| made_up),
            ..probe.clone()
        }
    }));
    Ok(controls)
}

/// From when the doubt was on record, for who asks whether the clock was watched since: a lost attempt was only after the
/// rewind that took it.
pub(super) fn began(doubt: &Doubt) -> DateTime<Utc> {
    let attempt = doubt.case.attempt(doubt.number);
    attempt.map_or(doubt.case.intent.created_at, |a| if doubt.number == LOST { closure_of(a) } else { a.claimed_at })
}

/// Why absence says nothing about lost attempts: only one downstream is asked, and they may have used another.
pub(super) async fn elsewhere(conn: &mut PgConnection, case: &Case, number: i32) -> Result<Option<String>, StoreError> {
    let Some(lost) = case.lost.as_ref().filter(|_| number == LOST) else { return Ok(None) };
    let another = store::rewinds::meant_another(conn, &case.intent.destination, lost.told.lost_from).await?;
    Ok(another.then(|| "the destination meant another downstream when history was lost, or since".to_owned()))
}

fn witness(role: Role, w: Witness) -> Probe {
    Probe {
        role,
        key: w.key,
        reference: w.reference.to_ascii_lowercase(),
        spelled: Some(w.reference),
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
            } else if c.is_ascii_lowercase() {
                char::from(rng.random_range(b'a'..=b'z'))
            } else if c.is_ascii_uppercase() {
                char::from(rng.random_range(b'A'..=b'Z'))
            } else {
                c
            }
        })
        .collect()
}

/// What a question was about, beside the intent.
pub(in crate::engine) struct About {
    /// The attempt that the verdict speaks about.
    pub number: i32,
    /// The generation that was asked.
    pub generation: String,
    /// Start of the attempt.
    pub started_at: DateTime<Utc>,
    /// From when no byte of it could leave any more.
    pub closure_at: DateTime<Utc>,
    /// Earlier answers about it, newest last.
    pub earlier: Vec<EarlierAnswer>,
    /// A measured lag that is too long suspends absence.
    pub heeds_lag: bool,
    /// Why the clock is not trusted about it just now; absence is suspended then.
    pub distrusted: Option<String>,
}

impl About {
    /// An attempt in doubt, with the answers that the journal has.
    pub(super) fn doubt(case: &Case, doubt: &Doubt, distrusted: Option<String>) -> Self {
        let attempt = case.attempt(doubt.number);
        Self {
            number: doubt.number,
            generation: doubt.generation.clone(),
            started_at: attempt.map_or(case.intent.now, |a| a.claimed_at),
            closure_at: attempt.map_or(case.intent.now, closure_of),
            earlier: case
                .look_ups_about(doubt.number)
                .filter(|told| told.generation == doubt.generation)
                .map(|told| EarlierAnswer { at: told.asked_at, nothing: told.nothing, error: told.error })
                .collect(),
            heeds_lag: true,
            distrusted,
        }
    }
}

/// Judges an answer with everything that the ledger knows about the names in it.
pub(in crate::engine) async fn judge(
    conn: &mut PgConnection,
    case: &Case,
    about: About,
    round: &Round,
    (question, answer): (Question, Answer),
) -> Result<Judged, StoreError> {
    let intent = &case.intent;
    let namesakes = store::intents::namesakes(conn, &intent.reference, NAMESAKES).await?;
    let suspended = (i64::try_from(namesakes.len()).unwrap_or(i64::MAX) >= NAMESAKES)
        .then(|| format!("more than {NAMESAKES} intents carry this reference"))
        .or_else(|| about.distrusted.clone())
        .or_else(|| round.suspended.clone().filter(|_| about.heeds_lag));
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
    let attempt = case.attempt(about.number);
    let doubtful = Doubtful {
        attempt: about.number,
        token: attempt.map_or_else(Uuid::nil, |a| a.token),
        generation: about.generation.clone(),
        started_at: about.started_at,
        closure_at: about.closure_at,
        account: attempt.and_then(|a| a.ended.as_ref()).and_then(|e| e.report.account.clone()),
    };
    let judged = absence::Case {
        rules: round.rules.clone(),
        doubtful,
        question,
        answer,
        earlier: about.earlier,
        known,
        // Each question brings a known and an impossible name of its own; a failed test by hand weighs more.
        self_test_fresh: !store::generations::test_failed(conn, &intent.destination, &about.generation).await?,
        suspended,
        now: intent.now,
    }
    .judge();
    Ok(judged)
}
