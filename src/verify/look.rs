//! Asking the downstream about canaries, outside of any doubt: how many it has, and that it has no made-up one.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use tokio::time::Instant;
use uuid::Uuid;

use super::house::{House, mark};
use crate::{
    domain::question::{AccountSeen, Answer, Hit, Probe, Question, Role, Seen},
    engine::fleet::Served,
    look_up::LookUp,
    store::{self, attempts::AttemptRow},
};

/// A canary that was sent.
pub(super) struct Canary {
    pub(super) id: Uuid,
    /// As it travelled.
    pub(super) reference: String,
    /// When its last attempt was over, by our clock.
    pub(super) over: Instant,
}

/// What the downstream showed of one canary.
pub(super) struct Shown {
    /// Items that carry its key, or its reference where no keys are shown.
    pub(super) hits: Vec<Hit>,
    /// Why nothing can be said, if so.
    pub(super) unclear: Option<String>,
    /// A made-up name: nothing, or what was shown for it.
    pub(super) made_up: Seen,
    /// As whom it was asked.
    pub(super) account: AccountSeen,
    /// Time between the end of its last attempt and the answer.
    pub(super) after: Duration,
    /// The same for the last answer that did not have it; zero where every one had.
    pub(super) missing_after: Duration,
}

/// First and longest pause between two questions.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// Asks until it is there or the time is over; at least once.
pub(super) async fn until_there(
    house: &House,
    served: &Served,
    look_up: &dyn LookUp,
    canary: &Canary,
    until: Instant,
) -> anyhow::Result<Shown> {
    let mut pause = PAUSES.0;
    let mut missing_after = Duration::ZERO;
    loop {
        let (mut shown, retry_after) = once(house, served, look_up, canary).await?;
        if shown.hits.is_empty() {
            missing_after = shown.after;
        }
        shown.missing_after = missing_after;
        let wait = retry_after.unwrap_or_default().max(pause);
        if !shown.hits.is_empty() || !house.patience(until, wait).await {
            return Ok(shown);
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// One question about one canary and about a name that cannot exist.
pub(super) async fn once(
    house: &House,
    served: &Served,
    look_up: &dyn LookUp,
    canary: &Canary,
) -> anyhow::Result<(Shown, Option<Duration>)> {
    let subject = probe(&house.pool, canary).await?;
    let (key, now) = (subject.key.clone(), subject.sent_until);
    let impossible = made_up(&subject);
    let answer = look_up.ask(&Question { probes: vec![subject, impossible], now }).await.printable();
    charge(&house.pool, &served.config.name, &answer).await?;
    let by_key = look_up.abilities().shows_key;
    let mut seen = answer.seen.into_iter();
    let (hits, unclear) = match seen.next() {
        Some(Seen::Hits { hits }) => {
            (hits.into_iter().filter(|hit| !by_key || hit.key.as_deref() == Some(&key)).collect(), None)
        }
        Some(Seen::Nothing) => (Vec::new(), None),
        Some(Seen::CannotTell { why }) => (Vec::new(), Some(why)),
        None => (Vec::new(), Some("no answer".to_owned())),
    };
    let made_up = seen.next().unwrap_or_else(|| Seen::CannotTell { why: "no answer".to_owned() });
    let shown = Shown {
        hits,
        unclear,
        made_up,
        account: answer.account,
        after: canary.over.elapsed(),
        missing_after: Duration::ZERO,
    };
    Ok((shown, answer.retry_after))
}

/// Its attempts, oldest first.
pub(super) async fn attempts(pool: &PgPool, id: Uuid) -> anyhow::Result<Vec<AttemptRow>> {
    let mut conn = pool.acquire().await?;
    Ok(store::attempts::of(&mut conn, id).await?)
}

async fn probe(pool: &PgPool, canary: &Canary) -> anyhow::Result<Probe> {
    let first: Option<DateTime<Utc>> = attempts(pool, canary.id).await?.first().map(|a| a.claimed_at);
    let mut conn = pool.acquire().await?;
    let standing = store::verify::standing(&mut conn, canary.id).await?;
    Ok(Probe {
        role: Role::Subject,
        key: standing.key.unwrap_or_default(),
        reference: canary.reference.to_ascii_lowercase(),
        spelled: Some(canary.reference.clone()),
        occurrence: 1,
        recipient: standing.recipient,
        sent_from: first.unwrap_or(standing.now),
        sent_until: standing.now,
    })
}

/// A key and a reference of the same shape that nobody has.
fn made_up(subject: &Probe) -> Probe {
    let key = format!("{:032x}", rand::random::<u128>());
    let digits = format!("{:010}", mark().1);
    let spelled = subject.spelled.as_deref().unwrap_or(&subject.reference);
    // Canaries end in ten digits.
    let spelled = format!("{}{digits}", &spelled[..spelled.len().saturating_sub(digits.len())]);
    Probe {
        role: Role::Impossible,
        key,
        reference: spelled.to_ascii_lowercase(),
        spelled: Some(spelled),
        ..subject.clone()
    }
}

/// The calls count against the budget of the destination, and what it asked for is obeyed by everybody.
async fn charge(pool: &PgPool, name: &str, answer: &Answer) -> anyhow::Result<()> {
    let mut conn = pool.acquire().await?;
    store::asking::settle(&mut conn, name, 0.0, f64::from(answer.pages.max(1))).await?;
    if let Some(wait) = answer.retry_after {
        let why = "the downstream asked `settled verify` to leave it alone";
        store::asking::suspend(&mut conn, name, wait.as_secs_f64(), why, None).await?;
    }
    Ok(())
}

/// The names of items, for people.
pub(super) fn names(hits: &[Hit]) -> String {
    let names: Vec<&str> = hits.iter().map(|hit| hit.id.as_deref().unwrap_or("(no id)")).collect();
    names.join(", ")
}
