//! The definitions in `deploy/providers`: all of them can be built, and some are tried on the answers that the providers document.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::{Value, json};
use settled::{
    config::destination::{Destination, LookUp as Section},
    domain::question::{Answer, Question, Role, Seen},
    look_up::{self, LookUp, http::Http},
};

use super::http::{ELDER, NOBODY, SUBJECT, cannot_tell, hits, now, probe};
use crate::support::scripted::{Got, Scripted, json};

fn all() -> BTreeMap<String, String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy/providers");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.insert(path.file_stem().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap());
    }
    found
}

/// The definition with every secret in `secret`, and asked at `base` instead of the provider's host.
fn definition(text: &str, secret: &std::path::Path, base: Option<&str>) -> Destination {
    fn walk(value: &mut Value, secret: &std::path::Path, base: Option<&str>) {
        match value {
            Value::Object(map) if map.len() == 1 && map.contains_key("file") => map["file"] = json!(secret),
            Value::Object(map) => map.values_mut().for_each(|each| walk(each, secret, base)),
            Value::Array(list) => list.iter_mut().for_each(|each| walk(each, secret, base)),
            Value::String(text) => {
                if let (Some(base), Some(after)) = (base, text.strip_prefix("https://")) {
                    *text = format!("{base}/{}", after.split_once('/').map_or("", |(_, path)| path));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut section: Value = toml::from_str(text).unwrap();
    walk(&mut section, secret, base);
    let mut destination = super::http::destination(&json!({}));
    let section: Section = serde_json::from_value(section["look_up"].clone()).unwrap();
    destination.look_up = Some(section);
    destination
}

fn secret() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "s3cret\n").unwrap();
    file
}

fn question() -> Question {
    let mut subject = probe(Role::Subject, SUBJECT, "inv-229");
    subject.spelled = Some("INV-229".to_owned());
    Question {
        probes: vec![subject, probe(Role::Elder, ELDER, "inv-100"), probe(Role::Impossible, NOBODY, "inv-999")],
        now: now(),
    }
}

async fn ask(
    name: &str,
    script: impl Fn(&Got) -> crate::support::scripted::Act + Send + Sync + 'static,
) -> (Answer, Vec<Got>) {
    let server = Scripted::new(script).await;
    let secret = secret();
    let destination = definition(&all()[name], secret.path(), Some(&server.base));
    let answer = Http::build(&destination).unwrap().ask(&question()).await;
    assert!(!answer.query.contains("s3cret"));
    (answer, server.got())
}

#[test]
fn every_definition_is_built_and_says_what_it_rests_on() {
    let secret = secret();
    let all = all();
    assert!(all.len() >= 15, "{:?}", all.keys());
    for (name, text) in &all {
        for words in [
            "Derived from the provider's public documentation",
            "not tested against the live service",
            "Before the send:",
            "Known limits:",
        ] {
            assert!(text.contains(words), "{name}: {words}");
        }
        let destination = definition(text, secret.path(), None);
        let look_up = look_up::registry::build(&destination).unwrap_or_else(|error| panic!("{name}: {error}")).unwrap();
        let section = destination.look_up.as_ref().unwrap();
        let abilities = look_up.abilities();
        assert!(section.need >= 2 && section.horizon > section.lag, "{name}");
        // What finds by a text alone resends nothing by itself.
        assert!(
            abilities.shows_key || section.absent_by_lag == settled::config::destination::AbsentByLag::Person,
            "{name}"
        );
    }
}

#[tokio::test]
async fn postmark_lists_a_window_in_its_own_time() {
    let message = |key: &str, reference: &str| {
        json!({ "MessageID": format!("pm-{reference}"), "Metadata": { "settled_key": key, "settled_reference": reference },
        "Recipients": ["+4915112345678"], "ReceivedAt": "2025-03-04T06:25:00-05:00", "Status": "Sent" })
    };
    let (answer, got) = ask("postmark", move |got| match got.path() {
        "/server" => json(200, &json!({ "ID": 1, "Name": "SERVER NAME", "DeliveryType": "Live" })),
        _ if got.query("offset").as_deref() == Some("0") => {
            json(200, &json!({ "TotalCount": 3, "Messages": [message(SUBJECT, "INV-229"), message(NOBODY, "INV-2291").as_object().map(|m| { let mut m = m.clone(); m["Metadata"] = json!({}); Value::Object(m) }) ] }))
        }
        _ => json(200, &json!({ "TotalCount": 3, "Messages": [message(ELDER, "INV-100")] })),
    })
    .await;
    let found = hits(&answer.seen[0]);
    assert_eq!((found.len(), found[0].id.as_deref()), (1, Some("pm-INV-229")));
    assert_eq!(hits(&answer.seen[1]).len(), 1);
    assert_eq!(answer.seen[2], Seen::Nothing);
    let list = got.iter().find(|got| got.path() == "/messages/outbound").unwrap();
    assert_eq!(list.query("fromdate").as_deref(), Some("2025-03-04T05:55:00"));
    assert_eq!(list.header("x-postmark-server-token"), Some("s3cret"));
}

#[tokio::test]
async fn twilio_finds_a_text_and_never_the_customers_answer_to_it() {
    let (answer, got) = ask("twilio", |got| match got.path() {
        "/2010-04-01/Accounts/ACCOUNT_SID.json" => json(200, &json!({ "sid": "ACCOUNT_SID", "status": "active" })),
        _ => json(200, &json!({ "next_page_uri": null, "messages": [
            { "sid": "SM1", "body": "Re: [INV-229] thanks", "to": "+15550001111", "direction": "inbound", "status": "received", "date_created": "Tue, 04 Mar 2025 11:30:00 +0000" },
            { "sid": "SM2", "body": "Your invoice [INV-229]", "to": "+4915112345678", "direction": "outbound-api", "status": "sent", "date_created": "Tue, 04 Mar 2025 11:25:00 +0000" },
            { "sid": "SM3", "body": "Your invoice [INV-2291]", "to": "+4915112345678", "direction": "outbound-api", "status": "sent", "date_created": "Tue, 04 Mar 2025 11:26:00 +0000" },
        ] })),
    })
    .await;
    let found = hits(&answer.seen[0]);
    assert_eq!(found.iter().map(|hit| hit.id.as_deref().unwrap()).collect::<Vec<_>>(), ["SM2"]);
    assert_eq!((found[0].status.as_deref(), found[0].other_recipient), (Some("sent"), false));
    assert_eq!(answer.seen[2], Seen::Nothing);
    assert!(got.iter().skip(1).all(|got| got.query("To").as_deref() == Some("+4915112345678")));
}

#[tokio::test]
async fn stripe_is_listed_to_its_end_and_a_test_mode_object_is_a_contradiction() {
    let (answer, _) = ask("stripe", |got| match (got.path(), got.query("starting_after").as_deref()) {
        ("/v1/account", _) => json(200, &json!({ "id": "ACCOUNT" })),
        (_, None) => json(200, &json!({ "object": "list", "has_more": true, "data": [{ "id": "in_1", "livemode": true, "created": 1_741_087_500, "metadata": { "settled_key": ELDER } }] })),
        (_, Some("in_1")) => json(200, &json!({ "object": "list", "has_more": false, "data": [{ "id": "in_2", "livemode": false, "created": 1_741_087_500, "metadata": { "settled_key": SUBJECT } }] })),
        (_, Some(_)) => json(400, &json!({})),
    })
    .await;
    assert_eq!(hits(&answer.seen[0])[0].contradicts.as_deref(), Some("/livemode"));
    assert_eq!(hits(&answer.seen[1])[0].contradicts, None);
    assert_eq!((&answer.seen[2], answer.pages), (&Seen::Nothing, 2));
}

#[tokio::test]
async fn jmap_errors_inside_a_200_are_no_absence() {
    let listed = |body: Value| {
        move |got: &Got| if got.method == "GET" { json(200, &json!({ "username": "USER" })) } else { json(200, &body) }
    };
    let mails = json!([{ "id": "M1", "receivedAt": "2025-03-04T11:25:00Z", "header:X-Settled-Key:asText": SUBJECT,
        "header:X-Settled-Reference:asText": "INV-229", "header:X-Settled-Attempt:asText": "1" }]);
    let (answer, got) = ask("jmap", listed(json!({ "methodResponses": [["Email/query", { "total": 1 }, "0"], ["Email/get", { "accountId": "ACCOUNT", "list": mails }, "1"]] }))).await;
    assert_eq!(hits(&answer.seen[0])[0].attempt, Some(1));
    assert_eq!(answer.seen[2], Seen::Nothing);
    let body: Value = serde_json::from_slice(&got[1].body).unwrap();
    assert_eq!(body.pointer("/methodCalls/0/1/filter/after"), Some(&json!("2025-03-04T10:00:00Z")));
    let (answer, _) = ask("jmap", listed(json!({ "methodResponses": [["error", { "type": "serverFail" }, "0"], ["error", { "type": "invalidResultReference" }, "1"]] }))).await;
    cannot_tell(&answer.seen[0], "must stand");
}

#[tokio::test]
async fn a_name_in_the_path_answers_by_status_at_svix_and_salesforce() {
    let (answer, _) = ask("svix", |got| match got.path() {
        "/api/v1/app/APP" => json(200, &json!({ "id": "APP" })),
        path if path.ends_with(ELDER) => {
            json(200, &json!({ "id": "msg_1", "eventId": ELDER, "timestamp": "2025-03-04T11:05:00Z" }))
        }
        _ => json(404, &json!({ "code": "not_found" })),
    })
    .await;
    assert_eq!((&answer.seen[0], &answer.seen[2]), (&Seen::Nothing, &Seen::Nothing));
    assert_eq!(hits(&answer.seen[1])[0].id.as_deref(), Some("msg_1"));
    let (answer, got) = ask("salesforce", |got| match got.path() {
        "/services/oauth2/token" => json(200, &json!({ "access_token": "t", "token_type": "Bearer" })),
        path if path.ends_with(SUBJECT) => json(300, &json!(["/one", "/two"])),
        path if path.ends_with(ELDER) => {
            json(200, &json!({ "Id": "1", "Settled_Key__c": ELDER, "CreatedDate": "2025-03-04T11:05:00.000+0000" }))
        }
        path if path.ends_with("/limits") => json(200, &json!({ "DailyApiRequests": { "Max": 15000 } })),
        _ => json(404, &json!([{ "errorCode": "NOT_FOUND" }])),
    })
    .await;
    assert_eq!(hits(&answer.seen[0]).len(), 2);
    assert!(hits(&answer.seen[1])[0].at.is_some());
    assert!(got.iter().skip(1).all(|got| got.header("authorization") == Some("Bearer t")));
}
