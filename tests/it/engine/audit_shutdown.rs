//! The daemon ends when it is told to, also when Postgres has gone silent.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use settled::{
    clock::SystemClock,
    config::load::parse_text,
    daemon,
    demo::fakes::webhook::Webhook,
    domain::gate::Gate,
    engine::self_stop::{Allowance, Passed, SelfStop},
    lifecycle::Shutdown,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::doubt::PAYLOAD;
use crate::support::{
    db::Database,
    fragments::mute_webhook,
    world::{World, destination},
};

/// A way to Postgres that can fall silent: connections stay open, and nothing comes through.
async fn way_to(postgres: String) -> (SocketAddr, Arc<AtomicBool>) {
    let silent = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let flag = Arc::clone(&silent);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&postgres).await.unwrap();
            let (near, far) = (near.into_split(), far.into_split());
            for (mut from, mut to) in [(near.0, far.1), (far.0, near.1)] {
                let silent = Arc::clone(&flag);
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    while let Ok(n) = from.read(&mut buffer).await {
                        if silent.load(Ordering::SeqCst) {
                            std::future::pending::<()>().await;
                        }
                        if n == 0 || to.write_all(&buffer[..n]).await.is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    (address, silent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_although_postgres_is_silent() {
    let db = Database::new().await;
    let mut url = url::Url::parse(&db.url).unwrap();
    let postgres = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432));
    let (address, silent) = way_to(postgres).await;
    url.set_port(Some(address.port())).unwrap();
    url.set_host(Some("127.0.0.1")).unwrap();
    let secret = std::env::temp_dir().join(format!("settled-audit-{}", uuid::Uuid::new_v4()));
    std::fs::write(&secret, "k".repeat(40)).unwrap();
    let text = format!(
        r#"
destinations_revision = 1
instance = {{ name = "test", region = "eu" }}
database = {{ url = "{url}", allow_fsync_off = true }}
http = {{ listen = "127.0.0.1:0" }}
keys = {{ active = "k1", secrets = [{{ kid = "k1", file = "{}" }}] }}
retention = {{ keys_days = 180, callers_replay_horizon = "30d", longest_retry_horizon = "7d" }}
[[destinations]]
name = "hooks"
channel = "webhook"
in_doubt = "person"
webhook = {{ url = "https://example.test/" }}
"#,
        secret.display()
    );
    let settings = parse_text("settled.toml", &text, std::iter::empty()).unwrap();
    let shutdown = Shutdown::new();
    let daemon = daemon::start(settings, false, Arc::new(SystemClock), shutdown.clone()).await.unwrap();
    silent.store(true, Ordering::SeqCst);
    // Every loop has asked something by then and waits for the answer.
    let stopping = tokio::spawn(daemon.stop());
    shutdown.hurry();
    let ended = tokio::time::timeout(Duration::from_secs(35), stopping).await;
    assert!(ended.is_ok(), "it waits for Postgres for ever");
    std::fs::remove_file(secret).unwrap();
}

#[tokio::test]
async fn half_a_request_in_mid_send_is_no_proof_where_the_downstream_acts_on_halves() {
    let receiver = Webhook::start().await.unwrap();
    for acts in [false, true] {
        let text = mute_webhook("erp", &receiver, "in_doubt = \"person\"");
        let text = text.replace("[webhook]", &format!("[webhook]\nreply = {{ incomplete_is_not_sent = {} }}", !acts));
        let served = daemon::build(&destination(&text)).unwrap();
        let clock = Arc::new(SystemClock);
        let gate = SelfStop {
            allowance: Allowance::before_claim(&*clock, Duration::from_secs(60)),
            clock,
            pool: sqlx::PgPool::connect_lazy("postgres://127.0.0.1:1/nobody").unwrap(),
            intent_id: uuid::Uuid::nil(),
            attempt: 1,
            token: uuid::Uuid::nil(),
            passed: Passed::default(),
            acts_on_halves: served.channel.acts_on_halves(),
        };
        assert!(gate.interrupted().outcome.is_hard_negative(), "nothing was written");
        gate.wrote(10);
        assert_eq!(gate.interrupted().outcome.is_hard_negative(), !acts);
    }
}

#[tokio::test]
async fn what_has_not_begun_at_the_end_is_given_back_and_not_in_doubt() {
    let receiver = Webhook::start().await.unwrap();
    for round in 0..8 {
        let mut world = World::new(&[mute_webhook("erp", &receiver, "in_doubt = \"person\"")]).await;
        let id = world.enqueue("erp", &format!("INV-{round}"), PAYLOAD).await;
        world.sending.hard_stop.cancel();
        world.dispatch().await;
        assert_eq!(world.state(id).await, "pending");
    }
    assert_eq!(receiver.effects().all().len(), 0);
}
