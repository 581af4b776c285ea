//! One request for one intent: names in the path, in a filter, in a body.

use serde_json::{Value, json};
use settled::{
    domain::question::{AccountSeen, Role, Seen},
    look_up::LookUp,
};

use super::http::{ELDER, NOBODY, SUBJECT, YOUNGER, ask, ask_subject, build, cannot_tell, full, hits, probe, subject};
use crate::support::scripted::{Act, Scripted, json};

fn filtered(base: &str) -> Value {
    json!({
        "per": "key",
        "url": format!("{base}/messages"),
        "query": { "key": "{key}", "since": "{from:%Y-%m-%dT%H:%M:%SZ}" },
        "answer": { "items": "/items", "key_at": "/key", "reference_at": "/ref", "id_at": "/id", "status_at": "/state",
                    "time_at": "/at", "attempt_at": "/try", "recipient_at": "/to", "occurrence_at": "/nth" },
        "pages": { "full_page": 50 },
    })
}

fn in_path(base: &str) -> Value {
    json!({
        "per": "key",
        "url": format!("{base}/messages/{{key}}"),
        "answer": { "absent": [404], "id_at": "/id" },
    })
}

async fn answering(body: Value) -> Scripted {
    Scripted::new(move |_| json(200, &body)).await
}

#[tokio::test]
async fn what_carries_our_key_is_found_with_all_it_says() {
    let item = json!({ "key": SUBJECT, "ref": "INV-229", "id": 77, "state": "queued", "at": 1_741_089_600, "try": "2",
                       "to": "4915112345678", "nth": 1 });
    let server = answering(json!({ "items": [item] })).await;
    let seen = ask_subject(&filtered(&server.base)).await;
    let hit = &hits(&seen)[0];
    assert_eq!(hit.key.as_deref(), Some(SUBJECT));
    assert_eq!(hit.reference.as_deref(), Some("INV-229"));
    assert_eq!(hit.id.as_deref(), Some("77"));
    assert_eq!(hit.status.as_deref(), Some("queued"));
    assert_eq!(hit.attempt, Some(2));
    assert_eq!(hit.at.unwrap().to_rfc3339(), "2025-03-04T12:00:00+00:00");
    assert!(!hit.other_recipient);
    let got = server.got().remove(0);
    assert_eq!((got.method.as_str(), got.query("key").as_deref()), ("GET", Some(SUBJECT)));
    assert_eq!(got.query("since").as_deref(), Some("2025-03-04T11:15:00Z"));
}

#[tokio::test]
async fn a_near_miss_is_not_found() {
    let near = json!([{ "key": NOBODY, "ref": "INV-2291", "id": 1 }, { "key": NOBODY, "ref": "AINV-229", "id": 2 }]);
    let server = answering(json!({ "items": near })).await;
    assert_eq!(ask_subject(&filtered(&server.base)).await, Seen::Nothing);
}

#[tokio::test]
async fn two_copies_are_both_shown() {
    let server =
        answering(json!({ "items": [{ "key": SUBJECT, "id": "m-1" }, { "key": SUBJECT, "id": "m-2" }] })).await;
    let seen = ask_subject(&filtered(&server.base)).await;
    let ids: Vec<_> = hits(&seen).iter().map(|hit| hit.id.as_deref().unwrap()).collect();
    assert_eq!(ids, ["m-1", "m-2"]);
}

#[tokio::test]
async fn a_name_is_the_same_in_any_case() {
    let server = answering(json!({ "items": [{ "ref": "Inv-229", "id": 1 }] })).await;
    assert_eq!(hits(&ask_subject(&filtered(&server.base)).await).len(), 1);
    let server = answering(json!({ "items": [{ "key": SUBJECT.to_uppercase(), "id": 1 }] })).await;
    assert_eq!(hits(&ask_subject(&filtered(&server.base)).await).len(), 1);
}

#[tokio::test]
async fn the_same_reference_of_another_tenant_shows_its_own_key() {
    let server =
        answering(json!({ "items": [{ "key": NOBODY, "ref": "INV-229", "to": "+15550001111", "id": 1 }] })).await;
    let seen = ask_subject(&filtered(&server.base)).await;
    let hit = &hits(&seen)[0];
    assert_eq!(hit.key.as_deref(), Some(NOBODY));
    assert!(hit.other_recipient);
}

#[tokio::test]
async fn another_occurrence_of_the_reference_is_another_effect() {
    let server = answering(json!({ "items": [{ "key": NOBODY, "ref": "INV-229", "nth": 2 }] })).await;
    assert_eq!(ask_subject(&filtered(&server.base)).await, Seen::Nothing);
    let server = answering(json!({ "items": [{ "key": SUBJECT, "ref": "INV-229", "nth": 2 }] })).await;
    assert_eq!(hits(&ask_subject(&filtered(&server.base)).await).len(), 1, "our key is ours");
}

#[tokio::test]
async fn a_name_inside_a_text_is_found_as_a_word() {
    let text = |body: &str| answering(json!({ "messages": [{ "body": body, "sid": "SM1" }], "next": null }));
    let settings = |base: &str| {
        json!({
            "per": "key",
            "url": format!("{base}/Messages.json"),
            "query": { "To": "{recipient}", "DateSent>": "{from:%Y-%m-%d}" },
            "answer": { "items": "/messages", "reference_at": "/body", "id_at": "/sid", "match": "token" },
            "pages": { "next_at": "/next" },
            "widen": "1d",
        })
    };
    let server = text("Your invoice [INV-229] is due.").await;
    let answer = ask(&settings(&server.base), &subject("inv-229")).await;
    assert_eq!(hits(&answer.seen[0])[0].reference.as_deref(), Some("inv-229"), "the text itself is not kept");
    assert!(!answer.query.contains("4915112345678"), "{}", answer.query);
    assert_eq!(server.got()[0].query("To").as_deref(), Some("+4915112345678"));
    assert_eq!(server.got()[0].query("DateSent>").as_deref(), Some("2025-03-02"));
    let server = text("Your invoice INV-2291 is due.").await;
    assert_eq!(ask_subject(&settings(&server.base)).await, Seen::Nothing);
    let server = text("Your invoice INV-229.1 is due.").await;
    cannot_tell(&ask_subject(&settings(&server.base)).await, "longer");
}

#[tokio::test]
async fn an_address_that_names_the_intent_answers_by_its_status() {
    let server = Scripted::new(|got| match got.path() {
        path if path.ends_with(ELDER) => json(200, &json!({ "id": "m-1" })),
        path if path.ends_with(YOUNGER) => json(200, &json!({ "id": "m-2" })),
        _ => json(404, &json!({ "error": "not found" })),
    })
    .await;
    let answer = ask(&in_path(&server.base), &full()).await;
    assert_eq!(answer.seen[0], Seen::Nothing);
    assert_eq!(hits(&answer.seen[1])[0].id.as_deref(), Some("m-1"));
    assert_eq!(hits(&answer.seen[2])[0].key.as_deref(), Some(YOUNGER));
    assert_eq!(answer.seen[3], Seen::Nothing);
    assert!(!answer.same_answer);
    assert_eq!((answer.account, answer.pages), (AccountSeen::NotChecked, 4));
    let asked: Vec<_> = server.got().iter().map(|got| got.path().rsplit('/').next().unwrap().to_owned()).collect();
    assert_eq!(asked, [ELDER, SUBJECT, YOUNGER, NOBODY]);
}

#[tokio::test]
async fn without_a_younger_witness_the_elder_is_asked_again() {
    let question = settled::domain::question::Question {
        probes: vec![probe(Role::Subject, SUBJECT, "inv-229"), probe(Role::Elder, ELDER, "inv-100")],
        now: super::http::now(),
    };
    let calm = Scripted::new(|got| match got.path() {
        path if path.ends_with(ELDER) => json(200, &json!({})),
        _ => json(404, &json!({})),
    })
    .await;
    let answer = ask(&in_path(&calm.base), &question).await;
    assert_eq!(hits(&answer.seen[1]).len(), 1);
    assert_eq!(calm.got().len(), 3);

    let asked = std::sync::atomic::AtomicU32::new(0);
    let breaking = Scripted::new(move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => json(200, &json!({})),
        _ => json(404, &json!({})),
    })
    .await;
    let answer = ask(&in_path(&breaking.base), &question).await;
    cannot_tell(&answer.seen[1], "before the question");
}

#[tokio::test]
async fn head_asks_by_status_alone() {
    let server =
        Scripted::new(|got| Act::Reply(if got.path().ends_with(SUBJECT) { 200 } else { 404 }, vec![], vec![])).await;
    let mut settings = in_path(&server.base);
    settings["method"] = json!("HEAD");
    let answer = ask(&settings, &full()).await;
    assert_eq!(hits(&answer.seen[0]).len(), 1);
    assert_eq!(answer.seen[1], Seen::Nothing);
    assert_eq!(server.got()[0].method, "HEAD");
}

#[tokio::test]
async fn several_at_one_address_are_a_duplicate() {
    let server = Scripted::new(|_| json(300, &json!(["/objects/1", "/objects/2"]))).await;
    let mut settings = in_path(&server.base);
    settings["answer"]["many"] = json!([300]);
    assert_eq!(hits(&ask_subject(&settings).await).len(), 2);
}

#[tokio::test]
async fn another_name_at_our_address_proves_nothing() {
    let server = Scripted::new(|_| json(200, &json!({ "key": NOBODY }))).await;
    let mut settings = in_path(&server.base);
    settings["answer"]["key_at"] = json!("/key");
    cannot_tell(&ask_subject(&settings).await, "does not carry its name");
}

#[tokio::test]
async fn an_empty_name_builds_no_request() {
    let server = Scripted::new(|_| json(200, &json!({ "items": [] }))).await;
    let mut settings = filtered(&server.base);
    settings["query"] = json!({ "ref": "{reference}" });
    let seen = ask(&settings, &subject("")).await.seen.remove(0);
    cannot_tell(&seen, "{reference} is empty");
    assert!(server.got().is_empty());
}

#[tokio::test]
async fn a_lower_case_question_proves_nothing_where_case_may_matter() {
    let server = answering(json!({ "items": [] })).await;
    let mut settings = filtered(&server.base);
    settings["query"] = json!({ "ref": "{reference}" });
    cannot_tell(&ask_subject(&settings).await, "fold case");
    let digits = ask(&settings, &subject("2291")).await.seen.remove(0);
    assert_eq!(digits, Seen::Nothing, "digits have no case");
    settings["answer"]["folds_case"] = json!(true);
    assert_eq!(ask_subject(&settings).await, Seen::Nothing);
}

#[tokio::test]
async fn a_body_is_filled_inside_its_values() {
    let server = answering(json!({ "methodResponses": [["Email/query", { "list": [{ "k": SUBJECT }] }, "0"]] })).await;
    let settings = json!({
        "per": "key",
        "method": "POST",
        "url": format!("{}/jmap", server.base),
        "json": { "methodCalls": [["Email/query", { "filter": { "header": ["X-Settled-Key", "{key}"] }, "limit": 10 }, "0"]] },
        "answer": { "assert": { "/methodResponses/0/0": "Email/query" }, "items": "/methodResponses/0/1/list", "key_at": "/k" },
        "pages": { "full_page": 10 },
    });
    assert_eq!(hits(&ask_subject(&settings).await).len(), 1);
    let got = server.got().remove(0);
    assert_eq!(got.header("content-type"), Some("application/json"));
    let body: Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!(body["methodCalls"][0][1]["filter"]["header"][1], SUBJECT);

    let server = answering(json!({ "methodResponses": [["error", { "type": "serverFail", "list": [] }, "0"]] })).await;
    let mut broken = settings;
    broken["url"] = json!(format!("{}/jmap", server.base));
    cannot_tell(&ask_subject(&broken).await, "must stand");
}

type Answering = Box<dyn Fn() -> Act + Send + Sync>;

#[tokio::test]
async fn what_is_no_answer_is_not_read_as_absence() {
    let html = vec![("content-type", "text/html; charset=utf-8".to_owned())];
    let cases: Vec<(&str, &str, Answering)> = vec![
        ("log-in page", "html", Box::new(move || Act::Reply(200, html.clone(), b"<html>log in".to_vec()))),
        (
            "html 404",
            "html",
            Box::new(|| Act::Reply(404, vec![("content-type", "text/html".to_owned())], b"<h1>no".to_vec())),
        ),
        ("redirect", "302", Box::new(|| Act::Reply(302, vec![("location", "/elsewhere".to_owned())], vec![]))),
        ("500", "500", Box::new(|| json(500, &json!({ "items": [] })))),
        ("401", "401", Box::new(|| json(401, &json!({ "items": [] })))),
        ("429", "429", Box::new(|| json(429, &json!({ "items": [] })))),
        ("undeclared 404", "404", Box::new(|| json(404, &json!({})))),
        ("not json", "no JSON", Box::new(|| Act::Reply(200, vec![], b"ok".to_vec()))),
        ("cut json", "no JSON", Box::new(|| Act::Reply(200, vec![], b"{\"items\":[".to_vec()))),
        ("empty body", "no JSON", Box::new(|| Act::Reply(200, vec![], vec![]))),
        ("missing items", "nothing stands", Box::new(|| json(200, &json!({ "data": [] })))),
        ("null items", "neither", Box::new(|| json(200, &json!({ "items": null })))),
        ("too large", "cut", Box::new(|| json(200, &json!({ "items": ["x".repeat(5000)] })))),
        ("closed", "closed", Box::new(|| Act::Close)),
        ("silent", "no reply", Box::new(|| Act::Silence)),
    ];
    for (name, words, act) in cases {
        let server = Scripted::new(move |_| act()).await;
        let mut settings = filtered(&server.base);
        settings["page_bytes"] = json!(4096);
        let mut destination = super::http::destination(&settings);
        destination.timeouts.reply = std::time::Duration::from_millis(200);
        let http = settled::look_up::http::Http::build(&destination).unwrap();
        let seen = http.ask(&subject("inv-229")).await.seen.remove(0);
        cannot_tell(&seen, words);
        assert_eq!(server.got().len(), 1, "{name}: asked once");
    }
}

#[tokio::test]
async fn a_dead_port_and_a_forbidden_address_are_no_answer() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    cannot_tell(&ask_subject(&filtered(&base)).await, "no connection");
    let server = answering(json!({ "items": [] })).await;
    let mut destination = super::http::destination(&filtered(&server.base));
    destination.allow_addresses.clear();
    let http = settled::look_up::http::Http::build(&destination).unwrap();
    cannot_tell(&http.ask(&subject("inv-229")).await.seen[0], "127.0.0.1");
    assert!(server.got().is_empty());
}

#[tokio::test]
async fn the_account_is_compared_with_what_is_expected() {
    let server = Scripted::new(|got| match got.path() {
        "/me" => json(200, &json!({ "id": 7, "mode": "live" })),
        "/broken" => json(500, &json!({})),
        _ => json(200, &json!({ "items": [] })),
    })
    .await;
    let with = |path: &str, id: u32| {
        let mut settings = filtered(&server.base);
        settings["account"] =
            json!({ "url": format!("{}{path}", server.base), "expect": { "/id": id, "/mode": "live" } });
        settings
    };
    let answer = ask(&with("/me", 7), &subject("inv-229")).await;
    assert_eq!(answer.account, AccountSeen::Matches { identity: "/id=7 /mode=\"live\"".to_owned() });
    assert_eq!(answer.seen[0], Seen::Nothing);
    let answer = ask(&with("/me", 8), &subject("inv-229")).await;
    assert_eq!(answer.account, AccountSeen::Differs { seen: "/id=7 /mode=\"live\"".to_owned() });
    let answer = ask(&with("/broken", 7), &subject("inv-229")).await;
    assert_eq!(answer.account, AccountSeen::NotChecked);
    cannot_tell(&answer.seen[0], "account could not be checked");
}

#[tokio::test]
async fn credentials_go_out_and_stay_out_of_the_evidence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "s3cret\n").unwrap();
    let server = answering(json!({ "items": [] })).await;
    let mut settings = filtered(&server.base);
    settings["auth"] = json!({ "bearer": { "file": path } });
    settings["headers"] = json!({ "X-Team": "billing", "X-Server-Token": { "file": path } });
    settings["query"]["password"] = json!({ "file": path });
    let answer = ask(&settings, &subject("inv-229")).await;
    let got = server.got().remove(0);
    assert_eq!(got.header("authorization"), Some("Bearer s3cret"));
    assert_eq!(got.header("x-server-token"), Some("s3cret"));
    assert_eq!(got.header("x-team"), Some("billing"));
    assert_eq!(got.query("password").as_deref(), Some("s3cret"));
    assert!(answer.query.contains("password=%2A%2A%2A"), "{}", answer.query);
    assert!(!answer.query.contains("s3cret"));
}

#[tokio::test]
async fn abilities_say_what_absence_may_rest_on() {
    let server = answering(json!([])).await;
    let abilities = build(&filtered(&server.base)).abilities();
    assert!(abilities.shows_key && !abilities.lists);
    let mut weak = filtered(&server.base);
    weak["query"] = json!({ "ref": "{reference}" });
    weak["answer"].as_object_mut().unwrap().remove("key_at");
    assert!(!build(&weak).abilities().shows_key);
}
