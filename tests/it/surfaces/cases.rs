//! Cases of kind PG that other projects ran into, as far as callers of the API and of the SQL function meet them.

use serde_json::{Value, json};
use settled::store::tokens::Kind;
use sqlx::Connection;

use super::asking::{World, call, with};

/// The payload as text inside the envelope.
async fn ask_text(world: &World, payload: &str, step: i64) -> super::http_support::Answer {
    let body = format!(
        r#"{{"destination":"hooks","reference":"INV-{step}","payload":{payload},"run_id":"run","step":{step}}}"#
    );
    world.api.call("POST", "/v1/intents", &world.token, Some(&body)).await
}

#[tokio::test]
async fn case_112_u_0000_in_a_value_a_name_or_a_header_is_named_and_nothing_is_stored() {
    let world = World::new().await;
    for (payload, field) in [
        (r#"{"body":"a\u0000b"}"#, "/payload/body"),
        (r#"{"a\u0000b":1}"#, "/payload"),
        (r#"{"headers":{"X-A":"1\u0000"}}"#, "/payload/headers/X-A"),
    ] {
        let problem = ask_text(&world, payload, 1).await.problem(400, "invalid");
        assert_eq!((problem["field"].as_str(), problem["rule"].as_str()), (Some(field), Some("nul")), "{payload}");
        assert_eq!(world.ask_by_sql("hooks", "INV-1", payload, "run", 1).await, Err("ST400".to_owned()), "{payload}");
    }
    for table in ["intents", "requests", "payloads", "queue"] {
        assert_eq!(world.count(table).await, 0, "{table}");
    }
}

#[tokio::test]
async fn case_113_a_lone_surrogate_is_refused_and_a_pair_is_one_character() {
    let world = World::new().await;
    for payload in [r#"{"subject":"\ud83d"}"#, r#"{"subject":"\ude00\ud83d"}"#] {
        let problem = ask_text(&world, payload, 1).await.problem(400, "invalid");
        assert_eq!(
            (problem["field"].as_str(), problem["rule"].as_str()),
            (Some("/payload/subject"), Some("encoding")),
            "{payload}"
        );
        assert_eq!(world.ask_by_sql("hooks", "INV-1", payload, "run", 1).await, Err("ST400".to_owned()), "{payload}");
    }
    assert_eq!(ask_text(&world, r#"{"subject":"\ud83d\ude00"}"#, 1).await.status, 201);
    let (verdict, _) = world.ask_by_sql("hooks", "INV-1", "{\"subject\":\"\u{1f600}\"}", "run", 1).await.unwrap();
    assert_eq!(verdict, "replayed", "the pair is the character");
}

#[tokio::test]
async fn case_114_a_literal_backslash_u_sequence_is_kept_and_is_the_same_by_both_paths() {
    let world = World::new().await;
    let payload = r#"{"body":"C:\\u0000\\new"}"#;
    assert_eq!(ask_text(&world, payload, 1).await.status, 201);
    assert_eq!(world.ask_by_sql("hooks", "INV-1", payload, "run", 1).await.unwrap().0, "replayed");
    let kept: String =
        sqlx::query_scalar("select body from settled.payloads").fetch_one(&world.api.db.pool).await.unwrap();
    assert_eq!(kept, payload);
    let sent: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(sent["body"], r"C:\u0000\new");
}

#[tokio::test]
async fn case_116_the_zone_of_a_session_moves_no_time_and_a_time_without_a_zone_is_refused() {
    let world = World::new().await;
    let mut conn = sqlx::PgConnection::connect(&world.api.db.url).await.unwrap();
    for (n, zone) in ["Asia/Tokyo", "America/St_Johns", "UTC"].into_iter().enumerate() {
        let step = i64::try_from(n).unwrap();
        sqlx::query("select set_config('timezone', $1, false)").bind(zone).execute(&mut conn).await.unwrap();
        let ask =
            "select settled.enqueue('hooks', $1, '{}', $1, $2, jsonb_build_object('tenant', 'acme') || $3::jsonb)";
        let asked = |name: &str, options: &'static str| {
            sqlx::query(sqlx::AssertSqlSafe(ask.replace("$3::jsonb", options))).bind(format!("{name}-{n}")).bind(step)
        };
        asked("now", "'{}'").execute(&mut conn).await.unwrap();
        asked("soon", "jsonb_build_object('due_at', now() + interval '5 s')").execute(&mut conn).await.unwrap();
        for text in ["'2026-12-01 09:00'", "'2026-12-01T09:00:00'", "localtimestamp"] {
            for name in ["due_at", "deadline"] {
                let ask = ask.replace("$3::jsonb", &format!("jsonb_build_object('{name}', {text})"));
                let error = sqlx::query(sqlx::AssertSqlSafe(ask))
                    .bind("INV-9")
                    .bind(9_i64)
                    .execute(&mut conn)
                    .await
                    .unwrap_err();
                let error = error.as_database_error().unwrap();
                assert_eq!(error.code().as_deref(), Some("ST400"), "{zone} {text}");
                assert_eq!(
                    error.message(),
                    format!("/{name}: must be an RFC 3339 timestamp with an offset, no leap second")
                );
            }
        }
    }
    let skews: Vec<(String, f64)> = sqlx::query_as(
        "select reference, extract(epoch from q.due_at - i.created_at)::float8 from settled.intents i join settled.queue q on q.intent_id = i.id",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    assert_eq!(skews.len(), 6);
    for (reference, skew) in skews {
        let meant = if reference.starts_with("soon") { 5.0 } else { 0.0 };
        assert!((skew - meant).abs() < 4.0, "{reference}: {skew} s");
    }
    let by_api = with(call("INV-9", "run", 9), "due_at", json!("2026-12-01 09:00"));
    let problem = world.ask(&by_api).await.problem(400, "malformed");
    assert_eq!(problem["field"], "/due_at");
    assert!(problem["detail"].as_str().unwrap().contains("must be an RFC 3339 timestamp with an offset"), "{problem}");
    let zoneless: i64 = sqlx::query_scalar(
        "select count(*) from information_schema.columns where table_schema = 'settled' and data_type = 'timestamp without time zone'",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(zoneless, 0);
}

#[tokio::test]
async fn case_119_counters_at_three_billion_change_nothing_and_ids_in_json_survive_every_client() {
    let world = World::new().await;
    let pool = &world.api.db.pool;
    let narrow: i64 = sqlx::query_scalar(
        "select count(*) from pg_sequence s join pg_class c on c.oid = s.seqrelid
          where c.relnamespace = 'settled'::regnamespace and s.seqtypid <> 'bigint'::regtype",
    )
    .fetch_one(pool)
    .await
    .unwrap();
    assert_eq!(narrow, 0, "a sequence of 32 bits ends at 2.1 billion");
    sqlx::query("select setval(c.oid, 3000000000) from pg_class c where c.relkind = 'S' and c.relnamespace = 'settled'::regnamespace")
        .execute(pool)
        .await
        .unwrap();
    let step = 3_000_000_000_i64;
    let first = world.ask(&call("INV-1", "run", step)).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let id = first.json()["intent_id"].as_str().unwrap().to_owned();
    assert_eq!(world.ask(&call("INV-1", "run", step)).await.json()["verdict"], "replayed");
    assert_eq!(world.ask(&call("INV-1", "elsewhere", step)).await.json()["verdict"], "already_requested");
    assert_eq!(world.ask(&with(call("INV-1", "run", step), "payload", json!({}))).await.status, 409);
    let cancelled = world.api.post(&format!("/v1/intents/{id}/cancel"), &world.token, &json!({ "reason": "x" })).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    let newest: i64 = sqlx::query_scalar("select max(id) from settled.journal").fetch_one(pool).await.unwrap();
    assert!(newest > 3_000_000_000);
    let mut numbers = 0;
    let responder = world.api.token(Kind::Responder, None).await;
    for path in [
        format!("/v1/intents/{id}"),
        format!("/v1/intents/{id}/story"),
        "/v1/intents".to_owned(),
        "/v1/requests?unserved=true".to_owned(),
    ] {
        let answer = world.api.get(&path, &responder).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        numbers += whole(&answer.json(), &path);
    }
    assert!(numbers > 0, "counters are told");
}

/// Counts the numbers; every one is exact in a client that has doubles only.
fn whole(value: &Value, path: &str) -> usize {
    match value {
        Value::Number(number) => {
            let exact = number.as_i64().is_none_or(|n| n.unsigned_abs() < 1 << 53);
            assert!(exact, "{path}: {number}");
            1
        }
        Value::Array(items) => items.iter().map(|item| whole(item, path)).sum(),
        Value::Object(members) => members.values().map(|item| whole(item, path)).sum(),
        Value::Null | Value::Bool(_) | Value::String(_) => 0,
    }
}
