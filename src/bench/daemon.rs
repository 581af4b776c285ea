//! The daemon under test: our own program as a child, so that its CPU and memory are its own.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};

use super::{mail, sink::Sink, usage::Usage};
use crate::{
    config::destination::Destination,
    demo::{client::Client, cluster::Cluster},
    store::{
        self,
        destinations::Publication,
        tokens::{Kind, NewToken},
    },
};

/// Connections of the producers.
const PRODUCERS: u32 = 16;

/// The destinations of a run.
pub(super) struct Plan(Vec<Value>);

impl Plan {
    /// One webhook for each number of sends at the same time.
    pub(super) fn hooks(sink: &Sink, concurrencies: &[u32]) -> Self {
        Self(concurrencies.iter().map(|n| webhook(sink, *n, &json!({}), &json!({}))).collect())
    }

    /// One relay for each number of connections, beside what is there.
    pub(super) fn with_mail(mut self, relay: &mail::Relay, connections: &[u32]) -> Self {
        self.0.extend(connections.iter().map(|n| {
            json!({
                "name": Self::mail(*n),
                "channel": "smtp",
                "in_doubt": "person",
                "allow_addresses": ["127.0.0.0/8"],
                "limits": {"concurrency": n},
                "smtp": {
                    "host": "127.0.0.1", "port": relay.port(), "tls": "none", "hello_name": "bench.test",
                    "from": "bench@bench.test",
                },
            })
        }));
        self
    }

    /// A webhook that gives up soon and is asked soon; neither the breaker nor the cap on open doubts stands in the way.
    pub(super) fn faulty(sink: &Sink, concurrency: u32, intents: u32) -> Self {
        let limits = json!({
            "breaker_after": 1_000_000, "open_unknowns": intents.max(1000), "lease_margin": "1s", "backoff": "100ms",
            "backoff_max": "1s", "attempts": 5,
        });
        let timeouts = json!({"connect": "1s", "tls": "1s", "body": "1s", "reply": "1s", "answer": "1s"});
        let mut hook = webhook(sink, concurrency, &limits, &json!({"absent_by_lag": "resend"}));
        if let Some(hook) = hook.as_object_mut() {
            hook.insert("timeouts".to_owned(), timeouts);
        }
        Self(vec![hook])
    }

    /// Name of the webhook with so many sends at the same time.
    pub(super) fn hook(concurrency: u32) -> String {
        format!("hook-{concurrency}")
    }

    /// Name of the relay with so many connections.
    pub(super) fn mail(connections: u32) -> String {
        format!("mail-{connections}")
    }
}

fn webhook(sink: &Sink, concurrency: u32, limits: &Value, look_up: &Value) -> Value {
    let base = format!("http://{}", sink.address());
    let asked = json!({
        "kind": "http", "lag": "2s", "horizon": "1h", "need": 2, "spacing": "500ms", "visibility": "ordered", "per_minute": 1_000_000,
        "http": {
            "per": "key", "url": format!("{base}/events/{{key}}"), "answer": {"absent": [404], "key_at": "/key"},
            "account": {"url": format!("{base}/account"), "expect": {"/account": "bench"}},
        },
    });
    json!({
        "name": Plan::hook(concurrency),
        "channel": "webhook",
        "allow_addresses": ["127.0.0.0/8"],
        "limits": merged(&json!({"concurrency": concurrency}), limits),
        "webhook": {"url": format!("{base}/hook")},
        "look_up": merged(&asked, look_up),
    })
}

fn merged(base: &Value, more: &Value) -> Value {
    let (Value::Object(mut base), Value::Object(more)) = (base.clone(), more.clone()) else { return base.clone() };
    base.extend(more);
    Value::Object(base)
}

/// Ledger and configuration of a run.
pub(super) struct Bench {
    pub(super) pool: PgPool,
    /// The daemon's API, with a token that may enqueue.
    pub(super) client: Client,
    pub(super) api: std::net::SocketAddr,
    pub(super) token: String,
    directory: PathBuf,
}

impl Bench {
    pub(super) async fn build(cluster: &Cluster, Plan(destinations): Plan) -> anyhow::Result<Self> {
        let url = cluster.url("postgres");
        let mut conn = PgConnection::connect(&url).await.context("connect to the private Postgres")?;
        store::migrations::run(&mut conn).await?;
        for destination in &destinations {
            publish(&mut conn, destination).await?;
        }
        let new = NewToken {
            kind: Kind::Producer,
            principal: "bench",
            tenant: Some("bench"),
            expires_at: None,
            created_by: "bench",
        };
        let (_, token) = store::tokens::create(&mut conn, &new).await?;
        conn.close().await?;
        let directory = std::env::temp_dir().join(format!("settled-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let secret = directory.join("key");
        std::fs::write(&secret, format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>()))?;
        // The port is free now; if it is taken in the next moment the daemon says so and ends.
        let api = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let whole = json!({
            "destinations_revision": 1,
            "instance": {"name": "bench", "region": "bench"},
            "database": {"url": url, "max_connections": 16},
            "keys": {"active": "k1", "secrets": [{"kid": "k1", "file": secret}]},
            "http": {"listen": api},
            "dispatcher": {"batch": 256},
            "telemetry": {"level": "warn"},
            "destinations": destinations,
        });
        std::fs::write(directory.join("settled.toml"), toml::to_string(&whole)?)?;
        let pool = PgPoolOptions::new().max_connections(PRODUCERS).connect(&url).await?;
        let client = Client::new(api).with_token(&token);
        Ok(Self { pool, client, api, token, directory })
    }

    /// Starts the daemon.
    pub(super) fn start(&self) -> anyhow::Result<Running> {
        let child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg("--config")
            .arg(self.directory.join("settled.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("start the daemon")?;
        Ok(Running { child: Some(child) })
    }

    /// Starts it and waits until it answers.
    pub(super) async fn ready(&self) -> anyhow::Result<Running> {
        let mut running = self.start()?;
        let began = Instant::now();
        while !self.client.get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
            running.check()?;
            if began.elapsed() > Duration::from_secs(60) {
                bail!("the daemon is not ready after a minute");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(running)
    }

    /// Waits until the ledger has recorded that many more as sent than `before`.
    pub(super) async fn settled(&self, before: i64, wanted: u32, at_most: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        while store::bench::unsent(&self.pool).await? > 0 {
            if began.elapsed() > at_most {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let sent = store::bench::sent(&self.pool).await? - before;
        if sent != i64::from(wanted) {
            bail!("of {wanted} intents that arrived, {sent} were recorded as sent");
        }
        Ok(())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // It holds nothing but a configuration that nobody reads any more.
        let _gone = std::fs::remove_dir_all(&self.directory);
    }
}

async fn publish(conn: &mut PgConnection, destination: &Value) -> anyhow::Result<()> {
    let config: Destination = serde_json::from_value(destination.clone())?;
    let generation = crate::channels::registry::generation(&config);
    // As the daemon will publish it: its look-up asks by our key.
    let publication = Publication {
        destination: &config,
        revision: 1,
        generation: &generation,
        asked_by_key: config.look_up.is_some(),
    };
    store::destinations::publish(conn, publication).await?;
    store::producers::grant_destination(conn, "bench", &config.name).await?;
    Ok(())
}

/// A daemon that runs; killed when dropped.
pub(super) struct Running {
    child: Option<Child>,
}

impl Running {
    /// Fails when it has ended by itself.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
            Some(status) => bail!("the daemon ended with {status}"),
            None => Ok(()),
        }
    }

    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of_process(self.child.as_ref().map(Child::id).context("the daemon has ended")?)
    }

    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        tokio::task::spawn_blocking(move || child.wait()).await??;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _killed = child.kill();
            let _waited = child.wait();
        }
    }
}
