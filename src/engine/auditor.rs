//! Asks about what nobody doubts: a sample of ordinary sends, and every intent to which more than one attempt handed bytes,
//! expecting exactly one effect.
//!
//! A duplicate reports success twice, and a reply can say yes where nothing was done; only asking shows either. What is found
//! is marked and told to people: `duplicate_found`, `sent_not_visible`, `orphan_sighting`. A sent intent stays sent. The sample
//! also measures the lag (`reconciler::lag`). Calls come from the same budget as questions in doubt, after them: audits leave
//! half a minute's calls alone.

mod conclude;
mod next;
mod orphans;
mod sweep;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use uuid::Uuid;

pub(super) use self::{next::first, orphans::report as report_orphans};
use super::{
    dispatcher::Sending,
    fleet::Asked,
    folding::Case,
    reconciler::{
        budget::{self, For, Manner, Room},
        lag, question,
        round::{Round, Subject, Target},
        under_way::{LEASE, UnderWay},
    },
    runner::{Progress, Step},
};
use crate::{
    domain::state::State,
    store::{self, audits::Taken, error::StoreError},
};

const MANNER: Manner = Manner { whom: For::Audit, at_once: 4, chunk: 500 };
/// Closed audits that are forgotten in one step.
const FORGET: i64 = 1000;
/// Until an audit is tried again that could not be concluded.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// How often the measured lag is shown.
const SHOWN_EVERY: Duration = Duration::from_secs(15);

/// The loop.
pub struct Auditor {
    inner: Arc<Inner>,
    under_way: UnderWay,
    shown_at: Option<Duration>,
    looked_at: sweep::LookedAt,
}

struct Inner {
    sending: Sending,
}

impl Auditor {
    /// An auditor; of `sending` it uses the ledger, the clock, the fleet and the numbers.
    pub fn new(sending: Sending) -> Self {
        Self {
            inner: Arc::new(Inner { sending }),
            under_way: UnderWay::default(),
            shown_at: None,
            looked_at: sweep::LookedAt::new(),
        }
    }

    /// Waits until no question is under way any more.
    pub async fn finish(&mut self) {
        self.under_way.finish().await;
    }

    async fn lease(&mut self, name: &str) -> Result<Vec<tokio::task::Id>, StoreError> {
        let sending = self.inner.sending.clone();
        let Some(mut room) = Room::open(&sending, name, self.under_way.of(name), MANNER).await? else {
            return Ok(Vec::new());
        };
        let (wanted, size, cost) = (room.wanted, room.size, room.cost);
        let mut taken = Vec::new();
        if wanted > 0 {
            let (seconds, at) = (LEASE.as_secs_f64(), sending.clock.sql_now());
            taken = store::audits::claim(&mut room.tx, name, wanted, seconds, sending.worker, at).await?;
        }
        room.take(&sending, name, taken.len()).await?;
        let mut begun = Vec::new();
        for some in taken.chunks(size) {
            let (inner, of, some) = (Arc::clone(&self.inner), name.to_owned(), some.to_vec());
            let ids = some.iter().map(|t| t.intent_id).collect();
            let asking = async move { inner.ask_all(&of, some, cost).await };
            begun.push(self.under_way.begin(name, ids, asking));
        }
        Ok(begun)
    }

    /// Shows what the samples of the served generations say.
    async fn show(&mut self) -> Result<(), StoreError> {
        let Sending { pool, clock, fleet, metrics, .. } = &self.inner.sending;
        let boot = clock.boot();
        if self.shown_at.is_some_and(|at| boot < at + SHOWN_EVERY) {
            return Ok(());
        }
        let mut conn = pool.acquire().await?;
        for served in fleet.iter() {
            let Some(look_up) = &served.config.look_up else { continue };
            let (name, window) = (&served.config.name, lag::WINDOW.as_secs_f64());
            let m = store::audits::measured(&mut conn, name, &served.generation, window, clock.sql_now()).await?;
            let suspended = m.invisible_for.is_some_and(|seconds| lag::exceeds(seconds, look_up.lag));
            let figures = [("p50", m.p50), ("p999", m.p999), ("longest", m.longest), ("invisible", m.invisible_for)];
            metrics.visible_after(name, &figures, suspended);
        }
        self.shown_at = Some(boot);
        Ok(())
    }
}

impl Inner {
    fn actor(&self) -> String {
        format!("auditor@{}", self.sending.worker)
    }

    /// Asks about these and writes what is learned. Gives those about which nothing was.
    async fn ask_all(&self, name: &str, taken: Vec<Taken>, charged: f64) -> Vec<Uuid> {
        let mut by_generation: BTreeMap<String, Vec<Taken>> = BTreeMap::new();
        for one in taken {
            by_generation.entry(one.generation.clone()).or_default().push(one);
        }
        let (mut left, mut charged) = (Vec::new(), charged);
        for (generation, some) in by_generation {
            let ids: Vec<Uuid> = some.iter().map(|t| t.intent_id).collect();
            match self.ask_generation(name, &generation, some, &mut charged).await {
                Ok(these) => left.extend(these),
                Err(error) => {
                    tracing::warn!(destination = %name, audits = ids.len(), %error, "audits not concluded; they are tried again");
                    left.extend(ids);
                }
            }
        }
        budget::pay_back(&self.sending, name, charged).await;
        left
    }

    async fn ask_generation(
        &self,
        name: &str,
        generation: &str,
        taken: Vec<Taken>,
        charged: &mut f64,
    ) -> Result<Vec<Uuid>, StoreError> {
        let asked = self.sending.fleet.generation(&self.sending.pool, name, generation).await?;
        let Some(Asked { config, look_up: Ok(Some(look_up)) }) = asked else {
            for one in &taken {
                self.give_up(name, one).await?;
            }
            return Ok(Vec::new());
        };
        let size = if look_up.abilities().lists { taken.len().max(1) } else { 1 };
        let mut left = Vec::new();
        for group in taken.chunks(size) {
            let subjects = self.subjects(name, group).await?;
            if subjects.is_empty() {
                continue;
            }
            let (sending, charged) = (&self.sending, std::mem::take(charged));
            let target = Target { sending, name, generation, config: &config, look_up: &*look_up, charged };
            let probes: Vec<Subject> = subjects.iter().map(|(_, subject)| subject.clone()).collect();
            let Some(round) = Round::ask(&target, &probes).await? else { continue };
            for (index, (one, subject)) in subjects.iter().enumerate() {
                if let Err(error) = self.conclude(one, &round, index, &config).await {
                    tracing::debug!(intent.id = %subject.intent_id, %error, "audit not concluded");
                    left.push(subject.intent_id);
                }
            }
        }
        Ok(left)
    }

    /// What is looked for. What has moved on meanwhile is no longer asked about; its end enrols it again.
    async fn subjects<'a>(&self, name: &str, group: &'a [Taken]) -> Result<Vec<(&'a Taken, Subject)>, StoreError> {
        let mut subjects = Vec::new();
        for one in group {
            let mut tx = self.sending.pool.begin().await?;
            let case = Case::lock(&mut tx, one.intent_id, self.sending.clock.sql_now()).await?;
            let spelled = store::intents::given_reference(&mut tx, one.intent_id).await?;
            tx.commit().await?;
            match case {
                Some(case) if matches!(case.intent.state, State::Sent | State::Failed) => {
                    let probe = question::probe_of(&case.intent, spelled, one.sent_from, one.sent_until);
                    subjects.push((one, Subject { intent_id: one.intent_id, probe, now: case.intent.now }));
                }
                Some(_) | None => self.give_up(name, one).await?,
            }
        }
        Ok(subjects)
    }
}

impl Step for Auditor {
    const NAME: &'static str = "auditor";

    async fn step(&mut self) -> Result<Progress, StoreError> {
        let Sending { pool, clock, worker, .. } = self.inner.sending.clone();
        let at = clock.sql_now();
        let left = self.under_way.take_unconcluded();
        let mut conn = pool.acquire().await?;
        if !left.is_empty()
            && let Err(error) = store::audits::put_off(&mut conn, &left, worker, AGAIN_AFTER.as_secs_f64(), at).await
        {
            self.under_way.unconcluded(left);
            return Err(error);
        }
        let forgotten = store::audits::forget(&mut conn, lag::WINDOW.as_secs_f64(), at, FORGET).await?;
        let names = store::audits::destinations_due(&mut conn, at).await?;
        drop(conn);
        let mut begun = HashSet::new();
        for name in names {
            begun.extend(self.lease(&name).await?);
        }
        begun.extend(self.sweep().await?);
        let worked = begun.len() + usize::try_from(forgotten).unwrap_or(0);
        self.under_way.wait_for(begun).await;
        self.show().await?;
        Ok(if worked == 0 { Progress::Idle } else { Progress::Worked(worked) })
    }
}
