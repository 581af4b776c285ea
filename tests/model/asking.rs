//! Between the model and the real judge: what the downstream shows becomes a case, and the verdict becomes a word. A verdict
//! is computed once for each different case.

use std::{
    collections::HashMap,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use settled::domain::{
    absence::{self, Case, Doubtful, Known},
    evidence::Verdict,
    question::{AccountSeen, Answer, Hit, Probe, Role, Seen},
};
use uuid::Uuid;

use crate::{
    rules::{Environment, Rules},
    world::{End, GONE, Question, Said, World, effect_of, key_of},
};

const CLOSURE: i64 = 60;
const LAG: i64 = 120;

/// A row that could explain an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Namesake {
    who: u8,
    kid: Option<u8>,
    attempted: bool,
    sent_attempts: u32,
}

/// Everything that the verdict depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Matter {
    who: u8,
    kid: u8,
    /// Identity and secret of each item's key.
    hits: Vec<(u8, u8)>,
    known: Vec<Namesake>,
    ripe: bool,
    suspended: bool,
    shows_keys: bool,
}

/// What a question about one attempt would see now.
pub fn question(world: &World, who: u8, number: u8, rules: &Rules) -> Question {
    let row = world.row(who).expect("somebody asked for it");
    let (generation, over) = match (number, row.gone) {
        (GONE, Some(gone)) => (gone.generation, world.lost_are_over(rules)),
        _ => {
            let attempt = &row.attempts[usize::from(number) - 1];
            (attempt.generation, world.ledger_says_over(attempt, rules))
        }
    };
    let asked = if rules.own_generation { generation } else { world.generation };
    let hits = world.effects.iter().filter(|effect| effect.visible && effect.generation == asked);
    Question {
        who,
        number,
        newest: row.newest(),
        asked_at: world.asked,
        hits: hits.map(|effect| (effect.token.who, effect.kid)).collect(),
        ripe: !rules.closure_and_lag || over,
        fresh: true,
    }
}

/// The real judge's verdict; `None` where nothing was learned.
pub fn judge(world: &World, question: &Question, rules: &Rules, env: &Environment) -> Option<Said> {
    let row = world.row(question.who)?;
    let mut hits = question.hits.clone();
    if !rules.absent_by_effect {
        hits.retain(|(who, _)| *who == question.who);
    }
    let known: Vec<Namesake> = world
        .all_rows()
        .map(|(who, row)| Namesake {
            who,
            kid: row.kid,
            attempted: !row.attempts.is_empty(),
            sent_attempts: row.attempts.iter().filter(|a| !matches!(a.end, End::Refused | End::NotSent)).count() as u32,
        })
        .collect();
    // After a rewind the pin may be lost: every secret that is held is tried.
    let kids = row.kid.map_or_else(|| (0..=world.kid).collect(), |kid| vec![kid]);
    let mut verdicts = kids.into_iter().map(|kid| {
        let mut hits = hits.clone();
        if !rules.found_by_key {
            hits.iter_mut().for_each(|hit| *hit = (question.who, kid));
        }
        // Lost attempts may have used any downstream that was meant since; one of them is asked.
        let elsewhere =
            rules.lost_at_one_downstream && question.number == GONE && world.generation != world.backup_generation;
        let suspended = world.suspended(rules) || elsewhere;
        verdict(Matter {
            who: question.who,
            kid,
            hits,
            known: known.clone(),
            ripe: question.ripe,
            suspended,
            shows_keys: env.shows_keys,
        })
    });
    let first = verdicts.next()?;
    let said = verdicts.fold(first, |first, next| match next {
        Some(Said::Found | Said::Duplicate) => next,
        Some(Said::Fresh | Said::Stale | Said::Conflict) | None => first,
    })?;
    Some(if said == Said::Fresh && rules.proofs_expire && !question.fresh { Said::Stale } else { said })
}

fn verdict(matter: Matter) -> Option<Said> {
    static KNOWN: OnceLock<Mutex<HashMap<Matter, Option<Said>>>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    if let Some(said) = known.lock().unwrap_or_else(PoisonError::into_inner).get(&matter) {
        return *said;
    }
    let said = match case(&matter).judge().verdict {
        Verdict::Found { .. } => Some(Said::Found),
        Verdict::Duplicate { .. } => Some(Said::Duplicate),
        Verdict::Absent { .. } => Some(Said::Fresh),
        Verdict::Conflict { .. } => Some(Said::Conflict),
        Verdict::AbsentByLag { .. } => panic!("the bracket is always there"),
        Verdict::Inconclusive { .. } => None,
    };
    known.lock().unwrap_or_else(PoisonError::into_inner).insert(matter, said);
    said
}

/// Seconds after the start of the attempt in doubt.
fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000, 0).unwrap() + TimeDelta::seconds(seconds)
}

fn probe(role: Role, key: &str, reference: &str, from: i64, until: i64) -> Probe {
    Probe {
        role,
        key: key.to_owned(),
        reference: reference.to_owned(),
        spelled: None,
        occurrence: 1,
        recipient: "ap@acme.test".to_owned(),
        sent_from: at(from),
        sent_until: at(until),
    }
}

const ELDER: &str = "11111111111111111111111111111111";
const YOUNGER: &str = "22222222222222222222222222222222";
const MADE_UP: &str = "33333333333333333333333333333333";

/// The one in doubt, and its controls.
fn probes(matter: &Matter) -> Vec<Probe> {
    vec![
        probe(Role::Subject, key_of(matter.who, matter.kid), "inv-2291", 0, CLOSURE),
        probe(Role::Elder, ELDER, "inv-2290", -50, -40),
        probe(Role::Younger, YOUNGER, "inv-2292", CLOSURE + 1, CLOSURE + 2),
        probe(Role::Impossible, MADE_UP, "zzz-none", 0, CLOSURE),
    ]
}

/// Witnesses and controls are always in order here; what happens without them is shown beside the judge.
fn case(matter: &Matter) -> Case {
    let hit = |id: String, key: &str, reference: &str| Hit {
        id: Some(id),
        key: matter.shows_keys.then(|| key.to_owned()),
        reference: Some(reference.to_owned()),
        attempt: None,
        at: None,
        status: None,
        other_recipient: false,
        contradicts: None,
    };
    let hits: Vec<Hit> =
        (1..).zip(&matter.hits).map(|(n, (who, kid))| hit(format!("p-{n}"), key_of(*who, *kid), "INV-2291")).collect();
    let asked_at = if matter.ripe { CLOSURE + LAG } else { CLOSURE - 30 };
    Case {
        rules: absence::Rules {
            lag: Duration::from_secs(120),
            horizon: Duration::from_secs(86_400),
            need: 1,
            spacing: Duration::ZERO,
            ordered: true,
            resend_by_lag: false,
            shows_key: matter.shows_keys,
            lists: true,
        },
        doubtful: Doubtful {
            attempt: 1,
            token: Uuid::from_u128(7),
            generation: "g".to_owned(),
            started_at: at(0),
            closure_at: at(CLOSURE),
            account: Some("acme-live".to_owned()),
        },
        question: settled::domain::question::Question { probes: probes(matter), now: at(asked_at) },
        answer: Answer {
            seen: vec![
                if hits.is_empty() { Seen::Nothing } else { Seen::Hits { hits } },
                Seen::Hits { hits: vec![hit("p-elder".to_owned(), ELDER, "INV-2290")] },
                Seen::Hits { hits: vec![hit("p-younger".to_owned(), YOUNGER, "INV-2292")] },
                Seen::Nothing,
            ],
            same_answer: true,
            account: AccountSeen::Matches { identity: "acme-live".to_owned() },
            pages: 1,
            digest: "00".to_owned(),
            query: "GET /messages".to_owned(),
            retry_after: None,
        },
        earlier: Vec::new(),
        known: matter
            .known
            .iter()
            .map(|known| Known {
                intent_id: Uuid::from_u128(u128::from(known.who) + 1),
                is_subject: known.who == matter.who,
                same_effect: known.who != matter.who && effect_of(known.who) == effect_of(matter.who),
                other_tenant: false,
                key: known.kid.map(|kid| key_of(known.who, kid).to_owned()),
                attempted: known.attempted,
                sent_attempts: known.sent_attempts,
            })
            .collect(),
        self_test_fresh: true,
        suspended: matter.suspended.then(|| "the clock stepped".to_owned()),
        now: at(asked_at + 1),
    }
}
