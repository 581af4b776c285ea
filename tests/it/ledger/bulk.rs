//! Asking in bulk says what single calls, one after another, would say.

use std::collections::HashMap;

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use super::{
    chance::Chance,
    world::{Call, Raised, World, ask, call, hook, raised},
};

/// The calls as the text that the function takes, payloads as they are written.
fn text(calls: &[Call]) -> String {
    let items: Vec<String> = calls
        .iter()
        .map(|c| {
            format!(
                r#"{{"destination":{},"reference":{},"payload":{},"run_id":{},"step":{},"options":{}}}"#,
                json!(c.destination),
                json!(c.reference),
                c.payload,
                json!(c.run_id),
                json!(c.step),
                c.options
            )
        })
        .collect();
    format!("[{}]", items.join(",\n"))
}

/// Verdict or SQLSTATE with the field, and the intent.
type Told = (String, Option<Uuid>);

async fn many(conn: &mut PgConnection, calls: &[Call], mode: &str) -> Result<Vec<Told>, Raised> {
    let rows = sqlx::query("select * from settled.enqueue_many($1::text::json, $2)")
        .bind(text(calls))
        .bind(mode)
        .fetch_all(conn)
        .await
        .map_err(raised)?;
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(usize::try_from(row.get::<i32, _>("index")).unwrap(), at);
    }
    Ok(rows.iter().map(|row| (word(row), row.get("intent_id"))).collect())
}

fn word(row: &sqlx::postgres::PgRow) -> String {
    row.get::<Option<String>, _>("verdict").unwrap_or_else(|| {
        let about: Option<Value> = row.get("about");
        format!("{} {}", row.get::<String, _>("code"), about.map_or(Value::Null, |a| a["field"].clone()))
    })
}

/// The same calls one after another, each in a savepoint of its own.
async fn one_by_one(conn: &mut PgConnection, calls: &[Call]) -> Vec<Told> {
    let mut told = Vec::new();
    for call in calls {
        let mut inner = conn.begin().await.unwrap();
        match ask(&mut inner, call).await {
            Ok(answer) => {
                inner.commit().await.unwrap();
                told.push((answer.verdict, Some(answer.intent_id)));
            }
            Err(error) => {
                inner.rollback().await.unwrap();
                told.push((format!("{} {}", error.code, error.detail["field"]), None));
            }
        }
    }
    told
}

/// Ids are made anew each time; which item they belong to is what can be compared.
fn numbered(told: Vec<Told>) -> Vec<(String, Option<usize>)> {
    let mut seen = HashMap::new();
    told.into_iter()
        .map(|(word, id)| {
            let next = seen.len();
            (word, id.map(|id| *seen.entry(id).or_insert(next)))
        })
        .collect()
}

/// A call out of a few names and contents, so that items meet each other and what is there.
fn crowded(chance: &mut Chance) -> Call {
    let payload = chance.of(&[
        r#"{"to":"a@b.test","subject":"s","text":"t"}"#,
        r#"{"to":"a@b.test","subject":"s","text":"t "}"#,
        r#"{"subject":"s","to":"a@b.test","text":"\u0074"}"#,
        r#"{"to":"a@b.test","subject":"s","text":"other"}"#,
        r#"{"to":"c@b.test","subject":"s","text":"t"}"#,
        r#"{"to":"a@b.test","subject":"s","text":"\u00e9"}"#,
        r#"{"to":"a@b.test","subject":"\ud83d","text":"t"}"#,
        r#"{"to":"a@b.test"}"#,
    ]);
    let names = ["INV-1", "INV-2", "inv-2", "INV-3", "INV 4"];
    let (name, run, step) =
        (chance.of(&names), chance.of(&["r1", "r2", "r3", "r4"]), i64::try_from(chance.below(4)).unwrap());
    let mut call = call(chance.of(&["mail", "hook", "held", "gone"]), name, payload, run, step);
    if chance.one_in(12) {
        call = call.without_identity().with("caller_key", json!(chance.of(&["k1", "k2"])));
    }
    if chance.one_in(15) {
        call = call.with("deadline", json!("2020-01-01T00:00:00Z"));
    }
    if chance.one_in(15) {
        call = call.with("occurrence", json!(2)).with("surface", json!("mcp"));
    }
    call
}

#[tokio::test]
async fn a_batch_is_answered_as_single_calls_one_after_another() {
    let world = World::new().await;
    world.destination("held", "webhook", "hook", json!({ "approval": "always" })).await;
    world.destination("gone", "webhook", "gone", json!({})).await;
    world.run("update settled.destinations set withdrawn_at = now() where name = 'gone'").await;
    // Something is there before: one that stands, one that ended, one in doubt that ended.
    let mail = r#"{"to":"a@b.test","subject":"s","text":"t"}"#;
    world.ask(&call("mail", "INV-1", mail, "r1", 0)).await.unwrap();
    let ended = world.ask(&call("mail", "INV-2", mail, "r2", 1)).await.unwrap().intent_id;
    world.end(ended, "cancelled", false).await;
    let doubted = world.ask(&hook("INV-3", mail, "r3", 2)).await.unwrap().intent_id;
    world.attempted(doubted, "ambiguous").await;
    world.end(doubted, "failed", true).await;
    let mut conn = world.owner().await;
    let mut words: HashMap<String, usize> = HashMap::new();
    for seed in 0..60 {
        let mut chance = Chance::new(1000 + seed);
        let calls: Vec<Call> = (0..1 + chance.below(25)).map(|_| crowded(&mut chance)).collect();
        let mut tx = conn.begin().await.unwrap();
        let expected = numbered(one_by_one(&mut tx, &calls).await);
        tx.rollback().await.unwrap();
        let mut tx = conn.begin().await.unwrap();
        let told = numbered(many(&mut tx, &calls, "per_item").await.unwrap());
        let loose: i64 = sqlx::query_scalar(
            "select count(*) from settled.intents i where not exists (select from settled.requests r where r.intent_id = i.id)
              or not exists (select from settled.payloads p where p.intent_id = i.id)
              or i.state in ('pending', 'held') <> exists (select from settled.queue q where q.intent_id = i.id)",
        )
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        tx.rollback().await.unwrap();
        assert_eq!(told, expected, "seed {seed}: {calls:#?}");
        assert_eq!(loose, 0, "seed {seed}: an intent without its request, payload or queue row");
        for (word, _) in told {
            *words.entry(word).or_default() += 1;
        }
    }
    for word in [
        "accepted",
        "replayed",
        "already_requested",
        "ST409 null",
        "ST404 null",
        "ST410 null",
        "ST411 null",
        "ST412 null",
    ] {
        assert!(words.contains_key(word), "{word} was never told: {words:?}");
    }
}

#[tokio::test]
async fn all_or_nothing_names_every_refusal_and_leaves_nothing() {
    let world = World::new().await;
    world.ask(&hook("INV-1", "{}", "r", 1)).await.unwrap();
    let calls = [
        hook("INV-2", "{}", "r", 2),
        hook("INV 3", "{}", "r", 3),
        hook("INV-1", r#"{"a":1}"#, "r", 1),
        hook("INV-4", "{}", "r", 4),
    ];
    let mut conn = world.owner().await;
    let error = many(&mut conn, &calls, "all_or_nothing").await.unwrap_err();
    assert_eq!(error.code, "ST424");
    assert!(
        error
            .message
            .starts_with("batch_refused: nothing was enqueued, since 2 of 4 items are refused; item 1: /reference"),
        "{}",
        error.message
    );
    let refused: Vec<(u64, &str)> = error
        .detail
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["index"].as_u64().unwrap(), r["code"].as_str().unwrap()))
        .collect();
    assert_eq!(refused, [(1, "ST400"), (2, "ST409")]);
    assert_eq!(error.detail[1]["about"]["pointers"], json!(["/payload/a"]));
    assert_eq!(world.count("settled.intents").await, 1);
    let told = many(&mut conn, &[calls[0].clone(), calls[3].clone()], "all_or_nothing").await.unwrap();
    assert!(told.iter().all(|(word, _)| word == "accepted"));
}

#[tokio::test]
async fn case_115_one_bad_row_of_a_hundred_is_named_and_harms_no_other_where_each_stands_for_itself() {
    let world = World::new().await;
    let mut calls: Vec<Call> = (0..100).map(|n| hook(&format!("INV-{n}"), r#"{"body":"fine"}"#, "run", n)).collect();
    calls[37].payload = r#"{"body":"a\u0000b"}"#.to_owned();
    let mut conn = world.owner().await;
    let error = many(&mut conn, &calls, "all_or_nothing").await.unwrap_err();
    assert_eq!((error.code.as_str(), &error.detail[0]["index"]), ("ST424", &json!(37)));
    assert_eq!(error.detail[0]["about"], json!({ "field": "/payload/body", "rule": "nul" }));
    assert_eq!(world.count("settled.intents").await, 0);
    let told = many(&mut conn, &calls, "per_item").await.unwrap();
    for (at, (word, _)) in told.iter().enumerate() {
        assert_eq!(word, if at == 37 { "ST400 \"/payload/body\"" } else { "accepted" }, "{at}");
    }
    for table in ["intents", "requests", "payloads", "queue", "journal where kind = 'move'"] {
        assert_eq!(world.count(&format!("settled.{table}")).await, 99, "{table}");
    }
}

#[tokio::test]
async fn a_batch_has_limits_and_an_item_has_a_form() {
    let world = World::new().await;
    let told = async |calls: &str, mode: Option<&str>, common: Option<Value>| {
        let row = sqlx::query("select * from settled.enqueue_many($1::text::json, $2, $3)")
            .bind(calls)
            .bind(mode)
            .bind(common)
            .fetch_one(world.pool())
            .await;
        match row {
            Ok(row) => word(&row),
            Err(error) => {
                let error = raised(error);
                format!("{} {} {}", error.code, error.detail["field"], error.detail["rule"])
            }
        }
    };
    let acme = || Some(json!({ "tenant": "acme" }));
    let item = r#"{"destination":"hook","reference":"INV-1","payload":{},"run_id":"r","step":1}"#;
    let thousand_and_one = format!("[{}]", vec![item; 1001].join(","));
    let long =
        format!("[{}]", vec![item.replace("{}", &format!(r#"{{"a":"{}"}}"#, "x".repeat(100_000))); 90].join(","));
    let with_due_at =
        |at: &str| format!("[{}]", item.replace(r#""step":1"#, &format!(r#""step":1,"options":{{"due_at":{at}}}"#)));
    for (calls, mode, common, expected) in [
        ("[]", Some("per_item"), acme(), r#"ST400 "/items" "items""#),
        ("{}", Some("per_item"), acme(), r#"ST400 "/items" "type""#),
        (thousand_and_one.as_str(), Some("per_item"), acme(), r#"ST400 "/items" "items""#),
        (long.as_str(), Some("per_item"), acme(), r#"ST400 "/items" "size""#),
        ("[5]", Some("maybe"), acme(), r#"ST400 "/mode" "value""#),
        ("[5]", None, acme(), r#"ST400 "/mode" "value""#),
        ("[5]", Some("per_item"), Some(json!([])), r#"ST400 "/common" "type""#),
        ("[5]", Some("per_item"), acme(), r#"ST400 """#),
        (r#"[{"to":1}]"#, Some("per_item"), acme(), r#"ST400 "/to""#),
        (&format!("[{}]", item.replace(r#""step":1"#, r#""step":"1""#)), Some("per_item"), acme(), r#"ST400 "/step""#),
        (&format!("[{}]", item.replace(r#""r""#, "7")), Some("per_item"), acme(), r#"ST400 "/run_id""#),
        (&format!("[{}]", item.replace(r#""hook""#, "null")), Some("per_item"), acme(), r#"ST400 "/destination""#),
        (
            &format!("[{}]", item.replace(r#""step":1"#, r#""step":1,"step":2"#)),
            Some("per_item"),
            acme(),
            r#"ST400 "/step""#,
        ),
        (&with_due_at("1e999999"), Some("per_item"), acme(), r#"ST400 "/options""#),
        (&format!("[{}]", item.replace("INV-1", r"INV\u0000")), Some("per_item"), acme(), r#"ST400 "/reference""#),
        // More digits than a number of Postgres holds, without any exponent.
        (&with_due_at(&"9".repeat(140_000)), Some("per_item"), acme(), r#"ST400 "/options""#),
        (&with_due_at(&format!("0.{}", "1".repeat(20_000))), Some("per_item"), acme(), r#"ST400 "/options""#),
        (&format!("[{item}]"), Some("per_item"), None, r#"ST400 "/common" "type""#),
        (&format!("[{item}]"), Some("per_item"), Some(json!({})), r#"ST400 "/tenant""#),
        (&format!("[{item}]"), Some("per_item"), acme(), "accepted"),
    ] {
        assert_eq!(told(calls, mode, common).await, expected, "{}", calls.chars().take(200).collect::<String>());
    }
    assert_eq!(world.count("settled.intents").await, 1);
}

#[tokio::test]
async fn a_producer_asks_in_bulk_for_its_own_tenant_only() {
    let mut world = World::new().await;
    let role = world.role(&["globex"]).await;
    let mut conn = world.connect(&role).await;
    let calls = [
        hook("INV-1", "{}", "r", 1).without_tenant(),
        hook("INV-2", "{}", "r", 2),
        call("mail", "INV-3", "{}", "r", 3).without_tenant(),
    ];
    let words: Vec<String> =
        many(&mut conn, &calls, "per_item").await.unwrap().into_iter().map(|(word, _)| word).collect();
    assert_eq!(words, ["accepted", "ST403 null", "ST403 null"]);
    let tenants: Vec<String> =
        sqlx::query_scalar("select tenant from settled.intents").fetch_all(world.pool()).await.unwrap();
    assert_eq!(tenants, ["globex"]);
}

#[tokio::test]
async fn an_open_rival_holds_up_its_own_item_and_not_for_the_time_of_each() {
    let world = World::new().await;
    let mut rival = world.owner().await;
    let mut open = rival.begin().await.unwrap();
    for n in 0..20 {
        ask(&mut open, &hook(&format!("INV-{n}"), "{}", "rival", n)).await.unwrap();
    }
    let calls: Vec<Call> = (0..40).map(|n| hook(&format!("INV-{n}"), "{}", "mine", n)).collect();
    let mut conn = world.owner().await;
    let told = many(&mut conn, &calls, "per_item").await.unwrap();
    open.rollback().await.unwrap();
    for (at, (word, _)) in told.iter().enumerate() {
        assert_eq!(word, if at < 20 { "ST423 null" } else { "accepted" }, "{at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_name_the_same_effects_in_opposite_orders_do_not_deadlock() {
    let world = World::new().await;
    let calls: Vec<Call> = (0..200).map(|n| hook(&format!("INV-{n}"), "{}", "run", n)).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for turn in 0..8 {
        let (mut conn, mut calls) = (world.owner().await, calls.clone());
        if turn % 2 == 1 {
            calls.reverse();
        }
        tasks.spawn(async move { many(&mut conn, &calls, "all_or_nothing").await });
    }
    let mut accepted = 0;
    while let Some(told) = tasks.join_next().await {
        accepted += told.unwrap().unwrap().iter().filter(|(word, _)| word == "accepted").count();
    }
    assert_eq!(
        (accepted, world.count("settled.intents").await, world.count("settled.requests").await),
        (200, 200, 200)
    );
}
