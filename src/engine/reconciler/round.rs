//! One question to one generation of a destination: about one intent, or, where it lists, about many that share the listing
//! and its controls.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::{lag, question, under_way::while_leased};
use crate::{
    config::destination::Destination,
    domain::{
        absence::{Rules, shared},
        question::{AccountSeen, Answer, Probe, Question},
    },
    engine::dispatcher::Sending,
    look_up::LookUp,
    store::{self, error::StoreError},
};

/// A generation that can be asked.
pub(in crate::engine) struct Target<'a> {
    /// Pool, clock, numbers.
    pub sending: &'a Sending,
    /// The destination.
    pub name: &'a str,
    /// Its generation.
    pub generation: &'a str,
    /// As it is declared.
    pub config: &'a Destination,
    /// How it is asked.
    pub look_up: &'a dyn LookUp,
    /// Calls that were charged when the questions were leased.
    pub charged: f64,
}

/// One intent in a round.
#[derive(Clone)]
pub(in crate::engine) struct Subject {
    /// Which.
    pub intent_id: Uuid,
    /// What is looked for.
    pub probe: Probe,
    /// Database time at which its evidence was read.
    pub now: DateTime<Utc>,
}

/// A question with its answer.
pub(in crate::engine) struct Round {
    /// What the generation declares.
    pub rules: Rules,
    /// Why absence is not believed just now.
    pub suspended: Option<String>,
    question: Question,
    answer: Answer,
    subjects: usize,
    kept: Option<(Uuid, Value)>,
}

impl Round {
    /// Asks about these subjects by one question. `None` where the generation cannot be asked.
    pub async fn ask(target: &Target<'_>, subjects: &[Subject]) -> Result<Option<Self>, StoreError> {
        let Some(rules) = question::rules(target.config, target.look_up) else { return Ok(None) };
        let Some(now) = subjects.iter().map(|subject| subject.now).min() else { return Ok(None) };
        let sending = target.sending;
        let mut conn = sending.pool.acquire().await?;
        let at = sending.clock.sql_now();
        let suspended = lag::suspended(&mut conn, target.name, target.generation, rules.lag, at).await?;
        let controls = question::controls(&mut conn, target.name, target.generation, subjects, &rules, now).await?;
        drop(conn);
        let mut probes: Vec<Probe> = subjects.iter().map(|subject| subject.probe.clone()).collect();
        probes.extend(controls);
        let question = Question { probes, now };
        let Some(answer) = while_leased(sending, target.name, target.look_up.ask(&question)).await else {
            let row = subjects.first().map(|subject| subject.intent_id).unwrap_or_default();
            return Err(StoreError::Moved { what: "the question", row });
        };
        let answer = answer.printable();
        let mut round = Self { rules, suspended, question, answer, subjects: subjects.len(), kept: None };
        round.account_for(target).await?;
        round.keep(target).await?;
        Ok(Some(round))
    }

    /// What it took is charged, and what the downstream asked for is obeyed by everybody.
    async fn account_for(&self, target: &Target<'_>) -> Result<(), StoreError> {
        let calls = calls(&self.answer);
        let took = f64::from(calls);
        let mut conn = target.sending.pool.acquire().await?;
        store::asking::settle(&mut conn, target.name, target.charged, took).await?;
        target.sending.metrics.look_up_calls(target.name, calls);
        if let Some(wait) = self.answer.retry_after {
            let why = format!("the downstream asked to be left alone for {}", humantime::format_duration(wait));
            let at = target.sending.clock.sql_now();
            store::asking::suspend(&mut conn, target.name, wait.as_secs_f64(), &why, at).await?;
            tracing::warn!(destination = %target.name, seconds = wait.as_secs(), "asking is suspended: {why}");
        }
        Ok(())
    }

    /// The part that all cases share is written once.
    async fn keep(&mut self, target: &Target<'_>) -> Result<(), StoreError> {
        if self.subjects < 2 {
            return Ok(());
        }
        let (question, answer) = self.part(0);
        let (id, common) = (Uuid::now_v7(), shared::shared(&self.rules, &question, &answer));
        let intents = i32::try_from(self.subjects).unwrap_or(i32::MAX);
        let mut conn = target.sending.pool.acquire().await?;
        store::rounds::keep(&mut conn, id, target.name, target.generation, self.question.now, intents, &common).await?;
        self.kept = Some((id, common));
        Ok(())
    }

    /// Question and answer as one of the subjects would have had them alone.
    pub fn part(&self, at: usize) -> (Question, Answer) {
        let alone = |index: usize| index == at || index >= self.subjects;
        let probes = self.question.probes.iter().enumerate().filter(|(i, _)| alone(*i)).map(|(_, p)| p.clone());
        // An answer of another length than its question is the judge's to refuse.
        let seen = self.answer.seen.iter().enumerate().filter(|(i, _)| alone(*i)).map(|(_, s)| s.clone());
        (
            Question { probes: probes.collect(), now: self.question.now },
            Answer {
                seen: seen.collect(),
                account: self.answer.account.clone(),
                digest: self.answer.digest.clone(),
                query: self.answer.query.clone(),
                ..self.answer
            },
        )
    }

    /// A record as it is written: without the shared part, where that is kept.
    pub fn told(&self, record: Value) -> (Option<Uuid>, Value) {
        match &self.kept {
            Some((id, common)) => match shared::without_shared(record, common) {
                Ok(own) => (Some(*id), own),
                Err(whole) => (None, whole),
            },
            None => (None, record),
        }
    }

    /// Start of the question, database time.
    pub fn asked_at(&self) -> DateTime<Utc> {
        self.question.now
    }

    /// Pages read.
    pub fn pages(&self) -> u32 {
        self.answer.pages
    }
}

/// Calls that an answer took, as far as it says.
fn calls(answer: &Answer) -> u32 {
    let account = match answer.account {
        AccountSeen::Matches { .. } | AccountSeen::Differs { .. } => 1,
        AccountSeen::NotChecked => 0,
    };
    answer.pages.max(1) + account
}

/// Whole seconds of a span, for words.
pub(in crate::engine) fn seconds(from: DateTime<Utc>, until: DateTime<Utc>) -> f64 {
    (until - from).to_std().unwrap_or(Duration::ZERO).as_secs_f64()
}
