//! The world of a search: the ledger's rows, the workers, the bytes under way, the downstream. Everything is small and
//! hashed. What a row *is* comes from the real fold over it.

use std::sync::OnceLock;

use chrono::{DateTime, TimeDelta, Utc};
use secrecy::SecretSlice;
use settled::domain::{
    evidence::{Attempt, AttemptKind, Statement, Verdict},
    intent::Identity,
    key::{Keyring, Spelling},
    outcome::{DoubtKind, Outcome, Proof},
    rewind::LOST,
    state::{Asked, Folded, History, Lost, State, fold, holds_after},
};

use crate::rules::{Environment, Rules};

/// Identities: 0, 1 and 2 ask for one effect, 3 asks for another one under the same reference.
pub const IDENTITIES: usize = 4;
/// The one that asks for the other effect.
pub const OTHER: u8 = 3;

/// The effect that an identity asks for.
pub fn effect_of(who: u8) -> u8 {
    u8::from(who == OTHER)
}

/// One claim, for ever: what `over` is kept by. The random token of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    pub who: u8,
    pub number: u8,
    /// Rewinds before it.
    pub epoch: u8,
    /// Its claim was never committed.
    pub void: bool,
}

impl Token {
    fn bit(self) -> u128 {
        assert!(self.number < 4 && self.epoch < 4, "more attempts or rewinds than the set has room for");
        1 << (((self.who * 4 + self.number) * 4 + self.epoch) * 2 + u8::from(self.void))
    }
}

/// A set of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Tokens(u128);

impl Tokens {
    pub fn has(self, token: Token) -> bool {
        self.0 & token.bit() != 0
    }

    pub fn add(&mut self, token: Token) {
        self.0 |= token.bit();
    }

    pub fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn list(self) -> impl Iterator<Item = Token> {
        (0u8..128).filter(move |at| self.0 & (1 << at) != 0).map(|at| Token {
            who: at / 32,
            number: at / 8 % 4,
            epoch: at / 2 % 4,
            void: at % 2 == 1,
        })
    }
}

/// How an attempt stands in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    Open,
    Sent,
    Refused,
    NotSent,
    Lost,
    Poisoned,
}

/// [`AttemptKind`] with a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Send,
    Replay,
}

/// One attempt of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Try {
    pub kind: Kind,
    pub end: End,
    pub generation: u8,
    pub token: Token,
    /// The reply to its claim was lost: the claimer did not start, and has not said so yet.
    pub unheard: bool,
}

/// What asking concluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Said {
    Found,
    Duplicate,
    Fresh,
    Stale,
    Conflict,
}

/// A verdict in the journal, in the order of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Told {
    pub number: u8,
    pub newest: u8,
    pub said: Said,
    /// Position of its question among all questions.
    pub asked_at: u8,
}

/// A person's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    Sent,
    Absent(u8),
    Closed,
    Cancelled,
    Approved,
    Rejected,
    SendAgain(u8),
}

/// Attempts that a rewind may have taken, as the engine keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gone {
    /// First answer since, by the order of writing.
    pub asked_from: usize,
    /// First statement since.
    pub stated_from: usize,
    /// The generation that is asked about them.
    pub generation: u8,
}

/// Number under which they are asked about.
pub const GONE: u8 = LOST as u8;

/// One intent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    pub attempts: Vec<Try>,
    pub told: Vec<Told>,
    /// Attempts that a rewind may have taken.
    pub gone: Option<Gone>,
    /// Effects seen of attempts that no row knows, or by a sighting; negative where another attempt has the number by now.
    pub sightings: Vec<i8>,
    pub words: Vec<Word>,
    pub state: State,
    pub holds: bool,
    /// The secret of its pinned key.
    pub kid: Option<u8>,
    /// A second request points here.
    pub repeated: bool,
    /// Its requests were told that it ended without a known effect.
    pub notice: bool,
    /// The database lost history after it had ended.
    pub history_lost: bool,
}

/// A worker with an open claim that has not written its last bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Send {
    pub token: Token,
    pub generation: u8,
    pub kid: u8,
    /// It has passed its last check and stands before its last write.
    pub checked: bool,
}

/// Bytes that left, or the effect that they made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    pub token: Token,
    pub generation: u8,
    pub kid: u8,
    /// Effects: a question shows it.
    pub visible: bool,
}

/// What a question saw.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    pub who: u8,
    pub number: u8,
    pub newest: u8,
    pub asked_at: u8,
    /// Items under the reference: identity and secret of their keys.
    pub hits: Vec<(u8, u8)>,
    /// Closure and lag had gone by when it was put.
    pub ripe: bool,
    /// A proof from it would still hold.
    pub fresh: bool,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub rows: [Option<Row>; IDENTITIES],
    pub sends: Vec<Send>,
    pub wire: Vec<Mark>,
    pub effects: Vec<Mark>,
    /// Lease and lag of these have gone by, by any clock that does not jump.
    pub over: Tokens,
    /// These were leased when the database's clock jumped.
    pub jumped: Option<Tokens>,
    pub questions: Vec<Question>,
    pub asked: u8,
    pub acts: u8,
    pub generation: u8,
    pub kid: u8,
    pub backup: Option<Box<[Option<Row>; IDENTITIES]>>,
    /// What the destination meant when the replica stood there.
    pub backup_generation: u8,
    pub epoch: u8,
    /// These could have been under way when history was lost.
    pub lost: Tokens,
    pub deadline_passed: bool,
    pub false_absent: bool,
    pub false_sent: [bool; IDENTITIES],
    pub illegal: Option<(State, State)>,
    pub unwritten: bool,
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

impl Row {
    pub fn new(env: &Environment) -> Self {
        Self {
            attempts: Vec::new(),
            told: Vec::new(),
            gone: None,
            sightings: Vec::new(),
            words: Vec::new(),
            state: if env.approval { State::Held } else { State::Pending },
            holds: true,
            kid: None,
            repeated: false,
            notice: false,
            history_lost: false,
        }
    }

    pub fn newest(&self) -> u8 {
        self.attempts.len() as u8
    }

    pub fn is_open(&self) -> bool {
        self.attempts.iter().any(|a| a.end == End::Open)
    }

    /// Whatever a lost history may have done to it is in doubt from now on.
    pub fn doubt_history(&mut self, generation: u8) {
        self.gone = Some(Gone { asked_from: self.told.len(), stated_from: self.words.len(), generation });
    }

    /// Its doubts that a question can be about.
    pub fn doubts(&self) -> impl Iterator<Item = u8> {
        let known = (1u8..).zip(&self.attempts).filter(|(_, a)| matches!(a.end, End::Lost | End::Poisoned));
        self.gone.map(|_| GONE).into_iter().chain(known.map(|(number, _)| number))
    }

    /// Answers before a rewind, and those since.
    fn answers(&self) -> [Vec<Told>; 2] {
        let (before, since) = self.told.split_at(self.gone.map_or(0, |gone| gone.asked_from));
        [before.to_vec(), since.to_vec()]
    }

    /// The real fold over this row's evidence, in the order in which it was written.
    pub fn fold(&self, rules: &Rules, env: &Environment, deadline_passed: bool) -> Folded {
        let mut answers = self.answers();
        if rules.by_question_time {
            answers.iter_mut().for_each(|told| told.sort_by_key(|told| told.asked_at));
        }
        self.fold_told(&answers, &self.sightings, rules, env, deadline_passed)
    }

    /// The real fold over the same evidence in another order: what is about different attempts, and what came by itself, have no
    /// order among them; answers about one attempt have that of their questions.
    pub fn fold_otherwise(&self, rules: &Rules, env: &Environment, deadline_passed: bool) -> Folded {
        let mut answers = self.answers();
        for told in &mut answers {
            told.sort_by_key(|told| (std::cmp::Reverse(told.number), told.asked_at));
        }
        let sightings: Vec<i8> = self.sightings.iter().rev().copied().collect();
        self.fold_told(&answers, &sightings, rules, env, deadline_passed)
    }

    fn fold_told(
        &self,
        [before, since]: &[Vec<Told>; 2],
        sightings: &[i8],
        rules: &Rules,
        env: &Environment,
        deadline_passed: bool,
    ) -> Folded {
        let attempts: Vec<Attempt> = (1..).zip(&self.attempts).map(|(n, a)| self.attempt(n, a, rules)).collect();
        let mut asked: Vec<Asked> = before.iter().flat_map(|told| self.verdicts(told, rules)).collect();
        let lost = self.gone.map_or(Lost::Nothing, |gone| Lost::Attempts {
            asked_from: if rules.rewind_ends_proofs { asked.len() } else { 0 },
            stated_from: gone.stated_from,
        });
        asked.extend(since.iter().flat_map(|told| self.verdicts(told, rules)));
        let sightings: Vec<Option<i32>> = sightings.iter().map(|number| Some(i32::from(*number))).collect();
        let statements: Vec<Statement> = self.words.iter().map(|word| statement(*word)).collect();
        fold(&History {
            attempts: &attempts,
            asked: &asked,
            sightings: &sightings,
            statements: &statements,
            lost,
            in_doubt: env.in_doubt,
            needs_approval: env.approval,
            deadline_passed,
            attempts_allowed: u32::try_from(env.attempts).unwrap(),
            now: now(),
        })
    }

    /// One attempt as the fold is given it.
    fn attempt(&self, number: i32, attempt: &Try, rules: &Rules) -> Attempt {
        let later = |end: End| self.attempts.iter().skip(number as usize).any(|a| a.end == end);
        let in_doubt = matches!(attempt.end, End::Lost | End::Poisoned);
        let refused = !rules.refusal_of_one_attempt && in_doubt && later(End::Refused);
        let stored = |a: &Try| a.end == End::Poisoned;
        let failure = !rules.stored_failure_proves_nothing && in_doubt && self.attempts.iter().any(stored);
        let outcome = match attempt.end {
            _ if refused || failure => Some(Outcome::Refused { code: 409 }),
            End::Open => None,
            End::Sent => Some(Outcome::Sent { provider_id: None }),
            End::Refused => Some(Outcome::Refused { code: 409 }),
            End::NotSent => Some(Outcome::NotSent { proof: Proof::SelfStopped, retry_after: None }),
            End::Lost => Some(Outcome::Ambiguous { doubt: DoubtKind::NoReply }),
            End::Poisoned => Some(Outcome::Ambiguous { doubt: DoubtKind::PoisonedKey }),
        };
        let kind = match attempt.kind {
            Kind::Send => AttemptKind::Send,
            Kind::Replay => AttemptKind::Replay,
        };
        Attempt { number, kind, outcome }
    }

    fn verdicts(&self, told: &Told, rules: &Rules) -> Vec<Asked> {
        let verdict = match told.said {
            Said::Found => Verdict::Found { provider_id: None, weak: false },
            Said::Duplicate => Verdict::Duplicate { provider_ids: Vec::new() },
            Said::Fresh => Verdict::Absent { valid_until: now() + TimeDelta::seconds(1) },
            Said::Stale => Verdict::Absent { valid_until: now() - TimeDelta::seconds(1) },
            Said::Conflict => Verdict::Conflict { why: String::new() },
        };
        let absent = matches!(told.said, Said::Fresh | Said::Stale);
        let about = if absent && !rules.proof_per_attempt { GONE..=self.newest() } else { told.number..=told.number };
        let newest = i32::from(told.newest);
        about.map(|number| Asked { attempt: i32::from(number), newest, verdict: verdict.clone() }).collect()
    }
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

/// The real key of an identity under one of two secrets, by the real derivation.
pub fn key_of(who: u8, kid: u8) -> &'static str {
    static KEYS: OnceLock<Vec<String>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let secret = |byte: u8| SecretSlice::from(vec![byte; 32]);
        let ring = Keyring::new("k0", [("k0".to_owned(), secret(1)), ("k1".to_owned(), secret(2))]).unwrap();
        let derive = |who: u8, kid: u8| {
            let identity = Identity {
                tenant: "acme".to_owned(),
                run_id: format!("run-{who}"),
                step: 3,
                slot: String::new(),
                revision: 1,
            };
            ring.derive(Some(&format!("k{kid}")), "eu", &identity, "invoices", Spelling::Hex32).unwrap().text
        };
        (0..IDENTITIES as u8).flat_map(|who| [derive(who, 0), derive(who, 1)]).collect()
    });
    &keys[usize::from(who * 2 + kid)]
}

impl World {
    /// Nobody has asked for anything.
    pub fn new() -> Self {
        Self {
            rows: [const { None }; IDENTITIES],
            sends: Vec::new(),
            wire: Vec::new(),
            effects: Vec::new(),
            over: Tokens::default(),
            jumped: None,
            questions: Vec::new(),
            asked: 0,
            acts: 0,
            generation: 0,
            kid: 0,
            backup: None,
            backup_generation: 0,
            epoch: 0,
            lost: Tokens::default(),
            deadline_passed: false,
            false_absent: false,
            false_sent: [false; IDENTITIES],
            illegal: None,
            unwritten: false,
        }
    }

    pub fn row(&self, who: u8) -> Option<&Row> {
        self.rows[usize::from(who)].as_ref()
    }

    pub fn row_mut(&mut self, who: u8) -> &mut Row {
        self.rows[usize::from(who)].as_mut().expect("the row is there")
    }

    /// All rows with their identity.
    pub fn all_rows(&self) -> impl Iterator<Item = (u8, &Row)> {
        (0u8..).zip(&self.rows).filter_map(|(who, row)| Some((who, row.as_ref()?)))
    }

    /// Who holds an effect.
    pub fn holder(&self, effect: u8) -> Option<u8> {
        self.all_rows().find(|(who, row)| effect_of(*who) == effect && row.holds).map(|(who, _)| who)
    }

    pub fn effects_by(&self, who: u8) -> usize {
        self.effects.iter().filter(|effect| effect.token.who == who).count()
    }

    /// Something of the effect is there, under way, or may still leave.
    pub fn may_exist(&self, effect: u8) -> bool {
        let of = |token: &Token| effect_of(token.who) == effect;
        self.effects.iter().chain(&self.wire).any(|mark| of(&mark.token)) || self.sends.iter().any(|s| of(&s.token))
    }

    /// Whether the ledger believes that no byte of what a rewind took is under way any more.
    pub fn lost_are_over(&self, rules: &Rules) -> bool {
        !rules.rewind_waits || self.lost.within(self.over)
    }

    /// Whether the ledger believes that lease and lag of a claim have gone by.
    pub fn ledger_says_over(&self, attempt: &Try, rules: &Rules) -> bool {
        self.over.has(attempt.token)
            || self.jumped.is_some_and(|jumped| jumped.has(attempt.token))
            || (!rules.closure_by_lease && attempt.end == End::Lost)
    }

    /// Absence is not believed just now: the database's clock stepped, and the longest of lease and lag has not gone by since.
    pub fn suspended(&self, rules: &Rules) -> bool {
        rules.clock_step_suspends && self.jumped.is_some_and(|jumped| !jumped.within(self.over))
    }

    /// Nothing is claimed for the longest of lease and lag after a rewind.
    pub fn quarantined(&self, rules: &Rules) -> bool {
        self.epoch > 0 && !self.lost_are_over(rules)
    }

    /// Folds a row after new evidence and writes state and column, as the engine does under the row's lock. False where the
    /// move would need an effect that another intent has taken: then nothing may be written.
    pub fn settle(&mut self, who: u8, rules: &Rules, env: &Environment) -> bool {
        let deadline_passed = self.deadline_passed;
        let taken = self.holder(effect_of(who)).is_some_and(|holder| holder != who);
        let row = self.row_mut(who);
        let folded = row.fold(rules, env, deadline_passed);
        let (from, to) = (row.state, folded.state);
        let by_person = row.words.iter().any(|word| matches!(word, Word::Cancelled | Word::Closed));
        row.holds = if !rules.doubt_keeps_effect && to == State::Abandoned && by_person {
            false
        } else {
            let Some(holds) = holds_after(&folded, row.holds, taken) else { return false };
            holds
        };
        row.state = to;
        row.notice = to == State::Abandoned || folded.end.is_some();
        if from != to && !from.may_become(to) {
            self.illegal = Some((from, to));
        }
        true
    }
}
