//! Send and ask, adapter to adapter: what a channel put somewhere is found again by the look-up of the same destination.

use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use settled::{
    channels::{self, wire::AlwaysOpen},
    config::destination::Destination,
    demo::fakes::{desk::Paging, faults::Fault, sms::Sms, webhook::Webhook},
    domain::{
        intent::Outgoing,
        outcome::Outcome,
        question::{AccountSeen, Answer, Probe, Question, Role, Seen},
    },
    look_up,
};
use uuid::Uuid;

use super::http::{ELDER, NOBODY, SUBJECT, YOUNGER, cannot_tell, hits};

fn outgoing(key: &str, reference: &str, payload: &Value, recipient: &str) -> Outgoing {
    Outgoing {
        intent_id: Uuid::nil(),
        tenant: "t".to_owned(),
        destination: "d".to_owned(),
        key: key.to_owned(),
        reference: reference.to_owned(),
        occurrence: 1,
        recipient: recipient.to_owned(),
        attempt: 1,
        earlier_bytes: false,
        created_at: Utc::now(),
        payload: payload.to_string(),
    }
}

async fn send(destination: &Destination, outgoing: &Outgoing) -> Outcome {
    let channel = channels::registry::build(destination).unwrap();
    let prepared = channel.prepare(outgoing).unwrap();
    channel.send(prepared, outgoing, Arc::new(AlwaysOpen)).await.outcome
}

async fn ask(destination: &Destination, recipient: &str) -> Answer {
    let now = Utc::now();
    let probe = |role, key: &str, reference: &str| Probe {
        role,
        key: key.to_owned(),
        reference: reference.to_owned(),
        spelled: None,
        occurrence: 1,
        recipient: recipient.to_owned(),
        sent_from: now - TimeDelta::minutes(1),
        sent_until: now,
    };
    let question = Question {
        probes: vec![
            probe(Role::Subject, SUBJECT, "inv-2"),
            probe(Role::Elder, ELDER, "inv-1"),
            probe(Role::Younger, YOUNGER, "inv-3"),
            probe(Role::Impossible, NOBODY, "inv-4"),
        ],
        now,
    };
    look_up::registry::build(destination).unwrap().unwrap().ask(&question).await
}

fn texts(fake: &Sms) -> Destination {
    serde_json::from_value(json!({
        "name": "texts", "channel": "sms", "allow_addresses": ["127.0.0.0/8"],
        "sms": {
            "url": fake.messages_url(),
            "json": { "to": "{to}", "text": "{text}", "client_reference": "{key}" },
            "reference_in": "/client_reference",
            "headers": { "settled-reference": "{reference}" },
            "reply": { "sent_when": { "status": [201] }, "provider_id": "/id" },
        },
        "look_up": {
            "kind": "http", "lag": "1s", "horizon": "1d",
            "http": {
                "per": "window",
                "url": format!("{}/messages", fake.url()),
                "query": { "from": "{from:%s}", "to": "{until:%s}" },
                "answer": { "items": "/messages", "key_at": "/client_reference", "reference_at": "/reference",
                            "recipient_at": "/to", "id_at": "/id", "time_at": "/created_at", "status_at": "/status" },
                "pages": { "next_at": "/next", "full_page": 2 },
                "account": { "url": format!("{}/account", fake.url()), "expect": { "/account": "demo-sms" } },
            },
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn a_text_whose_answer_was_lost_is_found_in_the_listing() {
    let fake = Sms::start().await.unwrap();
    fake.desk().set_page_size(2);
    let destination = texts(&fake);
    let number = "+4915112345678";
    let text = |key, reference| outgoing(key, reference, &json!({ "text": "hello" }), number);
    let sent = send(&destination, &text(ELDER, "INV-1")).await;
    assert!(matches!(sent, Outcome::Sent { provider_id: Some(_) }), "{sent:?}");
    fake.faults().for_reference("INV-2", Fault::LoseReply);
    let lost = send(&destination, &text(SUBJECT, "INV-2")).await;
    assert!(matches!(lost, Outcome::Ambiguous { .. }), "{lost:?}");
    send(&destination, &text(YOUNGER, "INV-3")).await;

    let answer = ask(&destination, number).await;
    let hit = &hits(&answer.seen[0])[0];
    assert_eq!((hit.key.as_deref(), hit.reference.as_deref()), (Some(SUBJECT), Some("INV-2")));
    assert!(hit.at.is_some() && !hit.other_recipient);
    assert_eq!(hits(&answer.seen[1]).len(), 1);
    assert_eq!(hits(&answer.seen[2]).len(), 1);
    assert_eq!(answer.seen[3], Seen::Nothing);
    assert!(matches!(answer.account, AccountSeen::Matches { .. }));
    assert_eq!(answer.pages, 2);

    fake.desk().set_paging(Paging::CutOff);
    cannot_tell(&ask(&destination, number).await.seen[3], "full");
    fake.desk().set_paging(Paging::Endless);
    cannot_tell(&ask(&destination, number).await.seen[3], "read before");
    fake.desk().set_account("sandbox");
    assert!(matches!(ask(&destination, number).await.account, AccountSeen::Differs { .. }));
}

#[tokio::test]
async fn an_event_is_asked_for_by_its_key_in_the_path() {
    let fake = Webhook::start().await.unwrap();
    let destination: Destination = serde_json::from_value(json!({
        "name": "hook", "channel": "webhook", "allow_addresses": ["127.0.0.0/8"],
        "webhook": { "url": fake.hook_url() },
        "look_up": {
            "kind": "http", "lag": "1s", "horizon": "1d",
            "http": {
                "per": "key",
                "url": format!("{}/events/{{key}}", fake.url()),
                "answer": { "absent": [404], "many": [300], "key_at": "/key", "reference_at": "/reference",
                            "occurrence_at": "/occurrence", "attempt_at": "/attempt", "id_at": "/id" },
                "account": { "url": format!("{}/account", fake.url()), "expect": { "/account": "demo-webhook" } },
            },
        },
    }))
    .unwrap();
    let event = |key, reference| outgoing(key, reference, &json!({ "a": 1 }), "");
    for (key, reference) in [(ELDER, "INV-1"), (YOUNGER, "INV-3")] {
        let sent = send(&destination, &event(key, reference)).await;
        assert!(matches!(sent, Outcome::Sent { .. }), "{sent:?}");
    }
    let answer = ask(&destination, "").await;
    assert_eq!(answer.seen[0], Seen::Nothing);
    assert_eq!(hits(&answer.seen[1])[0].reference.as_deref(), Some("INV-1"));
    assert_eq!(hits(&answer.seen[2])[0].attempt, Some(1));
    assert_eq!(answer.seen[3], Seen::Nothing);
    for _ in 0..2 {
        send(&destination, &event(SUBJECT, "INV-2")).await;
    }
    assert_eq!(hits(&ask(&destination, "").await.seen[0]).len(), 2);
}
