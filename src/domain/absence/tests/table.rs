//! "Not there" that must not be believed, row by row.

use super::*;

/// What a row must give. `Absent` appears once, in the first row.
#[derive(Debug, PartialEq)]
enum Want {
    Absent,
    ByLag,
    Inconclusive(&'static str),
    Conflict(&'static str),
}

struct Row {
    name: &'static str,
    spoil: fn(&mut Case),
    want: Want,
}

fn sibling(case: &mut Case, change: fn(&mut Known)) {
    let mut other = known(2, Some(OTHER));
    change(&mut other);
    case.known.push(other);
    set(case, Role::Subject, hits(&[hit("p-9", Some(OTHER), "INV-2291")]));
}

/// The second copy of a reference where keys are not shown: two intents could explain it.
fn keyless_sibling(case: &mut Case, change: fn(&mut Known)) {
    *case = keyless();
    sibling(case, change);
    set(case, Role::Subject, hits(&[hit("p-9", None, "INV-2291")]));
}

#[rustfmt::skip]
fn controls() -> Vec<Row> {
    use Want::{Absent, ByLag, Inconclusive};
    vec![
        Row { name: "nothing is spoilt", spoil: |_| {}, want: Absent },
        Row { name: "no control at all", spoil: |c| { drop_probe(c, Role::Elder); drop_probe(c, Role::Younger); },
            want: Inconclusive("no known item was looked for") },
        Row { name: "the known elder is missed", spoil: |c| set(c, Role::Elder, Seen::Nothing),
            want: Inconclusive("an elder witness that is known as sent was not seen") },
        Row { name: "the known younger is missed", spoil: |c| set(c, Role::Younger, Seen::Nothing),
            want: Inconclusive("a younger witness that is known as sent was not seen") },
        Row { name: "a witness cannot be read", spoil: |c| set(c, Role::Younger, cannot_tell()),
            want: Inconclusive("a younger witness could not be asked for") },
        Row { name: "the unknown one is found", spoil: |c| set(c, Role::Impossible, hits(&[hit("p-1", None, "zzz-none")])),
            want: Inconclusive("a made-up name was found") },
        Row { name: "the unknown one cannot be read", spoil: |c| set(c, Role::Impossible, cannot_tell()),
            want: Inconclusive("the made-up name could not be asked for") },
        Row { name: "no unknown one was asked for", spoil: |c| drop_probe(c, Role::Impossible),
            want: Inconclusive("no made-up name was asked for") },
        Row { name: "no younger witness", spoil: |c| drop_probe(c, Role::Younger), want: ByLag },
        Row { name: "no elder witness", spoil: |c| drop_probe(c, Role::Elder), want: ByLag },
        Row { name: "visibility is not declared ordered", spoil: |c| c.rules.ordered = false, want: ByLag },
        // A witness of another generation or relay is not offered; one that is too old is no younger one.
        Row { name: "the younger witness started before the closure", spoil: |c| c.question.probes[2].sent_from = at(CLOSURE),
            want: ByLag },
        Row { name: "the elder witness ended after the start", spoil: |c| c.question.probes[1].sent_until = at(1), want: ByLag },
        Row { name: "one intent plays both witnesses", spoil: |c| {
                c.question.probes[2].key = ELDER.to_owned();
                c.answer.seen[2] = hits(&[hit("p-elder", Some(ELDER), "inv-2292")]);
            }, want: ByLag },
        Row { name: "witnesses come from another page load than the listing", spoil: |c| c.answer.same_answer = false, want: ByLag },
        Row { name: "the witness is the subject", spoil: |c| c.question.probes[1].key = OWN.to_owned(),
            want: Inconclusive("an elder witness is the subject itself") },
        Row { name: "the witness is matched by another's key", spoil: |c| set(c, Role::Elder, hits(&[hit("p", Some(OTHER), "inv-2290")])),
            want: Inconclusive("an elder witness was not seen by its own marks") },
        Row { name: "the witness went to another recipient", spoil: |c| set(c, Role::Elder,
                hits(&[Hit { other_recipient: true, ..hit("p", Some(ELDER), "inv-2290") }])),
            want: Inconclusive("an elder witness was not seen by its own marks") },
        Row { name: "a witness without key carries the reference of the subject", spoil: |c| {
                *c = keyless();
                c.question.probes[1].reference = "inv-2291".to_owned();
                c.answer.seen[1] = hits(&[hit("p", None, "inv-2291")]);
            }, want: Inconclusive("an elder witness was not seen by its own marks") },
    ]
}

#[rustfmt::skip]
fn answers() -> Vec<Row> {
    use Want::{Conflict, Inconclusive};
    vec![
        Row { name: "the last page is full", spoil: |c| set(c, Role::Subject, Seen::CannotTell { why: "the last page is full".to_owned() }),
            want: Inconclusive("the last page is full") },
        Row { name: "a log-in page", spoil: |c| set(c, Role::Subject, cannot_tell()), want: Inconclusive("a log-in page") },
        Row { name: "paging has no end", spoil: |c| set(c, Role::Subject, Seen::CannotTell { why: "page 51 of at most 50".to_owned() }),
            want: Inconclusive("page 51") },
        Row { name: "a folded header could not be read", spoil: |c| set(c, Role::Subject,
                Seen::CannotTell { why: "a folded header is cut off".to_owned() }), want: Inconclusive("a folded header") },
        Row { name: "hits without items", spoil: |c| set(c, Role::Subject, hits(&[])), want: Inconclusive("shows none") },
        Row { name: "another account answers", spoil: |c| c.answer.account = AccountSeen::Differs { seen: "globex".to_owned() },
            want: Inconclusive("another account: globex") },
        Row { name: "no account check", spoil: |c| c.answer.account = AccountSeen::NotChecked,
            want: Inconclusive("nobody checked which account answered") },
        Row { name: "it was sent as another account", spoil: |c| c.doubtful.account = Some("acme-old".to_owned()),
            want: Inconclusive("it was sent as acme-old") },
        Row { name: "near miss INV-229", spoil: |c| set(c, Role::Subject, hits(&[hit("p-9", Some(OTHER), "INV-229")])),
            want: Inconclusive("matches neither key nor reference") },
        Row { name: "near miss INV-229 without keys", spoil: |c| { *c = keyless(); set(c, Role::Subject, hits(&[hit("p-9", None, "INV-229")])); },
            want: Inconclusive("matches neither key nor reference") },
        Row { name: "near miss where the answer is longer", spoil: |c| set(c, Role::Subject, hits(&[hit("p-9", None, "INV-2291-2")])),
            want: Inconclusive("matches neither key nor reference") },
        Row { name: "a sibling of a fan-out", spoil: |c| sibling(c, |_| {}), want: Inconclusive("only other effects under the same reference") },
        Row { name: "a sibling of a fan-out, no keys shown", spoil: |c| keyless_sibling(c, |_| {}), want: Inconclusive("2 intents of ours") },
        Row { name: "occurrence 2", spoil: |c| sibling(c, |k| k.sent_attempts = 2), want: Inconclusive("only other effects") },
        Row { name: "occurrence 2, no keys shown", spoil: |c| keyless_sibling(c, |k| k.sent_attempts = 2), want: Inconclusive("2 intents of ours") },
        Row { name: "another tenant's", spoil: |c| sibling(c, |k| k.other_tenant = true), want: Inconclusive("an intent of another tenant") },
        Row { name: "another tenant's, no keys shown", spoil: |c| keyless_sibling(c, |k| k.other_tenant = true), want: Inconclusive("2 intents of ours") },
        Row { name: "the same effect under another identity", spoil: |c| sibling(c, |k| k.same_effect = true),
            want: Conflict("already made under another request: intent 0") },
        Row { name: "the reference under a key that nobody has", spoil: |c| set(c, Role::Subject, hits(&[hit("p-9", Some(OTHER), "inv-2291")])),
            want: Conflict("a key that no intent of ours has") },
        Row { name: "the reference without a key", spoil: |c| set(c, Role::Subject, hits(&[hit("p-9", None, "inv-2291")])),
            want: Inconclusive("no key, so nobody can say whose") },
        Row { name: "fewer answers than probes", spoil: |c| { c.answer.seen.pop(); }, want: Inconclusive("4 probes were asked and 3 answered") },
        Row { name: "two subjects", spoil: |c| c.question.probes[1].role = Role::Subject, want: Inconclusive("more than one subject") },
        Row { name: "the ledger does not list the subject", spoil: |c| c.known.clear(), want: Inconclusive("not exactly once") },
        Row { name: "asked under another key than the pinned one", spoil: |c| c.known[0].key = Some(OTHER.to_owned()),
            want: Inconclusive("another key than its pinned one") },
    ]
}

#[rustfmt::skip]
fn times() -> Vec<Row> {
    use Want::Inconclusive;
    vec![
        Row { name: "the attempt is not closed", spoil: |c| c.question.now = at(CLOSURE - 1), want: Inconclusive("bytes of the attempt could still leave") },
        Row { name: "the lag has not gone by", spoil: |c| c.question.now = at(CLOSURE + LAG - 1), want: Inconclusive("the lag has not gone by") },
        Row { name: "the horizon is reached", spoil: |c| c.now = at(86_400), want: Inconclusive("too long ago") },
        Row { name: "the first answer of two", spoil: |c| c.earlier.clear(), want: Inconclusive("equal answer 1 of 2") },
        Row { name: "the answers are too close together", spoil: |c| c.earlier[0].at = at(CLOSURE + LAG + 1), want: Inconclusive("equal answer 1 of 2") },
        Row { name: "the earlier answer came before the lag", spoil: |c| c.earlier[0].at = at(CLOSURE + LAG - 1), want: Inconclusive("equal answer 1 of 2") },
        Row { name: "the earlier answer saw something", spoil: |c| c.earlier[0].nothing = false, want: Inconclusive("equal answer 1 of 2") },
        Row { name: "an error between", spoil: |c| c.earlier.push(EarlierAnswer { at: at(CLOSURE + LAG + 15), nothing: false, error: true }),
            want: Inconclusive("equal answer 1 of 2") },
        Row { name: "the answer outlived its proof", spoil: |c| c.now = at(CLOSURE + LAG + 30 + LAG), want: Inconclusive("longer than its proof would hold") },
        Row { name: "the self-test is not fresh", spoil: |c| c.self_test_fresh = false, want: Inconclusive("self-test") },
        Row { name: "the clock of the database stepped", spoil: |c| c.suspended = Some("the clock stepped by 600 s".to_owned()),
            want: Inconclusive("the clock stepped") },
    ]
}

#[test]
fn absence_is_believed_only_where_every_premise_holds() {
    for row in controls().into_iter().chain(answers()).chain(times()) {
        let mut case = proven();
        (row.spoil)(&mut case);
        let judged = case.judge();
        let fits = match (&row.want, &judged.verdict) {
            (Want::Absent, Verdict::Absent { valid_until }) => *valid_until == at(CLOSURE + LAG + 30 + LAG),
            (Want::ByLag, Verdict::AbsentByLag { resend: false, .. }) => true,
            (Want::Inconclusive(part), Verdict::Inconclusive { why })
            | (Want::Conflict(part), Verdict::Conflict { why }) => why.contains(part),
            _ => false,
        };
        assert!(fits, "{}: wanted {:?}, got {:?}", row.name, row.want, judged.verdict);
        assert_eq!(judged.proof().is_some(), row.want == Want::Absent, "{}", row.name);
        if row.want != Want::Absent && case.rules.shows_key {
            // With permission to resend by the lag, only the rows that lack nothing but the bracket change.
            case.rules.resend_by_lag = true;
            assert_eq!(case.judge().proof().is_some(), row.want == Want::ByLag, "{}, resend", row.name);
        }
    }
}

#[test]
fn a_proof_names_its_attempt_and_goes_stale_after_the_lag_or_a_quarter_of_an_hour() {
    let mut case = proven();
    let proof = case.judge().proof().expect("proven");
    assert_eq!((proof.attempt(), proof.valid_until()), (1, at(CLOSURE + LAG + 30 + LAG)));
    case.rules.lag = Duration::from_secs(3600);
    let late = CLOSURE + 3600 + 30;
    case.question.now = at(late);
    case.now = at(late);
    case.earlier[0].at = at(late - 30);
    assert_eq!(case.judge().proof().expect("proven").valid_until(), at(late + 900));
}

#[test]
fn the_next_question_is_put_when_it_can_prove_something() {
    let mut early = proven();
    early.question.now = at(10);
    early.now = at(11);
    assert_eq!(early.judge().ask_again_at, Some(at(CLOSURE + LAG)));

    let mut first = proven();
    first.earlier.clear();
    assert_eq!(first.judge().ask_again_at, Some(at(CLOSURE + LAG + 60)));

    let mut odd = proven();
    set(&mut odd, Role::Subject, cannot_tell());
    assert_eq!(odd.judge().ask_again_at, Some(at(CLOSURE + LAG + 31 + 60)));

    let mut over = proven();
    over.now = at(86_400);
    assert_eq!(over.judge().ask_again_at, None);
    assert_eq!(proven().judge().ask_again_at, None);

    let mut by_lag = proven();
    by_lag.rules.ordered = false;
    assert!(by_lag.judge().ask_again_at.is_some(), "a person decides, and it is asked on");
    by_lag.rules.resend_by_lag = true;
    assert_eq!(by_lag.judge().ask_again_at, None);
}

#[test]
fn a_row_of_answers_grows_by_what_was_stored_of_each_and_an_error_starts_it_anew() {
    let mut stored: Vec<EarlierAnswer> = Vec::new();
    let mut ask = |seconds: i64, spoil: fn(&mut Case)| {
        let mut case = proven();
        case.rules.need = 3;
        case.question.now = at(seconds);
        case.now = at(seconds);
        case.earlier.clone_from(&stored);
        spoil(&mut case);
        let judged = case.judge();
        stored.push(judged.as_earlier());
        judged.proof().is_some()
    };
    let clean: fn(&mut Case) = |_| {};
    let missed: fn(&mut Case) = |case| set(case, Role::Elder, Seen::Nothing);
    let steps = [
        (100, clean, false), // before the lag: does not count
        (180, clean, false),
        (195, clean, false), // too close: does not count either
        (210, missed, false),
        (240, clean, false),
        (270, clean, false),
        (275, clean, false),
        (290, clean, false),
        (305, clean, true), // 305, 275, 240
    ];
    for (seconds, spoil, proven) in steps {
        assert_eq!(ask(seconds, spoil), proven, "at {seconds}");
    }
}
