//! Calls per minute and destination, for all daemons together: a bucket in the database, locked while questions are leased.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Postgres, Transaction};

use crate::{
    engine::{dispatcher::Sending, fleet::Served},
    look_up::LookUp,
    store::{self, asking::Bucket, error::StoreError},
};

/// Calls per minute to a destination that says nothing about it, or is served no more.
const UNSERVED: u32 = 60;

/// Who spends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum For {
    /// Questions in doubt: all that is there.
    Doubt,
    /// Audits: half a minute's calls stay for doubts.
    Audit,
}

/// What may be asked now. The row stays locked until the transaction ends.
#[derive(Debug)]
pub(in crate::engine) struct Allowance {
    /// Calls left.
    pub calls: f64,
    /// What one question is expected to take.
    pub cost: f64,
    /// Questions that fit.
    pub questions: i64,
    /// The downstream asked to be left alone.
    pub suspended: bool,
    /// Database time.
    pub now: DateTime<Utc>,
}

/// How a loop asks of one destination.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Manner {
    /// Who spends.
    pub whom: For,
    /// Questions at the same time, where each intent is asked about by itself.
    pub at_once: i64,
    /// Intents of one listing, of which there is one at a time: it keeps a flood flat.
    pub chunk: i64,
}

/// Room for questions to one destination; its bucket is locked until [`Room::take`] or the end of the transaction.
pub(in crate::engine) struct Room {
    /// In which they are leased.
    pub tx: Transaction<'static, Postgres>,
    /// How many intents may be.
    pub wanted: i64,
    /// Intents of one question.
    pub size: usize,
    /// What one question is expected to take.
    pub cost: f64,
    allowed: Allowance,
}

impl Room {
    /// What may be asked now beside so many that are under way. `None` where there is no room, or no such destination.
    pub async fn open(
        sending: &Sending,
        name: &str,
        under_way: i64,
        manner: Manner,
    ) -> Result<Option<Self>, StoreError> {
        let served = sending.fleet.get(name).map(|served| &**served);
        let lists = served.and_then(|s| s.look_up.as_ref()).is_some_and(|l| l.abilities().lists);
        let (most, chunk) = if lists { (1, manner.chunk) } else { (manner.at_once, 1) };
        let free = most - under_way;
        if free <= 0 {
            return Ok(None);
        }
        let mut tx = sending.pool.begin().await?;
        let allowed = Allowance::lock(&mut tx, name, served, manner.whom, sending.clock.sql_now()).await?;
        let size = usize::try_from(chunk).unwrap_or(1);
        Ok(allowed.map(|allowed| {
            let wanted = free.min(allowed.questions) * chunk;
            Self { tx, wanted, size, cost: allowed.cost, allowed }
        }))
    }

    /// Charges the questions about so many leased intents and commits; about none, nothing was leased.
    pub async fn take(mut self, sending: &Sending, name: &str, intents: usize) -> Result<(), StoreError> {
        let mut calls = self.allowed.calls;
        if intents > 0 {
            calls = self.allowed.spend(&mut self.tx, name, intents.div_ceil(self.size)).await?;
            self.tx.commit().await?;
        }
        sending.metrics.asking(name, calls, self.allowed.suspended);
        Ok(())
    }
}

/// Gives back calls that were charged and not made.
pub(in crate::engine) async fn pay_back(sending: &Sending, name: &str, charged: f64) {
    if charged <= 0.0 {
        return;
    }
    let paid = async {
        let mut conn = sending.pool.acquire().await?;
        store::asking::settle(&mut conn, name, charged, 0.0).await
    };
    if let Err(error) = paid.await {
        tracing::debug!(destination = %name, %error, "calls that were not made stay charged");
    }
}

/// What a question is taken to cost before one has been answered: the account and a page, or the account, two witnesses, the
/// subject and an impossible name.
fn expected(look_up: Option<&dyn LookUp>) -> f64 {
    match look_up {
        Some(look_up) if look_up.abilities().lists => 2.0,
        Some(_) => 5.0,
        None => 1.0,
    }
}

impl Allowance {
    /// Locks the bucket of a destination. `None` where the destination is not known.
    pub async fn lock(
        conn: &mut PgConnection,
        destination: &str,
        served: Option<&Served>,
        whom: For,
        at: Option<DateTime<Utc>>,
    ) -> Result<Option<Self>, StoreError> {
        let per_minute = served.and_then(|s| s.config.look_up.as_ref()).map_or(UNSERVED, |l| l.per_minute);
        let expected = expected(served.and_then(|s| s.look_up.as_deref()));
        let bucket = store::asking::lock(conn, destination, per_minute, expected, at).await?;
        Ok(bucket.map(|bucket| of(&bucket, per_minute, whom)))
    }

    /// Charges so many questions before they are put.
    pub async fn spend(&self, conn: &mut PgConnection, destination: &str, questions: usize) -> Result<f64, StoreError> {
        let questions = u32::try_from(questions).unwrap_or(u32::MAX);
        let left = self.calls - f64::from(questions) * self.cost;
        store::asking::spend(conn, destination, left, self.now).await?;
        Ok(left)
    }
}

fn of(bucket: &Bucket, per_minute: u32, whom: For) -> Allowance {
    let full = f64::from(per_minute);
    let gone = (bucket.now - bucket.filled_at).num_milliseconds().max(0);
    let gone = f64::from(i32::try_from(gone).unwrap_or(i32::MAX)) / 1000.0;
    let calls = (bucket.calls + gone * full / 60.0).min(full);
    let suspended = bucket.suspended_until.is_some_and(|until| until > bucket.now);
    // A question that takes more than a minute's calls is put when the bucket is full, and paid for afterwards.
    let cost = bucket.cost.clamp(1.0, full.max(1.0));
    let kept = match whom {
        For::Doubt => 0.0,
        For::Audit => full / 2.0,
    };
    let mut questions = 0;
    let mut left = calls;
    while !suspended && questions < 10_000 && left >= cost && left - kept >= cost.min(full - kept) {
        left -= cost;
        questions += 1;
    }
    Allowance { calls, cost, questions, suspended, now: bucket.now }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn bucket(calls: f64, cost: f64, seconds: i64) -> Bucket {
        let filled_at = DateTime::UNIX_EPOCH;
        Bucket { calls, filled_at, cost, suspended_until: None, now: filled_at + TimeDelta::seconds(seconds) }
    }

    fn questions(bucket: &Bucket, per_minute: u32, whom: For) -> i64 {
        of(bucket, per_minute, whom).questions
    }

    #[test]
    fn a_minute_gives_what_is_allowed_in_a_minute() {
        assert_eq!(questions(&bucket(20.0, 1.0, 0), 20, For::Doubt), 20);
        assert_eq!(questions(&bucket(0.0, 1.0, 30), 20, For::Doubt), 10);
        assert_eq!(questions(&bucket(0.0, 1.0, 86_400), 20, For::Doubt), 20);
        assert_eq!(questions(&bucket(0.0, 5.0, 60), 20, For::Doubt), 4);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        assert_eq!(questions(&bucket(3.0, 1.0, -500), 20, For::Doubt), 3);
    }

    #[test]
    fn what_takes_more_than_a_minute_is_asked_when_the_bucket_is_full_and_paid_for_afterwards() {
        assert_eq!(questions(&bucket(19.0, 100.0, 0), 20, For::Doubt), 0);
        assert_eq!(questions(&bucket(20.0, 100.0, 0), 20, For::Doubt), 1);
        assert_eq!(questions(&bucket(-80.0, 100.0, 240), 20, For::Doubt), 0);
        assert_eq!(questions(&bucket(-80.0, 100.0, 300), 20, For::Doubt), 1);
    }

    #[test]
    fn audits_leave_half_a_minute_to_doubts() {
        assert_eq!(questions(&bucket(20.0, 1.0, 0), 20, For::Audit), 10);
        assert_eq!(questions(&bucket(10.0, 1.0, 0), 20, For::Audit), 0);
        assert_eq!(questions(&bucket(20.0, 100.0, 0), 20, For::Audit), 1);
        assert_eq!(questions(&bucket(1.0, 1.0, 0), 1, For::Audit), 1);
    }

    #[test]
    fn while_it_is_suspended_nothing_is_asked() {
        let mut bucket = bucket(20.0, 1.0, 0);
        bucket.suspended_until = Some(bucket.now + TimeDelta::seconds(1));
        assert_eq!(questions(&bucket, 20, For::Doubt), 0);
        bucket.suspended_until = Some(bucket.now);
        assert_eq!(questions(&bucket, 20, For::Doubt), 20);
    }
}
