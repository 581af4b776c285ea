//! Switchable faults: what goes wrong, when, and how often.
//!
//! A fake asks [`Faults::take`] at every stage of a conversation and lets [`play`] do what the fault says. Refusing
//! connections is not here but at the [`super::door::Door`]: at that moment there is no request to look at.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{latch::Latch, locked};

/// Called by the fake after it has acted and before it would answer; the crash suite kills the daemon in it.
pub type Callback = Arc<dyn Fn() + Send + Sync>;

/// What goes wrong. "Act" means: the effect happens and is in the ledger.
#[derive(Clone)]
pub enum Fault {
    /// Act, then reset the connection.
    LoseReply,
    /// Act, then close the connection in good order without an answer.
    CloseWithoutReply,
    /// Act, then never answer.
    LoseReplySilent,
    /// Read everything, do not act, reset.
    ResetBeforeActing,
    /// Read everything, do not act, never answer.
    SilentBeforeActing,
    /// Answer with this status.
    Status {
        /// HTTP status or SMTP reply code.
        code: u16,
        /// Whether the effect happens all the same.
        act: bool,
    },
    /// Act, answer late.
    SlowReply(Duration),
    /// Act, send the head and half of the body, close.
    CloseMidBody,
    /// A 200 with a page for people instead of an answer for programs.
    HtmlPage {
        /// Whether the effect happens all the same.
        act: bool,
    },
    /// Act, call back, drop the connection.
    KillBeforeAnswer(Callback),
    /// Wait at the latch, then answer.
    HoldUntilReleased {
        /// Whether the effect happens before the wait; otherwise after it.
        act: bool,
        /// Released by the test.
        latch: Arc<Latch>,
    },
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoseReply => f.write_str("LoseReply"),
            Self::CloseWithoutReply => f.write_str("CloseWithoutReply"),
            Self::LoseReplySilent => f.write_str("LoseReplySilent"),
            Self::ResetBeforeActing => f.write_str("ResetBeforeActing"),
            Self::SilentBeforeActing => f.write_str("SilentBeforeActing"),
            Self::Status { code, act } => write!(f, "Status({code}, act: {act})"),
            Self::SlowReply(by) => write!(f, "SlowReply({by:?})"),
            Self::CloseMidBody => f.write_str("CloseMidBody"),
            Self::HtmlPage { act } => write!(f, "HtmlPage(act: {act})"),
            Self::KillBeforeAnswer(_) => f.write_str("KillBeforeAnswer"),
            Self::HoldUntilReleased { act, .. } => write!(f, "HoldUntilReleased(act: {act})"),
        }
    }
}

/// Where in a conversation. HTTP knows only [`Stage::Act`]; SMTP all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stage {
    /// Before the greeting.
    Connect,
    /// EHLO or HELO.
    Hello,
    /// STARTTLS.
    StartTls,
    /// AUTH.
    Auth,
    /// MAIL FROM.
    From,
    /// RCPT TO.
    To,
    /// DATA, before 354.
    Data,
    /// Inside the message, after its first line.
    Body,
    /// The request is complete, the final dot was read: the moment at which the downstream acts.
    #[default]
    Act,
}

/// What is known about a request when a fault is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Where the conversation stands.
    pub stage: Stage,
    /// The reference, where it is known already.
    pub reference: Option<&'a str>,
    /// The key, where it is known already.
    pub key: Option<&'a str>,
}

/// Which requests.
#[derive(Clone)]
pub enum When {
    /// Every one.
    Any,
    /// The n-th at that stage since the start, counted from 1.
    Nth(u64),
    /// With this reference, in any case.
    Reference(String),
    /// This share of them, 0 to 1.
    Probability(f64),
    /// What the test says.
    Matching(Arc<dyn Fn(&Subject<'_>) -> bool + Send + Sync>),
}

struct Rule {
    stage: Stage,
    when: When,
    times: u64,
    fault: Fault,
}

struct Inner {
    rules: Vec<Rule>,
    counts: std::collections::HashMap<Stage, u64>,
    fired: Vec<String>,
    dice: StdRng,
}

/// The faults of one side of a fake. Without rules everything goes well.
pub struct Faults {
    inner: Mutex<Inner>,
}

impl Default for Faults {
    fn default() -> Self {
        Self::seeded(2291)
    }
}

impl Faults {
    /// The same probabilities in the same order give the same faults again.
    pub fn seeded(seed: u64) -> Self {
        let inner = Inner {
            rules: Vec::new(),
            counts: std::collections::HashMap::new(),
            fired: Vec::new(),
            dice: StdRng::seed_from_u64(seed),
        };
        Self { inner: Mutex::new(inner) }
    }

    /// The next request goes wrong, once. Called twice: the next two.
    pub fn next(&self, fault: Fault) {
        self.add(Stage::Act, When::Any, 1, fault);
    }

    /// The next request with this reference, once.
    pub fn for_reference(&self, reference: &str, fault: Fault) {
        self.add(Stage::Act, When::Reference(reference.to_owned()), 1, fault);
    }

    /// Every request until [`Faults::clear`].
    pub fn always(&self, fault: Fault) {
        self.add(Stage::Act, When::Any, u64::MAX, fault);
    }

    /// The next conversation that comes to this stage, once.
    pub fn at(&self, stage: Stage, fault: Fault) {
        self.add(stage, When::Any, 1, fault);
    }

    /// The general form. Rules are tried in the order of adding; the first that fits is used.
    pub fn add(&self, stage: Stage, when: When, times: u64, fault: Fault) {
        locked(&self.inner).rules.push(Rule { stage, when, times, fault });
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        locked(&self.inner).rules.clear();
    }

    /// What has gone wrong so far, in order.
    pub fn fired(&self) -> Vec<String> {
        locked(&self.inner).fired.clone()
    }

    /// Requests that came to this stage.
    pub fn count(&self, stage: Stage) -> u64 {
        locked(&self.inner).counts.get(&stage).copied().unwrap_or(0)
    }

    /// Called by the fakes: counts the request and says what goes wrong with it.
    pub fn take(&self, subject: Subject<'_>) -> Option<Fault> {
        let mut inner = locked(&self.inner);
        let inner = &mut *inner;
        let number = inner.counts.entry(subject.stage).or_default();
        *number += 1;
        let (number, dice) = (*number, &mut inner.dice);
        let position = inner.rules.iter().position(|rule| {
            rule.stage == subject.stage
                && match &rule.when {
                    When::Any => true,
                    When::Nth(n) => *n == number,
                    When::Reference(wanted) => subject.reference.is_some_and(|r| r.eq_ignore_ascii_case(wanted)),
                    When::Probability(p) => dice.random_bool(p.clamp(0.0, 1.0)),
                    When::Matching(fits) => fits(&subject),
                }
        })?;
        let rule = inner.rules.get_mut(position)?;
        rule.times -= 1;
        let fault = rule.fault.clone();
        if rule.times == 0 {
            inner.rules.remove(position);
        }
        inner.fired.push(format!("{:?}: {fault:?}", subject.stage));
        Some(fault)
    }
}

/// How a request ends on the wire.
#[derive(Debug)]
pub enum Ending<A> {
    /// With an answer.
    Answer(A),
    /// With half an answer and a closed connection.
    Half(A),
    /// With a reset.
    Reset,
    /// With an orderly close.
    Close,
    /// Not at all.
    Never,
}

/// What is answered instead of the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// This status.
    Status(u16),
    /// A page for people.
    Page,
}

/// Does what the fault says. `act` makes the effect and gives the true answer; `instead` spells a false one.
pub async fn play<A>(
    fault: Option<Fault>,
    act: impl FnOnce() -> A + Send,
    instead: impl FnOnce(Instead) -> A + Send,
) -> Ending<A> {
    let Some(fault) = fault else { return Ending::Answer(act()) };
    match fault {
        Fault::LoseReply => {
            act();
            Ending::Reset
        }
        Fault::CloseWithoutReply => {
            act();
            Ending::Close
        }
        Fault::LoseReplySilent => {
            act();
            Ending::Never
        }
        Fault::ResetBeforeActing => Ending::Reset,
        Fault::SilentBeforeActing => Ending::Never,
        Fault::Status { code, act: true } => {
            act();
            Ending::Answer(instead(Instead::Status(code)))
        }
        Fault::Status { code, act: false } => Ending::Answer(instead(Instead::Status(code))),
        Fault::SlowReply(by) => {
            let answer = act();
            tokio::time::sleep(by).await;
            Ending::Answer(answer)
        }
        Fault::CloseMidBody => Ending::Half(act()),
        Fault::HtmlPage { act: true } => {
            act();
            Ending::Answer(instead(Instead::Page))
        }
        Fault::HtmlPage { act: false } => Ending::Answer(instead(Instead::Page)),
        Fault::KillBeforeAnswer(callback) => {
            act();
            callback();
            Ending::Close
        }
        Fault::HoldUntilReleased { act: true, latch } => {
            let answer = act();
            latch.pass().await;
            Ending::Answer(answer)
        }
        Fault::HoldUntilReleased { act: false, latch } => {
            latch.pass().await;
            Ending::Answer(act())
        }
    }
}
