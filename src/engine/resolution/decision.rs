//! Statements and decisions about an intent: under the lock of its row, on its newest version, once.

use chrono::TimeDelta;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Act, ActError, Call, HOLD, IN_FLIGHT, Resolved, counter, handling,
    repeated::{Recent, append},
};
use crate::{
    domain::{
        evidence::Statement,
        outcome::{DoubtKind, Outcome},
        state::{Folded, State},
    },
    engine::{
        decider::{SendAgain, hindrance},
        fleet::Policy,
        folding::{ActTold, Case, Cause, settle},
        placement,
    },
    store::{
        self,
        escalations::reading::{self, Escalation},
        requests::NewRequest,
        tokens::Kind,
    },
};

/// A decision that may be written: whoever made it may make it, has seen the newest version, and the intent allows it.
/// Made by [`HumanDecision::on`] alone, and spent by being written.
#[must_use = "a decision does nothing until it is written"]
struct HumanDecision {
    told: ActTold,
    follows: Follows,
}

/// What the act leads to.
enum Follows {
    /// The fold reads it and moves the intent.
    Fold {
        /// One sentence that producers may read too.
        detail: Option<&'static str>,
        /// An approval is withdrawn.
        holds_again: bool,
    },
    /// The counter-action is asked for, then the fold closes the intent.
    Counter(Box<NewRequest>),
    /// The next question is due now.
    Question,
    /// It binds later.
    Later(SendAgain, String),
    /// What would bind does not.
    Stop,
    /// Nothing but words.
    Words,
}

pub(super) async fn decide(
    conn: &mut PgConnection,
    call: &Call<'_>,
    intent_id: Uuid,
    escalation: Option<Escalation>,
) -> Result<Resolved, ActError> {
    let case = Case::lock(conn, intent_id, call.at).await?.ok_or(ActError::NotFound("intent"))?;
    if !call.person.may_see(&case.intent.tenant) {
        return Err(ActError::NotFound("intent"));
    }
    // Read anew under the lock: whoever was faster may have closed it.
    let escalation = match escalation {
        Some(seen) => reading::get(conn, seen.id, None).await?,
        None => None,
    };
    let recent = Recent::read(conn, intent_id).await?;
    let told = told(call, &case, escalation.as_ref());
    if let Some(row) = recent.same(call, &told) {
        let binds_at = matches!(call.act, Act::SendAgain { .. }).then(|| row.at + hold());
        let counter_intent = Recent::counter_intent(row);
        return Ok(Resolved { binds_at, counter_intent, ..resolved(call, &case, escalation.as_ref(), row.id, true) });
    }
    guard(conn, call, &case, &recent, escalation.as_ref()).await?;
    let policy = call.fleet.policy(&case.intent.destination);
    let decision = HumanDecision::on(conn, call, &case, &policy, told).await?;
    decision.write(conn, call, case, &policy, escalation.as_ref()).await
}

fn hold() -> TimeDelta {
    TimeDelta::from_std(HOLD).unwrap_or_default()
}

/// What holds for every act: the newest version, no open attempt, nobody else's claim.
async fn guard(
    conn: &mut PgConnection,
    call: &Call<'_>,
    case: &Case,
    recent: &Recent,
    escalation: Option<&Escalation>,
) -> Result<(), ActError> {
    let comment = matches!(call.act, Act::Comment { .. });
    if let Some(expected) = call.expected.filter(|expected| *expected != case.intent.version)
        && !comment
    {
        return Err(recent.since(expected, case.intent.version));
    }
    if comment {
        return Ok(());
    }
    if let Some(closed) = escalation.filter(|e| e.closed_at.is_some()) {
        return Err(handling::stale(closed, recent));
    }
    if case.attempts.iter().any(|a| a.attempt.outcome.is_none()) {
        return Err(ActError::NotPossible(IN_FLIGHT.to_owned()));
    }
    if !matches!(call.act, Act::Ask | Act::Stop { .. }) {
        for open in reading::open_of(conn, case.intent.id).await? {
            handling::not_another(call, &open, case.intent.now)?;
        }
    }
    Ok(())
}

/// The journal row of the act.
fn told(call: &Call<'_>, case: &Case, escalation: Option<&Escalation>) -> ActTold {
    let upto = case.intent.attempt;
    let mut told = ActTold {
        act: call.act.verb().to_owned(),
        on: Some(case.intent.version),
        escalation: escalation.map(|e| e.id),
        ..ActTold::default()
    };
    match call.act {
        Act::Sent { evidence } => {
            told.statement = Some(Statement::Sent);
            told.evidence = Some(evidence.clone());
        }
        Act::Absent { evidence } => {
            told.statement = Some(Statement::Absent { upto });
            told.evidence = Some(evidence.clone());
        }
        Act::Close { reason } => {
            told.statement = Some(Statement::Closed);
            told.reason = Some(reason.clone());
        }
        // Whether it happened stays unknown; what undoes it is on its way.
        Act::Compensate { reason } => {
            told.statement = Some(Statement::Closed);
            told.reason = Some(reason.clone());
        }
        Act::Cancel { reason } => {
            told.statement = Some(Statement::Cancelled);
            told.reason = Some(reason.clone());
        }
        Act::Approve { reason } => {
            told.statement = Some(Statement::Approved);
            told.reason.clone_from(reason);
        }
        Act::Reject { reason } => {
            told.statement = Some(Statement::Rejected);
            told.reason = Some(reason.clone());
        }
        Act::Retract { statement, reason } => {
            told.retracts = Some(*statement);
            told.reason = Some(reason.clone());
        }
        Act::SendAgain { reason, deadline, .. } => {
            told.reason = Some(reason.clone());
            told.more = deadline.map(|deadline| json!({ "deadline": deadline }));
        }
        Act::Comment { text } => told.reason = Some(text.clone()),
        Act::Stop { reason } => told.reason.clone_from(reason),
        Act::Ask
        | Act::Claim { .. }
        | Act::Release
        | Act::TakeOver { .. }
        | Act::Snooze { .. }
        | Act::Assign { .. }
        | Act::Acknowledge { .. }
        | Act::Unpark { .. } => {}
    }
    told
}

impl HumanDecision {
    /// What this act would be on this intent.
    async fn on(
        conn: &mut PgConnection,
        call: &Call<'_>,
        case: &Case,
        policy: &Policy,
        told: ActTold,
    ) -> Result<Self, ActError> {
        let state = case.intent.state;
        let folds = |detail| Follows::Fold { detail, holds_again: false };
        let follows = match call.act {
            Act::Sent { .. } => {
                refuse(state == State::Sent, "the intent is sent already")?;
                folds(Some("a person said that it was sent"))
            }
            Act::Absent { .. } => {
                absent_possible(case)?;
                folds(Some("a person said that it is absent"))
            }
            Act::Close { .. } => {
                refuse(
                    state != State::Unknown,
                    format!("only an unknown intent is closed; this one is {}", word(state)),
                )?;
                folds(Some("closed without knowing; it may have been sent"))
            }
            Act::Compensate { reason } => {
                refuse(
                    state != State::Unknown,
                    format!("only an unknown intent is compensated; this one is {}", word(state)),
                )?;
                Follows::Counter(Box::new(counter::request(conn, call, case, reason).await?))
            }
            Act::Cancel { .. } => {
                let possible = matches!(state, State::Held | State::Pending | State::Unknown);
                refuse(!possible, format!("the intent is {}", word(state)))?;
                folds(Some("cancelled by a person"))
            }
            Act::Approve { .. } | Act::Reject { .. } => {
                refuse(state != State::Held, format!("the intent is {}, nobody is asked", word(state)))?;
                let late = case.intent.deadline.is_some_and(|deadline| deadline <= case.intent.now);
                refuse(late && matches!(call.act, Act::Approve { .. }), "its deadline has passed")?;
                folds(None)
            }
            Act::Retract { statement, .. } => {
                let holds_again = retractable(conn, call, case, *statement).await?;
                Follows::Fold { detail: Some("a statement was withdrawn"), holds_again }
            }
            Act::SendAgain { reason, reference, deadline } => {
                let wish = send_again_possible(conn, case, reference, *deadline).await?;
                Follows::Later(wish, reason.clone())
            }
            Act::Stop { .. } => Follows::Stop,
            Act::Ask => {
                question_possible(case, policy)?;
                Follows::Question
            }
            Act::Comment { .. } => Follows::Words,
            Act::Claim { .. }
            | Act::Release
            | Act::TakeOver { .. }
            | Act::Snooze { .. }
            | Act::Assign { .. }
            | Act::Acknowledge { .. }
            | Act::Unpark { .. } => {
                return Err(ActError::NotPossible(format!("{} is for an escalation", call.act.verb())));
            }
        };
        Ok(Self { told, follows })
    }

    /// Writes it and what follows.
    async fn write(
        mut self,
        conn: &mut PgConnection,
        call: &Call<'_>,
        case: Case,
        policy: &Policy,
        escalation: Option<&Escalation>,
    ) -> Result<Resolved, ActError> {
        let id = case.intent.id;
        let mut counter_intent = None;
        if let Follows::Counter(request) = &self.follows {
            let counter = counter::enqueue(conn, request).await?;
            let there = ActTold {
                act: call.act.verb().to_owned(),
                reason: self.told.reason.clone(),
                more: Some(json!({ "compensates": id })),
                ..ActTold::default()
            };
            append(conn, call, Some(counter), None, &there).await?;
            counter_intent = Some(counter);
            self.told.counter_intent = counter_intent;
        }
        let row = append(conn, call, Some(id), Some(case.intent.attempt), &self.told).await?;
        let mut binds_at = None;
        let from = case.intent.state;
        match self.follows {
            Follows::Fold { detail, holds_again } => {
                let mut case = Case::lock(conn, id, call.at).await?.ok_or(ActError::NotFound("intent"))?;
                case.intent.approved &= !holds_again;
                let mut cause = Cause::of(call.actor);
                cause.appended = 1;
                cause.detail = detail.map(str::to_owned);
                settle(conn, &case, policy, &cause).await?;
            }
            Follows::Counter(request) => {
                let case = Case::lock(conn, id, call.at).await?.ok_or(ActError::NotFound("intent"))?;
                let mut cause = Cause::of(call.actor);
                cause.appended = 1;
                cause.detail = counter_intent.map(|counter| {
                    let (name, to) = (&request.reference, &request.destination);
                    format!("closed without knowing; compensated by {name} to {to}, intent {counter}")
                });
                settle(conn, &case, policy, &cause).await?;
            }
            Follows::Question => {
                let mut cause = Cause::of(call.actor);
                cause.ask_at = Some(case.intent.now);
                cause.urgent = true;
                settle(conn, &case, policy, &cause).await?;
            }
            Follows::Later(wish, reason) => {
                let (now, at) = (case.intent.now, case.intent.now + hold());
                let detail = serde_json::to_value(&wish).unwrap_or_default();
                store::escalations::decide(conn, id, call.actor, &reason, &detail, now, at).await?;
                store::intents::touch(conn, id, case.intent.version).await?;
                binds_at = Some(at);
            }
            Follows::Stop => {
                if !store::escalations::stop_decision(conn, id, call.actor, case.intent.now).await? {
                    return Err(ActError::NotPossible("nothing is about to be sent again".to_owned()));
                }
                store::intents::touch(conn, id, case.intent.version).await?;
            }
            Follows::Words => store::intents::touch(conn, id, case.intent.version).await?,
        }
        let case = Case::lock(conn, id, call.at).await?.ok_or(ActError::NotFound("intent"))?;
        let moved = case.intent.state != from;
        if binds_at.is_some() {
            let done = resolved(call, &case, escalation, row, false);
            let words = format!("the intent is {} and will be sent again", word(case.intent.state));
            return Ok(Resolved { binds_at, moved, words, ..done });
        }
        Ok(Resolved { binds_at, counter_intent, moved, ..resolved(call, &case, escalation, row, false) })
    }
}

fn refuse(when: bool, words: impl Into<String>) -> Result<(), ActError> {
    if when { Err(ActError::NotPossible(words.into())) } else { Ok(()) }
}

fn word(state: State) -> &'static str {
    state.as_str()
}

/// Somebody must doubt it, or it must still hold its effect after its end.
fn absent_possible(case: &Case) -> Result<(), ActError> {
    // The daemon behind a silent worker may be frozen, not dead: until its lease ends it could still write.
    let awake = case.attempts.iter().find(|a| {
        matches!(a.attempt.outcome, Some(Outcome::Ambiguous { doubt: DoubtKind::WorkerDead }))
            && a.lease_until > case.intent.now
    });
    if let Some(attempt) = awake {
        let until = attempt.lease_until.format("%F %T UTC");
        return refuse(true, format!("attempt {} could still be sent until {until}", attempt.attempt.number));
    }
    match case.intent.state {
        State::Unknown | State::Abandoned => Ok(()),
        State::Failed | State::Cancelled => refuse(
            !case.intent.holds_effect,
            format!("the intent is {} and its effect is free already", word(case.intent.state)),
        ),
        state @ (State::Held | State::Pending | State::InFlight) => {
            refuse(true, format!("the intent is {}; cancel it if it must not be sent", word(state)))
        }
        State::Sent => refuse(true, "the intent is sent; an absence said now would change nothing (evidence wins)"),
    }
}

fn question_possible(case: &Case, policy: &Policy) -> Result<(), ActError> {
    let state = case.intent.state;
    refuse(
        !matches!(state, State::Unknown | State::Abandoned),
        format!("the intent is {}, nothing is in doubt", word(state)),
    )?;
    let folded: Folded = case.fold(policy);
    refuse(
        !placement::can_be_asked(case, &folded, policy),
        format!("{} cannot be asked (any more) about it", case.intent.destination),
    )
}

/// A refusal that is clear at once; the same is looked at again when the decision binds.
async fn send_again_possible(
    conn: &mut PgConnection,
    case: &Case,
    reference: &str,
    deadline: Option<chrono::DateTime<chrono::Utc>>,
) -> Result<SendAgain, ActError> {
    let now = case.intent.now;
    if reference.to_ascii_lowercase() != case.intent.reference {
        return Err(ActError::missing("reference", "must be the reference of the intent"));
    }
    if deadline.is_some_and(|deadline| deadline <= now + hold()) {
        return Err(ActError::missing("deadline", "must be in the future"));
    }
    let state = case.intent.state;
    if matches!(state, State::Unknown | State::Abandoned) {
        return Err(ActError::NotPossible(format!(
            "the intent is {}: say first that it is absent, with evidence; sending again is decided after that",
            word(state)
        )));
    }
    if let Some(open) = store::escalations::open_decision(conn, case.intent.id).await? {
        return Err(ActError::Stale {
            who: open.actor,
            what: format!("decided to send it again: {}", open.reason),
            when: None,
            version: case.intent.version,
        });
    }
    if let Some(holder) = store::intents::holder_of(conn, &case.intent).await? {
        return Err(ActError::ReRequested { intent: holder });
    }
    let ended = matches!(state, State::Failed | State::Cancelled);
    if ended && deadline.is_none() && case.intent.deadline.is_some_and(|old| old <= now + hold()) {
        return Err(ActError::missing("deadline", "must be given, since the old one has passed"));
    }
    let wish = SendAgain { deadline };
    match hindrance(conn, case, &wish).await? {
        Some(why) => Err(ActError::NotPossible(why)),
        None => Ok(wish),
    }
}

/// One's own statement, or an admin anybody's; never what a machine saw or a producer withdrew. True where it was an approval.
async fn retractable(conn: &mut PgConnection, call: &Call<'_>, case: &Case, statement: i64) -> Result<bool, ActError> {
    let Some(row) = store::journal::row(conn, case.intent.id, statement).await? else {
        return Err(ActError::missing("statement", "must be the journal id of a statement about this intent"));
    };
    refuse(row.kind != "act", "machine evidence cannot be withdrawn")?;
    let Some((_, author, stated)) = case.statements.iter().find(|(id, _, _)| *id == statement) else {
        return refuse(true, "it states nothing, or has been withdrawn").map(|()| false);
    };
    refuse(author.starts_with("producer:"), "what a producer withdrew is asked for anew, not brought back")?;
    if author != call.actor && call.person.kind != Kind::Admin {
        return Err(ActError::Forbidden(format!("{author} said so; only they or an admin may withdraw it")));
    }
    let attempted_since = |upto: i32| refuse(case.intent.attempt > upto, "an attempt was made because of it");
    match stated {
        Statement::Approved => attempted_since(row.attempt.unwrap_or(0)).map(|()| true),
        Statement::SendAgain { upto } => attempted_since(*upto).map(|()| false),
        Statement::Sent | Statement::Absent { .. } | Statement::Closed | Statement::Cancelled | Statement::Rejected => {
            Ok(false)
        }
    }
}

fn resolved(call: &Call<'_>, case: &Case, escalation: Option<&Escalation>, row: i64, repeated: bool) -> Resolved {
    let intent = &case.intent;
    let effect =
        if intent.holds_effect { "" } else { "; its effect is free, the same reference may be asked for anew" };
    Resolved {
        act: call.act.verb(),
        repeated,
        intent_id: Some(intent.id),
        state: Some(word(intent.state)),
        version: Some(intent.version),
        holds_effect: Some(intent.holds_effect),
        escalation_id: escalation.map(|e| e.id),
        escalation_version: None,
        journal_id: Some(row),
        counter_intent: None,
        binds_at: None,
        words: format!("the intent is {}{effect}", word(intent.state)),
        moved: false,
    }
}
