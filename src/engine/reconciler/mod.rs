//! unknown → what asking proves: replays inside the key's life, then look-ups, of the generation that the attempt used.
//!
//! Questions are leased like sends, so that two daemons do not ask the same; an expired lease is taken over, since asking
//! harms nobody. Every answer is a journal row; only the fold moves the intent.

mod budget;
mod keys;
mod question;
mod replay;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::task::{self, JoinError, JoinSet};
use uuid::Uuid;

use self::{budget::Budgets, replay::Replay};
use super::{
    dispatcher::Sending,
    fleet::Asked,
    folding::{Case, Cause, LookUpTold, Moved, after, settle},
    runner::{Progress, Step},
    watch::step_wait,
};
use crate::{
    domain::{
        absence::{self, Judged},
        backoff,
        evidence::Verdict,
        question::{Answer, Question},
        state::State,
    },
    failpoint::failpoint,
    look_up::LookUp,
    store::{self, error::StoreError, journal::Entry},
    telemetry::metrics::Metrics,
};

/// Questions under way at the same time.
const AT_ONCE: i64 = 16;
/// Until a replay that had no slot, or must not be sent now, is tried again.
const LATER: Duration = Duration::from_secs(30);
/// How long a question may take before another daemon may ask it. The reaper frees those of dead workers earlier.
const QUESTION_LEASE: Duration = Duration::from_secs(120);
/// Until the same question is put again after an answer that could not be written.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// How long a step waits for its questions. Slower ones go on beside the next steps: a downstream that answers late, or never,
/// must not hold up what is asked of the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// The loop.
pub struct Reconciler {
    asker: Arc<Asker>,
    budgets: Budgets,
    /// Questions under way; the map says what each of them is about.
    asking: JoinSet<Result<(), StoreError>>,
    about: HashMap<task::Id, (String, Uuid)>,
    /// Leased by us, and nothing came of it.
    unconcluded: Vec<Uuid>,
    /// The answer to a claim was lost: questions may be leased to us that we do not know of.
    claim_lost: bool,
}

/// Puts one question and writes what it proves.
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
        Self {
            asker: Arc::new(Asker { sending }),
            budgets: Budgets::default(),
            asking: JoinSet::new(),
            about: HashMap::new(),
            unconcluded: Vec::new(),
            claim_lost: false,
        }
    }

    fn begin(&mut self, name: &str, intent_id: Uuid) -> task::Id {
        let asker = Arc::clone(&self.asker);
        // When its lease is over another daemon may ask it, so nobody waits for it any longer.
        let begun = self.asking.spawn(async move {
            tokio::time::timeout(QUESTION_LEASE, asker.ask(intent_id)).await.unwrap_or_else(|_elapsed| {
                tracing::warn!(intent.id = %intent_id, "a question took longer than its lease");
                Err(StoreError::Moved { what: "the question", row: intent_id })
            })
        });
        self.about.insert(begun.id(), (name.to_owned(), intent_id));
        begun.id()
    }

    /// Takes note of one that has ended, and returns which it was.
    fn ended(&mut self, ended: Result<(task::Id, Result<(), StoreError>), JoinError>) -> task::Id {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result.map_err(Some)),
            Err(broken) => {
                tracing::error!(error = %broken, "a question broke off");
                (broken.id(), Err(None))
            }
        };
        let Some((_, intent_id)) = self.about.remove(&id) else { return id };
        let Err(error) = result else { return id };
        self.unconcluded.push(intent_id);
        match error {
            // Somebody moved it meanwhile.
            Some(error) if error.is_transient() => {
                tracing::debug!(intent.id = %intent_id, %error, "question not concluded");
            }
            Some(error) => {
                tracing::warn!(intent.id = %intent_id, %error, "question not concluded; it will be asked again");
            }
            None => {}
        }
        id
    }

    /// Waits until no question is under way any more.
    pub async fn finish(&mut self) {
        while let Some(ended) = self.asking.join_next_with_id().await {
            self.ended(ended);
        }
    }

    /// Waits for these, but not for ever.
    async fn wait_for(&mut self, mut begun: HashSet<task::Id>) {
        let enough = tokio::time::sleep(PATIENCE);
        tokio::pin!(enough);
        while !begun.is_empty() {
            let ended = tokio::select! {
                ended = self.asking.join_next_with_id() => ended,
                () = &mut enough => None,
            };
            let Some(ended) = ended else { return };
            begun.remove(&self.ended(ended));
        }
    }
}

impl Asker {
    async fn read(&self, intent_id: Uuid) -> Result<Option<Doubt>, StoreError> {
        let mut tx = self.sending.pool.begin().await?;
        let Some(case) = Case::lock(&mut tx, intent_id, self.sending.clock.sql_now()).await? else { return Ok(None) };
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
        tx.commit().await?;
        let number = folded.doubtful.first().copied().or_else(|| case.attempts.last().map(|a| a.attempt.number));
        Ok(number.and_then(|number| {
            let generation = case.attempt(number)?.generation.clone();
            Some(Doubt { case, number, generation })
        }))
    }

    fn actor(&self) -> String {
        format!("reconciler@{}", self.sending.worker)
    }

    /// Asks about one intent by the strongest means and writes what that proves.
    async fn ask(&self, intent_id: Uuid) -> Result<(), StoreError> {
        let Some(doubt) = self.read(intent_id).await? else { return Ok(()) };
        let name = doubt.case.intent.destination.clone();
        let asked = self.sending.fleet.generation(&self.sending.pool, &name, &doubt.generation).await?;
        let Some(Asked { config, look_up }) = asked else {
            return self.ended(doubt, "its generation of the destination is not known any more").await;
        };
        if doubt.case.intent.state == State::Unknown {
            match replay::start(&self.sending, &doubt, &config).await? {
                Replay::Started | Replay::Moved => return Ok(()),
                // Asking needs no slot and no leave to send; where it is not possible, the replay is only late.
                Replay::NotNow if !matches!(look_up, Ok(Some(_))) => return self.postpone(&doubt).await,
                Replay::NotNow | Replay::NotPossible => {}
            }
        }
        match look_up {
            Err(why) => self.ended(doubt, &format!("its generation of the destination cannot be asked: {why}")).await,
            Ok(None) => self.ended(doubt, "the destination cannot be asked").await,
            Ok(Some(look_up)) => self.look_up(doubt, &config, &*look_up).await,
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

    async fn look_up(
        &self,
        doubt: Doubt,
        config: &crate::config::destination::Destination,
        look_up: &dyn LookUp,
    ) -> Result<(), StoreError> {
        let Some(rules) = question::rules(config, look_up) else {
            return self.ended(doubt, "the destination cannot be asked").await;
        };
        let mut asked = Vec::new();
        for key in keys::of(&self.sending, &doubt).await? {
            let question = question::build(&self.sending.pool, &doubt, &rules, key).await?;
            let answer = look_up.ask(&question).await.printable();
            asked.push((question, answer));
        }
        failpoint!("reconcile-after-look-up");
        self.conclude(doubt, rules, step_wait(config), asked).await
    }

    /// Judges the answers under the lock of the row and lets the fold do the rest. One answer for each key that the doubtful
    /// attempt may have used: the one that forbids most counts.
    async fn conclude(
        &self,
        doubt: Doubt,
        rules: absence::Rules,
        wait: Duration,
        asked: Vec<(Question, Answer)>,
    ) -> Result<(), StoreError> {
        let (at, before) = (self.sending.clock.sql_now(), self.sending.clock.boot());
        let mut tx = self.sending.pool.begin().await?;
        store::durable(&mut tx).await?;
        let Some(case) = Case::lock(&mut tx, doubt.case.intent.id, at).await? else { return Ok(()) };
        self.sending.watch.heard(before, case.intent.now);
        let pages = asked.iter().map(|(_, answer)| answer.pages).sum();
        let Some(asked_at) = asked.iter().map(|(question, _)| question.now).min() else { return Ok(()) };
        let suspended = self.sending.watch.distrusts(wait, question::began(&doubt));
        let mut judged: Option<Judged> = None;
        for (question, answer) in asked {
            let next = question::judge(&mut tx, &case, &doubt, &rules, question, answer, suspended.clone()).await?;
            judged = Some(match judged {
                Some(before) if keys::forbids(&before.verdict) >= keys::forbids(&next.verdict) => before,
                Some(_) | None => next,
            });
        }
        let Some(judged) = judged else { return Ok(()) };
        let told = LookUpTold {
            verdict: judged.verdict.clone(),
            asked_at,
            generation: doubt.generation.clone(),
            nothing: judged.as_earlier().nothing,
            error: judged.as_earlier().error,
            record: judged.record.clone(),
        };
        let attempt = attributed(&case, doubt.number, asked_at, &judged);
        let actor = self.actor();
        let entry = Entry {
            intent_id: Some(case.intent.id),
            at,
            kind: "look_up",
            attempt: Some(attempt),
            actor: &actor,
            data: serde_json::to_value(&told).unwrap_or_default(),
        };
        store::journal::append(&mut tx, &entry).await?;
        let Some(case) = Case::lock(&mut tx, case.intent.id, at).await? else { return Ok(()) };
        let moved = self.place(&mut tx, &case, &doubt, &judged).await?;
        failpoint!("reconcile-before-commit");
        tx.commit().await?;
        moved.count(&self.sending.metrics, Reconciler::NAME);
        tell(&self.sending.metrics, &case, attempt, &judged, pages, &moved);
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
        while let Some(ended) = self.asking.try_join_next_with_id() {
            self.ended(ended);
        }
        let Sending { pool, clock, fleet, worker, .. } = self.asker.sending.clone();
        let at = clock.sql_now();
        let mut conn = pool.acquire().await?;
        if !self.unconcluded.is_empty() {
            let again = AGAIN_AFTER.as_secs_f64();
            store::queue::put_off_questions(&mut conn, &self.unconcluded, worker, again, at).await?;
            self.unconcluded.clear();
        }
        if self.claim_lost {
            let ours: Vec<Uuid> = self.about.values().map(|(_, intent)| *intent).collect();
            store::queue::free_unknown_questions(&mut conn, &ours, worker).await?;
            self.claim_lost = false;
        }
        let names = store::generations::with_questions_due(&mut conn, at).await?;
        let mut begun = HashSet::new();
        for name in names {
            let under_way = self.about.values().filter(|(of, _)| *of == name).count();
            let free = AT_ONCE - i64::try_from(under_way).unwrap_or(AT_ONCE);
            if free <= 0 {
                continue;
            }
            let per_minute = fleet.get(&name).and_then(|s| s.config.look_up.as_ref()).map_or(60, |l| l.per_minute);
            let allowed = self.budgets.take(&name, per_minute, free, clock.boot());
            if allowed == 0 {
                continue;
            }
            let lease = QUESTION_LEASE.as_secs_f64();
            let claimed = store::queue::claim_questions(&mut conn, &name, allowed, lease, worker, at)
                .await
                .inspect_err(|_| self.claim_lost = true)?;
            self.budgets.give_back(&name, allowed - i64::try_from(claimed.len()).unwrap_or(0));
            begun.extend(claimed.iter().map(|question| self.begin(&name, question.intent_id)));
        }
        drop(conn);
        let worked = begun.len();
        self.wait_for(begun).await;
        Ok(if worked == 0 { Progress::Idle } else { Progress::Worked(worked) })
    }
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
fn words(verdict: &Verdict) -> String {
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
