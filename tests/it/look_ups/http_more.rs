//! Declarative questions: spelling, windows, what else an item must say, waiting, tokens, many questions at once.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use settled::{
    domain::question::{AccountSeen, Question, Role, Seen},
    look_up::{LookUp, http::Http},
};

use super::http::{
    ELDER, NOBODY, SUBJECT, YOUNGER, ask, ask_subject, build, cannot_tell, destination, full, hits, now, probe, subject,
};
use crate::support::scripted::{Act, Got, Scripted, json};

fn by_reference(base: &str, spelling: &str) -> Value {
    json!({
        "per": "key", "url": format!("{base}/messages"), "query": { "ref": spelling },
        "answer": { "items": "/items", "reference_at": "/ref", "id_at": "/id" }, "pages": { "full_page": 50 },
    })
}

fn spelled(reference: &str) -> Question {
    let mut question = subject(&reference.to_ascii_lowercase());
    question.probes[0].spelled = Some(reference.to_owned());
    question
}

#[tokio::test]
async fn a_downstream_that_minds_case_is_asked_by_the_spelling_that_travelled() {
    // It keeps what it got, and compares to the letter.
    let server = Scripted::new(|got: &Got| {
        let items = if got.query("ref").as_deref() == Some("Inv-229") {
            json!([{ "ref": "Inv-229", "id": 1 }])
        } else {
            json!([])
        };
        json(200, &json!({ "items": items }))
    })
    .await;
    let settings = by_reference(&server.base, "{reference}");
    assert_eq!(hits(&ask(&settings, &spelled("Inv-229")).await.seen[0]).len(), 1);
    assert_eq!(ask(&settings, &spelled("Inv-300")).await.seen[0], Seen::Nothing);
    // Not knowing how it travelled, nothing is proven.
    cannot_tell(&ask_subject(&settings).await, "fold case");
    let upper = by_reference(&server.base, "{reference:upper}");
    assert_eq!(ask(&upper, &spelled("Inv-229")).await.seen[0], Seen::Nothing);
    assert_eq!(server.got().last().unwrap().query("ref").as_deref(), Some("INV-229"));
}

#[tokio::test]
async fn a_window_is_asked_for_in_the_spelling_and_zone_of_the_downstream() {
    let server =
        Scripted::new(|_| json(200, &json!({ "items": [{ "key": SUBJECT, "at": "2025-03-04 06:30:00" }] }))).await;
    let settings = json!({
        "per": "window", "url": format!("{}/messages", server.base),
        "query": { "eastern": "{from:%Y-%m-%dT%H:%M:%S@America/New_York}", "day": "{until:date@Asia/Tokyo}", "ms": "{from:epoch_ms}" },
        "answer": { "items": "/items", "key_at": "/key", "time_at": "/at", "time_format": "%Y-%m-%d %H:%M:%S@America/New_York" },
        "pages": { "full_page": 50 },
    });
    let answer = ask(&settings, &subject("inv-229")).await;
    // Sent at 11:20Z, widened by five minutes; asked at 12:00Z.
    let got = server.got().remove(0);
    assert_eq!(got.query("eastern").as_deref(), Some("2025-03-04T06:15:00"));
    assert_eq!(got.query("day").as_deref(), Some("2025-03-05"));
    assert_eq!(got.query("ms").as_deref(), Some("1741086900000"));
    assert_eq!(hits(&answer.seen[0])[0].at.unwrap().to_rfc3339(), "2025-03-04T11:30:00+00:00");
}

#[tokio::test]
async fn an_incoming_message_that_quotes_the_reference_is_none_of_ours() {
    let listing = |base: &str, checks: Value| {
        json!({
            "per": "key", "url": format!("{base}/Messages.json"), "query": { "To": "{recipient}" },
            "answer": { "items": "/messages", "reference_at": "/body", "match": "token", "recipient_at": "/to", "checks": checks },
            "pages": { "full_page": 50 },
        })
    };
    let outbound = json!([{ "at": "/direction", "op": "prefix", "value": "outbound", "otherwise": "skip" }]);
    let text = |direction: Value| json!({ "messages": [{ "body": "Re: INV-229 paid", "to": "+4915112345678", "direction": direction }] });
    for (direction, expected) in [("inbound", 0), ("outbound-api", 1)] {
        let body = text(json!(direction));
        let server = Scripted::new(move |_| json(200, &body)).await;
        match ask_subject(&listing(&server.base, outbound.clone())).await {
            Seen::Hits { hits } => assert_eq!(hits.len(), expected),
            Seen::Nothing => assert_eq!(expected, 0, "{direction}"),
            Seen::CannotTell { why } => panic!("{direction}: {why}"),
        }
    }
    let body = text(Value::Null);
    let server = Scripted::new(move |_| json(200, &body)).await;
    cannot_tell(&ask_subject(&listing(&server.base, outbound)).await, "cannot be told");
}

#[tokio::test]
async fn an_item_that_contradicts_what_was_sent_says_where() {
    let server =
        Scripted::new(|_| json(200, &json!({ "items": [{ "key": SUBJECT, "nth": "2.0", "mode": "live" }] }))).await;
    let settings = |checks: Value| {
        json!({
            "per": "key", "url": format!("{}/x", server.base), "query": { "key": "{key}" },
            "answer": { "items": "/items", "key_at": "/key", "checks": checks }, "pages": { "full_page": 50 },
        })
    };
    let nth = |value: &str| json!([{ "at": "/nth", "op": "number", "value": value, "otherwise": "conflict" }]);
    let seen = ask_subject(&settings(nth("{occurrence}"))).await;
    assert_eq!(hits(&seen)[0].contradicts.as_deref(), Some("/nth"));
    let seen = ask_subject(&settings(nth("2"))).await;
    assert_eq!(hits(&seen)[0].contradicts, None);
    for (check, field) in [
        (json!({ "at": "mode", "value": "live", "otherwise": "skip" }), "look_up.http.answer.checks[0].at"),
        (
            json!({ "at": "/mode", "op": "number", "value": "live", "otherwise": "skip" }),
            "look_up.http.answer.checks[0].value",
        ),
        (
            json!({ "at": "/mode", "op": "prefix", "value": "", "otherwise": "skip" }),
            "look_up.http.answer.checks[0].value",
        ),
        (json!({ "at": "/mode", "value": "{from:epoch}", "otherwise": "skip" }), "look_up.http.answer.checks[0].value"),
        (json!({ "at": "/mode", "value": "live" }), "look_up.http"),
    ] {
        let error = Http::build(&destination(&settings(json!([check])))).err().unwrap();
        assert_eq!(error.field, field, "{error}");
    }
}

#[tokio::test]
async fn marks_are_read_out_of_the_header_of_a_mail() {
    let mail = |key: &str, reference: &str| {
        format!(
            "Subject: x\r\nX-Settled-Key:\r\n {key}\r\nX-Settled-Reference: {reference}\r\nX-Settled-Attempt: 2\r\nTo: a@b.test\r\n\r\nX-Settled-Key: {SUBJECT}\r\n"
        )
    };
    let source = |text: String| json!({ "items": [{ "raw": text, "id": "m-1" }] });
    let settings = |base: &str| {
        json!({
            "per": "window", "url": format!("{base}/mails"), "query": { "since": "{from:rfc3339}" },
            "answer": { "items": "/items", "key_at": "/raw", "id_at": "/id", "match": "header" }, "pages": { "full_page": 50 },
        })
    };
    let body = source(mail(SUBJECT, "INV-229"));
    let server = Scripted::new(move |_| json(200, &body)).await;
    let seen = ask_subject(&settings(&server.base)).await;
    let hit = &hits(&seen)[0];
    assert_eq!((hit.key.as_deref(), hit.attempt, hit.id.as_deref()), (Some(SUBJECT), Some(2), Some("m-1")));
    // The body of a mail is not its header.
    let body = source(mail(NOBODY, "INV-2291"));
    let server = Scripted::new(move |_| json(200, &body)).await;
    assert_eq!(ask_subject(&settings(&server.base)).await, Seen::Nothing);
}

#[tokio::test]
async fn a_downstream_that_wants_to_be_left_alone_says_for_how_long() {
    let wait = |status: u16, value: &'static str| async move {
        let server = Scripted::new(move |_| {
            let headers = vec![("retry-after", value.to_owned()), ("date", "Sun, 06 Nov 1994 08:48:07 GMT".to_owned())];
            Act::Reply(status, headers, b"{}".to_vec())
        })
        .await;
        let settings =
            json!({ "per": "key", "url": format!("{}/x/{{key}}", server.base), "answer": { "absent": [404] } });
        let answer = ask(&settings, &full()).await;
        assert!(answer.seen.iter().all(|seen| matches!(seen, Seen::CannotTell { .. })), "{answer:?}");
        (answer.retry_after, server.got().len())
    };
    assert_eq!(wait(429, "90").await, (Some(Duration::from_secs(90)), 1), "nothing more is asked");
    assert_eq!(wait(503, "Sun, 06 Nov 1994 08:49:37 GMT").await, (Some(Duration::from_secs(90)), 1));
    assert_eq!(wait(429, "999999999").await, (Some(Duration::from_secs(3600)), 1), "no longer than limits.backoff_max");
    assert_eq!(wait(429, "soon").await.0, None);
    assert_eq!(wait(403, "90").await.0, None, "that is no \"not now\"");
    let server = Scripted::new(|_| json(200, &json!({ "id": 1 }))).await;
    let settings = json!({ "per": "key", "url": format!("{}/x/{{key}}", server.base) });
    assert_eq!(ask(&settings, &subject("inv-229")).await.retry_after, None);
}

#[tokio::test]
async fn a_token_is_fetched_once_used_and_thrown_away_when_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "s3 cret\n").unwrap();
    let issued = AtomicU32::new(0);
    let server = Scripted::new(move |got: &Got| match (got.path(), got.header("authorization")) {
        ("/token", _) => {
            let n = issued.fetch_add(1, Ordering::SeqCst) + 1;
            json(200, &json!({ "access_token": format!("t-{n}"), "token_type": "Bearer", "expires_in": 3600 }))
        }
        // The first token is revoked after its second use.
        (_, Some("Bearer t-1")) if got.query("key").as_deref() == Some(YOUNGER) => json(401, &json!({})),
        (_, Some("Bearer t-1" | "Bearer t-2")) => json(200, &json!({ "items": [] })),
        (_, Some(_) | None) => json(401, &json!({})),
    })
    .await;
    let settings = |client_in: &str| {
        json!({
            "per": "key", "url": format!("{}/x", server.base), "query": { "key": "{key}" },
            "oauth": { "token_url": format!("{}/token", server.base), "client_id": "set tled", "client_in": client_in,
                       "client_secret": { "file": dir.path().join("secret") }, "scope": "mail.read" },
            "answer": { "items": "/items", "key_at": "/key" }, "pages": { "full_page": 50 },
        })
    };
    let http = build(&settings("body"));
    assert_eq!(http.ask(&subject("inv-229")).await.seen, [Seen::Nothing]);
    assert_eq!(http.ask(&subject("inv-229")).await.seen, [Seen::Nothing]);
    let younger = Question { probes: vec![probe(Role::Subject, YOUNGER, "inv-300")], now: now() };
    cannot_tell(&http.ask(&younger).await.seen[0], "401");
    assert_eq!(http.ask(&younger).await.seen, [Seen::Nothing]);
    let got = server.got();
    let tokens: Vec<_> = got.iter().filter(|got| got.path() == "/token").collect();
    assert_eq!(tokens.len(), 2);
    assert_eq!(
        String::from_utf8(tokens[0].body.clone()).unwrap(),
        "grant_type=client_credentials&scope=mail.read&client_id=set%20tled&client_secret=s3%20cret"
    );
    let http = build(&settings("basic"));
    let answer = http.ask(&subject("inv-229")).await;
    let got = server.got();
    let basic = got.iter().rev().find(|got| got.path() == "/token").unwrap();
    assert_eq!(basic.header("authorization"), Some("Basic c2V0JTIwdGxlZDpzMyUyMGNyZXQ="));
    assert!(!answer.query.contains("s3"), "{}", answer.query);
}

#[tokio::test]
async fn without_a_token_nothing_is_asked_and_nothing_repeated_of_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "s3cret\n").unwrap();
    for (answer, words) in [
        (json!({ "error": "invalid_client", "error_description": "s3cret" }), "without an access token"),
        (json!({ "access_token": "abc", "token_type": "mac" }), "no bearer"),
        (json!({ "access_token": "a\nb" }), "without an access token"),
    ] {
        let server = Scripted::new(move |_| json(200, &answer)).await;
        let settings = json!({
            "per": "key", "url": format!("{}/x/{{key}}", server.base), "answer": { "absent": [404] },
            "oauth": { "token_url": format!("{}/token", server.base), "client_id": "settled",
                       "client_secret": { "file": dir.path().join("secret") }, "refresh_token": { "file": dir.path().join("secret") } },
        });
        let seen = ask_subject(&settings).await;
        cannot_tell(&seen, words);
        cannot_tell(&seen, "no access token");
        assert!(server.got().iter().all(|got| got.path() == "/token"));
        assert!(server.got()[0].body.starts_with(b"grant_type=refresh_token&refresh_token=s3cret"));
    }
}

#[tokio::test]
async fn an_account_may_be_asked_for_with_a_body() {
    let server = Scripted::new(|got: &Got| match got.method.as_str() {
        "POST" if got.body == br#"{"query":"{ viewer { login } }"}"# => {
            json(200, &json!({ "data": { "viewer": { "login": "acme" } } }))
        }
        "POST" => json(400, &json!({})),
        _ => json(200, &json!({ "items": [] })),
    })
    .await;
    let settings = json!({
        "per": "window", "url": format!("{}/x", server.base), "answer": { "items": "/items", "key_at": "/key" }, "pages": { "full_page": 9 },
        "account": { "url": format!("{}/graphql", server.base), "json": { "query": "{ viewer { login } }" }, "expect": { "/data/viewer/login": "acme" } },
    });
    let answer = ask(&settings, &subject("inv-229")).await;
    assert!(matches!(answer.account, AccountSeen::Matches { .. }), "{answer:?}");
}

#[tokio::test]
async fn one_listing_answers_for_many_questions() {
    let server = Scripted::new(|_| {
        json(200, &json!({ "items": [{ "key": ELDER, "id": "m-1" }, { "key": YOUNGER, "id": "m-2" }] }))
    })
    .await;
    let listing = json!({
        "per": "window", "url": format!("{}/x", server.base), "query": { "from": "{from:epoch}" },
        "answer": { "items": "/items", "key_at": "/key", "id_at": "/id" }, "pages": { "full_page": 50 },
    });
    let other = Question {
        probes: vec![probe(Role::Subject, YOUNGER, "inv-300"), probe(Role::Elder, ELDER, "inv-100")],
        now: now(),
    };
    let answers = build(&listing).ask_many(&[full(), other.clone(), subject("inv-229")]).await;
    assert_eq!(server.got().len(), 1);
    assert_eq!(answers.iter().map(|answer| answer.seen.len()).collect::<Vec<_>>(), [4, 2, 1]);
    assert_eq!(answers[0].seen[0], Seen::Nothing);
    assert_eq!(hits(&answers[1].seen[0])[0].id.as_deref(), Some("m-2"));
    assert_eq!(answers[2].seen[0], Seen::Nothing);
    assert!(answers.iter().all(|answer| answer.same_answer && answer.digest == answers[0].digest));
    // The window reaches from the eldest of all.
    assert_eq!(server.got()[0].query("from").unwrap(), (now().timestamp() - 65 * 60).to_string());
    assert!(build(&listing).ask_many(&[]).await.is_empty());

    let mut keyed = listing;
    keyed["per"] = json!("key");
    keyed["query"] = json!({ "key": "{key}" });
    let answers = build(&keyed).ask_many(&[other, subject("inv-229")]).await;
    assert_eq!(server.got().len(), 1 + 4, "one by one, the elder once more");
    assert_eq!(answers.iter().map(|answer| answer.seen.len()).collect::<Vec<_>>(), [2, 1]);
}
