//! The Rust front: types for every SQLSTATE, conflicts written down, serialisation tried again.

use serde_json::json;
use settled::{
    engine::admission::{admit, cancel},
    store::requests::{self, ConflictKind, EnqueueError, NewRequest, Options, Verdict},
};
use sqlx::Connection;

use super::world::World;

fn request(reference: &str, payload: &str, run_id: &str) -> NewRequest {
    NewRequest {
        destination: "hook".to_owned(),
        reference: reference.to_owned(),
        payload: payload.to_owned(),
        run_id: Some(run_id.to_owned()),
        step: Some(1),
        options: Options {
            tenant: Some("acme".to_owned()),
            principal: Some("token:7".to_owned()),
            surface: Some("http".to_owned()),
            ..Options::default()
        },
    }
}

#[tokio::test]
async fn the_three_answers_arrive_typed() {
    let world = World::new().await;
    let first = admit(world.pool(), &request("INV-1", r#"{"a": 1.0}"#, "run-1")).await.unwrap();
    let again = admit(world.pool(), &request("INV-1", r#"{"a": 1}"#, "run-1")).await.unwrap();
    let other = admit(world.pool(), &request("INV-1", r#"{"a": 1}"#, "run-2")).await.unwrap();
    assert_eq!(
        [first.verdict, again.verdict, other.verdict],
        [Verdict::Accepted, Verdict::Replayed, Verdict::AlreadyRequested]
    );
    assert_eq!((first.intent_id, first.state.as_str()), (other.intent_id, "pending"));
    let body: String = sqlx::query_scalar("select body from settled.payloads").fetch_one(world.pool()).await.unwrap();
    assert_eq!(body, r#"{"a": 1.0}"#, "byte for byte");
}

#[tokio::test]
async fn a_conflict_is_written_down_in_another_transaction_once_as_an_escalation() {
    let world = World::new().await;
    let first = admit(world.pool(), &request("INV-1", r#"{"a": 1}"#, "run-1")).await.unwrap();
    for run in ["run-2", "run-3"] {
        let EnqueueError::Conflict { conflict, words } =
            admit(world.pool(), &request("INV-1", r#"{"a": 2}"#, run)).await.unwrap_err()
        else {
            panic!("no conflict")
        };
        assert_eq!((conflict.kind, conflict.intent_id), (ConflictKind::Effect, first.intent_id));
        assert_eq!(
            (conflict.pointers.as_slice(), conflict.state.as_str()),
            (["/payload/a".to_owned()].as_slice(), "pending")
        );
        assert!(words.contains("other content"), "{words}");
    }
    assert_eq!(world.count("settled.requests").await, 1, "never as a request");
    assert_eq!(world.count("settled.journal where kind = 'conflict' and actor = 'producer:token:7'").await, 2);
    assert_eq!(
        world.count("settled.escalations where subject = 'request' and reason = 'conflict' and tenant = 'acme' and closed_at is null").await,
        1
    );
    let told: serde_json::Value =
        sqlx::query_scalar("select data from settled.journal where kind = 'conflict' order by id limit 1")
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert_eq!((&told["pointers"], &told["run_id"]), (&json!(["/payload/a"]), &json!("run-2")));
}

#[tokio::test]
async fn inside_a_callers_transaction_nothing_outlives_a_rollback() {
    let world = World::new().await;
    let mut conn = world.owner().await;
    let mut business = conn.begin().await.unwrap();
    requests::enqueue(&mut business, &request("INV-1", "{}", "run-1")).await.unwrap();
    business.rollback().await.unwrap();
    assert_eq!(world.count("settled.intents").await, 0);
}

#[tokio::test]
async fn every_raise_has_its_type() {
    let world = World::new().await;
    let raise = async |request: NewRequest| admit(world.pool(), &request).await.unwrap_err();
    let mut bare = request("INV-1", "{}", "run-1");
    (bare.run_id, bare.step) = (None, None);
    assert!(matches!(raise(bare).await, EnqueueError::IdentityRequired));
    let mut nowhere = request("INV-1", "{}", "run-1");
    nowhere.destination = "nowhere".to_owned();
    assert!(matches!(raise(nowhere).await, EnqueueError::NotFound(_)));
    let mut stranger = request("INV-1", "{}", "run-1");
    stranger.options.tenant = Some("initech".to_owned());
    assert!(matches!(raise(stranger).await, EnqueueError::NotAllowed(_)));
    let mut late = request("INV-1", "{}", "run-1");
    late.options.deadline = Some(chrono::DateTime::UNIX_EPOCH);
    assert!(matches!(raise(late).await, EnqueueError::Expired(_)));
    for (payload, expected) in
        [("{", "json"), ("{\"a\":\"\0\"}", "nul"), (&"[".repeat(100_000), "depth"), (&" ".repeat(300_000), "size")]
    {
        let EnqueueError::Invalid { field, rule, words } = raise(request("INV-1", payload, "run-1")).await else {
            panic!("{expected}")
        };
        assert_eq!((field.as_str(), rule.as_str()), ("/payload", expected), "{words}");
        assert!(words.len() < 100, "{words}");
    }
    let first = admit(world.pool(), &request("INV-1", "{}", "run-1")).await.unwrap();
    world.attempted(first.intent_id, "ambiguous").await;
    let EnqueueError::TooLate { earlier, .. } =
        cancel(world.pool(), first.intent_id, "no", Some("acme"), "token:7").await.unwrap_err()
    else {
        panic!("not too late")
    };
    assert_eq!((earlier.intent_id, earlier.state.as_str()), (first.intent_id, "in_flight"));
    world.end(first.intent_id, "failed", true).await;
    assert!(matches!(raise(request("INV-1", "{}", "run-1")).await, EnqueueError::EndedWithoutEffect(e) if e == {
        let mut earlier = earlier.clone();
        earlier.state = "failed".to_owned();
        earlier
    }));
    assert!(matches!(raise(request("INV-1", "{}", "run-2")).await, EnqueueError::EffectHeld(_)));
    world.run("alter function settled.enqueue(text, text, json, text, bigint, jsonb) set lock_timeout = '100ms'").await;
    let mut open = world.owner().await;
    let mut open = open.begin().await.unwrap();
    requests::enqueue(&mut open, &request("INV-5", "{}", "run-5")).await.unwrap();
    assert!(matches!(raise(request("INV-5", "{}", "run-6")).await, EnqueueError::RivalOpen(_)));
}

#[tokio::test]
async fn a_serialisation_failure_of_its_own_transaction_is_tried_again() {
    let world = World::new().await;
    // Every session of this database is serializable; many callers of one effect fail with 40001 and are tried again.
    world.run("do $$ begin execute format('alter database %I set default_transaction_isolation = serializable', current_database()); end $$").await;
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(8)
        .connect_with((*world.pool().connect_options()).clone())
        .await
        .unwrap();
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..24 {
        let pool = pool.clone();
        callers
            .spawn(async move { admit(&pool, &request(&format!("INV-{}", n % 3), "{}", &format!("run-{n}"))).await });
    }
    let answers = callers.join_all().await;
    let accepted = answers.iter().filter(|a| a.as_ref().is_ok_and(|r| r.verdict == Verdict::Accepted)).count();
    assert_eq!(accepted, 3);
    for answer in answers {
        if let Err(error) = answer {
            assert!(error.is_serialization(), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_producer_of_one_tenant_cancels_nothing_of_anothers() {
    let world = World::new().await;
    let first = admit(world.pool(), &request("INV-1", "{}", "run-1")).await.unwrap();
    let theirs = cancel(world.pool(), first.intent_id, "no", Some("globex"), "token:9").await;
    assert!(matches!(theirs.unwrap_err(), EnqueueError::NotFound(_)));
    assert_eq!(cancel(world.pool(), first.intent_id, "no", Some("acme"), "token:7").await.unwrap(), "cancelled");
    assert_eq!(world.count("settled.journal where actor = 'producer:token:7' and data ->> 'act' = 'cancel'").await, 1);
}
