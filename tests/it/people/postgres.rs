//! A producer's database role decides nothing: Postgres refuses.

use sqlx::{Connection, Executor, PgConnection};
use uuid::Uuid;

use super::desk::{ada, does};
use crate::support::ledger::{Ledger, TENANT, lost};

#[tokio::test]
async fn a_producers_role_reaches_no_table_of_decisions() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let role = format!("producer_{}", Uuid::new_v4().simple());
    let pool = ledger.pool();
    pool.execute(sqlx::AssertSqlSafe(format!("create role {role} login"))).await.unwrap();
    let mut conn = pool.acquire().await.unwrap();
    settled::store::producers::grant(&mut conn, &role, TENANT).await.unwrap();
    let mut url = url::Url::parse(&ledger.db.url).unwrap();
    url.set_username(&role).unwrap();
    let mut producer = PgConnection::connect(url.as_str()).await.unwrap();
    for statement in [
        "insert into settled.decisions (id, intent_id, act, actor, reason, effective_at) select gen_random_uuid(), id, 'send_again', 'x', 'x', now() from settled.intents",
        "update settled.decisions set stopped_at = now()",
        "select * from settled.decisions",
        "update settled.escalations set closed_at = now(), resolution = 'x'",
        "select * from settled.escalations",
        "insert into settled.journal (kind, actor, data) values ('act', 'responder:ada', '{\"act\": \"sent\", \"statement\": {\"statement\": \"sent\"}}')",
        "select * from settled.journal",
        "update settled.intents set state = 'sent', sent_at = now(), settled_at = now()",
        "update settled.attempts set outcome = 'sent'",
        "delete from settled.queue",
        "select * from settled.tokens",
        "delete from settled.pauses",
    ] {
        let refused = producer.execute(statement).await.unwrap_err();
        let code = refused.as_database_error().unwrap().code().unwrap().into_owned();
        assert_eq!(code, "42501", "{statement}: {refused}");
    }
    // What it may do: cancel what was never attempted, and this one was.
    let refused = sqlx::query("select settled.cancel($1, 'x')").bind(id).execute(&mut producer).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "ST413");
    producer.close().await.unwrap();
    does(&ledger, &ada(), id, "sent").await;
    settled::store::producers::revoke(&mut conn, &role, TENANT).await.unwrap();
    conn.execute(sqlx::AssertSqlSafe(format!("drop role {role}"))).await.unwrap();
}
