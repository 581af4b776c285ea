//! Cases of kinds JSON and IDEM that other projects ran into, as far as the ledger decides them.

use serde_json::json;
use settled::store::requests::{self, EnqueueError, NewRequest, Options, Verdict};
use sqlx::Connection;

use super::world::{Call, World, ask, call, hook};

fn keyed(destination: &str, payload: &str, key: &str) -> Call {
    call(destination, "INV-1", payload, "", 0).without_identity().with("caller_key", json!(key))
}

fn request(payload: &str) -> NewRequest {
    NewRequest {
        destination: "hook".to_owned(),
        reference: "INV-1".to_owned(),
        payload: payload.to_owned(),
        run_id: Some("run-1".to_owned()),
        step: Some(1),
        options: Options { tenant: Some("acme".to_owned()), ..Options::default() },
    }
}

#[tokio::test]
async fn case_122_member_names_are_ordered_by_utf_8_bytes_and_the_vector_is_frozen() {
    let world = World::new().await;
    let (canonical, fingerprint): (String, String) = sqlx::query_as(
        "select c, encode(settled.fingerprint('\\x0b0b', 'hook', '', 'inv-1', 1, c), 'hex')
         from settled.canonical('webhook', null, $1::text::json) c",
    )
    .bind(r#"{"\ud83d\ude00":4,"\ufb33":3,"\ud800\udc00":2,"\ue000":1}"#)
    .fetch_one(world.pool())
    .await
    .unwrap();
    // U+FB33 is U+05D3 U+05BC in NFC and so comes first; then U+E000, U+10000, U+1F600: code points, not UTF-16 units.
    assert_eq!(canonical, "{\"\u{5d3}\u{5bc}\":3e0,\"\u{e000}\":1e0,\"\u{10000}\":2e0,\"\u{1f600}\":4e0}");
    assert_eq!(fingerprint, "f949ec5c2bdcac6e3afd79788997dff0295b22855b1f6cc74add4a43a942700b");
}

#[tokio::test]
async fn case_123_duplicate_members_are_refused_by_sql_too_and_nothing_is_stored() {
    let world = World::new().await;
    for (payload, field) in [
        (r#"{"to":"a@mock.test","to":"b@mock.test","subject":"s","text":"t"}"#, "/payload"),
        (r#"{"to":"a@mock.test","subject":"s","text":"t","headers":{"X-A":"1","X-A":"2"}}"#, "/payload/headers"),
    ] {
        let error = world.ask(&call("mail", "INV-1", payload, "run-1", 1)).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.detail["field"].as_str()), ("ST400", Some(field)));
    }
    let error = world.ask(&hook("INV-1", r#"{"x":{"to":1,"to":2}}"#, "run-1", 1)).await.unwrap_err();
    assert_eq!(error.detail, json!({"field": "/payload/x", "rule": "duplicate_name"}));
    assert_eq!(world.count("settled.intents").await, 0);
}

#[tokio::test]
async fn case_124_no_feature_of_a_json_crate_can_touch_a_payload_or_its_fingerprint() {
    let world = World::new().await;
    let given = r#"{ "z":9007199254740993, "a":1.0, "n":0.10000000000000000001, "u":"\u00e9" }"#;
    let mut conn = world.owner().await;
    requests::enqueue(&mut conn, &request(given)).await.unwrap();
    let body: String = sqlx::query_scalar("select body from settled.payloads").fetch_one(world.pool()).await.unwrap();
    assert_eq!(body, given, "text goes in unparsed");
    for (other, same) in [
        (given.replace("1.0,", "1,"), true),
        (given.replace("993", "992"), false),
        (given.replace("0001,", "0002,"), false),
    ] {
        let answer = requests::enqueue(&mut conn, &request(&other)).await;
        assert_eq!(answer.is_ok(), same, "{other}");
    }
}

#[tokio::test]
async fn case_125_nfc_and_nfd_are_one_meaning_and_references_are_ascii() {
    let world = World::new().await;
    let mail = |subject: &str| format!(r#"{{"to":"a@mock.test","subject":"{subject}","text":"t"}}"#);
    let first = world.ask(&call("mail", "INV-1", &mail("Jose\u{301}"), "run-1", 1)).await.unwrap();
    let again = world.ask(&call("mail", "INV-1", &mail("Jos\u{e9}"), "run-1", 1)).await.unwrap();
    assert_eq!((again.verdict.as_str(), again.intent_id), ("replayed", first.intent_id));
    let body: String = sqlx::query_scalar("select body from settled.payloads").fetch_one(world.pool()).await.unwrap();
    assert_eq!(body, mail("Jose\u{301}"), "sent is what was given");
    let error = world.ask(&hook("INV-\u{e9}", "{}", "run-1", 2)).await.unwrap_err();
    assert_eq!(error.detail, json!({"field": "/reference", "rule": "charset"}));
}

#[tokio::test]
async fn case_126_the_edges_of_json_are_refused_without_an_opaque_error() {
    let world = World::new().await;
    let mut conn = world.owner().await;
    let utf16: String = "{\"a\":1}".chars().flat_map(|c| [c, '\0']).collect();
    for (payload, expected) in [
        (format!(r#"{{"a":{}{}}}"#, "[".repeat(200), "]".repeat(200)), "depth"),
        (format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)), "depth"),
        (format!(r#"{{"a":"{}"}}"#, "x".repeat(10 << 20)), "size"),
        ("\u{feff}{}".to_owned(), "json"),
        (r#"{"a":1}}"#.to_owned(), "json"),
        (r#"{"a":NaN}"#.to_owned(), "json"),
        (r#"{"a":01}"#.to_owned(), "json"),
        (utf16, "nul"),
    ] {
        let error = requests::enqueue(&mut conn, &request(&payload)).await.unwrap_err();
        let EnqueueError::Invalid { field, rule, words } = error else { panic!("{error:?}") };
        assert_eq!((field.as_str(), rule.as_str()), ("/payload", expected), "{words}");
    }
    let large = requests::enqueue(&mut conn, &request(r#"{"a":1e400}"#)).await.unwrap();
    assert_eq!(large.verdict, Verdict::Accepted, "digits and an exponent need no number type");
}

#[tokio::test]
async fn case_128_tenants_share_no_keys_and_learn_nothing_of_each_other() {
    let mut world = World::new().await;
    let role = world.role(&["globex"]).await;
    let mut globex = world.connect(&role).await;
    let first = world.ask(&keyed("hook", r#"{"a":1}"#, "K")).await.unwrap();
    for payload in [r#"{"a":1}"#, r#"{"a":1}"#] {
        let theirs = ask(&mut globex, &keyed("hook", payload, "K").without_tenant()).await.unwrap();
        assert_ne!(theirs.intent_id, first.intent_id);
    }
    let error = ask(&mut globex, &keyed("hook", r#"{"a":2}"#, "K").without_tenant()).await.unwrap_err();
    assert_eq!(error.code, "ST409");
    assert!(!format!("{error:?}").contains(&first.intent_id.to_string()), "only their own intent is named");
    let probed = ask(&mut globex, &keyed("hook", r#"{"a":1}"#, "K2").without_tenant()).await.unwrap();
    assert_eq!(probed.verdict, "already_requested", "their own effect, under another key");
    assert_ne!(probed.intent_id, first.intent_id);
}

#[tokio::test]
async fn case_129_a_crash_between_insert_and_answer_wedges_no_key() {
    let world = World::new().await;
    let mut dying = world.owner().await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut dying).await.unwrap();
    sqlx::query("begin").execute(&mut dying).await.unwrap();
    let lost = ask(&mut dying, &keyed("hook", "{}", "K")).await.unwrap();
    world.run(&format!("select pg_terminate_backend({pid}, 10000)")).await;
    let fresh = world.ask(&keyed("hook", "{}", "K")).await.unwrap();
    assert_eq!(fresh.verdict, "accepted", "what never committed holds nothing");
    assert_ne!(fresh.intent_id, lost.intent_id);
    // Committed, but the answer got lost: the same id comes back.
    let again = world.ask(&keyed("hook", "{}", "K")).await.unwrap();
    assert_eq!((again.verdict.as_str(), again.intent_id), ("replayed", fresh.intent_id));
    assert_eq!(world.count("settled.queue").await, 1);
}

#[tokio::test]
async fn case_130_a_failure_of_the_database_is_not_remembered_under_the_key() {
    let world = World::new().await;
    let mut conn = world.owner().await;
    let mut business = conn.begin().await.unwrap();
    sqlx::query("set local statement_timeout = '1ms'").execute(&mut *business).await.unwrap();
    let mut request = request("{}");
    (request.run_id, request.step) = (None, None);
    request.options.caller_key = Some("K".to_owned());
    let failed = async {
        sqlx::query("select pg_sleep(1)").execute(&mut *business).await?;
        Ok::<_, sqlx::Error>(())
    }
    .await;
    assert!(failed.is_err());
    let aborted = requests::enqueue(&mut business, &request).await.unwrap_err();
    assert!(matches!(aborted, EnqueueError::Database(_)), "{aborted:?}");
    business.rollback().await.unwrap();
    assert_eq!(requests::enqueue(&mut conn, &request).await.unwrap().verdict, Verdict::Accepted);
    assert_eq!(requests::enqueue(&mut conn, &request).await.unwrap().verdict, Verdict::Replayed, "marked as such");
}

#[tokio::test]
async fn case_131_a_key_with_another_body_recipient_or_channel_is_a_conflict() {
    let world = World::new().await;
    let mail = |to: &str, text: &str| format!(r#"{{"to":"{to}","subject":"s","text":"{text}"}}"#);
    world.ask(&keyed("hook", r#"{"amount":40000}"#, "K")).await.unwrap();
    assert_eq!(world.ask(&keyed("hook", r#"{"amount":40000.00}"#, "K")).await.unwrap().verdict, "replayed");
    for (other, pointer) in [
        (keyed("hook", r#"{"amount":"40000"}"#, "K"), "/payload/amount"),
        (keyed("hook", r#"{"amount":40000,"to":"x"}"#, "K"), "/payload/to"),
        (keyed("mail", &mail("a@b.test", "t"), "K"), "/destination"),
    ] {
        let error = world.ask(&other).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.detail["kind"].as_str()), ("ST409", Some("caller_key")));
        assert!(error.detail["pointers"].as_array().unwrap().contains(&json!(pointer)), "{error:?}");
    }
    world.ask(&keyed("mail", &mail("a@b.test", "t"), "M")).await.unwrap();
    let error = world.ask(&keyed("mail", &mail("c@b.test", "t"), "M")).await.unwrap_err();
    assert_eq!(error.detail["pointers"], json!(["/payload/to"]));
    assert_eq!(world.count("settled.intents").await, 2);
}

#[tokio::test]
async fn case_133_an_earlier_key_is_answered_where_nothing_new_is_accepted() {
    let world = World::new().await;
    let first = world.ask(&keyed("hook", "{}", "K")).await.unwrap();
    world.run("update settled.destinations set withdrawn_at = now() where name = 'hook'").await;
    assert_eq!(world.ask(&hook("INV-2", "{}", "run-1", 1)).await.unwrap_err().code, "ST404");
    let again = world.ask(&keyed("hook", "{}", "K")).await.unwrap();
    assert_eq!((again.verdict.as_str(), again.intent_id), ("replayed", first.intent_id));
}
