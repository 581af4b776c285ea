//! pending → in_flight: claims what is due, as many as there are free send slots, and hands each to its channel once.

use std::{sync::Arc, time::Duration};

use sqlx::{Connection, PgConnection, PgPool};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    claiming,
    fleet::{Fleet, Served},
    folding::{Case, Cause, Moved, after, settle},
    rate, recognised,
    results::Finished,
    runner::{Progress, Step},
    self_stop::{Allowance, Passed, SelfStop},
    watch::Watch,
};
use crate::{
    channels::Prepared,
    clock::Clock,
    domain::{
        absence,
        failure_mode::FailureMode,
        gate::Gate,
        intent::Outgoing,
        key::{Keyring, Spelling},
        outcome::{Ended, Outcome, Proof, Report},
        state::State,
    },
    failpoint::failpoint,
    store::{
        self,
        attempts::AttemptRow,
        error::StoreError,
        paces::PaceRow,
        queue::{Batch, Picked},
    },
    telemetry::metrics::Metrics,
};

/// Until an intent that could not be claimed is tried again.
const PUT_OFF: Duration = Duration::from_secs(60);

/// What the dispatcher and the reconciler need to send.
#[derive(Clone)]
pub struct Sending {
    /// The ledger.
    pub pool: PgPool,
    /// Destinations.
    pub fleet: Arc<Fleet>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Notices a database that lost history.
    pub watch: Arc<Watch>,
    /// Secrets of keys.
    pub keyring: Arc<Keyring>,
    /// Region of the installation; part of every key.
    pub region: String,
    /// This process.
    pub worker: Uuid,
    /// Where results go.
    pub results: mpsc::Sender<Finished>,
    /// Cancelled when the process begins to stop: nothing is claimed any more, and what has not begun is given back.
    pub stopping: CancellationToken,
    /// Cancelled when the process cannot wait for its sends any longer.
    pub hard_stop: CancellationToken,
    /// Running sends.
    pub tracker: TaskTracker,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// At most so many claims at once.
    pub batch: usize,
}

/// An open attempt of ours. Not cloneable: it is spent by the send.
pub struct Claim {
    pub(super) outgoing: Outgoing,
    pub(super) token: Uuid,
    pub(super) allowance: Allowance,
    pub(super) lease_until: chrono::DateTime<chrono::Utc>,
    pub(super) claimed_at: chrono::DateTime<chrono::Utc>,
    pub(super) prepared: Result<Prepared, crate::channels::Unsupported>,
}

/// What is known about the earlier attempts of an intent that is due again.
enum Proofs {
    /// Every doubt among them is proven absent, or there is none.
    Hold {
        /// There is one.
        earlier_bytes: bool,
    },
    /// A proof ended: it is asked about once more.
    Stale(Option<Moved>),
}

/// A cap of open unknowns below so many times the slots is counted exactly by every claim.
const NARROW: i64 = 8;

/// A destination that may take something now.
struct Candidate {
    served: Arc<Served>,
    wanted: usize,
    /// It did not work lately, and this is the one attempt that finds out.
    probe: bool,
    /// The cap of open unknowns could be passed by what is under way.
    near_cap: bool,
}

/// How long slots come free before they are filled: a claim is a durable commit, one for many of them.
const GATHER: Duration = Duration::from_millis(2);
/// How long a step waits for a slot where all are in use.
const FULL: Duration = Duration::from_millis(20);

/// The loop.
pub struct Dispatcher {
    sending: Sending,
    /// Destinations that the last step claimed for.
    busy: Vec<Arc<Served>>,
}

impl Dispatcher {
    /// A dispatcher for these destinations.
    pub fn new(sending: Sending) -> Self {
        // Every destination is exported, also while its breaker is closed: an alert on a missing series never fires.
        for served in sending.fleet.iter() {
            sending.metrics.breaker(&served.config.name, served.breaker.is_open());
        }
        Self { sending, busy: Vec::new() }
    }

    /// After a claim: until a quarter of the slots of one of its destinations is free again, but not for long. Where every
    /// slot of every destination is in use, until one is free.
    async fn gather(&mut self) {
        let busy = std::mem::take(&mut self.busy);
        if self.free().is_empty() {
            let all = self.sending.fleet.iter().cloned().collect();
            let _none_yet = tokio::time::timeout(FULL, any_of(all, |_| 1)).await;
        }
        if !busy.is_empty() {
            let quarter = |served: &Served| (served.config.limits.concurrency / 4).max(1);
            let _not_so_many = tokio::time::timeout(GATHER, any_of(busy, quarter)).await;
        }
    }

    /// Destinations with a free slot, as far as their results can still be taken.
    fn free(&self) -> Vec<&Arc<Served>> {
        let s = &self.sending;
        s.fleet.iter().filter(|served| served.slots.available_permits() > 0 && s.results.capacity() > 0).collect()
    }

    /// Destinations that may take something now, with how many.
    async fn candidates(&self, conn: &mut PgConnection) -> Result<Vec<Candidate>, StoreError> {
        let s = &self.sending;
        let free = self.free();
        let names: Vec<String> = free.iter().map(|served| served.config.name.clone()).collect();
        let caps: Vec<i64> = free.iter().map(|served| i64::from(served.config.limits.open_unknowns)).collect();
        let due = store::queue::destinations_due(conn, &names, &caps, s.clock.sql_now()).await?;
        let mut candidates = Vec::new();
        for due in due {
            let Some(served) = s.fleet.get(&due.destination) else { continue };
            served.pace.learned(due.learned);
            let cap = i64::from(served.config.limits.open_unknowns);
            if due.open >= cap {
                continue;
            }
            let free = served.slots.available_permits().min(s.batch).min(s.results.capacity());
            let lets = served.breaker.allows(s.clock.boot(), free);
            if lets.sends > 0 {
                let near_cap = due.open * 2 >= cap || cap <= i64::from(served.config.limits.concurrency) * NARROW;
                let (served, wanted, probe) = (Arc::clone(served), lets.sends, lets.probe);
                candidates.push(Candidate { served, wanted, probe, near_cap });
            }
        }
        Ok(candidates)
    }

    /// How many may be claimed under what the whole fleet shares: the pace of the destination and its cap on open unknowns.
    /// The row of the pace stays locked, so that no other daemon counts at the same time.
    async fn shared(
        &self,
        conn: &mut PgConnection,
        candidate: &Candidate,
    ) -> Result<(usize, Option<PaceRow>), StoreError> {
        let (served, at) = (&candidate.served, self.sending.clock.sql_now());
        let rate = served.config.limits.rate.as_ref();
        if !(candidate.probe || candidate.near_cap || rate.is_some() || served.pace.is_learned()) {
            return Ok((candidate.wanted, None));
        }
        let name = &served.config.name;
        let (mut pace, now) = store::paces::lock(conn, name, rate::full(rate), at).await?;
        if candidate.probe {
            rate::restart(&mut pace, rate, now);
            served.pace.learned(true);
        }
        let mut allowed = rate::allowance(&mut pace, rate, now).min(candidate.wanted);
        if candidate.near_cap {
            let cap = i64::from(served.config.limits.open_unknowns);
            let open = store::queue::open_unknowns(conn, name, cap).await?;
            let under_way = store::attempts::under_way(conn, name, cap).await?;
            allowed = allowed.min(usize::try_from(cap - open - under_way).unwrap_or(0));
        }
        Ok((allowed, Some(pace)))
    }

    /// Claims for one destination and starts the sends.
    async fn claim_and_send(&self, candidate: &Candidate) -> Result<usize, StoreError> {
        let (s, served, wanted) = (&self.sending, &candidate.served, candidate.wanted);
        let Ok(permits) = Arc::clone(&served.slots).try_acquire_many_owned(u32::try_from(wanted).unwrap_or(1)) else {
            return Ok(0);
        };
        let claims = self.claim(candidate).await?;
        let count = claims.len();
        if s.stopping.is_cancelled() {
            give_back(s, &served.config.name, claims, "the daemon stops").await;
            return Ok(count);
        }
        let mut permits = permits;
        for claim in claims {
            let Some(permit) = permits.split(1) else { break };
            let (served, sending) = (Arc::clone(served), s.clone());
            s.tracker.spawn(async move { send(&sending, &served, claim, permit).await });
        }
        Ok(count)
    }

    async fn claim(&self, candidate: &Candidate) -> Result<Vec<Claim>, StoreError> {
        let (s, served) = (&self.sending, &candidate.served);
        let lease = served.config.lease();
        let allowance = Allowance::before_claim(&*s.clock, lease);
        let mut tx = s.pool.begin().await?;
        let Some(entered) = s.watch.enter(&mut tx).await? else { return Ok(Vec::new()) };
        let (allowed, pace) = self.shared(&mut tx, candidate).await?;
        let limit = i64::try_from(allowed).unwrap_or(i64::MAX);
        let picked = store::queue::pick(&mut tx, &served.config.name, limit, s.clock.sql_now()).await?;
        if let Some(mut pace) = pace {
            rate::spend(&mut pace, picked.len());
            store::paces::write(&mut tx, &served.config.name, &pace).await?;
        }
        let Some(now) = picked.first().map(|p| p.now) else {
            tx.commit().await?;
            return Ok(Vec::new());
        };
        let lease_until = after(now, lease);
        let mut batch = Batch::default();
        let mut claims = Vec::with_capacity(picked.len());
        let mut went_stale = Vec::new();
        for pick in picked {
            let mut earlier_bytes = false;
            if pick.attempt > 0 || pick.rewound {
                match self.proofs(&mut tx, served, &pick).await? {
                    Proofs::Hold { earlier_bytes: doubted } => earlier_bytes = doubted,
                    Proofs::Stale(moved) => {
                        went_stale.extend(moved);
                        continue;
                    }
                }
            }
            let Some(claim) = self.prepare(served, pick, earlier_bytes, allowance, lease_until, &mut batch) else {
                continue;
            };
            claims.push(claim);
        }
        claiming::open(&mut tx, s, served, &batch, now, lease_until).await?;
        failpoint!("claim-before-commit");
        let claims = claiming::commit(tx, entered, s, served, claims).await?;
        failpoint!("claim-after-commit");
        for _ in &claims {
            s.metrics.moved(State::InFlight.as_str(), Self::NAME);
        }
        for moved in went_stale {
            moved.count(&s.metrics, Self::NAME);
        }
        Ok(claims)
    }

    /// Looks at the proofs of one intent; one that cannot be read or moved is put off, and the others are claimed.
    async fn proofs(&self, tx: &mut PgConnection, served: &Served, pick: &Picked) -> Result<Proofs, StoreError> {
        let mut inner = tx.begin().await?;
        match self.proofs_hold(&mut inner, served, pick).await {
            Ok(proofs) => {
                inner.commit().await?;
                Ok(proofs)
            }
            Err(error) if error.spares_others() => {
                inner.rollback().await?;
                tracing::error!(intent.id = %pick.id, %error, "intent not claimed; it will be tried again");
                store::queue::put_off(tx, pick.id, after(pick.now, PUT_OFF)).await?;
                Ok(Proofs::Stale(None))
            }
            Err(error) => Err(error),
        }
    }

    /// A second attempt needs an unexpired proof for every earlier ambiguous one; otherwise it goes back to be asked about.
    async fn proofs_hold(&self, conn: &mut PgConnection, served: &Served, pick: &Picked) -> Result<Proofs, StoreError> {
        let policy = served.policy();
        let Some(case) = Case::lock(conn, pick.id, self.sending.clock.sql_now()).await? else {
            return Ok(Proofs::Stale(None));
        };
        let margin = absence::proof_margin(policy.asking.as_ref().map_or(Duration::MAX, |asking| asking.lag));
        let doubted = |a: &AttemptRow| matches!(a.attempt.outcome, Some(Outcome::Ambiguous { .. }));
        let earlier_bytes = case.lost.is_some() || case.attempts.iter().any(doubted);
        if case.fold_at(&policy, after(case.intent.now, margin)).state == State::Pending {
            return Ok(Proofs::Hold { earlier_bytes });
        }
        let actor = format!("dispatcher@{}", self.sending.worker);
        let mut cause = Cause::of(&actor);
        cause.detail = Some("the proof of absence went stale before it was sent again".to_owned());
        let mut stale = case;
        stale.intent.now = after(stale.intent.now, margin);
        Ok(Proofs::Stale(Some(settle(conn, &stale, &policy, &cause).await?)))
    }

    pub(super) fn prepare(
        &self,
        served: &Served,
        pick: Picked,
        earlier_bytes: bool,
        allowance: Allowance,
        lease_until: chrono::DateTime<chrono::Utc>,
        batch: &mut Batch,
    ) -> Option<Claim> {
        let s = &self.sending;
        let (key, kid) = match (pick.key, pick.kid) {
            (Some(key), Some(kid)) => {
                if recognised::key_regenerated(&s.keyring, &s.region, &pick.identity, &pick.effect_scope, (&key, &kid))
                {
                    tracing::warn!(intent.id = %pick.id, kid, "today's secrets give another key; the pinned one is used");
                    s.metrics.failure_mode(FailureMode::KeyRegenerated);
                }
                (key, kid)
            }
            (None, _) | (_, None) => {
                match s.keyring.derive(None, &s.region, &pick.identity, &pick.effect_scope, Spelling::default()) {
                    Ok(key) => (key.text, key.kid),
                    Err(error) => {
                        tracing::error!(intent.id = %pick.id, %error, "no key could be derived; the intent stays pending");
                        return None;
                    }
                }
            }
        };
        let outgoing = Outgoing {
            intent_id: pick.id,
            tenant: pick.identity.tenant,
            destination: served.config.name.clone(),
            key: key.clone(),
            reference: pick.reference,
            occurrence: pick.occurrence,
            recipient: pick.recipient,
            attempt: pick.attempt + 1,
            earlier_bytes,
            created_at: pick.created_at,
            payload: pick.payload,
        };
        let prepared = served.channel.prepare(&outgoing);
        let token = Uuid::new_v4();
        batch.ids.push(pick.id);
        batch.tokens.push(token);
        batch.keys.push(key);
        batch.kids.push(kid);
        batch.digests.push(prepared.as_ref().map_or_else(|_| Vec::new(), |p| p.digest.to_vec()));
        Some(Claim { outgoing, token, allowance, lease_until, claimed_at: pick.now, prepared })
    }
}

/// Says of claims that nothing was started: the reply to their COMMIT was lost, or the daemon stops.
pub(super) async fn give_back(sending: &Sending, destination: &str, claims: Vec<Claim>, why: &str) {
    for claim in claims {
        let finished = Finished::not_started(destination, &claim, why);
        if sending.results.send(finished).await.is_err() {
            return;
        }
    }
}

/// Waits until one of the destinations has so many free slots.
async fn any_of(destinations: Vec<Arc<Served>>, wanted: impl Fn(&Served) -> u32) {
    let free = destinations.iter().map(|served| Box::pin(served.slots.acquire_many(wanted(served))));
    let free: Vec<_> = free.collect();
    if !free.is_empty() {
        // What it gives is put back at once: who claims takes it.
        let _first = futures_util::future::select_all(free).await;
    }
}

impl Step for Dispatcher {
    const NAME: &'static str = "dispatcher";

    async fn step(&mut self) -> Result<Progress, StoreError> {
        self.gather().await;
        if self.free().is_empty() {
            // Until a slot comes free Postgres is not asked.
            return Ok(Progress::Idle);
        }
        let mut conn = self.sending.pool.acquire().await?;
        let candidates = self.candidates(&mut conn).await?;
        drop(conn);
        let mut started = 0;
        let mut failed = None;
        for candidate in candidates {
            if self.sending.stopping.is_cancelled() {
                break;
            }
            match self.claim_and_send(&candidate).await {
                Ok(0) => {}
                Ok(claimed) => {
                    started += claimed;
                    self.busy.push(Arc::clone(&candidate.served));
                }
                Err(error) if error.spares_others() => {
                    tracing::warn!(destination = %candidate.served.config.name, %error, "nothing claimed for this destination");
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = failed
            && started == 0
        {
            return Err(error);
        }
        Ok(if started == 0 { Progress::Idle } else { Progress::Worked(started) })
    }
}

/// One attempt, from the prepared message to its result. Runs as a task of its own.
pub(super) async fn send(sending: &Sending, served: &Served, claim: Claim, slot: OwnedSemaphorePermit) {
    let Claim { outgoing, token, allowance, lease_until, claimed_at, prepared } = claim;
    let (digest, ended) = match prepared {
        Err(unsupported) => (None, refused_here(&unsupported)),
        Ok(prepared) => {
            let gate = Arc::new(SelfStop {
                clock: Arc::clone(&sending.clock),
                allowance,
                pool: sending.pool.clone(),
                intent_id: outgoing.intent_id,
                attempt: outgoing.attempt,
                token,
                passed: Passed::default(),
                acts_on_halves: served.channel.acts_on_halves(),
            });
            let digest = prepared.digest.to_vec();
            let ended = tokio::select! {
                ended = served.channel.send(prepared, &outgoing, Arc::clone(&gate) as Arc<dyn Gate>) => ended,
                () = sending.hard_stop.cancelled() => gate.interrupted(),
            };
            (Some(digest), ended)
        }
    };
    drop(slot);
    failpoint!("send-before-result");
    weigh(served, &ended.outcome, sending.clock.boot());
    sending.metrics.breaker(&served.config.name, served.breaker.is_open());
    let finished = Finished {
        intent_id: outgoing.intent_id,
        destination: outgoing.destination,
        key: outgoing.key,
        reference: outgoing.reference.to_ascii_lowercase(),
        occurrence: outgoing.occurrence,
        recipient: outgoing.recipient,
        attempt: outgoing.attempt,
        token,
        generation: served.generation.clone(),
        claimed_at,
        lease_until,
        digest,
        ended,
        urgent: served.look_up.is_none(),
    };
    if sending.results.send(finished).await.is_err() {
        tracing::error!(intent.id = %outgoing.intent_id, "the recorder is gone; the attempt will be found by its lease");
    }
}

fn weigh(served: &Served, outcome: &Outcome, boot: Duration) {
    match outcome {
        Outcome::Sent { .. } | Outcome::Refused { .. } => served.breaker.good(),
        Outcome::Ambiguous { .. } => served.breaker.bad(boot),
        Outcome::NotSent { proof, .. } => match proof {
            Proof::NotConnected | Proof::TlsFailed | Proof::Incomplete => served.breaker.bad(boot),
            Proof::Throttled => served.breaker.put_off(boot),
            Proof::Deferred | Proof::Parked | Proof::SelfStopped | Proof::NotStarted => {}
        },
    }
}

fn refused_here(unsupported: &crate::channels::Unsupported) -> Ended {
    Ended {
        outcome: Outcome::Refused { code: 0 },
        report: Report::nothing_written(format!("unsupported: {unsupported}")),
    }
}
