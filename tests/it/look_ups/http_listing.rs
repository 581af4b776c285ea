//! One listing of a window: pages, their end, and four probes from one answer.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use serde_json::{Value, json};
use settled::{domain::question::Seen, look_up::LookUp};

use super::http::{ELDER, NOBODY, SUBJECT, YOUNGER, ask, ask_subject, build, cannot_tell, full, hits};
use crate::support::scripted::{Got, Scripted, json};

fn listing(base: &str, pages: &Value) -> Value {
    json!({
        "per": "window",
        "url": format!("{base}/messages?limit=2"),
        "query": { "from": "{from:%s}", "until": "{until:%s}" },
        "answer": { "items": "/items", "key_at": "/key", "reference_at": "/ref", "id_at": "/id" },
        "pages": pages,
    })
}

fn item(key: &str) -> Value {
    json!({ "key": key, "id": &key[..4] })
}

/// Pages of two, named by a number in the parameter `page`; `more` writes the hint to the next page.
async fn paged(keys: Vec<String>, more: impl Fn(usize) -> Value + Send + Sync + 'static) -> Scripted {
    Scripted::new(move |got: &Got| {
        let page: usize = got.query("page").map_or(0, |page| page.parse().unwrap());
        let items: Vec<Value> = keys.iter().skip(page * 2).take(2).map(|key| item(key)).collect();
        let next = if keys.len() > page * 2 + 2 { more(page + 1) } else { Value::Null };
        json(200, &json!({ "items": items, "next": next }))
    })
    .await
}

fn others(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{i:032x}")).collect()
}

#[tokio::test]
async fn one_listing_answers_for_the_subject_and_its_controls() {
    let mut keys = others(3);
    keys.extend([ELDER.to_owned(), YOUNGER.to_owned()]);
    let server = paged(keys, |page| json!(format!("/messages?page={page}"))).await;
    let http = build(&listing(&server.base, &json!({ "next_at": "/next", "full_page": 2 })));
    assert!(http.abilities().lists && http.abilities().shows_key);
    let answer = http.ask(&full()).await;
    assert_eq!(answer.seen[0], Seen::Nothing);
    assert_eq!(hits(&answer.seen[1])[0].key.as_deref(), Some(ELDER));
    assert_eq!(hits(&answer.seen[2])[0].key.as_deref(), Some(YOUNGER));
    assert_eq!(answer.seen[3], Seen::Nothing);
    assert!(answer.same_answer);
    assert_eq!(answer.pages, 3);
    assert_eq!(answer.digest.len(), 64);
    // The window reaches from the elder, widened by five minutes, to now and five more.
    let got = server.got().remove(0);
    assert_eq!(got.query("from").unwrap(), (super::http::now().timestamp() - 65 * 60).to_string());
    assert_eq!(got.query("until").unwrap(), (super::http::now().timestamp() + 5 * 60).to_string());
    assert!(answer.query.starts_with(&format!("GET {}/messages?limit=2&from=", server.base)), "{}", answer.query);
}

#[tokio::test]
async fn a_cursor_is_followed_to_the_end() {
    let mut keys = others(5);
    keys.push(SUBJECT.to_owned());
    let server = paged(keys, |page| json!(page)).await;
    let settings = listing(&server.base, &json!({ "cursor": { "at": "/next", "query": "page" } }));
    assert_eq!(hits(&ask_subject(&settings).await).len(), 1);
    assert_eq!(server.got().len(), 3);
    assert!(server.got()[2].target.contains("limit=2&from="), "the rest of the query stays");
}

#[tokio::test]
async fn an_offset_is_counted_until_an_empty_page() {
    let keys = {
        let mut keys = others(3);
        keys.push(SUBJECT.to_owned());
        keys
    };
    // The server gives fewer than were asked for; that is not the end.
    let server = Scripted::new(move |got: &Got| {
        let skip = got.query("skip").map_or(0, |skip| skip.parse().unwrap());
        json(200, &json!({ "items": keys.iter().skip(skip).take(1).map(|key| item(key)).collect::<Vec<_>>() }))
    })
    .await;
    let seen = ask_subject(&listing(&server.base, &json!({ "offset": "skip", "full_page": 2 }))).await;
    assert_eq!(hits(&seen).len(), 1);
    assert_eq!(server.got().len(), 5);
}

#[tokio::test]
async fn a_full_last_page_is_not_the_end() {
    let server = paged(others(2), |_| Value::Null).await;
    for pages in [json!({ "full_page": 2 }), json!({ "full_page": 2, "next_at": "/next" })] {
        cannot_tell(&ask_subject(&listing(&server.base, &pages)).await, "full");
    }
    assert_eq!(ask_subject(&listing(&server.base, &json!({ "full_page": 3 }))).await, Seen::Nothing);
}

#[tokio::test]
async fn endless_pages_end_without_a_conclusion() {
    let counter = Arc::new(AtomicU32::new(0));
    let server = {
        let counter = Arc::clone(&counter);
        Scripted::new(move |_| {
            let n = counter.fetch_add(1, Ordering::SeqCst);
            json(200, &json!({ "items": [item(&format!("{n:032x}"))], "next": format!("/messages?page={}", n + 1) }))
        })
        .await
    };
    let settings = listing(&server.base, &json!({ "next_at": "/next", "max": 4 }));
    cannot_tell(&ask_subject(&settings).await, "more than 4 pages");
    assert_eq!(counter.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn the_same_page_twice_is_no_answer() {
    let body = json!({ "items": [item(NOBODY)], "next": "/messages?page=1" });
    let server = Scripted::new(move |_| json(200, &body)).await;
    let settings = listing(&server.base, &json!({ "next_at": "/next" }));
    cannot_tell(&ask_subject(&settings).await, "twice");
    // A server that does not know the parameter gives the first page for ever.
    let settings = listing(&server.base, &json!({ "offset": "skip" }));
    cannot_tell(&ask_subject(&settings).await, "twice");
}

#[tokio::test]
async fn a_link_to_another_origin_is_not_followed() {
    let elsewhere = paged(vec![SUBJECT.to_owned()], |_| Value::Null).await;
    let base = elsewhere.base.clone();
    let server = paged(others(4), move |_| json!(format!("{base}/messages"))).await;
    cannot_tell(&ask_subject(&listing(&server.base, &json!({ "next_at": "/next" }))).await, "another origin");
    assert!(elsewhere.got().is_empty());
}

#[tokio::test]
async fn what_was_found_before_the_list_broke_stays_found() {
    let server = Scripted::new(|got: &Got| match got.query("page") {
        None => json(200, &json!({ "items": [item(SUBJECT)], "next": "/messages?page=1" })),
        Some(_) => json(500, &json!({})),
    })
    .await;
    let answer = ask(&listing(&server.base, &json!({ "next_at": "/next" })), &full()).await;
    assert_eq!(hits(&answer.seen[0]).len(), 1);
    for control in &answer.seen[1..] {
        cannot_tell(control, "500");
    }
}

#[tokio::test]
async fn an_error_inside_a_200_is_no_answer() {
    let server = Scripted::new(|_| json(200, &json!({ "ok": false, "items": [] }))).await;
    let mut settings = listing(&server.base, &json!({ "full_page": 10 }));
    settings["answer"]["assert"] = json!({ "/ok": true });
    cannot_tell(&ask_subject(&settings).await, "/ok");
}

#[tokio::test]
async fn a_root_may_be_the_list_and_other_bodies_give_other_digests() {
    let server = Scripted::new(|got: &Got| match got.query("x") {
        None => json(200, &json!([])),
        Some(_) => json(200, &json!([item(NOBODY)])),
    })
    .await;
    let mut settings = listing(&server.base, &json!({ "full_page": 10 }));
    settings["answer"]["items"] = json!("");
    let one = ask(&settings, &full()).await;
    let same = ask(&settings, &full()).await;
    settings["query"]["x"] = json!("1");
    let other = ask(&settings, &full()).await;
    assert_eq!(one.seen[0], Seen::Nothing);
    assert_eq!(one.digest, same.digest);
    assert_ne!(one.digest, other.digest);
}

#[tokio::test]
async fn a_question_that_takes_too_long_is_no_answer() {
    let server = Scripted::new(|_| crate::support::scripted::Act::Silence).await;
    let mut settings = listing(&server.base, &json!({ "full_page": 10 }));
    settings["within"] = json!("100ms");
    cannot_tell(&ask_subject(&settings).await, "within 100ms");
}

/// A small page may hold a million values; nobody needs them, and memory has an end.
#[tokio::test]
async fn a_list_of_more_than_can_be_held_proves_nothing() {
    let server = Scripted::new(move |got: &Got| {
        let page: usize = got.query("page").map_or(0, |page| page.parse().unwrap());
        let text = format!(r#"{{"items":[{}1],"next":"/messages?page={}"}}"#, "1,".repeat(40_000 + page), page + 1);
        crate::support::scripted::Act::Reply(
            200,
            vec![("content-type", "application/json".to_owned())],
            text.into_bytes(),
        )
    })
    .await;
    let seen = ask_subject(&listing(&server.base, &json!({ "next_at": "/next", "full_page": 2, "max": 1000 }))).await;
    cannot_tell(&seen, "more than 100000 items");
    assert_eq!(server.got().len(), 3);
}
