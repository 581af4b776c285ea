//! unknown → what asking proves: replays inside the key's life, then look-ups, of the generation that the attempt used.
//!
//! Questions are leased like sends, so that two daemons do not ask the same; an expired lease is taken over, since asking
//! harms nobody. Every answer is a journal row; only the fold moves the intent.

pub(super) mod budget;
mod keys;
pub mod lag;
pub(super) mod question;
mod replay;
pub(super) mod round;
pub(super) mod under_way;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use self::{
    budget::{Allowance, For, Manner, Room},
    question::About,
    replay::Replay,
    round::{Round, Subject, Target},
    under_way::{LEASE, UnderWay},
};
use super::{
    auditor::report_orphans,
    dispatcher::Sending,
    fleet::Asked,
    folding::{Case, Cause, LookUpTold, Moved, after, settle},
    runner::{Progress, Step},
    watch::step_wait,
};
use crate::{
    domain::{absence::Judged, backoff, evidence::Verdict, failure_mode::FailureMode, question::Seen, state::State},
    failpoint::failpoint,
    store::{self, error::StoreError, journal::Entry},
    telemetry::metrics::Metrics,
};

/// The chunk bounds what a flood holds in memory; the next listing is put as soon as one is written.
const MANNER: Manner = Manner { whom: For::Doubt, at_once: 16, chunk: 1000 };
/// Until a replay that had no slot, or must not be sent now, is tried again.
const LATER: Duration = Duration::from_secs(30);
/// Until the same question is put again after an answer that could not be written.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The loop.
pub struct Reconciler {
    asker: Arc<Asker>,
    under_way: UnderWay,
    /// The answer to a claim was lost: questions may be leased to us that we do not know of.
    claim_lost: bool,
}

/// Puts questions and writes what they prove.
struct Asker {
    sending: Sending,
}

/// One doubt, read under its lock and then released for the time of asking. Spent by the answer.
#[must_use = "a doubt is settled by asking"]
struct Doubt {
    case: Case,
    /// The attempt that is asked about.
    number: i32,
    generation: String,
    /// The reference as it travelled.
    spelled: Option<String>,
}

impl Doubt {
    /// Somebody has moved it since it was read.
    fn moved(&self, now: &Case) -> bool {
        now.intent.state != self.case.intent.state || now.intent.attempt != self.case.intent.attempt
    }
}

impl Reconciler {
    /// A reconciler; it sends replays through the same parts as the dispatcher.
    pub fn new(sending: Sending) -> Self {
        Self { asker: Arc::new(Asker { sending }), under_way: UnderWay::default(), claim_lost: false }
    }

    /// Waits until no question is under way any more.
    pub async fn finish(&mut self) {
        self.under_way.finish().await;
    }

    /// Asks about one intent, whenever its question is due, by the same means and under the same budget as about every other.
    /// False: it is not asked about, somebody else is asking, or no call is left just now. Replays go on beside it.
    ///
    /// # Errors
    /// When Postgres does.
    pub async fn ask_about(&self, name: &str, intent_id: Uuid) -> Result<bool, StoreError> {
        let Sending { pool, clock, fleet, worker, .. } = self.asker.sending.clone();
        let at = clock.sql_now();
        let mut tx = pool.begin().await?;
        let served = fleet.get(name).map(|s| &**s);
        let Some(allowed) = Allowance::lock(&mut tx, name, served, For::Doubt, at).await? else { return Ok(false) };
        if allowed.questions == 0
            || !store::verify::claim_question(&mut tx, intent_id, LEASE.as_secs_f64(), worker).await?
        {
            return Ok(false);
        }
        allowed.spend(&mut tx, name, 1).await?;
        tx.commit().await?;
        let left = self.asker.ask_all(name, vec![intent_id], allowed.cost).await;
        if !left.is_empty() {
            let mut conn = pool.acquire().await?;
            store::queue::asking::put_off_questions(&mut conn, &left, worker, AGAIN_AFTER.as_secs_f64(), at).await?;
        }
        Ok(true)
    }

    /// Leases what may be asked of one destination now and begins to ask.
    async fn lease(&mut self, name: &str) -> Result<Vec<tokio::task::Id>, StoreError> {
        let sending = self.asker.sending.clone();
        let Some(mut room) = Room::open(&sending, name, self.under_way.of(name), MANNER).await? else {
            return Ok(Vec::new());
        };
        let (wanted, size, cost) = (room.wanted, room.size, room.cost);
        let mut leased = Vec::new();
        if wanted > 0 {
            let (seconds, at) = (LEASE.as_secs_f64(), sending.clock.sql_now());
            leased =
                store::queue::asking::claim_questions(&mut room.tx, name, wanted, seconds, sending.worker, at).await?;
        }
        room.take(&sending, name, leased.len()).await.inspect_err(|_| self.claim_lost = true)?;
        let mut begun = Vec::new();
        for intents in leased.chunks(size) {
            let (asker, of, ids) = (Arc::clone(&self.asker), name.to_owned(), intents.to_vec());
            let asking = async move { asker.ask_all(&of, ids, cost).await };
            begun.push(self.under_way.begin(name, intents.to_vec(), asking));
        }
        Ok(begun)
    }
}

impl Asker {
    /// Asks about these by the strongest means and writes what that proves. Gives those about which nothing was concluded.
    async fn ask_all(&self, name: &str, intents: Vec<Uuid>, charged: f64) -> Vec<Uuid> {
        let mut left = Vec::new();
        let mut by_generation: BTreeMap<String, Vec<Doubt>> = BTreeMap::new();
        for intent_id in intents {
            match self.means(intent_id).await {
                Ok(Some(doubt)) => by_generation.entry(doubt.generation.clone()).or_default().push(doubt),
                Ok(None) => {}
                Err(error) => left.extend(unconcluded(intent_id, &error)),
            }
        }
        // What was charged goes to the first question; every other one pays for itself.
        let mut charged = charged;
        for (generation, doubts) in by_generation {
            let ids: Vec<Uuid> = doubts.iter().map(|doubt| doubt.case.intent.id).collect();
            match self.look_up_all(name, &generation, doubts, &mut charged).await {
                Ok(these) => left.extend(these),
                Err(error) => left.extend(ids.into_iter().flat_map(|id| unconcluded(id, &error))),
            }
        }
        budget::pay_back(&self.sending, name, charged).await;
        left
    }

    async fn read(&self, intent_id: Uuid) -> Result<Option<Doubt>, StoreError> {
        let mut tx = self.sending.pool.begin().await?;
        let Some(mut case) = Case::lock(&mut tx, intent_id, self.sending.clock.sql_now()).await? else {
            return Ok(None);
        };
        let policy = self.sending.fleet.policy(&case.intent.destination);
        let folded = case.fold(&policy);
        if !matches!(case.intent.state, State::Unknown | State::Abandoned) || folded.state != case.intent.state {
            // Time or evidence has moved it; the row follows.
            let actor = self.actor();
            let moved = settle(&mut tx, &case, &policy, &Cause::of(&actor)).await?;
            tx.commit().await?;
            moved.count(&self.sending.metrics, Reconciler::NAME);
            return Ok(None);
        }
        let spelled = store::intents::given_reference(&mut tx, intent_id).await?;
        tx.commit().await?;
        // Many are held at a time, and nobody computes an old verdict again here.
        for (_, told) in &mut case.look_ups {
            told.record = Value::Null;
        }
        let number = folded.doubtful.first().copied().or_else(|| case.attempts.last().map(|a| a.attempt.number));
        Ok(number.and_then(|number| {
            let generation = case.attempt(number)?.generation.clone();
            Some(Doubt { case, number, generation, spelled })
        }))
    }

    fn actor(&self) -> String {
        format!("reconciler@{}", self.sending.worker)
    }

    /// Replays where that is possible, ends what can never be asked; gives what must be looked up.
    async fn means(&self, intent_id: Uuid) -> Result<Option<Doubt>, StoreError> {
        let Some(doubt) = self.read(intent_id).await? else { return Ok(None) };
        let name = doubt.case.intent.destination.clone();
        let asked = self.sending.fleet.generation(&self.sending.pool, &name, &doubt.generation).await?;
        let Some(Asked { config, look_up }) = asked else {
            self.ended(doubt, "its generation of the destination is not known any more").await?;
            return Ok(None);
        };
        let served = self.sending.fleet.get(&name);
        if doubt.case.look_ups.is_empty() && served.is_some_and(|served| served.generation != doubt.generation) {
            self.sending.metrics.failure_mode(FailureMode::ProviderChanged);
        }
        if doubt.case.intent.state == State::Unknown {
            match replay::start(&self.sending, &doubt, &config).await? {
                Replay::Started | Replay::Moved => return Ok(None),
                // Asking needs no slot and no leave to send; where it is not possible, the replay is only late.
                Replay::NotNow if !matches!(look_up, Ok(Some(_))) => {
                    self.postpone(&doubt).await?;
                    return Ok(None);
                }
                Replay::NotNow | Replay::NotPossible => {}
            }
        }
        match look_up {
            Err(why) => {
                self.ended(doubt, &format!("its generation of the destination cannot be asked: {why}")).await?;
                Ok(None)
            }
            Ok(None) => {
                self.ended(doubt, "the destination cannot be asked").await?;
                Ok(None)
            }
            Ok(Some(_)) => Ok(Some(doubt)),
        }
    }

    /// Nothing could be done just now; the question is put again soon.
    async fn postpone(&self, doubt: &Doubt) -> Result<(), StoreError> {
        let actor = self.actor();
        let mut tx = self.sending.pool.begin().await?;
        let Some(case) = Case::lock(&mut tx, doubt.case.intent.id, self.sending.clock.sql_now()).await? else {
            return Ok(());
        };
        if doubt.moved(&case) {
            return Ok(());
        }
        let policy = self.sending.fleet.policy(&case.intent.destination);
        let mut cause = Cause::of(&actor);
        cause.new_version = false;
        cause.ask_at = Some(after(case.intent.now, LATER));
        settle(&mut tx, &case, &policy, &cause).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Asking is over: whoever reads of it is told so.
    async fn ended(&self, doubt: Doubt, why: &str) -> Result<(), StoreError> {
        let actor = self.actor();
        let mut tx = self.sending.pool.begin().await?;
        let Some(case) = Case::lock(&mut tx, doubt.case.intent.id, self.sending.clock.sql_now()).await? else {
            return Ok(());
        };
        let policy = self.sending.fleet.policy(&case.intent.destination);
        let mut cause = Cause::of(&actor);
        cause.new_version = false;
        cause.asking_ended = Some(why.to_owned());
        cause.detail = Some(why.to_owned());
        let moved = settle(&mut tx, &case, &policy, &cause).await?;
        tx.commit().await?;
        moved.count(&self.sending.metrics, Reconciler::NAME);
        tracing::info!(intent.id = %case.intent.id, intent.reference = %case.intent.reference, state = moved.folded.state.as_str(), why, "asking has ended");
        Ok(())
    }

    /// One listing for all of them, or a question for each where the generation does not list.
    async fn look_up_all(
        &self,
        name: &str,
        generation: &str,
        doubts: Vec<Doubt>,
        charged: &mut f64,
    ) -> Result<Vec<Uuid>, StoreError> {
        let asked = self.sending.fleet.generation(&self.sending.pool, name, generation).await?;
        let Some(Asked { config, look_up: Ok(Some(look_up)) }) = asked else { return Ok(Vec::new()) };
        let size = if look_up.abilities().lists { doubts.len().max(1) } else { 1 };
        let mut left = Vec::new();
        let mut doubts = doubts.into_iter().peekable();
        while doubts.peek().is_some() {
            let group: Vec<Doubt> = doubts.by_ref().take(size).collect();
            let mut subjects: Vec<Subject> = Vec::new();
            let mut parts = Vec::new();
            for doubt in &group {
                let first = subjects.len();
                subjects
                    .extend(keys::of(&self.sending, doubt).await?.into_iter().map(|key| question::subject(doubt, key)));
                parts.push(first..subjects.len());
            }
            let (sending, charged) = (&self.sending, std::mem::take(charged));
            let target = Target { sending, name, generation, config: &config, look_up: &*look_up, charged };
            let round = Round::ask(&target, &subjects).await?;
            failpoint!("reconcile-after-look-up");
            for (part, doubt) in parts.into_iter().zip(group) {
                let intent_id = doubt.case.intent.id;
                let done = match &round {
                    Some(round) => self.conclude(doubt, round, part, step_wait(&config)).await,
                    None => self.ended(doubt, "the destination cannot be asked").await,
                };
                left.extend(done.err().into_iter().flat_map(|error| unconcluded(intent_id, &error)));
            }
        }
        Ok(left)
    }

    /// Judges the answer under the lock of the row and lets the fold do the rest. One part of the round for each key that the
    /// doubtful attempt may have used: the one that forbids most counts.
    async fn conclude(
        &self,
        doubt: Doubt,
        round: &Round,
        parts: std::ops::Range<usize>,
        wait: Duration,
    ) -> Result<(), StoreError> {
        let (at, before) = (self.sending.clock.sql_now(), self.sending.clock.boot());
        let mut tx = store::begin_durable(&self.sending.pool).await?;
        let Some(mut case) = Case::lock(&mut tx, doubt.case.intent.id, at).await? else { return Ok(()) };
        self.sending.watch.heard(before, case.intent.now);
        let asked_at = round.asked_at();
        let distrusted = match self.sending.watch.distrusts(wait, question::began(&doubt)) {
            Some(why) => Some(why),
            None => question::elsewhere(&mut tx, &case, doubt.number).await?,
        };
        let mut strictest: Option<(Judged, Option<Seen>)> = None;
        for index in parts {
            let (question, answer) = round.part(index);
            let distrusted = match &distrusted {
                Some(why) => Some(why.clone()),
                None => keys::reported(&mut tx, &case, doubt.number, &question).await?,
            };
            let about = About::doubt(&case, &doubt, distrusted);
            let seen = answer.seen.first().cloned();
            let next = question::judge(&mut tx, &case, about, round, (question, answer)).await?;
            strictest = Some(match strictest {
                Some(so_far) if keys::forbids(&so_far.0) >= keys::forbids(&next) => so_far,
                Some(_) | None => (next, seen),
            });
        }
        let Some((judged, seen)) = strictest else { return Ok(()) };
        let attempt = attributed(&case, doubt.number, asked_at, &judged);
        if matches!(judged.verdict, Verdict::Found { .. } | Verdict::Duplicate { .. }) {
            keys::pin(&self.sending, &mut tx, &mut case, seen.as_ref()).await?;
            report_orphans(&mut tx, &case, seen.as_ref()).await?;
        }
        let actor = self.actor();
        let entry = Entry {
            intent_id: Some(case.intent.id),
            at,
            kind: "look_up",
            attempt: Some(attempt),
            actor: &actor,
            data: told(round, &doubt.generation, &judged),
        };
        store::journal::append(&mut tx, &entry).await?;
        let Some(case) = Case::lock(&mut tx, case.intent.id, at).await? else { return Ok(()) };
        let moved = self.place(&mut tx, &case, &doubt, &judged).await?;
        failpoint!("reconcile-before-commit");
        tx.commit().await?;
        moved.count(&self.sending.metrics, Reconciler::NAME);
        tell(&self.sending.metrics, &case, attempt, &judged, round.pages(), &moved);
        Ok(())
    }

    async fn place(
        &self,
        conn: &mut sqlx::PgConnection,
        case: &Case,
        doubt: &Doubt,
        judged: &Judged,
    ) -> Result<Moved, StoreError> {
        let policy = self.sending.fleet.policy(&case.intent.destination);
        let actor = self.actor();
        let mut cause = Cause::of(&actor);
        cause.appended = 1;
        cause.new_version = false;
        cause.detail = Some(words(&judged.verdict));
        cause.ask_at = judged.ask_again_at.or_else(|| self.fallback(case, doubt));
        if judged.ask_again_at.is_none() && matches!(judged.verdict, Verdict::Inconclusive { .. }) {
            cause.asking_ended = Some(words(&judged.verdict));
        }
        settle(conn, case, &policy, &cause).await
    }

    /// After a conclusive verdict about one attempt another may still be in doubt. That is asked about at once: a proof does
    /// not live long, and only while all of them hold may it be sent again.
    fn fallback(&self, case: &Case, doubt: &Doubt) -> Option<DateTime<Utc>> {
        let policy = self.sending.fleet.policy(&case.intent.destination);
        let next = case.fold(&policy).doubtful.first().copied();
        if next.is_some_and(|next| next != doubt.number) {
            return Some(case.intent.now);
        }
        let asking = policy.asking?;
        let asked = u32::try_from(doubt.case.look_ups.len()).unwrap_or(u32::MAX);
        Some(after(case.intent.now, backoff::ask_delay(asked, asking.lag, asking.spacing)))
    }
}

impl Step for Reconciler {
    const NAME: &'static str = "reconciler";

    async fn step(&mut self) -> Result<Progress, StoreError> {
        let Sending { pool, clock, worker, .. } = self.asker.sending.clone();
        let at = clock.sql_now();
        let left = self.under_way.take_unconcluded();
        let mut conn = pool.acquire().await?;
        if !left.is_empty()
            && let Err(error) =
                store::queue::asking::put_off_questions(&mut conn, &left, worker, AGAIN_AFTER.as_secs_f64(), at).await
        {
            self.under_way.unconcluded(left);
            return Err(error);
        }
        if self.claim_lost {
            store::queue::asking::free_unknown_questions(&mut conn, &self.under_way.known(), worker).await?;
            self.claim_lost = false;
        }
        let names = store::generations::with_questions_due(&mut conn, at).await?;
        drop(conn);
        let mut begun = HashSet::new();
        for name in names {
            begun.extend(self.lease(&name).await?);
        }
        let worked = begun.len();
        self.under_way.wait_for(begun).await;
        Ok(if worked == 0 { Progress::Idle } else { Progress::Worked(worked) })
    }
}

/// An answer as the journal keeps it.
pub(in crate::engine) fn told(round: &Round, generation: &str, judged: &Judged) -> Value {
    let (kept, record) = round.told(judged.record.clone());
    let told = LookUpTold {
        verdict: judged.verdict.clone(),
        asked_at: round.asked_at(),
        generation: generation.to_owned(),
        round: kept,
        nothing: judged.as_earlier().nothing,
        error: judged.as_earlier().error,
        record,
    };
    serde_json::to_value(&told).unwrap_or_default()
}

/// It will be asked again.
fn unconcluded(intent_id: Uuid, error: &StoreError) -> Option<Uuid> {
    if error.is_transient() {
        // Somebody moved it meanwhile.
        tracing::debug!(intent.id = %intent_id, %error, "question not concluded");
    } else {
        tracing::warn!(intent.id = %intent_id, %error, "question not concluded; it will be asked again");
    }
    Some(intent_id)
}

/// Which attempt a verdict speaks about. A hit without an attempt mark, asked for after a later send began, may be that
/// later one's: it must not count as a second effect.
fn attributed(case: &Case, number: i32, asked_at: DateTime<Utc>, judged: &Judged) -> i32 {
    match judged.verdict {
        Verdict::Found { .. } | Verdict::Duplicate { .. } => {
            let later = case.attempts.iter().rfind(|a| a.attempt.number > number && a.claimed_at <= asked_at);
            later.map_or(number, |a| a.attempt.number)
        }
        Verdict::Absent { .. }
        | Verdict::AbsentByLag { .. }
        | Verdict::Conflict { .. }
        | Verdict::Inconclusive { .. } => number,
    }
}

/// A verdict in words for a person.
pub(in crate::engine) fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Found { weak: false, .. } => "found by key".to_owned(),
        Verdict::Found { weak: true, .. } => "found by reference (weak: the downstream shows no key)".to_owned(),
        Verdict::Duplicate { provider_ids } => format!("found {} times", provider_ids.len()),
        Verdict::Absent { .. } => "proven absent".to_owned(),
        Verdict::AbsentByLag { resend: true, .. } => "absent by lag, which this destination accepts".to_owned(),
        Verdict::AbsentByLag { resend: false, .. } => "absent by lag alone; a person decides".to_owned(),
        Verdict::Conflict { why } => format!("conflict: {why}"),
        Verdict::Inconclusive { why } => format!("inconclusive: {why}"),
    }
}

fn tell(metrics: &Metrics, case: &Case, attempt: i32, judged: &Judged, pages: u32, moved: &Moved) {
    let verdict = match &judged.verdict {
        Verdict::Found { .. } => "found",
        Verdict::Duplicate { .. } => "duplicate",
        Verdict::Absent { .. } => "absent",
        Verdict::AbsentByLag { .. } => "absent_by_lag",
        Verdict::Conflict { .. } => "conflict",
        Verdict::Inconclusive { .. } => "inconclusive",
    };
    metrics.look_up(&case.intent.destination, verdict);
    tracing::info!(
        intent.id = %case.intent.id,
        intent.reference = %case.intent.reference,
        destination = %case.intent.destination,
        attempt,
        verdict,
        pages,
        state = moved.folded.state.as_str(),
        why = %words(&judged.verdict),
        "asked"
    );
}
