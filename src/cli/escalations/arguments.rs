//! `settled escalations …` as it may be written.

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use uuid::Uuid;

use super::super::arguments::Api;

/// What a person does with what waits for people.
#[derive(Debug, Subcommand)]
pub enum Escalations {
    /// What waits for a person, newest first
    List(List),
    /// Everything one decides from: what happened, what asking said, what each mistake costs, what to do
    Show {
        /// Escalation id
        id: Uuid,
        /// Where the API is
        #[command(flatten)]
        api: Api,
    },
    /// I take care of it
    Claim {
        /// Which
        #[command(flatten)]
        on: On,
        /// So long [default: 30m]
        #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
        span: Option<std::time::Duration>,
    },
    /// I no longer take care of it
    Release {
        /// Which
        #[command(flatten)]
        on: On,
    },
    /// I take care of it instead of whoever has claimed it
    TakeOver {
        /// Which
        #[command(flatten)]
        on: On,
        /// So long [default: 30m]
        #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
        span: Option<std::time::Duration>,
    },
    /// Ask the downstream now
    Ask {
        /// Which
        #[command(flatten)]
        on: On,
    },
    /// It was sent: a fact, with what it rests on
    Sent {
        /// Which
        #[command(flatten)]
        on: On,
        /// What was seen, and where
        #[arg(long)]
        evidence: String,
    },
    /// It is absent: a fact, with what it rests on; nothing is sent by it
    Absent {
        /// Which
        #[command(flatten)]
        on: On,
        /// What was seen, and where
        #[arg(long)]
        evidence: String,
    },
    /// Send it again, in ten seconds; `stop` stops it
    SendAgain {
        /// Which
        #[command(flatten)]
        on: On,
        /// Why
        #[arg(long)]
        reason: String,
        /// The reference of the intent, typed again
        #[arg(long)]
        reference: String,
        /// A new deadline (RFC 3339); needed where the old one has passed
        #[arg(long)]
        deadline: Option<DateTime<Utc>>,
    },
    /// Stop what `send-again` began
    Stop {
        /// Which
        #[command(flatten)]
        on: On,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
    /// Close it without knowing; nobody else may ask for the effect
    Close(Reasoned),
    /// Ask for the declared counter-action as an intent of its own, and close this one without knowing
    Compensate(Reasoned),
    /// Withdraw it: cancelled where nothing was attempted, abandoned where it is in doubt
    Cancel(Reasoned),
    /// Withdraw a statement by its row in the journal
    Retract {
        /// Which
        #[command(flatten)]
        on: On,
        /// Journal id of the statement; `show` names it
        #[arg(long)]
        statement: i64,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Leave it out of the list for a while
    Snooze {
        /// Which
        #[command(flatten)]
        on: On,
        /// So long
        #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
        span: std::time::Duration,
    },
    /// A word for whoever comes next
    Comment {
        /// Which
        #[command(flatten)]
        on: On,
        /// The words
        text: String,
    },
    /// Somebody takes care of it
    Assign {
        /// Which
        #[command(flatten)]
        on: On,
        /// Whom, as in `responder:ada`
        to: String,
    },
    /// It may be sent
    Approve {
        /// Which
        #[command(flatten)]
        on: On,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
    /// It must not be sent
    Reject(Reasoned),
    /// I have seen what it reports, and this was done about it
    Acknowledge(Reasoned),
    /// The parked destination may be sent to again (admins)
    Unpark(Reasoned),
}

/// An act that needs nothing but a reason.
#[derive(Debug, Args)]
pub struct Reasoned {
    /// Which
    #[command(flatten)]
    pub on: On,
    /// Why
    #[arg(long)]
    pub reason: String,
}

/// What is acted on, and on what version.
#[derive(Debug, Args)]
pub struct On {
    /// Escalation id
    pub id: Uuid,
    /// The id is that of an intent
    #[arg(long)]
    pub intent: bool,
    /// The version that was decided on, as `show` printed it; without it the newest is taken
    #[arg(long)]
    pub version: Option<i64>,
    /// Where the API is
    #[command(flatten)]
    pub api: Api,
}

/// `settled escalations list`.
#[derive(Debug, Args)]
pub struct List {
    /// Only this reason
    #[arg(long)]
    pub reason: Option<String>,
    /// Only this destination
    #[arg(long)]
    pub destination: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Claimed by somebody (true) or nobody (false)
    #[arg(long)]
    pub claimed: Option<bool>,
    /// Claimed by or assigned to me
    #[arg(long)]
    pub mine: bool,
    /// Closed ones instead
    #[arg(long)]
    pub closed: bool,
    /// Snoozed ones as well
    #[arg(long)]
    pub snoozed: bool,
    /// One line for each cause
    #[arg(long)]
    pub causes: bool,
    /// Older than this escalation: the last one of the page before
    #[arg(long)]
    pub before: Option<Uuid>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=200))]
    pub limit: i64,
    /// Where the API is
    #[command(flatten)]
    pub api: Api,
}
