//! The judge: what an answer of the downstream proves about one attempt in doubt.
//!
//! The reconciler builds a [`Case`] from a look-up's answer and from what the ledger knows, and writes the [`Judged`]
//! verdict with its record. Nothing else may conclude, and a [`ProvenAbsent`] is made only here. What must hold: an error
//! towards "not there" sends twice, an error towards "there" loses an effect silently; so what is odd is Inconclusive,
//! with the reason in words for a person. The record holds the whole case, so that the verdict can be computed again.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    evidence::Verdict,
    question::{AccountSeen, Answer, Probe, Question, Role, Seen},
};

mod hits;
mod nothing;
mod record;
pub mod shared;
#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test that cannot go on must stop loudly")]
mod tests;

/// Counts changes of the rules below; stored with every verdict.
pub const RULES_VERSION: u32 = 1;

/// A proof is stale after this long, or after the lag where that is shorter.
pub const PROOF_LIFE: Duration = Duration::from_secs(15 * 60);

/// The most that must be left of a proof when the next send is claimed.
const PROOF_MARGIN: Duration = Duration::from_secs(2);

/// How long a proof is believed from the start of its last question: no longer than the lag, in which what was not visible
/// could become so.
pub fn proof_life(lag: Duration) -> Duration {
    lag.min(PROOF_LIFE)
}

/// A proof must outlive the claim of the next send by this much; less where it lives but shortly.
pub fn proof_margin(lag: Duration) -> Duration {
    PROOF_MARGIN.min(lag / 4)
}

/// What the generation that is asked declares about its look-up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rules {
    /// Everything between our last byte and visibility.
    #[serde(with = "humantime_serde")]
    pub lag: Duration,
    /// How long after the start of the attempt it can be asked about.
    #[serde(with = "humantime_serde")]
    pub horizon: Duration,
    /// Equal answers that make an absence; 0 counts as 1.
    pub need: u32,
    /// Least time between two answers that count.
    #[serde(with = "humantime_serde")]
    pub spacing: Duration,
    /// What was accepted earlier is visible earlier (`visibility = "ordered"`).
    pub ordered: bool,
    /// An absence by the lag alone may be sent again (`absent_by_lag = "resend"`).
    pub resend_by_lag: bool,
    /// Items carry our key.
    pub shows_key: bool,
    /// A question about a window lists everything in it, witnesses included.
    pub lists: bool,
}

/// The attempt in doubt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Doubtful {
    /// Its number.
    pub attempt: i32,
    /// Its claim token.
    pub token: Uuid,
    /// The generation of the destination that it used, which is also the one that was asked.
    pub generation: String,
    /// Start of the attempt: its claim.
    pub started_at: DateTime<Utc>,
    /// From when no byte of it can leave any more.
    pub closure_at: DateTime<Utc>,
    /// Who the downstream said we were at the send, where it said so.
    pub account: Option<String>,
}

/// An earlier answer about the same attempt and generation, as [`Judged::as_earlier`] gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierAnswer {
    /// Start of that question, database time.
    pub at: DateTime<Utc>,
    /// Everything held but the count of equal answers.
    pub nothing: bool,
    /// Something could not be read or a control failed.
    pub error: bool,
}

/// An intent of ours, of any state, tenant or age, that carries the reference of the subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Which.
    pub intent_id: Uuid,
    /// The subject itself; it must be among the known ones.
    pub is_subject: bool,
    /// Same tenant, scope, recipient, reference and occurrence, under another identity.
    pub same_effect: bool,
    /// It belongs to another tenant: its names are masked in words and record.
    pub other_tenant: bool,
    /// Its pinned key; `None` before the first claim.
    pub key: Option<String>,
    /// At least one attempt was ever claimed.
    pub attempted: bool,
    /// Attempts that are not proven to have made no effect.
    pub sent_attempts: u32,
}

/// Everything that a verdict rests on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Case {
    /// What the asked generation declares.
    pub rules: Rules,
    /// What is in doubt.
    pub doubtful: Doubtful,
    /// What was asked; `question.now` is the start of the question, database time.
    pub question: Question,
    /// What came back.
    pub answer: Answer,
    /// Earlier answers about this attempt from this generation, newest last.
    pub earlier: Vec<EarlierAnswer>,
    /// All intents that could explain a hit on the reference.
    pub known: Vec<Known>,
    /// The destination's self-test of this generation passed lately.
    pub self_test_fresh: bool,
    /// Why absence must not be believed just now: the database clock stepped, the measured lag is too long.
    pub suspended: Option<String>,
    /// Database time when the answer was complete.
    pub now: DateTime<Utc>,
}

/// How this answer counts in the row of equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Counts {
    /// A clean "not there", with controls.
    Nothing,
    /// It ends the row.
    Error,
    /// It ends the row as well, but nothing was wrong.
    Other,
}

/// A verdict and everything to store with it.
#[derive(Debug, Clone)]
pub struct Judged {
    /// What the answer proves.
    pub verdict: Verdict,
    /// When to ask again; `None` where asking has ended or nothing is left to ask.
    pub ask_again_at: Option<DateTime<Utc>>,
    /// For the journal: the whole case and the verdict. [`Case::from_record`] reads it.
    pub record: serde_json::Value,
    attempt: i32,
    asked_at: DateTime<Utc>,
    counts: Counts,
}

/// Proof that one attempt made no effect. Made only by [`Judged::proof`] and consumed by whoever sends again.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a proof that nobody uses goes stale"]
pub struct ProvenAbsent {
    attempt: i32,
    valid_until: DateTime<Utc>,
}

impl ProvenAbsent {
    /// The attempt that it speaks about, and no other.
    pub fn attempt(&self) -> i32 {
        self.attempt
    }

    /// From then on it proves nothing.
    pub fn valid_until(&self) -> DateTime<Utc> {
        self.valid_until
    }
}

impl Judged {
    /// The proof, where this verdict permits another send.
    pub fn proof(&self) -> Option<ProvenAbsent> {
        match &self.verdict {
            Verdict::Absent { valid_until } | Verdict::AbsentByLag { valid_until, resend: true } => {
                Some(ProvenAbsent { attempt: self.attempt, valid_until: *valid_until })
            }
            Verdict::AbsentByLag { resend: false, .. }
            | Verdict::Found { .. }
            | Verdict::Duplicate { .. }
            | Verdict::Conflict { .. }
            | Verdict::Inconclusive { .. } => None,
        }
    }

    /// How the next question must count this answer. Store it with the record.
    pub fn as_earlier(&self) -> EarlierAnswer {
        EarlierAnswer {
            at: self.asked_at,
            nothing: self.counts == Counts::Nothing,
            error: self.counts == Counts::Error,
        }
    }
}

/// What one step of judging concluded, before the next time to ask is set.
struct Finding {
    verdict: Verdict,
    counts: Counts,
    ask: Ask,
}

/// When to ask again.
enum Ask {
    /// Nothing is left to ask.
    Never,
    /// Not before then.
    At(DateTime<Utc>),
    /// By the ordinary spacing.
    Later,
}

impl Finding {
    fn odd(why: impl Into<String>) -> Self {
        Self { verdict: Verdict::Inconclusive { why: why.into() }, counts: Counts::Error, ask: Ask::Later }
    }

    fn unclear(why: impl Into<String>) -> Self {
        Self { verdict: Verdict::Inconclusive { why: why.into() }, counts: Counts::Other, ask: Ask::Later }
    }

    fn conflict(why: impl Into<String>) -> Self {
        Self { verdict: Verdict::Conflict { why: why.into() }, counts: Counts::Other, ask: Ask::Later }
    }
}

impl Case {
    /// Judges the answer.
    pub fn judge(&self) -> Judged {
        let mut finding = self.find();
        if !self.self_test_fresh {
            finding = without_self_test(finding);
        }
        let ask_again_at = self.next_question(&finding.ask);
        Judged {
            record: record::write(self, &finding, ask_again_at),
            verdict: finding.verdict,
            ask_again_at,
            attempt: self.doubtful.attempt,
            asked_at: self.question.now,
            counts: finding.counts,
        }
    }

    fn find(&self) -> Finding {
        let (probe, seen) = match self.subject() {
            Ok(subject) => subject,
            Err(why) => return Finding::odd(why),
        };
        if let AccountSeen::Differs { seen } = &self.answer.account {
            return Finding::odd(format!("the downstream answered as another account: {seen}"));
        }
        match seen {
            Seen::CannotTell { why } => Finding::odd(format!("the answer cannot be read as yes or no: {why}")),
            Seen::Hits { hits } => hits::explain(self, probe, hits),
            Seen::Nothing => nothing::weigh(self, probe),
        }
    }

    /// The subject's probe and answer, where question and answer have the shape they must have.
    fn subject(&self) -> Result<(&Probe, &Seen), String> {
        let asked = self.question.probes.len();
        if asked != self.answer.seen.len() {
            return Err(format!("{asked} probes were asked and {} answered", self.answer.seen.len()));
        }
        let mut subjects = self.asked(Role::Subject);
        let subject = subjects.next().ok_or("the question has no subject")?;
        if subjects.next().is_some() {
            return Err("the question has more than one subject".to_owned());
        }
        let known: Vec<_> = self.known.iter().filter(|known| known.is_subject).collect();
        let [known] = known[..] else {
            return Err("the subject is not exactly once among the known intents".to_owned());
        };
        if known.key.as_ref().is_some_and(|key| !same_key(key, &subject.0.key)) {
            return Err("the subject was asked for under another key than its pinned one".to_owned());
        }
        Ok(subject)
    }

    /// Probes of one role with their answers.
    fn asked(&self, role: Role) -> impl Iterator<Item = (&Probe, &Seen)> {
        self.question.probes.iter().zip(&self.answer.seen).filter(move |(probe, _)| probe.role == role)
    }

    /// From when an answer can count towards absence.
    fn ripe_at(&self) -> DateTime<Utc> {
        plus(self.doubtful.closure_at, self.rules.lag)
    }

    /// From when nothing is proven any more.
    fn horizon_at(&self) -> DateTime<Utc> {
        plus(self.doubtful.started_at, self.rules.horizon)
    }

    fn next_question(&self, ask: &Ask) -> Option<DateTime<Utc>> {
        let number = u32::try_from(self.earlier.len()).unwrap_or(u32::MAX).saturating_add(1);
        let at = match ask {
            Ask::Never => return None,
            Ask::At(at) => *at,
            Ask::Later => plus(self.now, super::backoff::ask_delay(number, self.rules.lag, self.rules.spacing)),
        };
        (at < self.horizon_at()).then_some(at)
    }
}

/// A destination whose self-test is not fresh can only answer Found or Inconclusive.
fn without_self_test(finding: Finding) -> Finding {
    let stale = |what: &str| Finding::odd(format!("the self-test of the destination is not fresh; without it: {what}"));
    match finding.verdict {
        Verdict::Found { .. } | Verdict::Duplicate { .. } | Verdict::Inconclusive { .. } => finding,
        Verdict::Absent { .. } | Verdict::AbsentByLag { .. } => stale("absent"),
        Verdict::Conflict { why } => stale(&why),
    }
}

/// Keys are hexadecimal digits, and some downstreams change the case of what they store.
fn same_key(one: &str, other: &str) -> bool {
    !one.is_empty() && one.eq_ignore_ascii_case(other)
}

/// Saturates instead of leaving the calendar.
fn plus(at: DateTime<Utc>, span: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(span).ok().and_then(|span| at.checked_add_signed(span)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}
