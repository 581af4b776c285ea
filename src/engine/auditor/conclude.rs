//! Writes what an audit found: evidence where there is any, marks, escalations, the measured lag.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{
    Inner,
    next::{End, Expected, Next, measures, next},
    orphans,
};
use crate::{
    config::destination::Destination,
    domain::{
        absence::{EarlierAnswer, Judged},
        evidence::Verdict,
        question::Seen,
        reason::Reason,
        state::State,
    },
    engine::{
        folding::{Case, Cause, LookUpTold, after, settle},
        reconciler::{
            question::{self, About},
            round::{Round, seconds},
            told, words,
        },
        runner::Step,
        watch,
    },
    store::{
        self,
        audits::{Answered, Taken},
        error::StoreError,
        journal::Entry,
    },
};

/// So many missing sends of one destination within [`MISSING_WITHIN`] park it: its "yes" is not to be believed.
const PARK_AFTER: usize = 3;
/// See [`PARK_AFTER`].
const MISSING_WITHIN: Duration = Duration::from_secs(3600);
/// Earlier answers that are kept with an audit.
const KEPT: usize = 50;

impl Inner {
    /// Judges the answer under the lock of the intent's row and writes what follows, in one transaction.
    pub(super) async fn conclude(
        &self,
        taken: &Taken,
        round: &Round,
        index: usize,
        config: &Destination,
    ) -> Result<(), StoreError> {
        let at = self.sending.clock.sql_now();
        let mut tx = store::begin_durable(&self.sending.pool).await?;
        let Some(case) = Case::lock(&mut tx, taken.intent_id, at).await? else { return Ok(()) };
        let (question, answer) = round.part(index);
        let seen = answer.seen.first().cloned();
        let mut earlier: Vec<EarlierAnswer> = serde_json::from_value(taken.earlier.clone()).unwrap_or_default();
        let about = About {
            number: taken.attempt,
            generation: taken.generation.clone(),
            started_at: taken.sent_from,
            closure_at: taken.sent_until,
            earlier: earlier.clone(),
            // What the measurement rests on cannot wait for the measurement.
            heeds_lag: false,
            distrusted: self
                .sending
                .watch
                .stepped_within(watch::step_wait(config))
                .then(|| "the database clock stepped".to_owned()),
        };
        let judged = question::judge(&mut tx, &case, about, round, (question, answer)).await?;
        let there = case.intent.state == State::Sent && case.effect_of() == Some(taken.attempt);
        let questions = config.look_up.as_ref().map_or(1, |l| l.questions);
        let expected = Expected { there, lag: round.rules.lag, questions };
        let next = next(taken, &judged, expected, round.asked_at(), case.intent.now);
        earlier.push(judged.as_earlier());
        let kept = earlier.len().saturating_sub(KEPT);
        let earlier = serde_json::to_value(&earlier[kept..]).unwrap_or_default();
        let mut answered = self.answered(taken, round, &case, &judged, seen.as_ref(), &earlier);
        answered.next = match next {
            Next::Ask(at) => Ok(at),
            Next::Over(end) => Err(end.as_str()),
        };
        if !store::audits::answered(&mut tx, &answered).await? {
            // Another daemon asks by now.
            return Ok(());
        }
        let ripe = round.asked_at() >= after(taken.sent_until, round.rules.lag);
        if ripe || matches!(next, Next::Over(_)) {
            self.tell(&mut tx, &case, taken, round, &judged).await?;
        }
        orphans::report(&mut tx, &case, seen.as_ref()).await?;
        if let Next::Over(end) = next {
            self.over(&mut tx, &case, end, &judged).await?;
        }
        tx.commit().await?;
        if let Next::Over(end) = next {
            self.sending.metrics.audited(&case.intent.destination, end.as_str());
            tracing::info!(
                intent.id = %case.intent.id, intent.reference = %case.intent.reference,
                destination = %case.intent.destination, attempt = taken.attempt, result = end.as_str(),
                why = %words(&judged.verdict), "audited"
            );
        }
        Ok(())
    }

    /// What the answer says about the lag.
    fn answered<'a>(
        &self,
        taken: &'a Taken,
        round: &Round,
        case: &Case,
        judged: &Judged,
        seen: Option<&Seen>,
        earlier: &'a Value,
    ) -> Answered<'a> {
        let found = matches!(judged.verdict, Verdict::Found { .. } | Verdict::Duplicate { .. });
        let invisible = seen == Some(&Seen::Nothing) && !judged.as_earlier().error;
        let asked_at = round.asked_at();
        Answered {
            intent_id: taken.intent_id,
            generation: &taken.generation,
            worker: self.sending.worker,
            earlier,
            invisible_for: (invisible && taken.kind == "sample").then(|| seconds(taken.sent_until, asked_at)),
            visible_after: (found && measures(taken, round.rules.lag, asked_at))
                .then(|| seconds(taken.sent_until, case.intent.now)),
            next: Ok(asked_at),
            now: case.intent.now,
        }
    }

    /// The journal row. An effect that the fold did not know is evidence, and moves the intent where it must.
    async fn tell(
        &self,
        conn: &mut PgConnection,
        case: &Case,
        taken: &Taken,
        round: &Round,
        judged: &Judged,
    ) -> Result<(), StoreError> {
        let policy = self.sending.fleet.policy(&case.intent.destination);
        let data = told(round, &taken.generation, judged);
        let news = self.is_news(case, taken, &data);
        let actor = self.actor();
        let entry = Entry {
            intent_id: Some(case.intent.id),
            at: self.sending.clock.sql_now(),
            kind: if news { "look_up" } else { "audit" },
            attempt: Some(taken.attempt),
            actor: &actor,
            data,
        };
        store::journal::append(conn, &entry).await?;
        if !news {
            return Ok(());
        }
        let Some(case) = Case::lock(conn, case.intent.id, self.sending.clock.sql_now()).await? else { return Ok(()) };
        let mut cause = Cause::of(&actor);
        cause.appended = 1;
        cause.detail = Some(words(&judged.verdict));
        let moved = settle(conn, &case, &policy, &cause).await?;
        moved.count(&self.sending.metrics, <super::Auditor as Step>::NAME);
        Ok(())
    }

    /// It shows an effect that changes what the fold says.
    fn is_news(&self, case: &Case, taken: &Taken, data: &Value) -> bool {
        let Ok(told) = serde_json::from_value::<LookUpTold>(data.clone()) else { return false };
        if !matches!(told.verdict, Verdict::Found { .. } | Verdict::Duplicate { .. }) {
            return false;
        }
        let policy = self.sending.fleet.policy(&case.intent.destination);
        let before = case.fold(&policy);
        let after = case.fold_with(&policy, (taken.attempt, told));
        (before.state, before.duplicate) != (after.state, after.duplicate)
    }

    /// Marks and people.
    async fn over(&self, conn: &mut PgConnection, case: &Case, end: End, judged: &Judged) -> Result<(), StoreError> {
        let intent = &case.intent;
        match end {
            // The fold has marked a duplicate, and told people.
            End::One | End::Several | End::None | End::NotAsked => Ok(()),
            End::Unexplained => {
                let summary = format!(
                    "{} shows something under {} that no row explains: {}",
                    intent.destination,
                    intent.reference.to_uppercase(),
                    words(&judged.verdict)
                );
                let (name, tenant) = (&intent.destination, &intent.tenant);
                let beside = json!({ "beside": intent.id });
                store::escalations::raise_sighting(conn, name, tenant, &summary, &beside, Some(intent.now)).await?;
                Ok(())
            }
            End::NotVisible => self.missing(conn, case, judged).await,
        }
    }

    async fn missing(&self, conn: &mut PgConnection, case: &Case, judged: &Judged) -> Result<(), StoreError> {
        let (intent, actor) = (&case.intent, self.actor());
        store::intents::mark(conn, intent.id, Reason::SentNotVisible.as_str(), &actor, intent.now).await?;
        let (name, reference) = (&intent.destination, intent.reference.to_uppercase());
        let summary = format!(
            "{reference} to {name} was answered as sent and is not visible downstream: {}",
            words(&judged.verdict)
        );
        let detail = serde_json::json!({ "attempt": intent.attempt });
        store::escalations::raise(conn, intent.id, Reason::SentNotVisible, &summary, &detail, intent.now).await?;
        let missing = store::audits::missing(conn, name, MISSING_WITHIN.as_secs_f64(), intent.now).await?;
        if missing.len() < PARK_AFTER {
            return Ok(());
        }
        store::audits::counted(conn, name, intent.now).await?;
        let why = format!(
            "{} sends of the last hour were answered as sent and are not visible: {}",
            missing.len(),
            missing.join(", ").to_uppercase()
        );
        if store::generations::park(conn, name, &why).await? {
            let summary = format!("{name} is parked: {why}");
            store::escalations::raise_destination(conn, name, Reason::DestinationParked, &summary).await?;
            tracing::warn!(destination = %name, missing = missing.len(), "parked: what it says it has is not there");
        }
        Ok(())
    }

    /// It cannot be found out any more.
    pub(super) async fn give_up(&self, name: &str, taken: &Taken) -> Result<(), StoreError> {
        let mut conn = self.sending.pool.acquire().await?;
        let now = store::audits::now(&mut conn, self.sending.clock.sql_now()).await?;
        let answered = Answered {
            intent_id: taken.intent_id,
            generation: &taken.generation,
            worker: self.sending.worker,
            earlier: &taken.earlier,
            invisible_for: None,
            visible_after: None,
            next: Err(End::NotAsked.as_str()),
            now,
        };
        if store::audits::answered(&mut conn, &answered).await? {
            self.sending.metrics.audited(name, End::NotAsked.as_str());
        }
        Ok(())
    }
}
