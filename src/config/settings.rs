//! The whole of `settled.toml`. Unknown keys are refused everywhere; durations are words ("72h", "15m").

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use secrecy::SecretString;
use serde::Deserialize;

use super::{
    destination::Destination,
    secret::{SecretError, SecretRef},
};

/// Everything that is configured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Revision of all destinations together; only a higher one replaces what is published.
    #[serde(default)]
    pub destinations_revision: i64,
    /// Which installation this is.
    pub instance: Instance,
    /// Where the ledger is.
    pub database: Database,
    /// Secrets that keys are made with.
    pub keys: Keys,
    /// The HTTP API.
    #[serde(default)]
    pub http: Http,
    /// How work is picked up.
    #[serde(default)]
    pub dispatcher: Dispatcher,
    /// How long things are kept.
    #[serde(default)]
    pub retention: Retention,
    /// Logs.
    #[serde(default)]
    pub telemetry: Telemetry,
    /// The downstreams.
    #[serde(default)]
    pub destinations: Vec<Destination>,
}

/// `[instance]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Must equal the name in the database, or nothing is sent: a restored copy is noticed by it.
    pub name: String,
    /// Part of every key; never changes.
    pub region: String,
    /// Asynchronous standbys may lose acknowledged rows at a failover; only with this is that accepted.
    #[serde(default)]
    pub accept_lossy_failover: bool,
}

/// `[database]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Postgres URL.
    #[serde(default, deserialize_with = "hidden")]
    pub url: Option<SecretString>,
    /// File that holds the URL.
    #[serde(default)]
    pub url_file: Option<PathBuf>,
    /// URL for `settled migrate`: direct, of the owner; default the ordinary one.
    #[serde(default, deserialize_with = "hidden")]
    pub migrate_url: Option<SecretString>,
    /// File that holds it.
    #[serde(default)]
    pub migrate_url_file: Option<PathBuf>,
    /// Most connections of one daemon.
    #[serde(default = "sixteen")]
    pub max_connections: u32,
    /// Connections that are kept open.
    #[serde(default = "two")]
    pub min_connections: u32,
    /// A server with `fsync = off` is accepted: for databases to throw away, since a crash makes it forget sends.
    #[serde(default)]
    pub allow_fsync_off: bool,
    /// How long a loop or call waits for a free one.
    #[serde(default = "five_seconds", with = "humantime_serde")]
    pub acquire_timeout: Duration,
    /// What stands between the daemon and Postgres.
    #[serde(default)]
    pub pooler: Pooler,
}

/// A pooler in front of Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooler {
    /// None, or one in session mode.
    #[default]
    None,
    /// PgBouncer 1.21 or newer in transaction mode, with `max_prepared_statements` above 0.
    Transaction,
}

impl Database {
    /// Takes this URL in place of everything that was configured; for the command line, as it counts for every command.
    pub fn use_url(&mut self, url: &str) {
        self.url = Some(SecretString::from(url));
        self.migrate_url = None;
        self.migrate_url_file = None;
    }

    /// The URL for everything but migrations.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn url(&self) -> Result<SecretString, SecretError> {
        place(self.url.as_ref(), self.url_file.as_ref(), "database.url")
    }

    /// The URL for migrations; the ordinary one where no other is given.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn migrate_url(&self) -> Result<SecretString, SecretError> {
        if self.migrate_url.is_some() || self.migrate_url_file.is_some() {
            place(self.migrate_url.as_ref(), self.migrate_url_file.as_ref(), "database.migrate_url")
        } else {
            self.url()
        }
    }
}

fn place(value: Option<&SecretString>, file: Option<&PathBuf>, key: &str) -> Result<SecretString, SecretError> {
    match (value, file) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(file)) => SecretRef::File(file.clone()).load(),
        (None, None) => Err(SecretError::Empty(key.to_owned())),
    }
}

fn hidden<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Option::<String>::deserialize(deserializer).map(|value| value.map(SecretString::from))
}

/// `[keys]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// `kid` of the secret that new keys are made with.
    pub active: String,
    /// All secrets; old ones stay while anything made with them may still be asked about.
    pub secrets: Vec<KeySecret>,
}

/// `[[keys.secrets]]`: exactly one of `file` and `env`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySecret {
    /// Name of the secret, stored beside every key made with it.
    pub kid: String,
    /// File with at least 32 bytes of text.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// Environment variable with at least 32 bytes.
    #[serde(default)]
    pub env: Option<String>,
}

/// `[http]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Address and port of the API.
    pub listen: SocketAddr,
}

impl Default for Http {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 7411)) }
    }
}

/// `[dispatcher]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dispatcher {
    /// Shortest pause between two looks at the queue, while there is work.
    #[serde(with = "humantime_serde")]
    pub poll_min: Duration,
    /// Longest pause, while there is none.
    #[serde(with = "humantime_serde")]
    pub poll_max: Duration,
    /// Most intents claimed at once for one destination.
    pub batch: u32,
    /// How long a stopping daemon lets running sends finish before it writes them as unknown.
    #[serde(with = "humantime_serde")]
    pub drain: Duration,
    /// Between two signs of life of this process.
    #[serde(with = "humantime_serde")]
    pub heartbeat: Duration,
    /// Silence after which a worker counts as dead; its open attempts become unknown.
    #[serde(with = "humantime_serde")]
    pub worker_dead_after: Duration,
}

impl Default for Dispatcher {
    fn default() -> Self {
        Self {
            poll_min: Duration::from_millis(10),
            poll_max: Duration::from_millis(50),
            batch: 64,
            drain: Duration::from_secs(45),
            heartbeat: Duration::from_secs(5),
            worker_dead_after: Duration::from_secs(30),
        }
    }
}

/// `[retention]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Days that payloads are kept after an intent has settled.
    pub payload_days: u32,
    /// Days that keys and effects are kept after an intent has settled: the window in which a repeat is recognised.
    pub keys_days: u32,
    /// Longest time after which a caller may still repeat a call: its queue, its workflow engine, its dead letters.
    #[serde(with = "humantime_serde")]
    pub callers_replay_horizon: Duration,
    /// Longest time that one intent may go on being attempted.
    #[serde(with = "humantime_serde")]
    pub longest_retry_horizon: Duration,
    /// Years that the hash of an identity is kept after that.
    pub tombstone_years: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            payload_days: 30,
            keys_days: 180,
            callers_replay_horizon: Duration::from_secs(30 * 86_400),
            longest_retry_horizon: Duration::from_secs(7 * 86_400),
            tombstone_years: 7,
        }
    }
}

/// `[telemetry]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// Form of the log on stderr.
    pub log: LogForm,
    /// Level, or a filter such as `info,settled::engine=debug`.
    pub level: String,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { log: LogForm::Text, level: "info".to_owned() }
    }
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogForm {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

fn two() -> u32 {
    2
}
fn sixteen() -> u32 {
    16
}
fn five_seconds() -> Duration {
    Duration::from_secs(5)
}
