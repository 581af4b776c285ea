//! One question: the account, then one listing for all probes or one request for each.

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use super::{
    Http, items,
    reading::{Evidence, Found, Reading},
    request,
    settings::Per,
};
use crate::{
    domain::question::{AccountSeen, Answer, Probe, Question, Role, Seen},
    look_up::{several, template::Values},
};

impl Http {
    pub(super) async fn answer(&self, question: &Question) -> Answer {
        match self.plan.per {
            Per::Window => self.answer_window(question).await,
            Per::Key => self.answer_each(question).await,
        }
    }

    /// One listing for the probes of all questions; each answer says the same about it.
    pub(super) async fn answer_many(&self, questions: &[Question]) -> Vec<Answer> {
        match self.plan.per {
            Per::Window => {
                let Some(whole) = several::whole(questions) else { return Vec::new() };
                several::apart(&self.answer_window(&whole).await, questions)
            }
            Per::Key => {
                let mut answers = Vec::with_capacity(questions.len());
                for question in questions {
                    answers.push(self.answer_each(question).await);
                }
                answers
            }
        }
    }

    async fn answer_window(&self, question: &Question) -> Answer {
        let end = request::end(self.plan.within);
        let mut evidence = Evidence::default();
        let (account, flaw) = self.account(end, &mut evidence).await;
        let from = question.probes.iter().map(|probe| probe.sent_from).min().unwrap_or(question.now);
        let until = question.probes.iter().map(|probe| probe.sent_until).max().unwrap_or(question.now);
        let values = self.values(None, from, until.max(question.now));
        let reading = self.read(&values, end, &mut evidence).await;
        let seen = question.probes.iter().map(|probe| self.seen(&reading, probe)).collect();
        concluded(seen, true, (account, flaw), evidence, request::evidence(&self.plan, &values))
    }

    async fn answer_each(&self, question: &Question) -> Answer {
        let end = request::end(self.plan.within);
        let mut evidence = Evidence::default();
        let account = self.account(end, &mut evidence).await;
        let (seen, query) = self.ask_each(question, end, &mut evidence).await;
        concluded(seen, false, account, evidence, query)
    }

    async fn ask_each(&self, question: &Question, end: Instant, evidence: &mut Evidence) -> (Vec<Seen>, String) {
        let mut seen = vec![Seen::CannotTell { why: "not asked".to_owned() }; question.probes.len()];
        for at in several::order(question) {
            seen[at] = self.ask_one(question, &question.probes[at], end, evidence).await;
        }
        if let Some(elder) = several::elder_again(question, &seen) {
            let again = self.ask_one(question, &question.probes[elder], end, evidence).await;
            seen[elder] = several::after_the_subject(seen[elder].clone(), &again);
        }
        let subject = question.probes.iter().find(|probe| probe.role == Role::Subject).or(question.probes.first());
        let query =
            subject.map_or_else(String::new, |probe| request::evidence(&self.plan, &self.values_of(question, probe)));
        (seen, query)
    }

    async fn ask_one(&self, question: &Question, probe: &Probe, end: Instant, evidence: &mut Evidence) -> Seen {
        if evidence.retry_after.is_some() {
            return Seen::CannotTell { why: "the downstream has asked to be left alone for a while".to_owned() };
        }
        let reading = self.read(&self.values_of(question, probe), end, evidence).await;
        let seen = self.seen(&reading, probe);
        let guessed = probe.spelled.is_none() && probe.reference.contains(|c: char| c.is_ascii_alphabetic());
        if seen == Seen::Nothing && self.plan.asks_as_given && !self.plan.answer.folds_case && guessed {
            return Seen::CannotTell {
                why: "asked by a lower-case reference, and the downstream is not declared to fold case".to_owned(),
            };
        }
        seen
    }

    fn seen(&self, reading: &Reading, probe: &Probe) -> Seen {
        debug_assert!(reading.found != Found::Absent || reading.items.is_empty());
        items::seen(&self.plan, reading, probe)
    }

    fn values_of<'a>(&self, question: &Question, probe: &'a Probe) -> Values<'a> {
        self.values(Some(probe), probe.sent_from, probe.sent_until.max(question.now))
    }

    /// The window, widened on both sides.
    pub(super) fn values<'a>(&self, probe: Option<&'a Probe>, from: DateTime<Utc>, until: DateTime<Utc>) -> Values<'a> {
        let widen = TimeDelta::from_std(self.plan.widen).unwrap_or(TimeDelta::zero());
        Values {
            probe,
            from: from.checked_sub_signed(widen).unwrap_or(from),
            until: until.checked_add_signed(widen).unwrap_or(until),
        }
    }
}

/// Nothing that is missing is believed where the account could not be read.
fn concluded(
    mut seen: Vec<Seen>,
    same_answer: bool,
    (account, flaw): (AccountSeen, Option<String>),
    evidence: Evidence,
    query: String,
) -> Answer {
    if let Some(flaw) = flaw {
        for each in seen.iter_mut().filter(|each| **each == Seen::Nothing) {
            *each = Seen::CannotTell { why: flaw.clone() };
        }
    }
    let (pages, retry_after) = (evidence.pages, evidence.retry_after);
    Answer { seen, same_answer, account, pages, digest: evidence.digest(), query, retry_after }
}
