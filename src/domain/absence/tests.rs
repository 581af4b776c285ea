//! Answer × controls. Every row starts from a case that proves absence and spoils one thing.

use chrono::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::domain::question::Hit;

mod found;
mod table;

const OWN: &str = "4e4a7b33c25311d43431d2079a3418a3";
const ELDER: &str = "11111111111111111111111111111111";
const YOUNGER: &str = "22222222222222222222222222222222";
const OTHER: &str = "33333333333333333333333333333333";
const LAG: i64 = 120;
const CLOSURE: i64 = 60;

/// Seconds after the start of the attempt in doubt.
fn at(seconds: i64) -> DateTime<Utc> {
    Utc.timestamp_opt(1_700_000_000 + seconds, 0).single().expect("a time")
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

fn hit(id: &str, key: Option<&str>, reference: &str) -> Hit {
    Hit {
        id: Some(id.to_owned()),
        key: key.map(str::to_owned),
        reference: Some(reference.to_owned()),
        attempt: None,
        at: None,
        status: None,
        other_recipient: false,
        contradicts: None,
    }
}

fn hits(hits: &[Hit]) -> Seen {
    Seen::Hits { hits: hits.to_vec() }
}

fn known(number: u128, key: Option<&str>) -> Known {
    Known {
        intent_id: Uuid::from_u128(number),
        is_subject: number == 1,
        same_effect: false,
        other_tenant: false,
        key: key.map(str::to_owned),
        attempted: true,
        sent_attempts: 1,
    }
}

/// Everything holds: not there, proven by an ordered bracket and two equal answers.
fn proven() -> Case {
    Case {
        rules: Rules {
            lag: Duration::from_secs(120),
            horizon: Duration::from_secs(86_400),
            need: 2,
            spacing: Duration::from_secs(30),
            ordered: true,
            resend_by_lag: false,
            shows_key: true,
            lists: true,
        },
        doubtful: Doubtful {
            attempt: 1,
            token: Uuid::from_u128(7),
            generation: "g1".to_owned(),
            started_at: at(0),
            closure_at: at(CLOSURE),
            account: Some("acme-live".to_owned()),
        },
        question: Question {
            probes: vec![
                probe(Role::Subject, OWN, "inv-2291", 0, CLOSURE),
                probe(Role::Elder, ELDER, "inv-2290", -50, -40),
                probe(Role::Younger, YOUNGER, "inv-2292", CLOSURE + 1, CLOSURE + 2),
                probe(Role::Impossible, OTHER, "zzz-none", 0, CLOSURE),
            ],
            now: at(CLOSURE + LAG + 30),
        },
        answer: Answer {
            seen: vec![
                Seen::Nothing,
                hits(&[hit("p-elder", Some(ELDER), "INV-2290")]),
                hits(&[hit("p-younger", Some(YOUNGER), "INV-2292")]),
                Seen::Nothing,
            ],
            same_answer: true,
            account: AccountSeen::Matches { identity: "acme-live".to_owned() },
            pages: 1,
            digest: "00".to_owned(),
            query: "GET /messages".to_owned(),
            retry_after: None,
        },
        earlier: vec![EarlierAnswer { at: at(CLOSURE + LAG), nothing: true, error: false }],
        known: vec![known(1, Some(OWN))],
        self_test_fresh: true,
        suspended: None,
        now: at(CLOSURE + LAG + 31),
    }
}

/// The downstream keeps references only.
fn keyless() -> Case {
    let mut case = proven();
    case.rules.shows_key = false;
    case.answer.seen[1] = hits(&[hit("p-elder", None, "inv-2290")]);
    case.answer.seen[2] = hits(&[hit("p-younger", None, "inv-2292")]);
    case
}

fn drop_probe(case: &mut Case, role: Role) {
    if let Some(at) = case.question.probes.iter().position(|probe| probe.role == role) {
        case.question.probes.remove(at);
        case.answer.seen.remove(at);
    }
}

fn set(case: &mut Case, role: Role, seen: Seen) {
    let at = case.question.probes.iter().position(|probe| probe.role == role).expect("asked");
    case.answer.seen[at] = seen;
}

fn why(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Conflict { why } | Verdict::Inconclusive { why } => why,
        Verdict::Found { .. } | Verdict::Duplicate { .. } | Verdict::Absent { .. } | Verdict::AbsentByLag { .. } => "",
    }
}

fn cannot_tell() -> Seen {
    Seen::CannotTell { why: "a log-in page".to_owned() }
}

fn any_seen() -> impl Strategy<Value = Seen> {
    let any_hit = (
        proptest::option::of(prop_oneof![Just(OWN), Just(ELDER), Just(YOUNGER), Just(OTHER)]),
        prop_oneof![Just("inv-2291"), Just("INV-2290"), Just("inv-2292"), Just("inv-229")],
        0..3u8,
        any::<bool>(),
    )
        .prop_map(|(key, reference, id, other_recipient)| Hit {
            other_recipient,
            contradicts: None,
            id: (id > 0).then(|| format!("p-{id}")),
            ..hit("", key, reference)
        });
    prop_oneof![
        2 => Just(Seen::Nothing),
        1 => Just(cannot_tell()),
        3 => proptest::collection::vec(any_hit, 0..3).prop_map(|hits| Seen::Hits { hits }),
    ]
}

fn any_account() -> impl Strategy<Value = AccountSeen> {
    prop_oneof![
        3 => Just(AccountSeen::Matches { identity: "acme-live".to_owned() }),
        1 => Just(AccountSeen::Matches { identity: "acme-sandbox".to_owned() }),
        1 => Just(AccountSeen::Differs { seen: "globex".to_owned() }),
        1 => Just(AccountSeen::NotChecked),
    ]
}

prop_compose! {
    fn any_case()(
        seen in proptest::collection::vec(any_seen(), 4),
        account in any_account(),
        flags in proptest::collection::vec(any::<bool>(), 8),
        dropped in proptest::sample::subsequence(vec![Role::Elder, Role::Younger, Role::Impossible], 0..=2),
        asked in 0i64..400,
        took in 0i64..200,
        earlier in proptest::collection::vec((-10i64..400, any::<bool>(), any::<bool>()), 0..4),
    ) -> Case {
        let mut case = if flags[0] { keyless() } else { proven() };
        // Half of the cases stay clean in the witnesses, or nearly nothing would come near to a proof.
        let spoilt = if flags[7] { 4 } else { 1 };
        case.answer.seen.splice(..spoilt, seen.into_iter().take(spoilt));
        for role in dropped {
            drop_probe(&mut case, role);
        }
        case.answer.account = account;
        case.answer.same_answer = flags[1];
        case.rules.ordered = flags[2];
        case.rules.resend_by_lag = flags[3];
        case.rules.lists = flags[4];
        case.self_test_fresh = flags[5] || flags[6];
        case.question.now = at(asked);
        case.now = at(asked + took);
        let mut earlier: Vec<_> =
            earlier.into_iter().map(|(s, nothing, error)| EarlierAnswer { at: at(s), nothing, error }).collect();
        earlier.sort_by_key(|answer| answer.at);
        case.earlier = earlier;
        case
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_spoilt_case_ever_gives_a_proof(case in any_case()) {
        let judged = case.judge();
        let seen = |role| case.asked(role).map(|(_, seen)| seen).collect::<Vec<_>>();
        let mut absent = false;
        if let Verdict::Absent { valid_until } | Verdict::AbsentByLag { valid_until, .. } = &judged.verdict {
            absent = true;
            prop_assert_eq!(*valid_until, case.question.now + TimeDelta::seconds(LAG));
            prop_assert!(*valid_until > case.now);
        }
        let plain = matches!(judged.verdict, Verdict::Absent { .. });
        if absent {
            prop_assert!(seen(Role::Subject).iter().all(|seen| **seen == Seen::Nothing));
            prop_assert_eq!(&case.answer.account, &AccountSeen::Matches { identity: "acme-live".to_owned() });
            prop_assert_eq!(seen(Role::Impossible), vec![&Seen::Nothing]);
            let witnesses = [seen(Role::Elder), seen(Role::Younger)].concat();
            prop_assert!(!witnesses.is_empty());
            let missed = witnesses.iter().any(|seen| matches!(seen, Seen::Nothing | Seen::CannotTell { .. }));
            prop_assert!(!missed);
            prop_assert!(case.self_test_fresh && case.question.now >= at(CLOSURE + LAG));
            prop_assert!(case.earlier.iter().any(|e| e.nothing && !e.error && e.at <= case.question.now - TimeDelta::seconds(30)));
        }
        if plain {
            prop_assert!(case.rules.ordered && seen(Role::Elder).len() == 1 && seen(Role::Younger).len() == 1);
        }
        if judged.proof().is_some() {
            prop_assert!(plain || (absent && case.rules.resend_by_lag));
        }
    }

    #[test]
    fn a_record_gives_the_same_verdict_again(case in any_case()) {
        let judged = case.judge();
        let text = judged.record.to_string();
        prop_assert!(!text.contains("ap@acme.test"), "a recipient has no place in a record");
        let again = Case::from_record(&serde_json::from_str(&text).expect("JSON")).expect("a case").judge();
        prop_assert_eq!(again.verdict, judged.verdict);
        prop_assert_eq!(again.ask_again_at, judged.ask_again_at);
    }
}
