//! The one way an intent moves: lock its row, read all evidence, fold, write. Every loop and every act ends here.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    fleet::Policy,
    placement, recognised,
    sightings::{Sighted, Status, last_word},
};
use crate::{
    domain::{
        evidence::{Attempt, AttemptKind, Statement, Verdict},
        failure_mode::FailureMode,
        outcome::{DoubtKind, Ended, Outcome},
        rewind::{LOST, LostAttempts},
        state::{self, Asked, Folded, History, Lost, State},
    },
    store::{
        self,
        attempts::AttemptRow,
        error::StoreError,
        intents::{Intent, Move},
        journal::Told,
    },
    telemetry::metrics::Metrics,
};

/// What a look-up leaves in the journal: the verdict and all that is needed to compute it again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LookUpTold {
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Start of the question, database clock.
    pub asked_at: DateTime<Utc>,
    /// The generation that was asked.
    pub generation: String,
    /// The listing that answered for many: the shared part of the record is there (`settled.whole_look_up`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<Uuid>,
    /// The subject was not there in a complete answer.
    pub nothing: bool,
    /// Something went wrong, so that equal answers start anew.
    pub error: bool,
    /// Everything else.
    pub record: Value,
}

/// What an act leaves in the journal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ActTold {
    /// The verb.
    pub act: String,
    /// What it states, where it states something the fold reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<Statement>,
    /// Journal id of the statement that it withdraws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retracts: Option<i64>,
    /// What it rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Version of the intent that was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<i64>,
    /// The escalation that it answered, where it came by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<Uuid>,
    /// The intent that undoes this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter_intent: Option<Uuid>,
    /// Until when, to whom, by which deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<Value>,
}

/// Evidence that came by itself or too late for its row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EvidenceTold {
    /// Fence of the attempt that it names.
    pub token: Option<Uuid>,
    /// What that attempt learned.
    pub ended: Ended,
    /// The downstream's report that it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sighting: Option<Sighted>,
}

/// An intent with everything the fold reads. The row is locked while it exists.
pub struct Case {
    /// The intent.
    pub intent: Intent,
    /// Its attempts; a late result of a lapsed attempt stands in for its doubt.
    pub attempts: Vec<AttemptRow>,
    /// Look-ups, in the order of their questions.
    pub look_ups: Vec<(i32, LookUpTold)>,
    /// Statements that were not withdrawn: journal id, who, what.
    pub statements: Vec<(i64, String, Statement)>,
    /// Effects seen for attempts that no row knows.
    pub sightings: Vec<Option<i32>>,
    /// What the downstream reported by itself, in the order of arrival.
    pub reports: Vec<Sighted>,
    /// Attempts that a rewind may have taken.
    pub lost: Option<LostCase>,
}

/// What the newest rewind may have taken from an intent.
pub struct LostCase {
    /// As it was told.
    pub told: LostAttempts,
    /// Stands for the lost attempts where one is asked about: number [`LOST`].
    row: AttemptRow,
    /// First look-up since.
    asked_from: usize,
    /// Its journal row: what people stated later is about it.
    told_at: i64,
}

impl LostCase {
    fn new(told: LostAttempts, asked_from: usize, told_at: i64) -> Self {
        let row = AttemptRow {
            attempt: Attempt {
                number: LOST,
                kind: AttemptKind::Send,
                outcome: Some(Outcome::Ambiguous { doubt: DoubtKind::HistoryLost }),
            },
            token: Uuid::nil(),
            worker: Uuid::nil(),
            generation: told.generation.clone(),
            claimed_at: told.lost_from,
            lease_until: told.lost_until,
            closure_at: Some(told.lost_until),
            replay_until: None,
            digest: None,
            ended: None,
        };
        Self { told, row, asked_from, told_at }
    }
}

impl Case {
    /// Locks and reads. `None` when there is no such intent.
    ///
    /// # Errors
    /// When Postgres does or a row is not readable.
    pub async fn lock(
        conn: &mut PgConnection,
        id: Uuid,
        at: Option<DateTime<Utc>>,
    ) -> Result<Option<Self>, StoreError> {
        let Some(intent) = store::intents::lock(conn, id, at).await? else { return Ok(None) };
        let attempts = store::attempts::of(conn, id).await?;
        let told = store::journal::evidence_of(conn, id).await?;
        let mut case = Self {
            intent,
            attempts,
            look_ups: Vec::new(),
            statements: Vec::new(),
            sightings: Vec::new(),
            reports: Vec::new(),
            lost: None,
        };
        case.read(told)?;
        Ok(Some(case))
    }

    fn read(&mut self, told: Vec<Told>) -> Result<(), StoreError> {
        let unreadable = |row: Uuid, e: &serde_json::Error| StoreError::Inconsistent {
            table: "journal",
            column: "data",
            row,
            why: e.to_string(),
        };
        let id = self.intent.id;
        for row in told {
            match row.kind.as_str() {
                "look_up" => {
                    let look_up = serde_json::from_value(row.data).map_err(|e| unreadable(id, &e))?;
                    self.look_ups.push((row.attempt.unwrap_or(0), look_up));
                }
                "act" => {
                    let act: ActTold = serde_json::from_value(row.data).map_err(|e| unreadable(id, &e))?;
                    if let Some(withdrawn) = act.retracts {
                        self.statements.retain(|(told_id, _, _)| *told_id != withdrawn);
                    }
                    if let Some(statement) = act.statement {
                        self.statements.push((row.id, row.actor, statement));
                    }
                }
                "evidence" => {
                    let evidence: EvidenceTold = serde_json::from_value(row.data).map_err(|e| unreadable(id, &e))?;
                    self.take_late(row.attempt, evidence);
                }
                "history" => {
                    let lost = serde_json::from_value(row.data).map_err(|e| unreadable(id, &e))?;
                    self.lost = Some(LostCase::new(lost, self.look_ups.len(), row.id));
                }
                other => {
                    return Err(StoreError::Inconsistent {
                        table: "journal",
                        column: "kind",
                        row: id,
                        why: other.to_owned(),
                    });
                }
            }
        }
        // Answers count as they were asked for: one that was slow to be written is no newer for it. A rewind stays between them.
        let rewound = self.lost.as_ref().map_or(0, |lost| lost.asked_from);
        let (before, since) = self.look_ups.split_at_mut(rewound);
        before.sort_by_key(|(_, told)| told.asked_at);
        since.sort_by_key(|(_, told)| told.asked_at);
        Ok(())
    }

    /// A late result says what its own attempt learned; for an attempt that no row knows only an effect counts.
    fn take_late(&mut self, number: Option<i32>, mut evidence: EvidenceTold) {
        self.reports.extend(evidence.sighting.take());
        let row =
            self.attempts.iter_mut().find(|a| Some(a.attempt.number) == number && Some(a.token) == evidence.token);
        match (row, &evidence.ended.outcome) {
            (Some(row), late) => {
                let lapsed = matches!(
                    row.attempt.outcome,
                    Some(Outcome::Ambiguous {
                        doubt: DoubtKind::LeaseExpired
                            | DoubtKind::WorkerDead
                            | DoubtKind::Interrupted
                            | DoubtKind::HistoryLost
                    })
                );
                if lapsed || matches!(late, Outcome::Sent { .. }) {
                    row.attempt.outcome = Some(late.clone());
                    row.ended = Some(evidence.ended);
                }
            }
            // After a rewind numbers are given out again: the result of a lost attempt is not that of its namesake. A report of
            // the downstream knows no token, and means the attempt of that number.
            (None, Outcome::Sent { .. }) => {
                let taken = evidence.token.is_some() && self.attempts.iter().any(|a| Some(a.attempt.number) == number);
                self.sightings.push(number.map(|number| if taken { -number } else { number }));
            }
            (None, Outcome::Refused { .. } | Outcome::NotSent { .. } | Outcome::Ambiguous { .. }) => {}
        }
    }

    /// Folds at `now`.
    pub fn fold_at(&self, policy: &Policy, now: DateTime<Utc>) -> Folded {
        self.fold_over(policy, now, None)
    }

    fn fold_over(&self, policy: &Policy, now: DateTime<Utc>, more: Option<&(i32, LookUpTold)>) -> Folded {
        let attempts: Vec<_> = self.attempts.iter().map(|a| a.attempt.clone()).collect();
        let newest_at = |at: DateTime<Utc>| {
            self.attempts.iter().filter(|a| a.claimed_at < at).map(|a| a.attempt.number).max().unwrap_or(0)
        };
        let asked: Vec<_> = self
            .look_ups
            .iter()
            .chain(more)
            .map(|(attempt, l)| Asked { attempt: *attempt, newest: newest_at(l.asked_at), verdict: l.verdict.clone() })
            .collect();
        let statements: Vec<_> = self.statements.iter().map(|(_, _, statement)| statement.clone()).collect();
        let lost = match &self.lost {
            None => Lost::Nothing,
            Some(lost) => Lost::Attempts {
                asked_from: lost.asked_from,
                stated_from: self.statements.iter().filter(|(told_at, _, _)| *told_at < lost.told_at).count(),
            },
        };
        let history = History {
            attempts: &attempts,
            asked: &asked,
            sightings: &self.sightings,
            statements: &statements,
            lost,
            in_doubt: policy.in_doubt,
            needs_approval: !self.intent.approved,
            deadline_passed: self.intent.deadline.is_some_and(|deadline| deadline <= now),
            attempts_allowed: policy.attempts,
            now,
        };
        state::fold_from(self.intent.state, &history)
    }

    /// What the fold would say with one more answer about an attempt.
    pub fn fold_with(&self, policy: &Policy, more: (i32, LookUpTold)) -> Folded {
        self.fold_over(policy, self.intent.now, Some(&more))
    }

    /// Folds at the time the row was locked.
    pub fn fold(&self, policy: &Policy) -> Folded {
        self.fold_at(policy, self.intent.now)
    }

    /// An attempt by its number; [`LOST`] names what stands for those that a rewind may have taken.
    pub fn attempt(&self, number: i32) -> Option<&AttemptRow> {
        let lost = self.lost.iter().map(|lost| &lost.row);
        lost.chain(&self.attempts).find(|a| a.attempt.number == number)
    }

    /// Look-ups about an attempt, oldest first; about lost ones only those since the newest rewind.
    pub fn look_ups_about(&self, number: i32) -> impl Iterator<Item = &LookUpTold> {
        let since = self.lost.as_ref().filter(|_| number == LOST).map_or(0, |lost| lost.asked_from);
        self.look_ups.iter().skip(since).filter(move |(about, _)| *about == number).map(|(_, told)| told)
    }

    /// The report that says that it was returned, unless a newer one says that it arrived.
    pub fn returned(&self) -> Option<&Sighted> {
        last_word(&self.reports).filter(|report| report.status == Status::Failed)
    }

    /// The attempt that one effect is put down to: known by reply, else by asking, else the newest.
    pub fn effect_of(&self) -> Option<i32> {
        let by_reply = self.attempts.iter().find(|a| matches!(a.attempt.outcome, Some(Outcome::Sent { .. })));
        let by_asking = || {
            let found = |l: &LookUpTold| matches!(l.verdict, Verdict::Found { .. } | Verdict::Duplicate { .. });
            self.look_ups.iter().find(|(_, l)| found(l)).map(|(number, _)| *number)
        };
        let newest = || self.attempts.last().map(|a| a.attempt.number);
        by_reply.map(|a| a.attempt.number).or_else(by_asking).or_else(newest)
    }

    /// The downstream's name for the effect, as far as anybody learned it.
    pub fn provider_id(&self) -> Option<String> {
        let by_reply = self.attempts.iter().find_map(|a| match &a.attempt.outcome {
            Some(Outcome::Sent { provider_id }) => provider_id.clone(),
            Some(Outcome::Refused { .. } | Outcome::NotSent { .. } | Outcome::Ambiguous { .. }) | None => None,
        });
        let by_asking = || {
            self.look_ups.iter().find_map(|(_, l)| match &l.verdict {
                Verdict::Found { provider_id, .. } => provider_id.clone(),
                Verdict::Duplicate { provider_ids } => provider_ids.first().cloned(),
                Verdict::Absent { .. }
                | Verdict::AbsentByLag { .. }
                | Verdict::Conflict { .. }
                | Verdict::Inconclusive { .. } => None,
            })
        };
        let by_report = || self.reports.iter().find_map(|report| report.provider_id.clone());
        by_reply.or_else(by_asking).or_else(by_report)
    }
}

/// Why an intent is being moved, and what the mover knows about what comes next.
#[derive(Debug, Clone)]
pub struct Cause<'a> {
    /// Who, for the journal: `reaper@…`, `responder:ada`.
    pub actor: &'a str,
    /// Pieces of evidence this transaction appended.
    pub appended: i32,
    /// A form that people have open is stale now.
    pub new_version: bool,
    /// Not before, for a new attempt.
    pub not_before: Option<DateTime<Utc>>,
    /// Not before, for the next question.
    pub ask_at: Option<DateTime<Utc>>,
    /// A person waits for that question.
    pub urgent: bool,
    /// Asking has ended: horizon, generation that cannot be asked.
    pub asking_ended: Option<String>,
    /// One sentence for people.
    pub detail: Option<String>,
}

impl<'a> Cause<'a> {
    /// A cause with nothing but its actor.
    pub fn of(actor: &'a str) -> Self {
        Self {
            actor,
            appended: 0,
            new_version: true,
            not_before: None,
            ask_at: None,
            urgent: false,
            asking_ended: None,
            detail: None,
        }
    }
}

/// What a move did.
#[derive(Debug, Clone)]
pub struct Moved {
    /// Before.
    pub from: State,
    /// After.
    pub folded: Folded,
    /// Failure modes that it met and contained.
    pub met: Vec<FailureMode>,
}

impl Moved {
    /// Counts the move, once its transaction is committed; `by` is a loop or `person`. Staying is no move.
    pub fn count(&self, metrics: &Metrics, by: &str) {
        if self.from != self.folded.state {
            metrics.moved(self.folded.state.as_str(), by);
        }
        for mode in &self.met {
            metrics.failure_mode(*mode);
        }
    }
}

/// Folds a locked case and writes what follows: the intent, its queue row, its escalations.
///
/// # Errors
/// [`StoreError::Moved`] when a guard failed; the caller rolls back and starts again.
pub async fn settle(
    conn: &mut PgConnection,
    case: &Case,
    policy: &Policy,
    cause: &Cause<'_>,
) -> Result<Moved, StoreError> {
    let folded = case.fold(policy);
    let from = case.intent.state;
    let marks = placement::marks(case, &folded);
    let provider_id = case.provider_id();
    let holds_effect = holds_effect(conn, case, &folded).await?;
    let changed = from != folded.state
        || case.intent.holds_effect != holds_effect
        || marks != case.intent.marks
        || cause.appended > 0
        || cause.detail.is_some();
    if changed {
        let approved = case.intent.approved || case.statements.iter().any(|(_, _, s)| *s == Statement::Approved);
        store::intents::write_move(
            conn,
            &Move {
                from: &case.intent,
                state: folded.state,
                holds_effect,
                approved,
                appended: cause.appended,
                new_version: cause.new_version,
                provider_id: provider_id.as_deref(),
                detail: cause.detail.as_deref(),
                marks: &marks,
                actor: cause.actor,
                story: json!({ "doubtful": folded.doubtful, "end": folded.end, "detail": cause.detail }),
            },
        )
        .await?;
    }
    placement::queue(conn, case, &folded, policy, cause).await?;
    placement::escalate(conn, case, &folded, policy, cause).await?;
    placement::audit(conn, case, &folded, policy).await?;
    let met = recognised::met(case, &folded, &marks, cause);
    Ok(Moved { from, folded, met })
}

/// The column after the move. An effect that was seen is written whoever holds it by now.
async fn holds_effect(conn: &mut PgConnection, case: &Case, folded: &Folded) -> Result<bool, StoreError> {
    let holder = match case.intent.holds_effect {
        true => None,
        false => store::intents::holder_of(conn, &case.intent).await?,
    };
    match (state::holds_after(folded, case.intent.holds_effect, holder.is_some()), holder) {
        (Some(holds), _) => Ok(holds),
        (None, Some(holder)) => Err(StoreError::ReRequested { row: case.intent.id, holder }),
        (None, None) => Ok(case.intent.holds_effect),
    }
}

/// A wait in database time.
pub fn after(now: DateTime<Utc>, wait: std::time::Duration) -> DateTime<Utc> {
    now + TimeDelta::from_std(wait).unwrap_or(TimeDelta::days(3650))
}
