//! An intent that ends without effect, as everybody sees it who asked for it.

use settled::demo::fakes::{faults::Fault, webhook::Webhook};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{
    fragments::webhook,
    world::{TENANT, World, new_request},
};

#[tokio::test]
async fn an_intent_that_ends_without_effect_tells_every_request_that_pointed_to_it() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    receiver.faults().next(Fault::Status { code: 422, act: false });
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    for run in ["run-b", "run-c"] {
        let repeat = world.request(&new_request("erp", "INV-1", PAYLOAD, run, 1)).await.unwrap();
        assert_eq!(repeat.intent_id, id);
    }
    world.dispatch().await;
    assert_eq!(world.state(id).await, "failed");
    // As a producer sees it.
    let role = format!("r_{}", Uuid::now_v7().simple());
    let owner = &world.db.pool;
    sqlx::query(sqlx::AssertSqlSafe(format!("create role {role} login"))).execute(owner).await.unwrap();
    sqlx::query("select settled.grant_producer($1::text::name, $2)")
        .bind(&role)
        .bind(TENANT)
        .execute(owner)
        .await
        .unwrap();
    let mut url = url::Url::parse(&world.db.url).unwrap();
    url.set_username(&role).unwrap();
    let mut producer = PgConnection::connect(url.as_str()).await.unwrap();
    let told: Vec<(String, String)> =
        sqlx::query_as("select run_id, state from settled.receipts where intent_id = $1 order by run_id")
            .bind(id)
            .fetch_all(&mut producer)
            .await
            .unwrap();
    producer.close().await.unwrap();
    sqlx::query("select settled.revoke_producer($1::text::name, $2)")
        .bind(&role)
        .bind(TENANT)
        .execute(owner)
        .await
        .unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("drop role {role}"))).execute(owner).await.unwrap();
    let expected = ["run-INV-1", "run-b", "run-c"].map(|run| (run.to_owned(), "failed".to_owned()));
    assert_eq!(told, expected);
    // Its own call again is told so too; another run may ask anew, since the effect is free.
    let own = world.request(&new_request("erp", "INV-1", PAYLOAD, "run-b", 1)).await;
    assert!(own.is_err(), "{own:?}");
    let anew = world.request(&new_request("erp", "INV-1", PAYLOAD, "run-d", 1)).await.unwrap();
    assert_ne!(anew.intent_id, id);
}
