//! A small world: intents of one effect, bytes under way, effects that happened. States come from the real fold.

use chrono::{DateTime, TimeDelta, Utc};
use settled::domain::{
    evidence::{Attempt, AttemptKind, Statement, Verdict},
    intent::InDoubt,
    outcome::{DoubtKind, Outcome, Proof},
    state::{Asked, Folded, History, Lost, State, fold, holds_after},
};

/// What a search may do, and which rules it runs under.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Requests of other runs that may become intents of the same effect.
    pub intents: usize,
    /// Sends of one intent.
    pub attempts: usize,
    /// Acts of people in one history.
    pub acts: usize,
    /// Answers of look-ups in one history.
    pub answers: usize,
    /// The downstream keeps keys, and doubt is replayed.
    pub replay: bool,
    /// The destination's policy.
    pub in_doubt: InDoubt,
    /// A person must approve first.
    pub approval: bool,
    /// The broken rule: cancelling frees the effect, whatever is in doubt.
    pub free_on_cancel: bool,
    /// The broken rule: absence is believed while bytes are under way.
    pub ignore_lag: bool,
    /// A second effect that a false statement caused is no fault of the protocol.
    pub excuse_people: bool,
}

/// How an attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum End {
    Open,
    Sent,
    Refused,
    NotSent,
    Lost,
}

/// What asking concluded. A fresh proof turns stale when time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Said {
    Found,
    Duplicate,
    Fresh,
    Stale,
    Conflict,
}

/// A person's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Word {
    Sent,
    Absent(u8),
    Closed,
    Cancelled,
    Approved,
    Rejected,
    SendAgain(u8),
}

/// One intent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub attempts: Vec<(AttemptWord, End)>,
    /// Attempt, answer, and the newest attempt when it was asked.
    pub asked: Vec<(u8, Said, u8)>,
    pub sightings: Vec<u8>,
    pub words: Vec<Word>,
    pub state: State,
    pub holds: bool,
    /// Its requests were told that it ended without a known effect.
    pub told: bool,
}

/// [`AttemptKind`] with a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum AttemptWord {
    Send,
    Replay,
}

/// (intent, attempt)
pub(super) type Mark = (usize, u8);

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub rows: Vec<Row>,
    /// Bytes that left and have neither arrived nor died.
    pub wire: Vec<Mark>,
    pub effects: Vec<Mark>,
    /// A look-up's answer that has not been written yet: another reconciler may be faster. Third: the newest attempt then.
    pub answer: Option<(Mark, Said, u8)>,
    pub acts: usize,
    pub answers: usize,
    pub deadline_passed: bool,
    /// Somebody said "absent" about what was there or still under way.
    pub false_absent: bool,
    /// Somebody said "sent" about what was not there.
    pub false_sent: Vec<usize>,
    /// A move of the fold that the table of legal moves does not know.
    pub illegal: Option<(State, State)>,
    /// Evidence that could not be written, because its move needs an effect that another intent has taken.
    pub lost_evidence: bool,
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

impl Row {
    fn new(rules: &Rules) -> Self {
        Self {
            attempts: Vec::new(),
            asked: Vec::new(),
            sightings: Vec::new(),
            words: Vec::new(),
            state: if rules.approval { State::Held } else { State::Pending },
            holds: true,
            told: false,
        }
    }

    pub fn newest(&self) -> u8 {
        u8::try_from(self.attempts.len()).unwrap()
    }

    pub fn is_open(&self) -> bool {
        self.attempts.iter().any(|(_, end)| *end == End::Open)
    }

    /// The real fold over this row's evidence.
    pub fn fold(&self, rules: &Rules, deadline_passed: bool) -> Folded {
        let attempts: Vec<Attempt> =
            (1..).zip(&self.attempts).map(|(number, attempt)| real(number, *attempt)).collect();
        let asked: Vec<Asked> =
            self.asked.iter().map(|(attempt, said, newest)| verdict(*attempt, *said, *newest)).collect();
        let sightings: Vec<Option<i32>> = self.sightings.iter().map(|number| Some(i32::from(*number))).collect();
        let statements: Vec<Statement> = self.words.iter().map(|word| statement(*word)).collect();
        fold(&History {
            attempts: &attempts,
            asked: &asked,
            sightings: &sightings,
            statements: &statements,
            lost: Lost::Nothing,
            in_doubt: rules.in_doubt,
            needs_approval: rules.approval,
            deadline_passed,
            attempts_allowed: u32::try_from(rules.attempts).unwrap(),
            now: now(),
        })
    }
}

fn real(number: i32, (kind, end): (AttemptWord, End)) -> Attempt {
    let outcome = match end {
        End::Open => None,
        End::Sent => Some(Outcome::Sent { provider_id: None }),
        End::Refused => Some(Outcome::Refused { code: 409 }),
        End::NotSent => Some(Outcome::NotSent { proof: Proof::NotConnected, retry_after: None }),
        End::Lost => Some(Outcome::Ambiguous { doubt: DoubtKind::NoReply }),
    };
    let kind = match kind {
        AttemptWord::Send => AttemptKind::Send,
        AttemptWord::Replay => AttemptKind::Replay,
    };
    Attempt { number, kind, outcome }
}

fn verdict(attempt: u8, said: Said, newest: u8) -> Asked {
    let verdict = match said {
        Said::Found => Verdict::Found { provider_id: None, weak: false },
        Said::Duplicate => Verdict::Duplicate { provider_ids: Vec::new() },
        Said::Fresh => Verdict::Absent { valid_until: now() + TimeDelta::seconds(1) },
        Said::Stale => Verdict::Absent { valid_until: now() - TimeDelta::seconds(1) },
        Said::Conflict => Verdict::Conflict { why: String::new() },
    };
    Asked { attempt: i32::from(attempt), newest: i32::from(newest), verdict }
}

fn statement(word: Word) -> Statement {
    match word {
        Word::Sent => Statement::Sent,
        Word::Absent(upto) => Statement::Absent { upto: i32::from(upto) },
        Word::Closed => Statement::Closed,
        Word::Cancelled => Statement::Cancelled,
        Word::Approved => Statement::Approved,
        Word::Rejected => Statement::Rejected,
        Word::SendAgain(upto) => Statement::SendAgain { upto: i32::from(upto) },
    }
}

impl World {
    /// One request was accepted.
    pub fn new(rules: &Rules) -> Self {
        Self {
            rows: vec![Row::new(rules)],
            wire: Vec::new(),
            effects: Vec::new(),
            answer: None,
            acts: 0,
            answers: 0,
            deadline_passed: false,
            false_absent: false,
            false_sent: Vec::new(),
            illegal: None,
            lost_evidence: false,
        }
    }

    /// Who holds the effect.
    pub fn holder(&self) -> Option<usize> {
        self.rows.iter().position(|row| row.holds)
    }

    /// A repeat by another run found the effect free.
    pub fn accept(&mut self, rules: &Rules) {
        self.rows.push(Row::new(rules));
    }

    pub fn effects_of(&self, intent: usize) -> impl Iterator<Item = &Mark> {
        self.effects.iter().filter(move |(of, _)| *of == intent)
    }

    pub fn on_wire(&self, intent: usize) -> bool {
        self.wire.iter().any(|(of, _)| *of == intent)
    }

    /// Folds a row after new evidence and writes state and column, as the engine does under the row's lock.
    /// False where the move would need the effect that another intent has taken: then nothing may be written.
    pub fn settle(&mut self, intent: usize, rules: &Rules) -> bool {
        let folded = self.rows[intent].fold(rules, self.deadline_passed);
        let free = self.holder().is_none_or(|holder| holder == intent);
        let row = &mut self.rows[intent];
        let (from, to) = (row.state, folded.state);
        let ended_by_person = matches!(to, State::Abandoned | State::Cancelled) && row.words.contains(&Word::Cancelled);
        row.holds = if rules.free_on_cancel && ended_by_person {
            false
        } else {
            let Some(holds) = holds_after(&folded, row.holds, !free) else { return false };
            holds
        };
        if from != to && !from.may_become(to) {
            self.illegal = Some((from, to));
        }
        row.state = to;
        row.told = matches!(to, State::Abandoned) || folded.end.is_some();
        true
    }

    /// What is broken in this world, if anything.
    pub fn broken(&self, rules: &Rules) -> Option<String> {
        if let Some((from, to)) = self.illegal {
            return Some(format!("illegal move {} to {}", from.as_str(), to.as_str()));
        }
        if self.lost_evidence {
            return Some("evidence could not be written".to_owned());
        }
        let excused = rules.excuse_people && self.false_absent;
        let harmless = rules.in_doubt == InDoubt::Harmless;
        if self.effects.len() > 1 && !excused && !harmless {
            return Some("a second effect".to_owned());
        }
        for (intent, row) in self.rows.iter().enumerate() {
            let happened = self.effects_of(intent).next().is_some();
            if row.state == State::Sent && !happened && !self.false_sent.contains(&intent) {
                return Some(format!("intent {intent} is sent and has no effect"));
            }
            let open = !row.state.is_settled();
            if !row.holds && (open || row.state == State::Abandoned) && !rules.free_on_cancel {
                return Some(format!("intent {intent} is {} and holds no effect", row.state.as_str()));
            }
            if !(happened || open || row.told || self.false_sent.contains(&intent)) {
                return Some(format!("intent {intent} ended, and nobody was told"));
            }
        }
        None
    }
}
