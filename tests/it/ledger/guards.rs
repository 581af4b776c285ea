//! What Postgres refuses whoever asks.

use settled::domain::state::State;

use super::world::{Raised, World, hook, raised};

const A: &str = r#"{"amount": 1}"#;

async fn refused(world: &World, sql: &str) -> Raised {
    raised(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(world.pool()).await.expect_err(sql))
}

#[tokio::test]
async fn code_and_database_know_the_same_moves() {
    let world = World::new().await;
    for from in State::ALL {
        for to in State::ALL.into_iter().filter(|to| *to != from) {
            let legal: bool = sqlx::query_scalar("select settled.legal_move($1, $2)")
                .bind(from.as_str())
                .bind(to.as_str())
                .fetch_one(world.pool())
                .await
                .unwrap();
            assert_eq!(legal, from.may_become(to), "{from:?} to {to:?}");
        }
    }
}

#[tokio::test]
async fn an_illegal_move_is_refused_and_a_legal_one_is_not() {
    let world = World::new().await;
    let id = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap().intent_id;
    world.end(id, "sent", true).await;
    let error =
        refused(&world, "update settled.intents set state = 'in_flight', sent_at = null, settled_at = null, attempt = 1, key = 'k', kid = 'k1'").await;
    assert_eq!(error.code, "ST450");
    assert!(error.message.contains("sent to in_flight"), "{}", error.message);
    world.run("update settled.intents set state = 'unknown', sent_at = null, settled_at = null").await;
}

#[tokio::test]
async fn identities_effects_tenants_and_fingerprints_never_change() {
    let world = World::new().await;
    world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    for change in [
        "tenant = 'globex'",
        "destination = 'mail'",
        "effect_scope = 'x'",
        "recipient = 'x'",
        "reference = 'x'",
        "occurrence = 2",
        "fingerprint = ''",
        "created_at = now()",
        "id = gen_random_uuid()",
    ] {
        assert_eq!(refused(&world, &format!("update settled.intents set {change}")).await.code, "ST450", "{change}");
    }
}

#[tokio::test]
async fn a_pinned_key_changes_only_with_a_higher_revision() {
    let world = World::new().await;
    world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    world.run("update settled.intents set key = 'k1', kid = 'a'").await;
    assert_eq!(refused(&world, "update settled.intents set key = 'k2', kid = 'a'").await.code, "ST450");
    assert_eq!(refused(&world, "update settled.intents set key = null, kid = null").await.code, "ST450");
    world.run("update settled.intents set key = null, kid = null, revision = 1").await;
    assert_eq!(refused(&world, "update settled.intents set revision = 0").await.code, "ST450");
}

#[tokio::test]
async fn requests_and_journal_are_append_only_and_payloads_stay_as_given() {
    let world = World::new().await;
    world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    for sql in [
        "update settled.requests set principal = 'x'",
        "delete from settled.requests",
        "update settled.journal set actor = 'x'",
        "delete from settled.journal",
        "update settled.payloads set body = '{}'",
    ] {
        assert_eq!(refused(&world, sql).await.code, "ST450", "{sql}");
    }
}
