//! Everything that the scenes play in: Postgres, the downstreams, the daemon, the shop, and clients of the API.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::Value;

use super::{
    application::{ROLE, Shop, TENANT},
    client::{Answer, Client},
    cluster::{Access, Cluster, Options},
    configuration::{Configuration, Places},
    daemon::Daemon,
    fakes::{imap::Imap, mailbox::Mailbox, sms::Sms, smtp::Smtp, webhook::Webhook},
    telling::Telling,
};
use crate::telemetry::bar::Bar;

const DATABASE: &str = "shop";

/// The stage. Its members go in this order: the daemon first, the database last.
pub struct House {
    /// The daemon.
    pub daemon: Daemon,
    /// The application.
    pub shop: Shop,
    /// An agent's client of the API: a producer.
    pub agent: Client,
    /// A person's client: a responder.
    pub person: Client,
    /// Anybody's.
    pub anybody: Client,
    /// settled.toml.
    pub configuration: Configuration,
    /// Receives orders, can be asked.
    pub orders: Webhook,
    /// Cannot be asked.
    pub partner: Webhook,
    /// Sends text messages.
    pub sms: Sms,
    /// Takes mail.
    pub smtp: Smtp,
    /// Shows it.
    pub imap: Imap,
    /// Holds it.
    pub mailbox: Arc<Mailbox>,
    directory: Directory,
    cluster: Cluster,
}

impl House {
    /// Builds it all and starts the daemon.
    ///
    /// # Errors
    /// When there is no Postgres ([`super::cluster::ClusterError`]), no port, or the daemon does not start.
    pub async fn build(keep: bool, tell: &Telling) -> anyhow::Result<Self> {
        tell.says("Starting a Postgres of our own …");
        let cluster = postgres(keep).await?;
        tell.says(&format!("  on 127.0.0.1:{}, files in {}", cluster.port(), cluster.directory().display()));
        let directory = Directory::new(keep)?;
        let (orders, partner, sms) = (Webhook::start().await?, Webhook::start().await?, Sms::start().await?);
        let mailbox = Arc::new(Mailbox::default());
        let (smtp, imap) = (Smtp::start(Arc::clone(&mailbox)).await?, Imap::start(Arc::clone(&mailbox)).await?);
        tell.says("Downstreams that can fail on order:");
        tell.says(&format!("  orders   {}   partner  {}   sms  {}", orders.url(), partner.url(), sms.url()));
        tell.says(&format!("  mail     smtp://127.0.0.1:{}   imap://127.0.0.1:{}", smtp.port(), imap.port()));

        super::application::create_database(&cluster.url("postgres"), DATABASE).await?;
        let api = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let places = Places {
            api,
            database: cluster.url(DATABASE),
            orders: orders.url(),
            partner: partner.url(),
            sms: sms.url(),
            smtp: smtp.port(),
            imap: imap.port(),
        };
        let configuration = Configuration::new(&directory.path, places)?;
        configuration.write(1)?;
        orders.set_secrets(&[configuration.signing_secret()]);
        let daemon = Daemon::new(&directory.path)?;
        let anybody = Client::new(api);
        let bar = Bar::spinning("the daemon", false);
        daemon.start(&anybody).await?;
        drop(bar);
        tell.says(&format!("The daemon: process {}, API http://{api}", daemon.pid().unwrap_or_default()));

        let shop = Shop::open(&cluster.url(DATABASE)).await?;
        daemon
            .ask(&[
                "producers",
                "grant",
                ROLE,
                "--tenant",
                TENANT,
                "--destination",
                "orders-hook",
                "--destination",
                "invoices-email",
                "--destination",
                "codes-sms",
                "--destination",
                "partner-hook",
            ])
            .await?;
        let agent = token(&daemon, &anybody, &["producer", "agent", "--tenant", TENANT]).await?;
        let person = token(&daemon, &anybody, &["responder", "you"]).await?;
        Ok(Self {
            daemon,
            shop,
            agent,
            person,
            anybody,
            configuration,
            orders,
            partner,
            sms,
            smtp,
            imap,
            mailbox,
            directory,
            cluster,
        })
    }

    /// How an intent stands.
    ///
    /// # Errors
    /// When the API does not say so.
    pub async fn intent(&self, id: &str, wait: u64) -> anyhow::Result<Answer> {
        let answer = self.person.get(&format!("/v1/intents/{id}?wait={wait}")).await?;
        if answer.status == 200 { Ok(answer) } else { bail!("reading {id}: {} {}", answer.status, answer.body) }
    }

    /// Waits until the intent is in one of these states.
    ///
    /// # Errors
    /// When it is not within that time.
    pub async fn until(&self, id: &str, states: &[&str], within: Duration) -> anyhow::Result<Answer> {
        let began = Instant::now();
        loop {
            let answer = self.intent(id, 1).await?;
            if states.contains(&answer.text("state").as_str()) {
                return Ok(answer);
            }
            if began.elapsed() > within {
                let state = answer.text("state");
                bail!("{} is {state} after {} s, not {}", answer.text("reference"), within.as_secs(), states.join("/"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// All intents of a destination.
    ///
    /// # Errors
    /// When the API does not list them.
    pub async fn intents(&self, destination: &str) -> anyhow::Result<Vec<Value>> {
        let answer = self.person.get(&format!("/v1/intents?destination={destination}&limit=200")).await?;
        answer.body.get("intents").and_then(Value::as_array).cloned().context("the list of intents")
    }

    /// A new secret becomes the active one; the daemon is restarted in good order.
    ///
    /// # Errors
    /// When it does not stop or start.
    pub async fn restart_with_secrets(&self, secrets: u32) -> anyhow::Result<()> {
        self.configuration.write(secrets)?;
        self.daemon.stop().await?;
        self.daemon.start(&self.anybody).await
    }

    /// Where the configuration and the log of the daemon are.
    pub fn directory(&self) -> &std::path::Path {
        &self.directory.path
    }

    /// The private database, for a look with psql.
    pub fn database(&self) -> String {
        self.cluster.url(DATABASE)
    }
}

async fn postgres(keep: bool) -> anyhow::Result<Cluster> {
    let options = Options { access: Access::Password, keep };
    let _bar = Bar::spinning("Postgres", false);
    Ok(tokio::task::spawn_blocking(move || Cluster::start(&options)).await??)
}

async fn token(daemon: &Daemon, client: &Client, who: &[&str]) -> anyhow::Result<Client> {
    let said = daemon.ask(&[&["--json", "tokens", "create"], who].concat()).await?;
    let value: Value = serde_json::from_str(&said).context("read the token")?;
    Ok(client.with_token(value.get("token").and_then(Value::as_str).context("read the token")?))
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Configuration, secrets and log; removed at the end unless kept.
struct Directory {
    path: PathBuf,
    keep: bool,
}

impl Directory {
    fn new(keep: bool) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("settled-demo-{:016x}", rand::random::<u64>()));
        fs::DirBuilder::new().mode(0o700).create(&path).context("make a directory for the demonstration")?;
        Ok(Self { path, keep })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
