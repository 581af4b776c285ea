//! Who may act, on what version, and how often it counts.

use std::time::Duration;

use chrono::TimeDelta;
use settled::{
    domain::state::State,
    engine::resolution::{ActError, Person, Target, VERBS, Words},
    store::tokens::Kind,
};

use super::desk::{act, act_on, acts, ada, bob, cannot, does, escalation, person, root, say};
use crate::support::ledger::{Ledger, TENANT, lost, sent, unaskable};

#[tokio::test]
async fn producers_and_metrics_readers_can_never_act() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let escalated = escalation(&ledger, id).await;
    for kind in [Kind::Producer, Kind::Metrics] {
        for verb in VERBS {
            for target in [Target::Intent(id), Target::Escalation(escalated)] {
                let refused = act(&ledger, &person(kind, "bot"), target, verb, say(verb)).await.unwrap_err();
                assert!(matches!(refused, ActError::Forbidden(_)), "{kind:?} {verb}: {refused}");
            }
        }
    }
    assert!(acts(&ledger, id).await.is_empty());
    assert_eq!(ledger.fold_state(id).await, State::Unknown);
}

#[tokio::test]
async fn a_person_of_one_tenant_sees_and_acts_on_no_other() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let escalated = escalation(&ledger, id).await;
    let of = |tenant: &str| Person { tenant: Some(tenant.to_owned()), ..ada() };
    for target in [Target::Intent(id), Target::Escalation(escalated)] {
        let refused = act(&ledger, &of("other"), target, "sent", say("sent")).await.unwrap_err();
        assert!(matches!(refused, ActError::NotFound(_)), "{refused}");
    }
    act(&ledger, &of(TENANT), Target::Escalation(escalated), "sent", say("sent")).await.unwrap();
}

#[tokio::test]
async fn of_two_people_at_once_one_wins_and_the_other_sees_who_and_what() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let version = Some(ledger.case(id).await.intent.version);
    let target = Target::Intent(id);
    let (ada, bob) = (ada(), bob());
    let (first, second) = tokio::join!(
        act_on(&ledger, &ada, target, "sent", say("sent"), version),
        act_on(&ledger, &bob, target, "absent", say("absent"), version)
    );
    let (winner, loser) = match (first, second) {
        (Ok(_), Err(loser)) => ("responder:ada", loser),
        (Err(loser), Ok(_)) => ("responder:bob", loser),
        other => panic!("{other:?}"),
    };
    let ActError::Stale { who, what, when, version: now } = loser else { panic!("{loser}") };
    assert_eq!(who, winner);
    assert!(what.contains("seen in the bank's list"), "{what}");
    assert!(when.is_some());
    assert_eq!(now, ledger.case(id).await.intent.version);
    assert_eq!(acts(&ledger, id).await.len(), 1);
}

#[tokio::test]
async fn the_same_act_by_the_same_person_twice_is_one_act() {
    let ledger = Ledger::new().await;
    for verb in ["sent", "absent", "close", "cancel", "comment"] {
        let id = ledger.enqueue(&format!("INV-{verb}")).await;
        ledger.attempt(id, lost()).await;
        for version in [Some(ledger.case(id).await.intent.version), None] {
            let first = act_on(&ledger, &ada(), Target::Intent(id), verb, say(verb), version).await.unwrap();
            let second = act_on(&ledger, &ada(), Target::Intent(id), verb, say(verb), version).await.unwrap();
            assert!(second.repeated, "{verb}");
            assert_eq!(
                (first.journal_id, first.state, first.version),
                (second.journal_id, second.state, second.version)
            );
        }
        assert_eq!(acts(&ledger, id).await, [verb]);
    }
}

#[tokio::test]
async fn a_stale_version_is_refused_for_every_act_that_decides() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let version = ledger.case(id).await.intent.version;
    let words = Words { reason: Some("I have called the bank, wait".to_owned()), ..Words::default() };
    act(&ledger, &bob(), Target::Intent(id), "comment", words).await.unwrap();
    for verb in ["sent", "absent", "close", "cancel", "send_again", "retract", "approve", "reject", "ask", "stop"] {
        let refused = act_on(&ledger, &ada(), Target::Intent(id), verb, say(verb), Some(version)).await.unwrap_err();
        let ActError::Stale { who, what, .. } = refused else { panic!("{verb}: {refused}") };
        assert_eq!((who.as_str(), what.as_str()), ("responder:bob", "commented: I have called the bank, wait"));
    }
    // Answers of look-ups do not make a form stale.
    let now = ledger.case(id).await.intent.version;
    let why = "the index was away".to_owned();
    ledger.look_up_says(id, settled::domain::evidence::Verdict::Inconclusive { why }).await;
    act_on(&ledger, &ada(), Target::Intent(id), "close", say("close"), Some(now)).await.unwrap();
}

#[tokio::test]
async fn a_result_that_came_meanwhile_makes_a_form_stale_and_says_so() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    let row = ledger.claim(id).await;
    ledger.report(id, &row, lost()).await;
    let version = Some(ledger.case(id).await.intent.version);
    ledger.report(id, &row, sent("p-1")).await;
    let refused = act_on(&ledger, &ada(), Target::Intent(id), "absent", say("absent"), version).await.unwrap_err();
    let ActError::Stale { who, what, .. } = refused else { panic!("{refused}") };
    assert!(who.starts_with("dispatcher@"), "{who}");
    assert_eq!(what, "moved it from unknown to sent");
}

#[tokio::test]
async fn while_an_attempt_is_open_nothing_is_decided() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let escalated = escalation(&ledger, id).await;
    does(&ledger, &ada(), id, "absent").await;
    let words = say("send_again");
    act(&ledger, &ada(), Target::Intent(id), "send_again", words).await.unwrap();
    ledger.clock.advance(Duration::from_secs(11));
    super::desk::decide(&ledger).await;
    ledger.claim(id).await;
    for verb in ["sent", "absent", "close", "cancel", "send_again", "retract", "approve", "reject", "ask", "stop"] {
        let refused = cannot(&ledger, &ada(), id, verb).await;
        assert!(
            matches!(&refused, ActError::NotPossible(words) if words.contains("attempt is open")),
            "{verb}: {refused}"
        );
    }
    does(&ledger, &ada(), id, "comment").await;
    let closed = act(&ledger, &ada(), Target::Escalation(escalated), "claim", Words::default()).await;
    assert!(matches!(closed, Err(ActError::Stale { .. })), "that one was answered");
    assert_eq!(ledger.finish(id, sent("p-2")).await, State::Sent);
}

#[tokio::test]
async fn claims_bind_until_they_run_out_are_released_or_taken_over() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let target = Target::Escalation(escalation(&ledger, id).await);
    let claimed = act_on(&ledger, &ada(), target, "claim", Words::default(), Some(0)).await.unwrap();
    assert_eq!(claimed.escalation_version, Some(1));
    assert!(act_on(&ledger, &ada(), target, "claim", Words::default(), Some(0)).await.unwrap().repeated);
    // Bob is told who has it, whether he claims or decides.
    for (verb, version) in [("claim", Some(1)), ("claim", Some(0)), ("release", Some(1)), ("sent", None)] {
        let refused = act_on(&ledger, &bob(), target, verb, say(verb), version).await.unwrap_err();
        let ActError::Stale { who, .. } = &refused else { panic!("{verb}: {refused}") };
        assert_eq!(who, "responder:ada");
    }
    act(&ledger, &bob(), target, "take_over", Words::default()).await.unwrap();
    assert!(matches!(cannot(&ledger, &ada(), id, "sent").await, ActError::Stale { who, .. } if who == "responder:bob"));
    act(&ledger, &bob(), target, "release", Words::default()).await.unwrap();
    assert!(act(&ledger, &bob(), target, "release", Words::default()).await.unwrap().repeated);
    act(&ledger, &ada(), target, "claim", Words::default()).await.unwrap();
    // A claim that ran out binds nobody.
    ledger.clock.advance(Duration::from_secs(31 * 60));
    act(&ledger, &bob(), target, "claim", Words::default()).await.unwrap();
    assert_eq!(
        acts(&ledger, id).await,
        ["claim", "take_over", "release", "claim", "claim"],
        "repetitions and refusals leave no rows"
    );
}

#[tokio::test]
async fn two_claims_at_once_have_one_winner() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let target = Target::Escalation(escalation(&ledger, id).await);
    let (ada, bob) = (ada(), bob());
    let (a, b) = tokio::join!(
        act_on(&ledger, &ada, target, "claim", Words::default(), Some(0)),
        act_on(&ledger, &bob, target, "claim", Words::default(), Some(0))
    );
    assert_eq!(u8::from(a.is_ok()) + u8::from(b.is_ok()), 1, "{a:?} {b:?}");
    let loser = a.err().or(b.err()).unwrap();
    assert!(matches!(loser, ActError::Stale { who, .. } if who.starts_with("responder:")));
}

#[tokio::test]
async fn snoozing_and_assigning_are_written_down_and_bounded() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let target = Target::Escalation(escalation(&ledger, id).await);
    let until = |hours| Words { until: Some(ledger.now() + TimeDelta::hours(hours)), ..Words::default() };
    act(&ledger, &ada(), target, "snooze", until(8)).await.unwrap();
    for hours in [-1, 24 * 31] {
        let refused = act(&ledger, &ada(), target, "snooze", until(hours)).await.unwrap_err();
        assert!(matches!(refused, ActError::Incomplete { field: "until", .. }));
    }
    act(&ledger, &ada(), target, "assign", say("assign")).await.unwrap();
    let (assigned, snoozed): (String, chrono::DateTime<chrono::Utc>) =
        sqlx::query_as("select assigned_to, snoozed_until from settled.escalations where intent_id = $1")
            .bind(id)
            .fetch_one(ledger.pool())
            .await
            .unwrap();
    assert_eq!(assigned, "responder:bob");
    assert_eq!(snoozed.timestamp(), (ledger.now() + TimeDelta::hours(8)).timestamp());
    assert_eq!(acts(&ledger, id).await, ["snooze", "assign"]);
    // Not for intents: nobody snoozes a thing that asks nobody.
    assert!(matches!(cannot(&ledger, &ada(), id, "assign").await, ActError::NotPossible(_)));
}

#[tokio::test]
async fn asking_again_is_due_now_where_it_can_be_asked() {
    let ledger = Ledger::new().await;
    let deaf = ledger.enqueue("INV-1").await;
    ledger.attempt(deaf, lost()).await;
    assert!(
        matches!(cannot(&ledger, &ada(), deaf, "ask").await, ActError::NotPossible(words) if words.contains("cannot be asked"))
    );
    let mut askable = unaskable("askable");
    askable.in_doubt = None;
    askable.look_up = Some(
        toml::from_str(
            "kind = 'http'\nlag = '1m'\nhorizon = '1h'\nhttp = { url = 'https://hook.test/{key}', items = '/items' }",
        )
        .unwrap(),
    );
    ledger.destination(askable).await;
    let id = ledger.enqueue("INV-2").await;
    ledger.attempt(id, lost()).await;
    let why = "odd".to_owned();
    ledger.look_up_says(id, settled::domain::evidence::Verdict::Inconclusive { why }).await;
    sqlx::query("update settled.queue set due_at = $2 where intent_id = $1")
        .bind(id)
        .bind(ledger.now() + TimeDelta::minutes(20))
        .execute(ledger.pool())
        .await
        .unwrap();
    does(&ledger, &ada(), id, "ask").await;
    let (kind, due): (String, chrono::DateTime<chrono::Utc>) =
        sqlx::query_as("select kind, due_at from settled.queue where intent_id = $1")
            .bind(id)
            .fetch_one(ledger.pool())
            .await
            .unwrap();
    assert_eq!((kind.as_str(), due.timestamp()), ("ask", ledger.now().timestamp()));
    ledger.clock.advance(Duration::from_secs(2 * 3600));
    assert!(matches!(cannot(&ledger, &root(), id, "ask").await, ActError::NotPossible(_)), "the horizon has passed");
}
