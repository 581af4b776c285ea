//! The reply to the COMMIT of a claim is lost, or warns. Nothing was started; what is there is said to be so, and what is not
//! there is left alone.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use settled::{demo::fakes::webhook::Webhook, engine::runner::Step, telemetry::notices};
use sqlx::postgres::PgPoolOptions;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{db::Database, fragments::webhook, world::World};

/// A way to Postgres that, once it is armed, lets the next COMMIT through and loses the reply with the connection.
async fn way_to(postgres: String) -> (SocketAddr, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, flag) = (listener.local_addr().unwrap(), Arc::clone(&armed));
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&postgres).await.unwrap();
            tokio::spawn(carry(near, far, Arc::clone(&flag)));
        }
    });
    (address, armed)
}

async fn carry(mut near: TcpStream, mut far: TcpStream, armed: Arc<AtomicBool>) {
    let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = near.read(&mut asked) => {
                let Ok(n @ 1..) = read else { return };
                far.write_all(&asked[..n]).await.unwrap();
                let commits = asked[..n].windows(6).any(|window| window == b"COMMIT");
                if commits && armed.swap(false, Ordering::SeqCst) {
                    // It has happened when the reply comes.
                    let _reply = far.read(&mut answered).await;
                    return;
                }
            }
            read = far.read(&mut answered) => {
                let Ok(n @ 1..) = read else { return };
                near.write_all(&answered[..n]).await.unwrap();
            }
        }
    }
}

async fn attempts(world: &World, id: Uuid) -> Vec<Option<String>> {
    sqlx::query_scalar("select outcome from settled.attempts where intent_id = $1 order by number")
        .bind(id)
        .fetch_all(&world.db.pool)
        .await
        .unwrap()
}

/// What the COMMIT of a claim does.
async fn at_commit(world: &World, act: &str) {
    let sql = format!(
        "create function public.at_commit() returns trigger language plpgsql as $$ begin raise {act} 'at commit'; return null; end $$;
         create constraint trigger at_commit after insert on settled.attempts deferrable initially deferred
         for each row execute function public.at_commit()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&world.db.pool).await.unwrap();
}

async fn as_usual(world: &World) {
    sqlx::raw_sql("drop trigger at_commit on settled.attempts").execute(&world.db.pool).await.unwrap();
}

#[tokio::test]
async fn a_claim_that_stands_although_its_reply_was_lost_is_given_back_and_sent_once() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let mut db = Database::new().await;
    let mut url = url::Url::parse(&db.url).unwrap();
    let postgres = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432));
    let (address, armed) = way_to(postgres).await;
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(address.port())).unwrap();
    db.pool = PgPoolOptions::new().max_connections(4).connect(url.as_str()).await.unwrap();
    let mut world = World::over(db, &[webhook("erp", &receiver, "", "")], 1, "k1").await;
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    armed.store(true, Ordering::SeqCst);
    world.dispatcher.step().await.unwrap_err();
    assert_eq!(world.state(id).await, "in_flight", "the claim stands");
    world.finish().await;
    assert_eq!(
        (world.state(id).await.as_str(), attempts(&world, id).await),
        ("pending", vec![Some("not_sent".to_owned())])
    );
    assert_eq!(receiver.effects().all().len(), 0);
    world.dispatch().await;
    assert_eq!((world.state(id).await.as_str(), receiver.effects().all().len()), ("sent", 1));
}

#[tokio::test]
async fn a_claim_that_did_not_commit_is_left_alone() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    at_commit(&world, "exception").await;
    world.dispatcher.step().await.unwrap_err();
    as_usual(&world).await;
    world.finish().await;
    assert_eq!((world.state(id).await.as_str(), attempts(&world, id).await), ("pending", vec![]));
    let told: i64 =
        sqlx::query_scalar("select count(*) from settled.journal where intent_id = $1 and kind = 'evidence'")
            .bind(id)
            .fetch_one(&world.db.pool)
            .await
            .unwrap();
    assert_eq!(told, 0, "nothing was tried, so there is no evidence");
    world.dispatch().await;
    assert_eq!((world.state(id).await.as_str(), receiver.effects().all().len()), ("sent", 1));
}

#[tokio::test]
async fn a_claim_whose_commit_warned_is_not_sent() {
    // As after a cancelled wait for a standby: COMMIT succeeds and warns. With a second subscriber every thread is asked.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _counting = tracing_subscriber::registry().with(notices::layer()).set_default();
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    at_commit(&world, "warning").await;
    world.dispatch().await;
    assert_eq!(
        (world.state(id).await.as_str(), attempts(&world, id).await),
        ("pending", vec![Some("not_sent".to_owned())])
    );
    assert_eq!(receiver.effects().all().len(), 0);
    as_usual(&world).await;
    world.dispatch().await;
    assert_eq!((world.state(id).await.as_str(), receiver.effects().all().len()), ("sent", 1));
}
