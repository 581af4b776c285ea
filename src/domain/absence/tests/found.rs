//! What was seen, and whose it is.

use super::*;

fn verdict(case: &Case) -> Verdict {
    case.judge().verdict
}

fn found(id: &str, weak: bool) -> Verdict {
    Verdict::Found { provider_id: Some(id.to_owned()), weak }
}

#[test]
fn our_key_is_found_at_any_time_and_without_any_control() {
    let mut case = proven();
    set(&mut case, Role::Subject, hits(&[hit("p-1", Some(OWN), "INV-2291")]));
    for role in [Role::Elder, Role::Younger, Role::Impossible] {
        drop_probe(&mut case, role);
    }
    case.answer.account = AccountSeen::NotChecked;
    case.self_test_fresh = false;
    for seconds in [1, CLOSURE, 86_400 * 30] {
        (case.question.now, case.now) = (at(seconds), at(seconds));
        let judged = case.judge();
        assert_eq!(judged.verdict, found("p-1", false));
        assert_eq!(judged.ask_again_at, None);
        assert!(judged.proof().is_none());
    }
    // Case may change on the way; a reference that the item does not carry is no objection.
    let shouted = Hit { reference: None, ..hit("p-1", Some(&OWN.to_uppercase()), "") };
    set(&mut case, Role::Subject, hits(&[shouted]));
    assert_eq!(verdict(&case), found("p-1", false));
}

#[test]
fn our_key_among_siblings_is_found_and_the_siblings_are_explained() {
    let mut case = proven();
    case.known.push(known(2, Some(OTHER)));
    set(&mut case, Role::Subject, hits(&[hit("p-2", Some(OTHER), "inv-2291"), hit("p-1", Some(OWN), "inv-2291")]));
    assert_eq!(verdict(&case), found("p-1", false));
}

#[test]
fn two_items_with_our_key_are_a_duplicate_and_one_item_on_two_pages_is_not() {
    let mut case = proven();
    let (one, two) = (hit("p-1", Some(OWN), "inv-2291"), hit("p-2", Some(OWN), "inv-2291"));
    set(&mut case, Role::Subject, hits(&[one.clone(), two.clone()]));
    let both = Verdict::Duplicate { provider_ids: vec!["p-1".to_owned(), "p-2".to_owned()] };
    assert_eq!(verdict(&case), both);
    set(&mut case, Role::Subject, hits(&[one.clone(), one.clone()]));
    assert_eq!(verdict(&case), found("p-1", false));
    let unnamed = Hit { id: None, ..one.clone() };
    set(&mut case, Role::Subject, hits(&[unnamed.clone(), unnamed]));
    assert!(matches!(verdict(&case), Verdict::Duplicate { provider_ids } if provider_ids.len() == 2));
    // The same effect under another request is a second effect, too.
    case.known.push(Known { same_effect: true, ..known(2, Some(OTHER)) });
    set(&mut case, Role::Subject, hits(&[one, hit("p-2", Some(OTHER), "inv-2291")]));
    assert_eq!(verdict(&case), both);
}

#[test]
fn our_key_beside_another_recipient_or_reference_is_a_conflict() {
    let mut case = proven();
    let astray = Hit { other_recipient: true, ..hit("p-1", Some(OWN), "inv-2291") };
    let contradicting = Hit { contradicts: Some("/livemode".to_owned()), ..hit("p-1", Some(OWN), "inv-2291") };
    for odd in [astray, contradicting, hit("p-1", Some(OWN), "inv-229")] {
        set(&mut case, Role::Subject, hits(&[odd]));
        let judged = case.judge();
        assert!(matches!(judged.verdict, Verdict::Conflict { .. }), "{:?}", judged.verdict);
        assert!(judged.ask_again_at.is_some());
    }
    case.self_test_fresh = false;
    assert!(matches!(verdict(&case), Verdict::Inconclusive { .. }), "an untested look-up accuses nobody");
}

#[test]
fn another_account_finds_nothing_of_ours() {
    let mut case = proven();
    set(&mut case, Role::Subject, hits(&[hit("p-1", Some(OWN), "inv-2291")]));
    case.answer.account = AccountSeen::Differs { seen: "staging".to_owned() };
    assert!(why(&verdict(&case)).contains("staging"));
}

#[test]
fn by_reference_alone_one_hit_that_one_intent_explains_is_weakly_found() {
    let mut case = keyless();
    set(&mut case, Role::Subject, hits(&[hit("p-1", None, "INV-2291")]));
    assert_eq!(verdict(&case), found("p-1", true));
    // One that was never attempted explains nothing.
    case.known.push(Known { attempted: false, sent_attempts: 0, ..known(2, None) });
    assert_eq!(verdict(&case), found("p-1", true));
    case.known[1].attempted = true;
    assert!(why(&verdict(&case)).contains("2 intents of ours"));
}

#[test]
fn by_reference_alone_what_nobody_explains_is_a_conflict() {
    let mut case = keyless();
    let one = hit("p-1", None, "inv-2291");
    set(&mut case, Role::Subject, hits(std::slice::from_ref(&one)));
    case.known[0].attempted = false;
    assert!(why(&verdict(&case)).contains("ever attempted"));
    case.known[0].attempted = true;
    set(&mut case, Role::Subject, hits(&[Hit { other_recipient: true, ..one.clone() }]));
    assert!(why(&verdict(&case)).contains("another recipient"));
    set(&mut case, Role::Subject, hits(&[Hit { contradicts: Some("/nth".to_owned()), ..one.clone() }]));
    assert!(why(&verdict(&case)).contains("contradicts what was sent"));
    set(&mut case, Role::Subject, hits(&[one, hit("p-2", None, "inv-2291")]));
    assert!(why(&verdict(&case)).contains("more items"));
    case.known[0].sent_attempts = 2;
    assert!(matches!(verdict(&case), Verdict::Duplicate { .. }));
}

#[test]
fn a_look_up_that_finds_made_up_names_finds_nothing_by_reference() {
    let mut case = keyless();
    set(&mut case, Role::Subject, hits(&[hit("p-1", None, "inv-2291")]));
    set(&mut case, Role::Impossible, hits(&[hit("p-1", None, "zzz-none")]));
    assert!(why(&verdict(&case)).contains("made-up name"));
}

#[test]
fn a_record_masks_what_belongs_to_another_tenant() {
    let mut case = proven();
    case.known.push(Known { other_tenant: true, ..known(0xfeed, Some(OTHER)) });
    set(&mut case, Role::Subject, hits(&[hit("p-theirs", Some(OTHER), "inv-2291")]));
    let judged = case.judge();
    let text = judged.record.to_string();
    // The made-up probe of these tests has the same key; only known intents and hits must be masked.
    let masked = text.matches("masked:").count();
    assert_eq!(masked, 2, "{text}");
    assert!(!text.contains("p-theirs") && !text.contains("feed"), "{text}");
    assert!(!why(&judged.verdict).contains("feed"));
}

#[test]
fn a_record_of_other_rules_is_not_judged_by_these() {
    let mut record = proven().judge().record;
    record["rules_version"] = 99.into();
    assert!(Case::from_record(&record).is_err_and(|why| why.contains("rules_version")));
    assert!(Case::from_record(&serde_json::Value::Null).is_err());
}
