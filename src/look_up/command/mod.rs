//! Asks by running a program: for downstreams that have a tool or a database of their own, and no API that could be declared.
//!
//! Built by the registry from a destination. What must hold: an exit status alone proves nothing, because every broken script
//! has one; only a line that echoes the nonce of this run and the key that was asked for, together with the status that goes
//! with its verdict, is an answer. Controls are asked by runs of the same kind. Nothing is left running.
//!
//! The question stands on standard input as one line of JSON: `nonce`, `key`, `reference`, `occurrence`, `recipient`, `from`,
//! `until` (RFC 3339). Arguments can be read by everybody on the machine; what is private belongs there or in a secret of the
//! environment.

mod line;
mod run;
mod settings;

use std::ffi::OsString;

use rand::RngExt;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::{LookUp, several, template::Values};
use crate::{
    config::{BuildError, destination::Destination, template::Encode},
    domain::{
        gate::BoxFuture,
        question::{Abilities, AccountSeen, Answer, Probe, Question, Role, Seen},
    },
};
use run::Call;
use settings::{Entry, Plan, Word};

/// The look-up `command` of one generation of a destination.
pub struct Command {
    plan: Plan,
    slots: Semaphore,
}

/// What the runs of one question brought beside their verdicts.
#[derive(Default)]
struct Evidence {
    hash: Sha256,
    runs: u32,
    accounts: Vec<Option<String>>,
}

impl Command {
    /// From a destination's `[destinations.look_up.command]`. Secrets are read here.
    ///
    /// # Errors
    /// [`BuildError`] with the setting and the rule.
    pub fn build(destination: &Destination) -> Result<Self, BuildError> {
        let section = destination
            .look_up
            .as_ref()
            .and_then(|look_up| look_up.command.as_ref())
            .ok_or_else(|| BuildError::new("look_up.command", "must be there for kind = \"command\""))?;
        let plan = Plan::build(section)?;
        let slots = Semaphore::new(plan.at_once);
        Ok(Self { plan, slots })
    }

    async fn answer(&self, question: &Question) -> Answer {
        let mut evidence = Evidence::default();
        let mut seen = vec![Seen::CannotTell { why: "not asked".to_owned() }; question.probes.len()];
        for at in several::order(question) {
            seen[at] = self.ask_one(question, &question.probes[at], &mut evidence).await;
        }
        if let Some(elder) = several::elder_again(question, &seen) {
            let again = self.ask_one(question, &question.probes[elder], &mut evidence).await;
            seen[elder] = several::after_the_subject(seen[elder].clone(), &again);
        }
        let subject = question.probes.iter().find(|probe| probe.role == Role::Subject).or(question.probes.first());
        Answer {
            seen,
            same_answer: false,
            account: self.account(&evidence.accounts),
            pages: evidence.runs,
            digest: evidence.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
            query: subject.map_or_else(String::new, |probe| self.shown(question, probe)),
            retry_after: None,
        }
    }

    async fn ask_one(&self, question: &Question, probe: &Probe, evidence: &mut Evidence) -> Seen {
        let nonce: String = rand::rng().random::<[u8; 16]>().iter().map(|byte| format!("{byte:02x}")).collect();
        let call = match self.call(question, probe, &nonce) {
            Ok(call) => call,
            Err(why) => return Seen::CannotTell { why },
        };
        let Ok(_slot) = self.slots.acquire().await else {
            return Seen::CannotTell { why: "no run is allowed any more".to_owned() };
        };
        evidence.runs += 1;
        let ran = match run::run(call).await {
            Ok(ran) => ran,
            Err(why) => return Seen::CannotTell { why },
        };
        evidence.hash.update((ran.output.len() as u64).to_be_bytes());
        evidence.hash.update(&ran.output);
        let asked =
            line::Asked { probe, nonce: &nonce, shows_key: self.plan.shows_key, absent_exit: self.plan.absent_exit };
        let said = line::read(&ran.output, ran.exit, &asked);
        evidence.accounts.push(said.account);
        said.seen
    }

    fn call(&self, question: &Question, probe: &Probe, nonce: &str) -> Result<Call, String> {
        if probe.key.is_empty() {
            return Err("the probe names no key".to_owned());
        }
        let values = values(question, probe);
        let mut arguments = Vec::new();
        for argument in &self.plan.arguments {
            let value = |word: &Word| match word {
                Word::Nonce => Ok(nonce.to_owned()),
                Word::Asked(asked) => asked.value(&values),
            };
            let text = argument.template.render(Encode::Verbatim, &value).map_err(|refused| refused.to_string())?;
            if text.starts_with('-') && !argument.is_option {
                return Err(
                    "a value begins with a dash and would be read as an option; it is on standard input".to_owned()
                );
            }
            arguments.push(text);
        }
        let mut input = serde_json::json!({
            "nonce": nonce, "key": probe.key, "reference": probe.spelled.as_ref().unwrap_or(&probe.reference),
            "occurrence": probe.occurrence, "recipient": probe.recipient,
            "from": values.from.to_rfc3339(), "until": values.until.to_rfc3339(),
        })
        .to_string()
        .into_bytes();
        input.push(b'\n');
        let environment = self.plan.environment.iter().map(|(name, entry)| {
            let value = match entry {
                Entry::Plain(text) => OsString::from(text),
                Entry::Secret(secret) => OsString::from(secret.expose_secret()),
            };
            (name.clone(), value)
        });
        Ok(Call {
            program: self.plan.program.clone(),
            arguments,
            environment: environment.collect(),
            directory: self.plan.directory.clone(),
            input,
            within: self.plan.within,
            output_bytes: self.plan.output_bytes,
        })
    }

    /// The call for the journal: no secrets, and not whom it went to.
    fn shown(&self, question: &Question, probe: &Probe) -> String {
        let values = values(question, probe);
        let value = |word: &Word| match word {
            Word::Nonce => Ok("NONCE".to_owned()),
            Word::Asked(asked) => asked.evidence(&values),
        };
        let arguments = self.plan.arguments.iter().map(|argument| argument.template.render(Encode::Verbatim, &value));
        arguments.fold(self.plan.program.display().to_string(), |text, argument| {
            format!("{text} {:?}", argument.unwrap_or_else(|refused| refused.to_string()))
        })
    }

    /// Every run must have said the same name.
    fn account(&self, said: &[Option<String>]) -> AccountSeen {
        let Some(wanted) = &self.plan.account else { return AccountSeen::NotChecked };
        let mut named = said.iter().flatten();
        if let Some(other) = named.clone().find(|name| *name != wanted) {
            return AccountSeen::Differs { seen: other.clone() };
        }
        if named.next().is_some() && said.iter().all(Option::is_some) {
            AccountSeen::Matches { identity: wanted.clone() }
        } else {
            AccountSeen::NotChecked
        }
    }
}

fn values<'a>(question: &Question, probe: &'a Probe) -> Values<'a> {
    Values { probe: Some(probe), from: probe.sent_from, until: probe.sent_until.max(question.now) }
}

impl LookUp for Command {
    fn abilities(&self) -> Abilities {
        Abilities { shows_key: self.plan.shows_key, lists: false }
    }

    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(self.answer(question))
    }
}
