//! failed, … → pending: *send again*, when the moment in which it could be stopped has gone by.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};

use super::{
    fleet::Fleet,
    folding::{ActTold, Case, Cause, Moved, settle},
    runner::{Progress, Step},
};
use crate::{
    clock::Clock,
    domain::{evidence::Statement, outcome::Outcome, reason::Reason, state::State},
    failpoint::failpoint,
    store::{self, error::StoreError, escalations::DueDecision, journal::Entry},
    telemetry::metrics::Metrics,
};

/// At most so many in one step.
const BATCH: i64 = 100;

/// What a person said with *send again*.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SendAgain {
    /// A new deadline; needed where the old one passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
}

/// The loop.
pub struct Decider {
    /// The ledger.
    pub pool: PgPool,
    /// Policies.
    pub fleet: Arc<Fleet>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Decider {
    /// Applies one decision. False: somebody stopped or applied it meanwhile.
    async fn bind(&self, decision: &DueDecision) -> Result<bool, StoreError> {
        let at = self.clock.sql_now();
        let mut tx = store::begin_durable(&self.pool).await?;
        // The intent before the decision, as whoever stops one does.
        let Some(case) = Case::lock(&mut tx, decision.intent_id, at).await? else { return Ok(false) };
        if !store::escalations::still_due(&mut tx, decision.id).await? {
            return Ok(false);
        }
        let (result, moved) = apply(&mut tx, decision, case, &self.fleet, at).await?;
        failpoint!("decide-before-commit");
        tx.commit().await?;
        if let Some(moved) = moved {
            moved.count(&self.metrics, "person");
        }
        tracing::info!(intent.id = %decision.intent_id, actor = %decision.actor, result = %result, "send again");
        Ok(true)
    }
}

impl Step for Decider {
    const NAME: &'static str = "decider";

    async fn step(&mut self) -> Result<Progress, StoreError> {
        let mut conn = self.pool.acquire().await?;
        let due = store::escalations::decisions_due(&mut conn, self.clock.sql_now(), BATCH).await?;
        drop(conn);
        let mut applied = 0;
        // One decision, one transaction: a decision that cannot be applied must not take others with it.
        for decision in due {
            match self.bind(&decision).await {
                Ok(bound) => applied += usize::from(bound),
                Err(error) if error.is_transient() => {}
                Err(error) if error.spares_others() => {
                    tracing::error!(intent.id = %decision.intent_id, actor = %decision.actor, %error, "decision not applied; it will be tried again");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(if applied == 0 { Progress::Idle } else { Progress::Worked(applied) })
    }
}

/// Why an intent cannot be sent again as it stands; `None` when it can.
///
/// # Errors
/// When Postgres does.
pub async fn hindrance(conn: &mut PgConnection, case: &Case, wish: &SendAgain) -> Result<Option<String>, StoreError> {
    match case.intent.state {
        State::Failed | State::Cancelled => {}
        State::Held | State::Pending | State::InFlight | State::Sent | State::Unknown | State::Abandoned => {
            return Ok(Some(format!("the intent is {}", case.intent.state.as_str())));
        }
    }
    if let Some(holder) = store::intents::holder_of(conn, &case.intent).await? {
        return Ok(Some(format!("re-requested as {holder}")));
    }
    if store::intents::payload(conn, case.intent.id).await?.is_none() {
        return Ok(Some("the payload has been purged".to_owned()));
    }
    let deadline = wish.deadline.or(case.intent.deadline);
    if deadline.is_some_and(|deadline| deadline <= case.intent.now) {
        return Ok(Some("the deadline has passed; a new one is needed".to_owned()));
    }
    Ok(None)
}

async fn apply(
    conn: &mut PgConnection,
    decision: &DueDecision,
    case: Case,
    fleet: &Fleet,
    at: Option<DateTime<Utc>>,
) -> Result<(String, Option<Moved>), StoreError> {
    let wish: SendAgain = serde_json::from_value(decision.detail.clone()).unwrap_or_default();
    let now = case.intent.now;
    if let Some(why) = hindrance(conn, &case, &wish).await? {
        store::escalations::decision_applied(conn, decision.id, &why, now).await?;
        return Ok((why, None));
    }
    // After a hard-negative end the same key would only bring the stored refusal back; after doubt it must stay.
    let lost = case.lost.is_some() || case.intent.marks.iter().any(|mark| mark == "history_lost");
    let hard_negative =
        !lost && case.attempts.iter().all(|a| a.attempt.outcome.as_ref().is_some_and(Outcome::is_hard_negative));
    let deadline = wish.deadline.or(case.intent.deadline);
    store::intents::reopen(conn, case.intent.id, deadline, hard_negative && !case.attempts.is_empty()).await?;
    let told = ActTold {
        act: "send_again_applied".to_owned(),
        statement: Some(Statement::SendAgain { upto: case.intent.attempt }),
        reason: Some(decision.reason.clone()),
        ..ActTold::default()
    };
    let entry = Entry {
        intent_id: Some(case.intent.id),
        at,
        kind: "act",
        attempt: Some(case.intent.attempt),
        actor: &decision.actor,
        data: serde_json::to_value(told).unwrap_or_default(),
    };
    store::journal::append(conn, &entry).await?;
    let Some(case) = Case::lock(conn, decision.intent_id, at).await? else {
        return Ok(("gone".to_owned(), None));
    };
    let mut cause = Cause::of(&decision.actor);
    cause.appended = 1;
    let policy = fleet.policy(&case.intent.destination);
    let moved = settle(conn, &case, &policy, &cause).await?;
    let result = format!("the intent is {}", moved.folded.state.as_str());
    let answered = [Reason::AttemptsExhausted.as_str().to_owned()];
    store::escalations::close(conn, case.intent.id, &answered, &decision.actor, "sent again", now).await?;
    store::escalations::decision_applied(conn, decision.id, &result, now).await?;
    Ok((result, Some(moved)))
}
