//! Callers at once, in open transactions, under every isolation level.

use std::collections::HashSet;

use sqlx::{Connection, PgConnection, postgres::PgPoolOptions};
use tokio::task::JoinSet;

use super::world::{Answer, Call, Raised, World, ask, hook};

const A: &str = r#"{"amount": 1}"#;

async fn sql(conn: &mut PgConnection, text: &'static str) {
    sqlx::query(text).execute(conn).await.unwrap();
}

/// Fifty callers over twenty connections.
async fn fifty(world: &World, calls: impl Fn(i64) -> Call) -> JoinSet<Result<Answer, Raised>> {
    let options = world.pool().connect_options();
    let pool = PgPoolOptions::new().max_connections(20).connect_with((*options).clone()).await.unwrap();
    let mut callers = JoinSet::new();
    for n in 0..50 {
        let (pool, call) = (pool.clone(), calls(n));
        callers.spawn(async move { ask(&mut pool.acquire().await.unwrap(), &call).await });
    }
    callers
}

#[tokio::test]
async fn running_the_handler_twice_at_once_makes_one_row_and_one_call() {
    let world = World::new().await;
    let handler = hook("INV-1", A, "run-1", 1);
    let (one, two) = tokio::join!(world.ask(&handler), world.ask(&handler));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.intent_id, two.intent_id);
    let verdicts: HashSet<&str> = [one.verdict.as_str(), two.verdict.as_str()].into();
    assert_eq!(verdicts, ["accepted", "replayed"].into());
    for table in ["intents", "requests", "payloads", "queue", "journal"] {
        let more = if table == "journal" { " where kind = 'move'" } else { "" };
        assert_eq!(world.count(&format!("settled.{table}{more}")).await, 1, "{table}");
    }
}

#[tokio::test]
async fn case_118_fifty_identical_calls_wait_for_a_first_one_that_commits_after_three_seconds() {
    let world = World::new().await;
    let mut first = world.owner().await;
    sql(&mut first, "begin").await;
    let accepted = ask(&mut first, &hook("INV-1", A, "run-1", 1)).await.unwrap();
    let callers = fifty(&world, |_| hook("INV-1", A, "run-1", 1)).await;
    world.blocked(20).await;
    sql(&mut first, "select pg_sleep(3)").await;
    sql(&mut first, "commit").await;
    let answers: Vec<Answer> = callers.join_all().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.len(), 50);
    assert!(answers.iter().all(|a| a.verdict == "replayed" && a.intent_id == accepted.intent_id), "{answers:?}");
    assert_eq!((world.count("settled.intents").await, world.count("settled.queue").await), (1, 1));
}

#[tokio::test]
async fn case_118_fifty_identical_calls_make_one_row_when_the_first_one_rolls_back() {
    let world = World::new().await;
    let mut first = world.owner().await;
    sql(&mut first, "begin").await;
    let lost = ask(&mut first, &hook("INV-1", A, "run-1", 1)).await.unwrap();
    let callers = fifty(&world, |_| hook("INV-1", A, "run-1", 1)).await;
    world.blocked(20).await;
    sql(&mut first, "rollback").await;
    let answers: Vec<Answer> = callers.join_all().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|a| a.verdict == "accepted").count(), 1);
    assert_eq!(answers.iter().map(|a| a.intent_id).collect::<HashSet<_>>().len(), 1);
    assert_ne!(answers[0].intent_id, lost.intent_id);
    assert_eq!((world.count("settled.intents").await, world.count("settled.requests").await), (1, 1));
}

#[tokio::test]
async fn fifty_runs_that_want_the_same_effect_make_one_intent_and_fifty_requests() {
    let world = World::new().await;
    let callers = fifty(&world, |n| hook("INV-1", A, &format!("run-{n}"), 1)).await;
    let answers: Vec<Answer> = callers.join_all().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|a| a.verdict == "accepted").count(), 1);
    assert_eq!(answers.iter().filter(|a| a.verdict == "already_requested").count(), 49);
    assert_eq!((world.count("settled.intents").await, world.count("settled.requests").await), (1, 50));
}

#[tokio::test]
async fn one_identity_with_two_effects_at_once_is_one_intent_and_conflicts() {
    let world = World::new().await;
    let callers = fifty(&world, |n| hook(&format!("INV-{}", n % 2), A, "run-1", 1)).await;
    let (answers, raised): (Vec<_>, Vec<_>) = callers.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!((answers.len(), raised.len()), (25, 25));
    assert!(raised.into_iter().all(|r| r.unwrap_err().code == "ST409"));
    assert_eq!((world.count("settled.intents").await, world.count("settled.queue").await), (1, 1));
}

#[tokio::test]
async fn a_rival_that_stays_open_is_named_after_the_lock_timeout() {
    let world = World::new().await;
    world
        .run(
            "alter function settled.enqueue(text, text, json, text, bigint, jsonb) set lock_timeout = '100ms';
              alter function settled.cancel(uuid, text, jsonb) set lock_timeout = '100ms'",
        )
        .await;
    let mut first = world.owner().await;
    sql(&mut first, "begin").await;
    ask(&mut first, &hook("INV-1", A, "run-1", 1)).await.unwrap();
    for run in ["run-1", "run-2"] {
        let error = world.ask(&hook("INV-1", A, run, 1)).await.unwrap_err();
        assert_eq!(error.code, "ST423");
        assert!(error.message.starts_with("rival_open: inv-1"), "{}", error.message);
    }
    sql(&mut first, "commit").await;
    assert_eq!(world.ask(&hook("INV-1", A, "run-2", 1)).await.unwrap().verdict, "already_requested");
}

#[tokio::test]
async fn an_open_cancel_is_waited_for() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    let mut person = world.owner().await;
    sql(&mut person, "begin").await;
    sqlx::query("select settled.cancel($1, 'no')").bind(first.intent_id).execute(&mut person).await.unwrap();
    let mut other = world.owner().await;
    let waiting = tokio::spawn(async move { ask(&mut other, &hook("INV-1", A, "run-2", 1)).await });
    world.blocked(1).await;
    sql(&mut person, "commit").await;
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.verdict, "accepted", "never null, never the cancelled one");
    assert_ne!(answer.intent_id, first.intent_id);
}

#[tokio::test]
async fn an_idle_caller_holds_up_no_move_of_the_intent_it_asked_about() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    let mut idle = world.owner().await;
    sql(&mut idle, "begin").await;
    ask(&mut idle, &hook("INV-1", A, "run-1", 1)).await.unwrap();
    ask(&mut idle, &hook("INV-1", A, "run-2", 1)).await.unwrap();
    let mut daemon = world.owner().await;
    sql(&mut daemon, "set lock_timeout = '2s'").await;
    sqlx::query(
        "update settled.intents set state = 'cancelled', holds_effect = false, settled_at = now() where id = $1",
    )
    .bind(first.intent_id)
    .execute(&mut daemon)
    .await
    .unwrap();
}

#[tokio::test]
async fn each_isolation_level_answers_or_fails_in_its_documented_way() {
    for (level, seen_late) in
        [("read committed", None), ("repeatable read", Some("40001")), ("serializable", Some("40001"))]
    {
        for run in ["run-1", "run-2"] {
            let world = World::new().await;
            let mut caller = world.owner().await;
            sqlx::query(sqlx::AssertSqlSafe(format!("begin isolation level {level}")))
                .execute(&mut caller)
                .await
                .unwrap();
            sql(&mut caller, "select count(*) from settled.intents").await;
            let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
            let answer = ask(&mut caller, &hook("INV-1", A, run, 1)).await;
            match seen_late {
                Some(code) => assert_eq!(answer.unwrap_err().code, code, "{level}"),
                None => assert_eq!(answer.unwrap().intent_id, first.intent_id),
            }
            sql(&mut caller, "rollback").await;
            // In a transaction that begins afterwards every level answers alike.
            sqlx::query(sqlx::AssertSqlSafe(format!("begin isolation level {level}")))
                .execute(&mut caller)
                .await
                .unwrap();
            let verdict = ask(&mut caller, &hook("INV-1", A, run, 1)).await.unwrap().verdict;
            assert_eq!(verdict, if run == "run-1" { "replayed" } else { "already_requested" }, "{level}");
            sql(&mut caller, "commit").await;
        }
    }
}

#[tokio::test]
async fn opposite_orders_deadlock_in_the_documented_way() {
    let world = World::new().await;
    let (mut one, mut two) = (world.owner().await, world.owner().await);
    sql(&mut one, "begin").await;
    sql(&mut two, "begin").await;
    ask(&mut one, &hook("INV-1", A, "run-1", 1)).await.unwrap();
    ask(&mut two, &hook("INV-2", A, "run-2", 1)).await.unwrap();
    let (a, b) = (hook("INV-2", A, "run-1", 2), hook("INV-1", A, "run-2", 2));
    // The one that is chosen rolls back, which lets the other go on.
    let side = |mut conn: PgConnection, call: Call| async move {
        let answer = ask(&mut conn, &call).await;
        sql(&mut conn, if answer.is_ok() { "commit" } else { "rollback" }).await;
        answer
    };
    let (one, two) = tokio::join!(side(one, a), side(two, b));
    let codes: Vec<String> = [one, two].into_iter().filter_map(|r| r.err().map(|e| e.code)).collect();
    assert_eq!(codes, ["40P01"]);
    assert_eq!(world.count("settled.intents").await, 2);
}

#[tokio::test]
async fn a_transaction_that_took_lower_ids_and_commits_later_loses_nothing() {
    let world = World::new().await;
    let mut slow = world.owner().await;
    let mut business = slow.begin().await.unwrap();
    let mut early = Vec::new();
    for n in 0..20 {
        early.push(ask(&mut business, &hook(&format!("EARLY-{n}"), A, "slow", n)).await.unwrap().intent_id);
    }
    for n in 0..20 {
        let late = world.ask(&hook(&format!("LATE-{n}"), A, "fast", n)).await.unwrap();
        assert!(early.iter().all(|id| *id < late.intent_id), "ids sort by time");
    }
    assert_eq!(world.count("settled.queue").await, 20);
    business.commit().await.unwrap();
    assert_eq!(
        world.count("settled.queue where kind = 'send' and leased_until is null and due_at <= clock_timestamp()").await,
        40
    );
}

#[tokio::test]
async fn a_hundred_rolled_back_calls_make_none() {
    let world = World::new().await;
    let mut conn = world.owner().await;
    for n in 0..100 {
        let mut business = conn.begin().await.unwrap();
        ask(&mut business, &hook(&format!("INV-{n}"), A, "run-1", n)).await.unwrap();
        business.rollback().await.unwrap();
    }
    for table in ["intents", "requests", "payloads", "queue", "escalations"] {
        assert_eq!(world.count(&format!("settled.{table}")).await, 0, "{table}");
    }
    assert_eq!(world.count("settled.journal where kind = 'move'").await, 0);
}

#[tokio::test]
async fn a_raise_inside_a_savepoint_leaves_the_business_transaction_alive() {
    let world = World::new().await;
    world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    let mut conn = world.owner().await;
    sql(&mut conn, "begin").await;
    ask(&mut conn, &hook("INV-2", A, "run-2", 1)).await.unwrap();
    sql(&mut conn, "savepoint s").await;
    assert_eq!(ask(&mut conn, &hook("INV-1", r#"{"amount": 2}"#, "run-2", 2)).await.unwrap_err().code, "ST409");
    sql(&mut conn, "rollback to savepoint s").await;
    sql(&mut conn, "commit").await;
    assert_eq!(world.count("settled.intents").await, 2);
}
