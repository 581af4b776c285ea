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
    domain::question::{Answer, Probe, Question, Role, Seen},
    look_up::template::Values,
};

impl Http {
    pub(super) async fn answer(&self, question: &Question) -> Answer {
        let end = request::end(self.plan.within);
        let mut evidence = Evidence::default();
        let (account, flaw) = self.account(end).await;
        let (mut seen, query) = match self.plan.per {
            Per::Window => self.ask_window(question, end, &mut evidence).await,
            Per::Key => self.ask_each(question, end, &mut evidence).await,
        };
        if let Some(flaw) = flaw {
            for each in &mut seen {
                if *each == Seen::Nothing {
                    *each = Seen::CannotTell { why: flaw.clone() };
                }
            }
        }
        Answer {
            seen,
            same_answer: self.plan.per == Per::Window,
            account,
            pages: evidence.pages,
            digest: evidence.digest(),
            query,
            retry_after: None,
        }
    }

    async fn ask_window(&self, question: &Question, end: Instant, evidence: &mut Evidence) -> (Vec<Seen>, String) {
        let from = question.probes.iter().map(|probe| probe.sent_from).min().unwrap_or(question.now);
        let until = question.probes.iter().map(|probe| probe.sent_until).max().unwrap_or(question.now);
        let values = self.values(None, from, until.max(question.now));
        let reading = self.read(&values, end, evidence).await;
        let seen = question.probes.iter().map(|probe| self.seen(&reading, probe)).collect();
        (seen, request::evidence(&self.plan, &values))
    }

    async fn ask_each(&self, question: &Question, end: Instant, evidence: &mut Evidence) -> (Vec<Seen>, String) {
        let mut seen: Vec<Option<Seen>> = vec![None; question.probes.len()];
        let mut order: Vec<usize> = (0..question.probes.len()).collect();
        order.sort_by_key(|at| place(question.probes[*at].role));
        for at in order {
            seen[at] = Some(self.ask_one(question, &question.probes[at], end, evidence).await);
        }
        let has = |role: Role| question.probes.iter().position(|probe| probe.role == role);
        if let (Some(elder), None) = (has(Role::Elder), has(Role::Younger))
            && matches!(seen[elder], Some(Seen::Hits { .. }))
        {
            let again = self.ask_one(question, &question.probes[elder], end, evidence).await;
            if !matches!(again, Seen::Hits { .. }) {
                seen[elder] = Some(Seen::CannotTell { why: "visible before the question, not after it".to_owned() });
            }
        }
        let seen =
            seen.into_iter().map(|each| each.unwrap_or(Seen::CannotTell { why: "not asked".to_owned() })).collect();
        let shown = has(Role::Subject).or((!question.probes.is_empty()).then_some(0));
        let query = shown.map_or_else(String::new, |at| {
            let probe = &question.probes[at];
            request::evidence(&self.plan, &self.values_of(question, probe))
        });
        (seen, query)
    }

    async fn ask_one(&self, question: &Question, probe: &Probe, end: Instant, evidence: &mut Evidence) -> Seen {
        let reading = self.read(&self.values_of(question, probe), end, evidence).await;
        let seen = self.seen(&reading, probe);
        let lettered = probe.reference.contains(|c: char| c.is_ascii_alphabetic());
        if seen == Seen::Nothing && self.plan.asks.reference && !self.plan.answer.folds_case && lettered {
            return Seen::CannotTell {
                why: "asked by a lower-case reference, and the downstream is not declared to fold case".to_owned(),
            };
        }
        seen
    }

    fn seen(&self, reading: &Reading, probe: &Probe) -> Seen {
        debug_assert!(reading.found != Found::Absent || reading.items.is_empty());
        items::seen(&self.plan.answer, self.plan.named, reading, probe)
    }

    fn values_of<'a>(&self, question: &Question, probe: &'a Probe) -> Values<'a> {
        self.values(Some(probe), probe.sent_from, probe.sent_until.max(question.now))
    }

    /// The window, widened on both sides.
    fn values<'a>(&self, probe: Option<&'a Probe>, from: DateTime<Utc>, until: DateTime<Utc>) -> Values<'a> {
        let widen = TimeDelta::from_std(self.plan.widen).unwrap_or(TimeDelta::zero());
        Values {
            probe,
            from: from.checked_sub_signed(widen).unwrap_or(from),
            until: until.checked_add_signed(widen).unwrap_or(until),
        }
    }
}

/// Control, question, control.
fn place(role: Role) -> u8 {
    match role {
        Role::Elder => 0,
        Role::Subject => 1,
        Role::Younger => 2,
        Role::Impossible => 3,
    }
}
