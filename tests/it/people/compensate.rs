//! A declared counter-action: nothing by itself; after a person agrees, an intent of its own.

use serde_json::json;
use settled::{
    domain::state::State,
    engine::resolution::{self, Act, ActError, Person, Resolved, Target, Words},
    store::tokens::Kind,
};
use uuid::Uuid;

use crate::support::ledger::{Ledger, destination, lost, unaskable};

fn ada() -> Person {
    Person { principal: "ada".to_owned(), kind: Kind::Responder, tenant: None }
}

async fn agree(ledger: &Ledger, id: Uuid, expected: Option<i64>) -> Result<Resolved, ActError> {
    let words = Words { reason: Some("the customer wants it undone".to_owned()), ..Words::default() };
    let act = Act::read("compensate", &words).unwrap();
    let fleet = ledger.fleet();
    resolution::act(ledger.pool(), &fleet, &*ledger.clock, &ada(), Target::Intent(id), &act, expected).await
}

/// Payments whose counter-action is a refund; with the intent in doubt.
async fn in_doubt() -> (Ledger, Uuid) {
    let ledger = Ledger::empty().await;
    ledger.destination(unaskable("refunds")).await;
    ledger
        .destination(destination(
            r#"
            name = "payments"
            channel = "webhook"
            in_doubt = "compensate"
            webhook = { url = "https://pay.test/" }
            [compensate]
            destination = "refunds"
            reference = "REFUND-{reference}"
            payload = { undo = "{reference} #{occurrence}", key = "{key}", urgent = true }
            reason = "asks for the money back"
            "#,
        ))
        .await;
    let id = ledger.enqueue("INV-7").await;
    assert_eq!(ledger.attempt(id, lost()).await, State::Unknown);
    (ledger, id)
}

#[tokio::test]
async fn a_counter_action_is_an_intent_of_its_own_after_a_person_agreed() {
    let (ledger, id) = in_doubt().await;
    assert_eq!(ledger.open_escalations(id).await, ["no_look_up"], "nothing happens by itself");
    let intents = "select count(*) from settled.intents";
    assert_eq!(sqlx::query_scalar::<_, i64>(intents).fetch_one(ledger.pool()).await.unwrap(), 1);

    let version = ledger.case(id).await.intent.version;
    let agreed = agree(&ledger, id, Some(version)).await.unwrap();
    let counter = agreed.counter_intent.expect("it names the counter-action");
    assert_eq!((agreed.state, agreed.holds_effect), (Some("abandoned"), Some(true)), "it may still have been sent");
    assert_eq!(ledger.fold_state(id).await, State::Abandoned);
    assert!(ledger.open_escalations(id).await.is_empty());
    let detail: String = sqlx::query_scalar("select detail from settled.intents where id = $1")
        .bind(id)
        .fetch_one(ledger.pool())
        .await
        .unwrap();
    assert_eq!(detail, format!("closed without knowing; compensated by REFUND-INV-7 to refunds, intent {counter}"));

    let (run_id, step, surface, principal, tenant, spelled): (String, i64, String, String, String, String) =
        sqlx::query_as(
            "select run_id, step, surface, principal, tenant, reference from settled.requests where intent_id = $1",
        )
        .bind(counter)
        .fetch_one(ledger.pool())
        .await
        .unwrap();
    assert_eq!((run_id, step), (format!("compensate:{id}"), 0));
    assert_eq!((surface.as_str(), principal.as_str(), tenant.as_str()), ("settled", "responder:ada", "acme"));
    assert_eq!(spelled, "REFUND-INV-7");
    let body: String = sqlx::query_scalar("select body from settled.payloads where intent_id = $1")
        .bind(counter)
        .fetch_one(ledger.pool())
        .await
        .unwrap();
    let key = ledger.case(id).await.intent.key.unwrap();
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body, json!({ "undo": "INV-7 #1", "key": key, "urgent": true }));
    assert_eq!(ledger.fold_state(counter).await, State::Pending, "it is sent like any other");

    for (about, member, value) in [(id, "counter_intent", counter), (counter, "more", id)] {
        let acts = ledger.journal(about, "act").await;
        let (actor, data) = acts.last().expect("a row of the journal");
        assert_eq!((actor.as_str(), &data["act"]), ("responder:ada", &json!("compensate")));
        let named = if member == "more" { &data["more"]["compensates"] } else { &data[member] };
        assert_eq!(named, &json!(value), "{data}");
    }
}

#[tokio::test]
async fn agreeing_twice_asks_once() {
    let (ledger, id) = in_doubt().await;
    let version = ledger.case(id).await.intent.version;
    let first = agree(&ledger, id, Some(version)).await.unwrap();
    let again = agree(&ledger, id, Some(version)).await.unwrap();
    assert!(again.repeated && !first.repeated);
    assert_eq!(again.counter_intent, first.counter_intent);
    let count: i64 = sqlx::query_scalar("select count(*) from settled.intents").fetch_one(ledger.pool()).await.unwrap();
    assert_eq!(count, 2);
}

#[tokio::test]
async fn a_counter_action_that_the_ledger_refuses_leaves_everything_as_it_was() {
    let (ledger, id) = in_doubt().await;
    sqlx::query("delete from settled.grants where destination = 'refunds'").execute(ledger.pool()).await.unwrap();
    let refused = agree(&ledger, id, None).await.unwrap_err();
    assert!(
        matches!(&refused, ActError::NotPossible(words) if words.contains("may not use destination refunds")),
        "{refused}"
    );
    assert_eq!(ledger.fold_state(id).await, State::Unknown);
    assert!(ledger.journal(id, "act").await.is_empty());
}

#[tokio::test]
async fn only_an_unknown_intent_with_a_declared_counter_action_is_compensated() {
    let (ledger, id) = in_doubt().await;
    let pending = ledger.enqueue("INV-8").await;
    assert!(matches!(agree(&ledger, pending, None).await, Err(ActError::NotPossible(_))));
    ledger.destination(unaskable("hooks")).await;
    let other = ledger.enqueue("INV-9").await;
    assert_eq!(ledger.attempt(other, lost()).await, State::Unknown);
    let refused = agree(&ledger, other, None).await.unwrap_err();
    assert!(refused.to_string().contains("declares no counter-action"), "{refused}");
    let producer = Person { principal: "bot".to_owned(), kind: Kind::Producer, tenant: Some("acme".to_owned()) };
    let act = Act::read("compensate", &Words { reason: Some("x".to_owned()), ..Words::default() }).unwrap();
    let refused =
        resolution::act(ledger.pool(), &ledger.fleet(), &*ledger.clock, &producer, Target::Intent(id), &act, None)
            .await;
    assert!(matches!(refused, Err(ActError::Forbidden(_))));
    assert!(matches!(Act::read("compensate", &Words::default()), Err(ActError::Incomplete { field: "reason", .. })));
}
