//! The daemon under test: our own program as a child, so that its CPU and memory are its own.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::json;
use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};

use super::sink::Sink;
use crate::{
    config::destination::Destination,
    demo::cluster::Cluster,
    store::{self, destinations::Publication},
};

/// Ledger and configuration of a run.
pub(super) struct Bench {
    pub(super) pool: PgPool,
    configuration: PathBuf,
}

impl Bench {
    pub(super) async fn build(cluster: &Cluster, sink: &Sink, concurrency: u32) -> anyhow::Result<Self> {
        let url = cluster.url("postgres");
        let mut conn = PgConnection::connect(&url).await.context("connect to the private Postgres")?;
        store::migrations::run(&mut conn).await?;
        let destination = destination(sink, concurrency);
        let config: Destination = serde_json::from_value(destination.clone())?;
        let generation = crate::channels::registry::generation(&config);
        // As the daemon will publish it: its look-up asks by our key.
        let publication =
            Publication { destination: &config, revision: 1, generation: &generation, asked_by_key: true };
        store::destinations::publish(&mut conn, publication).await?;
        store::producers::grant_destination(&mut conn, "bench", "sink").await?;
        conn.close().await?;
        let directory = std::env::temp_dir().join(format!("settled-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let secret = directory.join("key");
        std::fs::write(&secret, format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>()))?;
        let whole = json!({
            "destinations_revision": 1,
            "instance": {"name": "bench", "region": "bench"},
            "database": {"url": url, "max_connections": 16},
            "keys": {"active": "k1", "secrets": [{"kid": "k1", "file": secret}]},
            "http": {"listen": "127.0.0.1:0"},
            "dispatcher": {"batch": 64},
            "telemetry": {"level": "warn"},
            "destinations": [destination],
        });
        let configuration = directory.join("settled.toml");
        std::fs::write(&configuration, toml::to_string(&whole)?)?;
        let pool = PgPoolOptions::new().max_connections(16).connect(&url).await?;
        Ok(Self { pool, configuration })
    }

    /// Starts it and waits for its first delivery.
    pub(super) async fn start(&self, sink: &Sink) -> anyhow::Result<Child> {
        let mut child = self.spawn()?;
        while sink.count() == 0 {
            if let Some(status) = child.try_wait()? {
                bail!("the daemon ended with {status}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(child)
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg("--config")
            .arg(&self.configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("start the daemon")
    }

    /// Waits until the ledger says so, too.
    pub(super) async fn settled(&self, wanted: u64, at_most: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        while store::bench::sent(&self.pool).await? < i64::try_from(wanted)? {
            if began.elapsed() > at_most {
                bail!("not everything that arrived was recorded as sent");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    pub(super) async fn stop(&self, mut child: Child) -> anyhow::Result<()> {
        child.kill()?;
        tokio::task::spawn_blocking(move || child.wait()).await??;
        if let Some(directory) = self.configuration.parent() {
            std::fs::remove_dir_all(directory)?;
        }
        Ok(())
    }
}

fn destination(sink: &Sink, concurrency: u32) -> serde_json::Value {
    let base = format!("http://{}", sink.address());
    json!({
        "name": "sink",
        "channel": "webhook",
        "allow_addresses": ["127.0.0.0/8"],
        "limits": {"concurrency": concurrency},
        "webhook": {"url": format!("{base}/hook")},
        "look_up": {
            "kind": "http", "lag": "10s", "horizon": "1h",
            "http": {"per": "key", "url": format!("{base}/events/{{key}}"), "answer": {"absent": [404], "key_at": "/key"}},
        },
    })
}
