//! What a producer role may do, and what nobody may.

use serde_json::{Value, json};
use settled::store::producers;
use sqlx::{PgConnection, Row};

use super::world::{World, ask, call, hook, raised};

const A: &str = r#"{"amount": 1}"#;

async fn refused(conn: &mut PgConnection, sql: &str) -> String {
    raised(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(conn).await.expect_err(sql)).code
}

#[tokio::test]
async fn a_producer_asks_cancels_and_reads_its_own_receipts() {
    let mut world = World::new().await;
    let role = world.role(&["acme"]).await;
    let mut conn = world.connect(&role).await;
    let answer = ask(&mut conn, &hook("INV-1", A, "run-1", 1).without_tenant()).await.unwrap();
    world.ask(&hook("INV-9", A, "run-1", 1).with("tenant", json!("globex"))).await.unwrap();
    let rows = sqlx::query("select * from settled.receipts").fetch_all(&mut conn).await.unwrap();
    assert_eq!(rows.len(), 1, "another tenant's are not seen");
    assert_eq!(rows[0].get::<uuid::Uuid, _>("intent_id"), answer.intent_id);
    assert_eq!(
        (rows[0].get::<String, _>("reference"), rows[0].get::<String, _>("state")),
        ("INV-1".into(), "pending".into())
    );
    let principal: String = sqlx::query_scalar("select principal from settled.requests where tenant = 'acme'")
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert_eq!(principal, role);
    let state: String = sqlx::query_scalar("select settled.cancel($1, 'no')")
        .bind(answer.intent_id)
        .fetch_one(&mut conn)
        .await
        .unwrap();
    assert_eq!(state, "cancelled");
}

#[tokio::test]
async fn a_producer_can_touch_no_table_and_decide_nothing() {
    let mut world = World::new().await;
    let role = world.role(&["acme"]).await;
    let mut conn = world.connect(&role).await;
    ask(&mut conn, &hook("INV-1", A, "run-1", 1).without_tenant()).await.unwrap();
    let tables: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relnamespace = 'settled'::regnamespace and relkind in ('r', 'v', 'S') and relname <> 'receipts'",
    )
    .fetch_all(world.pool())
    .await
    .unwrap();
    assert!(tables.len() > 15);
    for table in tables {
        assert_eq!(refused(&mut conn, &format!("select * from settled.{table}")).await, "42501", "{table}");
        assert_eq!(refused(&mut conn, &format!("delete from settled.{table}")).await, "42501", "{table}");
    }
    for sql in [
        "insert into settled.producers (role, tenant) values (session_user, 'globex')",
        "insert into settled.journal (kind, actor) values ('act', 'responder:me')",
        "update settled.intents set state = 'sent'",
        "select settled.grant_producer(session_user::name, 'globex')",
        "select settled.grant_destination('acme', 'hook')",
        "select settled.uuid_v7()",
        "select settled.decide(null)",
        "select settled.accept(null, 0)",
        "select settled.bulk_accept(null)",
        "select * from settled.plain_call(null, null, null, null, null, null)",
        "create table settled.mine ()",
        "create function settled.mine() returns int language sql as 'select 1'",
    ] {
        assert_eq!(refused(&mut conn, sql).await, "42501", "{sql}");
    }
    let functions: Vec<String> = sqlx::query_scalar(
        "select p.proname::text from pg_proc p where p.pronamespace = 'settled'::regnamespace
         and has_function_privilege($1, p.oid, 'execute') order by 1",
    )
    .bind(&role)
    .fetch_all(world.pool())
    .await
    .unwrap();
    assert_eq!(functions, ["cancel", "enqueue", "enqueue_many"]);
}

#[tokio::test]
async fn a_producer_cannot_cancel_or_see_another_tenants_intent() {
    let mut world = World::new().await;
    let role = world.role(&["globex"]).await;
    let theirs = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap().intent_id;
    let mut conn = world.connect(&role).await;
    let error =
        raised(sqlx::query("select settled.cancel($1, 'no')").bind(theirs).execute(&mut conn).await.unwrap_err());
    assert_eq!(error.code, "ST404");
    let mine = ask(&mut conn, &hook("INV-1", r#"{"amount": 2}"#, "run-1", 1).without_tenant()).await.unwrap();
    assert_eq!(mine.verdict, "accepted", "effects and identities are of the tenant");
    assert_ne!(mine.intent_id, theirs);
}

#[tokio::test]
async fn a_tenant_uses_only_destinations_that_it_was_granted() {
    let mut world = World::new().await;
    let role = world.role(&["globex"]).await;
    let mut conn = world.connect(&role).await;
    let mail = call("mail", "INV-1", r#"{"to": "a@b.test", "subject": "s", "text": "t"}"#, "run-1", 1);
    assert_eq!(ask(&mut conn, &mail.clone().without_tenant()).await.unwrap_err().code, "ST403");
    let owner = world.ask(&mail.with("tenant", json!("globex"))).await.unwrap_err();
    assert_eq!(owner.code, "ST403", "the owner is not exempt");
}

#[tokio::test]
async fn a_role_names_only_tenants_of_its_own_and_must_where_it_has_two() {
    let mut world = World::new().await;
    let (one, both) = (world.role(&["acme"]).await, world.role(&["acme", "globex"]).await);
    let mut conn = world.connect(&one).await;
    let error = ask(&mut conn, &hook("INV-1", A, "run-1", 1).with("tenant", json!("globex"))).await.unwrap_err();
    assert_eq!(error.code, "ST403");
    let mut conn = world.connect(&both).await;
    let error = ask(&mut conn, &hook("INV-1", A, "run-1", 1).without_tenant()).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.detail), ("ST400", json!({"field": "/tenant", "rule": "required"})));
    for tenant in ["acme", "globex"] {
        let answer = ask(&mut conn, &hook("INV-1", A, "run-1", 1).with("tenant", json!(tenant))).await.unwrap();
        assert_eq!(answer.verdict, "accepted");
    }
    let owner = world.ask(&hook("INV-2", A, "run-1", 2).without_tenant()).await.unwrap_err();
    assert_eq!(owner.detail, json!({"field": "/tenant", "rule": "required"}));
}

#[tokio::test]
async fn principal_and_surface_are_the_owners_and_set_role_changes_nothing() {
    let mut world = World::new().await;
    let role = world.role(&["acme"]).await;
    let mut conn = world.connect(&role).await;
    for name in ["principal", "surface"] {
        let forged = hook("INV-1", A, "run-1", 1).without_tenant().with(name, json!("http"));
        assert_eq!(ask(&mut conn, &forged).await.unwrap_err().code, "ST403", "{name}");
    }
    let mut owner = world.owner().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("set role {role}"))).execute(&mut owner).await.unwrap();
    assert_eq!(
        ask(&mut owner, &hook("INV-1", A, "run-1", 1).without_tenant()).await.unwrap_err().detail["field"],
        "/tenant",
        "session_user counts"
    );
}

#[tokio::test]
async fn a_temp_table_of_the_callers_swallows_nothing() {
    let mut world = World::new().await;
    let role = world.role(&["acme"]).await;
    let mut conn = world.connect(&role).await;
    for table in ["intents", "requests", "queue", "payloads", "journal", "producers", "grants", "destinations"] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "create temp table {table} (id text); grant all on {table} to public"
        )))
        .execute(&mut conn)
        .await
        .unwrap();
    }
    sqlx::raw_sql(
        "create function pg_temp.lower(text) returns text language sql as 'select ''hijacked''';
         create function pg_temp.sha256(bytea) returns bytea language sql as 'select ''\\x00''::bytea';
         grant execute on all functions in schema pg_temp to public;
         set search_path = pg_temp, pg_catalog; set standard_conforming_strings = off; set datestyle = 'German'",
    )
    .execute(&mut conn)
    .await
    .unwrap();
    let answer = ask(&mut conn, &hook("INV-1", A, "run-1", 1).without_tenant()).await.unwrap();
    assert_eq!(answer.verdict, "accepted");
    assert_eq!(world.count("settled.intents where reference = 'inv-1' and fingerprint <> '\\x00'").await, 1);
    assert_eq!((world.count("settled.requests").await, world.count("settled.queue").await), (1, 1));
}

#[tokio::test]
async fn a_role_that_is_no_producer_gets_nowhere() {
    let mut world = World::new().await;
    let role = world.role(&[]).await;
    let mut conn = world.connect(&role).await;
    assert_eq!(ask(&mut conn, &hook("INV-1", A, "run-1", 1)).await.unwrap_err().code, "42501");
    let inherits = world.role(&["acme"]).await;
    world.run(&format!("grant {inherits} to {role}")).await;
    let mut conn = world.connect(&role).await;
    let error = ask(&mut conn, &hook("INV-1", A, "run-1", 1)).await.unwrap_err();
    assert_eq!(error.code, "ST403", "rights on the function do not make a producer");
}

#[tokio::test]
async fn grants_are_listed_revoked_and_written_down() {
    let mut world = World::new().await;
    let role = world.role(&[]).await;
    let mut owner = world.owner().await;
    assert!(producers::grant(&mut owner, &role, "acme").await.unwrap());
    assert!(!producers::grant(&mut owner, &role, "acme").await.unwrap());
    producers::grant(&mut owner, &role, "globex").await.unwrap();
    let listed = producers::list(&mut owner).await.unwrap();
    let tenants: Vec<&str> = listed.iter().map(|p| p.tenant.as_str()).collect();
    assert_eq!(tenants, ["acme", "globex"]);
    assert_eq!(listed[0].destinations, ["hook", "mail", "text"]);
    let mut conn = world.connect(&role).await;
    assert!(producers::revoke(&mut owner, &role, "globex").await.unwrap());
    ask(&mut conn, &hook("INV-1", A, "run-1", 1).without_tenant()).await.unwrap();
    assert!(producers::revoke(&mut owner, &role, "acme").await.unwrap());
    assert!(!producers::revoke(&mut owner, &role, "acme").await.unwrap());
    assert_eq!(ask(&mut conn, &hook("INV-2", A, "run-1", 2).without_tenant()).await.unwrap_err().code, "42501");
    assert_eq!(refused(&mut conn, "select * from settled.receipts").await, "42501");
    let acts: Vec<Value> =
        sqlx::query_scalar("select data from settled.journal where data ->> 'role' = $1 order by id")
            .bind(&role)
            .fetch_all(world.pool())
            .await
            .unwrap();
    let acts: Vec<&str> = acts.iter().filter_map(|a| a["act"].as_str()).collect();
    assert_eq!(acts, ["grant_producer", "grant_producer", "revoke_producer", "revoke_producer"]);
    let error = raised(producers::grant(&mut owner, "postgres", "acme").await.unwrap_err());
    assert_eq!(error.code, "ST400", "the owner is no producer");
}
