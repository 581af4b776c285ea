//! What is refused when a look-up is built, with the field named.

use serde_json::{Value, json};
use settled::look_up::http::Http;

use super::http::destination;

fn good() -> Value {
    json!({
        "per": "key",
        "url": "https://h.test/messages",
        "query": { "key": "{key}" },
        "answer": { "items": "/items", "key_at": "/key" },
        "pages": { "full_page": 50 },
    })
}

#[test]
fn a_wrong_setting_is_refused_and_named() {
    Http::build(&destination(&good())).unwrap();
    let cases = [
        ("/url", json!("/messages"), "look_up.http.url"),
        ("/url", json!("https://h.test/{token}"), "look_up.http.url"),
        ("/url", json!("https://{key}.test/"), "look_up.http.url"),
        ("/query", json!({ "key": "{from}" }), "look_up.http.query.key"),
        ("/query", json!({ "limit": "10" }), "look_up.http.per"),
        ("/per", json!("window"), "look_up.http.per"),
        ("/per", json!("all"), "look_up.http"),
        ("/method", json!("DELETE"), "look_up.http"),
        ("/method", json!("HEAD"), "look_up.http.method"),
        ("/json", json!({}), "look_up.http.json"),
        ("/surprise", json!(1), "look_up.http"),
        ("/page_bytes", json!(1), "look_up.http.page_bytes"),
        ("/within", json!("0s"), "look_up.http.within"),
        ("/headers", json!({ "Host": "x" }), "look_up.http.headers.Host"),
        ("/auth", json!({ "bearer": { "file": "/nonexistent/token" } }), "look_up.http.auth"),
        ("/answer/ok", json!([]), "look_up.http.answer.ok"),
        ("/answer/ok", json!([302]), "look_up.http.answer.ok"),
        ("/answer/absent", json!([404]), "look_up.http.answer.absent"),
        ("/answer/items", json!("items"), "look_up.http.answer.items"),
        ("/answer/key_at", Value::Null, "look_up.http.answer.key_at"),
        ("/answer/assert", json!({ "ok": true }), "look_up.http.answer.assert"),
        ("/pages", json!({}), "look_up.http.pages"),
        ("/pages", json!({ "next_at": "/n", "offset": "o" }), "look_up.http.pages"),
        ("/pages", json!({ "full_page": 0 }), "look_up.http.pages.full_page"),
        ("/pages", json!({ "full_page": 9, "max": 0 }), "look_up.http.pages.max"),
        ("/account", json!({ "url": "https://h.test/{key}", "expect": { "/id": 1 } }), "look_up.http.account.url"),
        ("/account", json!({ "url": "https://h.test/", "expect": {} }), "look_up.http.account.expect"),
    ];
    for (at, value, field) in cases {
        let mut settings = good();
        match at.rsplit_once('/').unwrap() {
            ("", name) => settings[name] = value.clone(),
            (parent, name) => settings.pointer_mut(parent).unwrap()[name] = value.clone(),
        }
        let error = Http::build(&destination(&settings)).err().unwrap_or_else(|| panic!("{at} = {value} is accepted"));
        assert_eq!(error.field, field, "{at} = {value}: {error}");
    }
}

#[test]
fn statuses_that_prove_nothing_cannot_be_declared_absent() {
    for status in [401, 403, 408, 429, 500, 302] {
        let settings = json!({ "per": "key", "url": "https://h.test/{key}", "answer": { "absent": [status] } });
        assert_eq!(Http::build(&destination(&settings)).err().unwrap().field, "look_up.http.answer.absent");
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    for auth in
        [json!({ "bearer": "hunter2" }), json!("hunter2"), json!({ "basic": { "user": "u", "password": "hunter2" } })]
    {
        let mut settings = good();
        settings["auth"] = auth;
        let error = Http::build(&destination(&settings)).err().unwrap();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
