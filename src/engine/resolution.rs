//! What people state and decide: every act on an intent or an escalation.
//!
//! Called by the surfaces of people, never by those of producers. What must hold: one act is one transaction with one journal
//! row; whoever decides has seen the newest version; the same act by the same person twice is one act; while an attempt is
//! open nothing is decided. What follows from a statement is the fold's to say, not ours.

mod counter;
mod decision;
mod handling;
mod repeated;
mod suggestion;
mod verbs;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgPool;
use uuid::Uuid;

pub use suggestion::{Asking, Suggestion, asking, suggest};
pub use verbs::{Act, HOLD, VERBS, Words};

use super::fleet::Fleet;
use crate::{
    clock::Clock,
    store::{
        self,
        error::StoreError,
        escalations::reading::{self, Escalation},
        tokens::{Kind, Principal},
    },
};

/// 40001, 40P01 and a row that moved under us pass after a few rounds.
const ROUNDS: u32 = 5;

/// While an attempt is open nothing is decided: its end could make any decision wrong.
const IN_FLIGHT: &str = "an attempt is open; wait for its end (comment, claim, snooze, assign and pause are possible)";

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Whose token it is.
    pub principal: String,
    /// What the token may do.
    pub kind: Kind,
    /// The only tenant that this person sees; `None` for all.
    pub tenant: Option<String>,
}

impl From<&Principal> for Person {
    fn from(caller: &Principal) -> Self {
        Self { principal: caller.name.clone(), kind: caller.kind, tenant: caller.tenant.clone() }
    }
}

impl Person {
    /// As it stands in the journal: `responder:ada`.
    pub fn actor(&self) -> String {
        format!("{}:{}", self.kind.as_str(), self.principal)
    }

    fn may_see(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|own| own == tenant)
    }

    /// Producers and metrics readers can never decide; destinations belong to admins of the whole house.
    fn may(&self, act: &Act) -> Result<(), ActError> {
        match self.kind {
            Kind::Producer | Kind::Metrics | Kind::Downstream => {
                Err(ActError::Forbidden(format!("a {} token can never decide", self.kind.as_str())))
            }
            Kind::Responder if matches!(act, Act::Unpark { .. }) => {
                Err(ActError::Forbidden("only an admin may un-park a destination".to_owned()))
            }
            Kind::Admin if matches!(act, Act::Unpark { .. }) && self.tenant.is_some() => {
                Err(ActError::Forbidden("only an admin of all tenants may un-park a destination".to_owned()))
            }
            Kind::Responder | Kind::Admin => Ok(()),
        }
    }
}

/// What is acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// An intent, escalated or not.
    Intent(Uuid),
    /// An escalation, or the intent that it is about.
    Escalation(Uuid),
}

/// What an act has led to.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Resolved {
    /// The verb.
    pub act: &'static str,
    /// It had been done before by the same person; nothing was done now.
    pub repeated: bool,
    /// The intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent_id: Option<Uuid>,
    /// Its state now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::domain::state::State>)]
    pub state: Option<&'static str>,
    /// Its version now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// Whether nobody else may ask for its effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds_effect: Option<bool>,
    /// The escalation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalation_id: Option<Uuid>,
    /// Version of the escalation now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalation_version: Option<i64>,
    /// Row of the journal that tells of it; what `retract` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal_id: Option<i64>,
    /// The intent that undoes this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter_intent: Option<Uuid>,
    /// It binds from then on, and can be stopped before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binds_at: Option<DateTime<Utc>>,
    /// In words.
    pub words: String,
    /// It moved the intent.
    #[serde(skip)]
    pub moved: bool,
}

/// Why an act was not taken. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// This caller can never do this.
    #[error("{0}")]
    Forbidden(String),
    /// Not there, or not for this person.
    #[error("there is no such {0} that this person may see")]
    NotFound(&'static str),
    /// Something must be given.
    #[error("{field}: {rule}")]
    Incomplete {
        /// What.
        field: &'static str,
        /// The rule.
        rule: String,
    },
    /// Not as things stand.
    #[error("{0}")]
    NotPossible(String),
    /// Somebody else acted meanwhile.
    #[error("{who} was faster: {what}")]
    Stale {
        /// Who.
        who: String,
        /// What.
        what: String,
        /// When, where it is known.
        when: Option<DateTime<Utc>>,
        /// The version now.
        version: i64,
    },
    /// The effect belongs to another intent by now.
    #[error("re-requested as {intent}")]
    ReRequested {
        /// That one.
        intent: Uuid,
    },
    /// The database.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ActError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::ReRequested { holder, .. } => Self::ReRequested { intent: holder },
            StoreError::Database(_) | StoreError::Inconsistent { .. } | StoreError::Moved { .. } => Self::Store(error),
        }
    }
}

impl From<sqlx::Error> for ActError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl ActError {
    fn missing(field: &'static str, rule: impl Into<String>) -> Self {
        Self::Incomplete { field, rule: rule.into() }
    }

    fn lost_effect(&self) -> bool {
        matches!(self, Self::Store(StoreError::Database(sqlx::Error::Database(e))) if e.constraint() == Some("intents_effect"))
    }

    fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_transient())
    }
}

/// Takes one act of one person. `expected` is the version that the person saw: of the escalation for claim, release, take
/// over, snooze, assign, acknowledge and un-park, of the intent for everything else.
///
/// # Errors
/// [`ActError`]; nothing was written then.
pub async fn act(
    pool: &PgPool,
    fleet: &Fleet,
    clock: &dyn Clock,
    person: &Person,
    target: Target,
    act: &Act,
    expected: Option<i64>,
) -> Result<Resolved, ActError> {
    person.may(act)?;
    let actor = person.actor();
    let mut round = 1;
    let resolved = loop {
        let call = Call { fleet, at: clock.sql_now(), person, actor: &actor, target, act, expected };
        match call.once(pool).await {
            Err(error) if error.is_transient() && round < ROUNDS => round += 1,
            Err(error) if error.lost_effect() => return Err(call.taken(pool).await?),
            other => break other?,
        }
    };
    tracing::info!(
        act = resolved.act,
        actor = %actor,
        intent.id = resolved.intent_id.map(tracing::field::display),
        escalation.id = resolved.escalation_id.map(tracing::field::display),
        state = resolved.state,
        repeated = resolved.repeated,
        "act"
    );
    Ok(resolved)
}

/// One act under way.
struct Call<'a> {
    fleet: &'a Fleet,
    at: Option<DateTime<Utc>>,
    person: &'a Person,
    actor: &'a str,
    target: Target,
    act: &'a Act,
    expected: Option<i64>,
}

impl Call<'_> {
    async fn once(&self, pool: &PgPool) -> Result<Resolved, ActError> {
        let mut tx = store::begin_durable(pool).await?;
        let escalation = match self.target {
            Target::Intent(_) => None,
            Target::Escalation(id) => {
                let found = reading::get(&mut tx, id, self.person.tenant.as_deref()).await?;
                Some(found.ok_or(ActError::NotFound("escalation"))?)
            }
        };
        let resolved = if self.act.handles() {
            let escalation = escalation.ok_or_else(|| {
                ActError::NotPossible(format!("{} is for an escalation, not for an intent", self.act.verb()))
            })?;
            handling::handle(&mut tx, self, escalation).await?
        } else {
            let intent_id = self.intent_of(escalation.as_ref())?;
            decision::decide(&mut tx, self, intent_id, escalation).await?
        };
        tx.commit().await?;
        Ok(resolved)
    }

    fn intent_of(&self, escalation: Option<&Escalation>) -> Result<Uuid, ActError> {
        match (self.target, escalation) {
            (Target::Intent(id), _) => Ok(id),
            (Target::Escalation(_), Some(Escalation { intent_id: Some(id), .. })) => Ok(*id),
            (Target::Escalation(_), _) => {
                Err(ActError::NotPossible(format!("{} is for intents; this one is about none", self.act.verb())))
            }
        }
    }

    /// Who holds the effect that this intent would need.
    async fn taken(&self, pool: &PgPool) -> Result<ActError, ActError> {
        let mut tx = pool.begin().await?;
        let escalation = match self.target {
            Target::Intent(_) => None,
            Target::Escalation(id) => reading::get(&mut tx, id, None).await?,
        };
        let id = self.intent_of(escalation.as_ref())?;
        let Some(intent) = store::intents::lock(&mut tx, id, self.at).await? else {
            return Ok(ActError::NotFound("intent"));
        };
        Ok(match store::intents::holder_of(&mut tx, &intent).await? {
            Some(holder) => ActError::ReRequested { intent: holder },
            None => ActError::NotPossible("the effect has just been given up; act again".to_owned()),
        })
    }
}
