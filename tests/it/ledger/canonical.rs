//! Two spellings of one meaning are one; every change of meaning is another. And nothing blows up.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::world::{Call, World, call, hook};

#[derive(Deserialize)]
struct Pairs {
    pairs: Vec<Pair>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    a: String,
    b: String,
    same: bool,
    #[serde(default)]
    rules: Value,
    channel: Option<String>,
}

#[derive(Deserialize)]
struct Refused {
    name: String,
    payload: String,
    field: String,
    rule: String,
    #[serde(default)]
    rules: Value,
}

fn pairs() -> Pairs {
    serde_json::from_str(include_str!("../../data/payload_pairs.json")).expect("payload_pairs.json")
}

#[tokio::test]
async fn every_change_of_spelling_keeps_and_every_change_of_meaning_alters_the_verdict() {
    let world = World::new().await;
    for (n, pair) in pairs().pairs.into_iter().enumerate() {
        let destination = format!("d{n}");
        let rules = if pair.rules.is_null() { json!({}) } else { pair.rules };
        world.destination(&destination, pair.channel.as_deref().unwrap_or("webhook"), &destination, rules).await;
        for (way, first, second) in [("there", &pair.a, &pair.b), ("back", &pair.b, &pair.a)] {
            let of = |payload: &String, run: &str| call(&destination, way, payload, &format!("{run}-{n}"), 1);
            world.ask(&of(first, way)).await.unwrap_or_else(|e| panic!("{}: {e:?}", pair.name));
            let again = world.ask(&of(second, way)).await;
            let elsewhere = world.ask(&of(second, "elsewhere").with("slot", json!(way))).await;
            let told: Vec<String> =
                [again, elsewhere].into_iter().map(|r| r.map_or_else(|e| e.code, |a| a.verdict)).collect();
            let expected = if pair.same { ["replayed", "already_requested"] } else { ["ST409", "ST409"] };
            assert_eq!(told, expected, "{} ({way})", pair.name);
        }
    }
}

#[tokio::test]
async fn what_cannot_be_compared_is_refused_with_its_field() {
    let world = World::new().await;
    for (n, refused) in pairs().refused.into_iter().enumerate() {
        let destination = format!("d{n}");
        let rules = if refused.rules.is_null() { json!({}) } else { refused.rules };
        world.destination(&destination, "webhook", &destination, rules).await;
        let request = settled::store::requests::NewRequest {
            destination,
            reference: "INV-1".to_owned(),
            payload: refused.payload,
            run_id: Some("run-1".to_owned()),
            step: Some(1),
            options: settled::store::requests::Options { tenant: Some("acme".to_owned()), ..Default::default() },
        };
        let error = settled::store::requests::enqueue(&mut world.pool().acquire().await.unwrap(), &request).await;
        let error = error.expect_err(&refused.name);
        let settled::store::requests::EnqueueError::Invalid { field, rule, words } = error else {
            panic!("{}: {error:?}", refused.name)
        };
        assert_eq!((field, rule), (refused.field, refused.rule), "{}: {words}", refused.name);
    }
    assert_eq!(world.count("settled.intents").await, 0);
}

/// Asks, and wants an answer within the time and a log context that fits a screen.
async fn bomb(world: &World, call: Call) -> Result<String, (String, Value)> {
    let began = Instant::now();
    let answer = world.ask(&call).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    answer.map(|a| a.verdict).map_err(|e| {
        assert!(e.context.len() < 600, "{} characters of context", e.context.len());
        assert!(e.message.len() < 200, "{}", e.message);
        (e.code, e.detail["rule"].clone())
    })
}

#[tokio::test]
async fn bombs_are_refused_fast_and_without_a_long_context() {
    let world = World::new().await;
    let refused = |rule: &str| Err(("ST400".to_owned(), json!(rule)));
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(1500), "]".repeat(1500));
    assert_eq!(bomb(&world, hook("INV-1", &deep, "r", 1)).await, refused("depth"));
    let wide = format!(r#"{{"a":[{}1]}}"#, "1,".repeat(32_000));
    assert_eq!(bomb(&world, hook("INV-1", &wide, "r", 1)).await, refused("values"));
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(262_144));
    assert_eq!(bomb(&world, hook("INV-1", &long, "r", 1)).await, refused("size"));
    let names = format!("{{{}}}", (0..4000).map(|_| r#""a":1"#).collect::<Vec<_>>().join(","));
    assert_eq!(bomb(&world, hook("INV-1", &names, "r", 1)).await, refused("duplicate_name"));
    let number = format!(r#"{{"a":{}}}"#, "9".repeat(200_000));
    assert_eq!(bomb(&world, hook("INV-1", &number, "r", 1)).await.as_deref(), Ok("accepted"));
    let exponents = format!(r#"{{"a":[{}1]}}"#, "1e131071,".repeat(4000));
    assert_eq!(bomb(&world, hook("INV-2", &exponents, "r", 2)).await.as_deref(), Ok("accepted"));
    let nested = format!(r#"{{"a":{}1{}}}"#, r#"{"a":"#.repeat(31), "}".repeat(31));
    assert_eq!(bomb(&world, hook("INV-3", &nested, "r", 3)).await.as_deref(), Ok("accepted"), "32 levels are allowed");
    let bottom = format!(r#"{{"a":{}1,"a":2{}}}"#, r#"{"a":"#.repeat(31), "}".repeat(31));
    assert_eq!(bomb(&world, hook("INV-4", &bottom, "r", 4)).await, refused("duplicate_name"));
    let most = format!(r#"{{"a":[{}1]}}"#, "1,".repeat(4093));
    assert_eq!(bomb(&world, hook("INV-5", &most, "r", 5)).await.as_deref(), Ok("accepted"), "4,096 values are allowed");
    let options = hook("INV-6", "{}", "r", 6).with("instructed_by", json!({"x": "y".repeat(20_000)}));
    assert_eq!(bomb(&world, options).await, refused("size"));
}

#[tokio::test]
async fn names_are_ordered_by_their_bytes_in_utf_8() {
    let world = World::new().await;
    let canonical: String = sqlx::query_scalar("select settled.canonical('webhook', null, $1::text::json)")
        .bind(r#"{"\ud800\udc00":4,"\ue000":3,"é":2,"z":1,"B":0,"a":{"y":[true,null," x "],"x":-12.50}}"#)
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert_eq!(
        canonical,
        "{\"B\":0,\"a\":{\"x\":-125e-1,\"y\":[true,null,\"x\"]},\"z\":1e0,\"é\":2e0,\"\u{e000}\":3e0,\"\u{10000}\":4e0}"
    );
}

#[tokio::test]
async fn the_fingerprint_is_salted_and_framed() {
    let world = World::new().await;
    for n in 1..=2 {
        world.ask(&hook(&format!("INV-{n}"), "{}", "run-1", n)).await.unwrap();
    }
    assert_eq!(world.count("(select distinct fingerprint from settled.intents) x").await, 2);
    let framed: bool = sqlx::query_scalar(
        "select settled.fingerprint('', 'a', 'bc', 'd', 1, '{}') = settled.fingerprint('', 'ab', 'c', 'd', 1, '{}')",
    )
    .fetch_one(world.pool())
    .await
    .unwrap();
    assert!(!framed, "shifting bytes from field to field is another request");
}

/// Postgres sorts a run of combining marks in quadratic time and cannot be interrupted while it does.
#[tokio::test]
async fn a_run_of_combining_marks_is_refused_before_it_costs_time() {
    let world = World::new().await;
    world.destination("hooks", "webhook", "hooks", json!({})).await;
    let marks = "\u{301}\u{316}";
    let payloads = [
        json!({ "a": { "b/c": format!("e{}", marks.repeat(60_000)) } }).to_string(),
        json!({ format!("e{}", marks.repeat(60_000)): 1 }).to_string(),
        format!(r#"{{"a":"e{}"}}"#, r"\u0301\u0316".repeat(20_000)),
        // Marks of class 0 that fall apart into others.
        json!({ "a": "\u{f73}\u{f72}\u{f71}".repeat(100) }).to_string(),
        // Hidden behind a mark that sorts last anyway.
        json!({ "a": "\u{345}\u{301}\u{316}".repeat(100) }).to_string(),
    ];
    for (n, payload) in payloads.iter().enumerate() {
        let started = Instant::now();
        let refused = world.ask(&call("hooks", &format!("R-{n}"), payload, "run", 1)).await.unwrap_err();
        assert_eq!(refused.code, "ST400", "{n}");
        assert!(started.elapsed() < Duration::from_secs(10), "{n}: {:?}", started.elapsed());
    }
    // What people write is not touched by it.
    let written = [
        "\u{1112}\u{1161}\u{11ab}".repeat(3_000),
        "漢字".repeat(5_000),
        format!("{}e", "\u{301}".repeat(60)),
        "e\u{323}\u{302}".repeat(3_000),
        "\u{1fb3}".repeat(5_000),
        "\u{5e9}\u{5bc}\u{5c1}\u{5b8}".repeat(3_000),
    ];
    for (n, text) in written.iter().enumerate() {
        let payload = json!({ "a": text, text.chars().take(300).collect::<String>(): 1 }).to_string();
        world
            .ask(&call("hooks", &format!("W-{n}"), &payload, "write", n as i64))
            .await
            .unwrap_or_else(|e| panic!("{n}: {e:?}"));
    }
}
