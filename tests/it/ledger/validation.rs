//! Every refusal names its field and its rule.

use serde_json::{Value, json};

use super::world::{Call, World, call, hook};

async fn rule(world: &World, call: &Call) -> String {
    match world.ask(call).await {
        Ok(answer) => answer.verdict,
        Err(e) if e.code == "ST400" => {
            format!("{} {}", e.detail["field"].as_str().unwrap(), e.detail["rule"].as_str().unwrap())
        }
        Err(e) => panic!("{e:?}"),
    }
}

fn email(changes: Value) -> String {
    let mut payload = json!({"to": "ap@acme.test", "subject": "Invoice", "text": "hello"});
    for (name, value) in changes.as_object().unwrap() {
        if value == &json!("-") {
            payload.as_object_mut().unwrap().remove(name);
        } else {
            payload[name] = value.clone();
        }
    }
    payload.to_string()
}

#[tokio::test]
async fn the_members_of_an_email_are_checked() {
    let world = World::new().await;
    let attachment =
        |f: &str, c: &str, b: &str| json!({"attachments": [{"filename": f, "content_type": c, "content_base64": b}]});
    let table = [
        (json!({"to": "-"}), "/payload/to required"),
        (json!({"subject": "-"}), "/payload/subject required"),
        (json!({"text": "-"}), "/payload/text required"),
        (json!({"to": ["a@b.test", "c@d.test"]}), "/payload/to one_recipient"),
        (json!({"to": "a@b.test, c@d.test"}), "/payload/to one_recipient"),
        (json!({"to": "a@b.test;c@d.test"}), "/payload/to one_recipient"),
        (json!({"to": "a@b@c.test"}), "/payload/to one_recipient"),
        (json!({"to": 7}), "/payload/to type"),
        (json!({"to": ""}), "/payload/to required"),
        (json!({"to": "Alice <a@b.test>"}), "/payload/to recipient"),
        (json!({"to": "nobody"}), "/payload/to recipient"),
        (json!({"to": "@b.test"}), "/payload/to recipient"),
        (json!({"to": "a@"}), "/payload/to recipient"),
        (json!({"to": "a@-b.test"}), "/payload/to recipient"),
        (json!({"to": "a@b..test"}), "/payload/to recipient"),
        (json!({"to": ".a@b.test"}), "/payload/to recipient"),
        (json!({"to": "\"a b\"@b.test"}), "/payload/to recipient"),
        (json!({"to": "a@[127.0.0.1]"}), "/payload/to recipient"),
        (json!({"to": format!("{}@b.test", "a".repeat(65))}), "/payload/to recipient"),
        (json!({"to": "a@b.test\r\nBcc: c@d.test"}), "/payload/to control_characters"),
        (json!({"to": "a@bücher.test"}), "/payload/to ascii_domain"),
        (json!({"cc": "c@d.test"}), "/payload/cc one_recipient"),
        (json!({"bcc": []}), "/payload/bcc one_recipient"),
        (json!({"subject": "x\r\nBcc: c@d.test"}), "/payload/subject control_characters"),
        (json!({"subject": "x\u{85}y"}), "/payload/subject control_characters"),
        (json!({"subject": "x\u{2028}y"}), "/payload/subject control_characters"),
        (json!({"subject": " "}), "/payload/subject required"),
        (json!({"subject": "x".repeat(501)}), "/payload/subject length"),
        (json!({"subject": null}), "/payload/subject type"),
        (json!({"text": 5}), "/payload/text type"),
        (json!({"html": ""}), "/payload/html required"),
        (json!({"text": "a\u{0}b"}), "/payload/text nul"),
        (json!({"reply_to": "x"}), "/payload/reply_to recipient"),
        (json!({"from_name": "A\nB"}), "/payload/from_name control_characters"),
        (json!({"from": "x@y.test"}), "/payload/from unknown"),
        (json!({"headers": []}), "/payload/headers type"),
        (json!({"headers": {"X-A:": "b"}}), "/payload/headers/X-A: header_name"),
        (json!({"headers": {"X A": "b"}}), "/payload/headers/X A header_name"),
        (json!({"headers": {"": "b"}}), "/payload/headers/ header_name"),
        (json!({"headers": {"Message-id": "b"}}), "/payload/headers/Message-id reserved_header"),
        (json!({"headers": {"x-settled-key": "b"}}), "/payload/headers/x-settled-key reserved_header"),
        (json!({"headers": {"X-A": "b\r\nBcc: c"}}), "/payload/headers/X-A control_characters"),
        (json!({"headers": {"X-A": 1}}), "/payload/headers/X-A type"),
        (json!({"headers": {"X-A": "1", "x-a": "2"}}), "/payload/headers header_name"),
        (json!({"attachments": {}}), "/payload/attachments type"),
        (json!({"attachments": [1]}), "/payload/attachments/0 type"),
        (json!({"attachments": [{"filename": "a"}]}), "/payload/attachments/0 required"),
        (json!({"attachments": [{"path": "a"}]}), "/payload/attachments/0/path unknown"),
        (attachment("../a", "text/plain", ""), "/payload/attachments/0/filename charset"),
        (attachment("a\u{7}", "text/plain", ""), "/payload/attachments/0/filename control_characters"),
        (attachment("a", "text", ""), "/payload/attachments/0/content_type content_type"),
        (attachment("a", "text/plain", "A"), "/payload/attachments/0/content_base64 base64"),
        (attachment("a", "text/plain", "AA-_"), "/payload/attachments/0/content_base64 base64"),
        (attachment("a.txt", "text/plain; charset=utf-8", "aGk="), "accepted"),
        (json!({"to": "jörg@acme.test"}), "accepted"),
        (json!({"to": "a+tag@xn--bcher-kva.test"}), "accepted"),
        (json!({"text": "-", "html": "<p>", "to": "x@acme.test"}), "accepted"),
        (
            json!({"headers": {"List-Unsubscribe": "<https://a.test>"}, "to": "y@acme.test", "reply_to": "z@acme.test", "from_name": "Ä"}),
            "accepted",
        ),
    ];
    for (n, (changes, expected)) in (0i64..).zip(table) {
        let told = rule(&world, &call("mail", "INV-1", &email(changes.clone()), "run-1", n)).await;
        assert_eq!(told, expected, "{changes}");
    }
}

#[tokio::test]
async fn the_members_of_a_text_message_are_checked() {
    let world = World::new().await;
    let table = [
        (json!({"text": "x"}), "/payload/to required"),
        (json!({"to": "+491701234567"}), "/payload/text required"),
        (json!({"to": "0170 1234567", "text": "x"}), "/payload/to e164"),
        (json!({"to": "+49 170 1234567", "text": "x"}), "/payload/to e164"),
        (json!({"to": "+0170123456", "text": "x"}), "/payload/to e164"),
        (json!({"to": "+4917012345678901", "text": "x"}), "/payload/to e164"),
        (json!({"to": ["+491701234567"], "text": "x"}), "/payload/to one_recipient"),
        (json!({"to": "+491701234567", "text": ""}), "/payload/text required"),
        (json!({"to": "+491701234567", "text": "x".repeat(1601)}), "/payload/text length"),
        (json!({"to": "+491701234567", "text": "x", "from": "y"}), "/payload/from unknown"),
        (json!({"to": "+491701234567", "text": "x\ny"}), "accepted"),
    ];
    for (n, (payload, expected)) in (0i64..).zip(table) {
        assert_eq!(rule(&world, &call("text", "INV-1", &payload.to_string(), "run-1", n)).await, expected, "{payload}");
    }
}

#[tokio::test]
async fn references_are_checked_and_narrowed_by_the_destination() {
    let world = World::new().await;
    world.destination("keyed", "webhook", "keyed", json!({"asked_by_key": true})).await;
    world.destination("narrow", "webhook", "narrow", json!({"reference_pattern": "inv-[0-9]+|crn-[0-9]+"})).await;
    let long = "x".repeat(121);
    let table = [
        ("hook", "", "/reference length"),
        ("hook", long.as_str(), "/reference length"),
        ("hook", "INV 1", "/reference charset"),
        ("hook", "INV/1", "/reference charset"),
        ("hook", "INV-é", "/reference charset"),
        ("hook", "INV#1", "/reference charset"),
        ("hook", "=1+2", "/reference charset"),
        ("hook", "a:b", "/reference charset"),
        ("keyed", "a:b", "accepted"),
        ("narrow", "INV-229", "accepted"),
        ("narrow", "xINV-2", "/reference pattern"),
        ("narrow", "INV-2-retry", "/reference pattern"),
    ];
    for (n, (destination, reference, expected)) in (0i64..).zip(table) {
        assert_eq!(rule(&world, &call(destination, reference, "{}", "run-1", n)).await, expected, "{reference}");
    }
}

#[tokio::test]
async fn identity_and_options_are_checked() {
    let world = World::new().await;
    let ok = hook("INV-1", "{}", "run-1", 1);
    let mut no_step = ok.clone();
    no_step.step = None;
    let mut no_run = ok.clone();
    no_run.run_id = None;
    let table = [
        (no_step, "/step required"),
        (no_run, "/run_id required"),
        (hook("INV-1", "{}", "", 1), "/run_id charset"),
        (hook("INV-1", "{}", "run 1", 1), "/run_id charset"),
        (hook("INV-1", "{}", &"r".repeat(201), 1), "/run_id charset"),
        (hook("INV-1", "{}", "run-1", -1), "/step range"),
        (ok.clone().with("slots", json!("x")), "/slots unknown"),
        (ok.clone().with("slot", json!(1)), "/slot type"),
        (ok.clone().with("slot", json!("a\nb")), "/slot charset"),
        (ok.clone().with("slot", json!("x".repeat(321))), "/slot length"),
        (ok.clone().with("occurrence", json!("2")), "/occurrence type"),
        (ok.clone().with("occurrence", json!(0)), "/occurrence range"),
        (ok.clone().with("occurrence", json!(1.5)), "/occurrence range"),
        (ok.clone().with("occurrence", json!(1e300)), "/occurrence range"),
        (ok.clone().with("due_at", json!("tomorrow")), "/due_at time"),
        (ok.clone().with("due_at", json!("2099-01-01T00:00:00")), "/due_at time"),
        (ok.clone().with("due_at", json!("2099-02-30T00:00:00Z")), "/due_at time"),
        (ok.clone().with("due_at", json!(5)), "/due_at type"),
        (
            ok.clone().with("due_at", json!("2099-01-02T00:00:00Z")).with("deadline", json!("2099-01-01T00:00:00Z")),
            "/deadline range",
        ),
        (ok.clone().with("traceparent", json!("x")), "/traceparent charset"),
        (ok.clone().with("instructed_by", json!("me")), "/instructed_by type"),
        (ok.clone().with("instructed_by", json!({"n": 1})), "/instructed_by type"),
        (ok.clone().with("caller_key", json!("")), "/caller_key charset"),
        (ok.clone().with("caller_key", json!("fü")), "/caller_key charset"),
        (ok.clone().with("surface", json!("telepathy")), "/surface charset"),
        (ok.clone().with("tenant", json!("a b")), "/tenant charset"),
        (
            ok.clone()
                .with("instructed_by", json!({"person": "ann", "ticket": "T-1"}))
                .with("traceparent", json!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
                .with("slot", json!(null))
                .with("principal", json!("token:7"))
                .with("surface", json!("http")),
            "accepted",
        ),
    ];
    for (call, expected) in table {
        assert_eq!(rule(&world, &call).await, expected, "{call:?}");
    }
    let kept: Value = sqlx::query_scalar(
        "select instructed_by from settled.requests where principal = 'token:7' and surface = 'http'",
    )
    .fetch_one(world.pool())
    .await
    .unwrap();
    assert_eq!(kept["person"], "ann");
}

#[tokio::test]
async fn nulls_are_named_and_not_passed_on() {
    let world = World::new().await;
    for (sql, field) in [
        ("select settled.enqueue('hook', null, '{}', 'r', 1, '{\"tenant\": \"acme\"}')", "/reference"),
        ("select settled.enqueue('hook', 'INV-1', null, 'r', 1, '{\"tenant\": \"acme\"}')", "/payload"),
        ("select settled.enqueue('hook', 'INV-1', '{}', 'r', 1, null)", "/tenant"),
        ("select settled.enqueue('hook', 'INV-1', '{}', 'r', 1, '[]')", "/options"),
        ("select settled.cancel(gen_random_uuid(), ' ')", "/reason"),
    ] {
        let error = super::world::raised(sqlx::query(sql).execute(world.pool()).await.unwrap_err());
        assert_eq!((error.code.as_str(), error.detail["field"].as_str()), ("ST400", Some(field)), "{sql}");
    }
    let error = super::world::raised(
        sqlx::query("select settled.enqueue(null, 'INV-1', '{}', 'r', 1, '{\"tenant\": \"acme\"}')")
            .execute(world.pool())
            .await
            .unwrap_err(),
    );
    assert_eq!(error.code, "ST404");
}
