//! The configuration of the demonstration: short times, so that a person can wait for what takes minutes elsewhere.

use std::{
    fs, io,
    io::Write,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// Where everything is.
pub struct Places {
    /// The daemon's API.
    pub api: SocketAddr,
    /// URL of the ledger's database.
    pub database: String,
    /// `POST /hook` of the receiver of orders, and its base.
    pub orders: String,
    /// The same for the partner that cannot be asked.
    pub partner: String,
    /// Base of the SMS provider.
    pub sms: String,
    /// Port of the mail server.
    pub smtp: u16,
    /// Port of the audit mailbox.
    pub imap: u16,
}

/// The directory that holds settled.toml and its secrets.
pub struct Configuration {
    directory: PathBuf,
    places: Places,
    signing: String,
}

impl Configuration {
    /// Secrets are made; nothing is written but them.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn new(directory: &Path, places: Places) -> io::Result<Self> {
        let signing = format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>()));
        let this = Self { directory: directory.to_owned(), places, signing };
        this.secret("signing", &this.signing)?;
        this.secret("mailbox", "audit")?;
        this.secret("database-url", &this.places.database)?;
        this.secret("key-1", &STANDARD.encode(rand::random::<[u8; 48]>()))?;
        Ok(this)
    }

    /// What the receiver must know to check signatures.
    pub fn signing_secret(&self) -> &str {
        &self.signing
    }

    /// Writes settled.toml with this many key secrets; the newest is active, the older ones stay.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(&self, secrets: u32) -> io::Result<()> {
        for number in 2..=secrets {
            if !self.path(&format!("key-{number}")).exists() {
                self.secret(&format!("key-{number}"), &STANDARD.encode(rand::random::<[u8; 48]>()))?;
            }
        }
        let kids: Vec<Value> = (1..=secrets)
            .map(|number| json!({"kid": format!("key-{number}"), "file": self.path(&format!("key-{number}"))}))
            .collect();
        let whole = json!({
            "destinations_revision": 1,
            "instance": {"name": "demo", "region": "demo"},
            "database": {"url_file": self.path("database-url")},
            "keys": {"active": format!("key-{secrets}"), "secrets": kids},
            "http": {"listen": self.places.api},
            "dispatcher": {"heartbeat": "1s", "worker_dead_after": "3s", "drain": "5s"},
            "telemetry": {"log": "text", "level": "info"},
            "destinations": [self.orders(), self.invoices(), self.codes(), self.partner()],
        });
        let text = toml::to_string(&whole).map_err(io::Error::other)?;
        fs::write(self.directory.join("settled.toml"), text)
    }

    fn orders(&self) -> Value {
        let base = &self.places.orders;
        json!({
            "name": "orders-hook",
            "channel": "webhook",
            "if_twice": "The warehouse ships twice.",
            "if_never": "The order is never shipped.",
            "allow_addresses": ["127.0.0.0/8"],
            "timeouts": short(),
            "limits": limits(),
            "webhook": {
                "url": format!("{base}/hook"), "signing_secrets": [{"file": self.path("signing")}],
                "reply": {"provider_id": "/id"},
            },
            "look_up": look_up("http", "ordered", &json!({
                "per": "window",
                "url": format!("{base}/events"),
                "query": {"from": "{from:%Y-%m-%dT%H:%M:%SZ}", "to": "{until:%Y-%m-%dT%H:%M:%SZ}"},
                "widen": "1m",
                "within": "5s",
                "answer": {
                    "items": "/events", "key_at": "/key", "reference_at": "/reference", "occurrence_at": "/occurrence",
                    "attempt_at": "/attempt", "id_at": "/id", "time_at": "/received_at", "status_at": "/status",
                },
                "pages": {"next_at": "/next", "full_page": 100},
                "account": {"url": format!("{base}/account"), "expect": {"/account": "demo-webhook"}},
            })),
        })
    }

    fn invoices(&self) -> Value {
        json!({
            "name": "invoices-email",
            "channel": "smtp",
            "if_twice": "The customer gets the invoice twice.",
            "if_never": "Dunning starts for an invoice that was never sent.",
            "allow_addresses": ["127.0.0.0/8"],
            "timeouts": short(),
            "limits": limits(),
            "smtp": {
                "host": "127.0.0.1", "port": self.places.smtp, "tls": "none", "hello_name": "shop.test",
                "from": "billing@shop.test",
            },
            "look_up": look_up("imap", "ordered", &json!({
                "host": "127.0.0.1", "port": self.places.imap, "tls": "none", "username": "audit",
                "password": {"file": self.path("mailbox")}, "account": "audit@127.0.0.1",
            })),
        })
    }

    fn codes(&self) -> Value {
        let base = &self.places.sms;
        json!({
            "name": "codes-sms",
            "channel": "sms",
            "if_twice": "The customer gets the text twice.",
            "if_never": "The customer waits for a text.",
            "allow_addresses": ["127.0.0.0/8"],
            "timeouts": short(),
            "limits": limits(),
            "sms": {
                "url": format!("{base}/messages"),
                "json": {"to": "{to}", "text": "{text}", "client_reference": "{key}"},
                "reference_in": "/client_reference",
                "reply": {"sent_when": {"status": [201]}, "provider_id": "/id"},
            },
            "look_up": look_up("http", "unordered", &json!({
                "per": "key",
                "url": format!("{base}/messages"),
                "query": {"client_reference": "{key}"},
                "within": "5s",
                "answer": {
                    "items": "/messages", "key_at": "/client_reference", "recipient_at": "/to", "id_at": "/id",
                    "time_at": "/created_at", "status_at": "/status",
                },
                "pages": {"next_at": "/next", "full_page": 100},
                "account": {"url": format!("{base}/account"), "expect": {"/account": "demo-sms"}},
            })),
        })
    }

    fn partner(&self) -> Value {
        json!({
            "name": "partner-hook",
            "channel": "webhook",
            "in_doubt": "person",
            "if_twice": "The partner books the transfer twice.",
            "if_never": "The transfer is not booked.",
            "allow_addresses": ["127.0.0.0/8"],
            "timeouts": short(),
            "limits": limits(),
            "webhook": {"url": format!("{}/hook", self.places.partner)},
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn secret(&self, name: &str, text: &str) -> io::Result<()> {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.path(name))?;
        file.write_all(text.as_bytes())
    }
}

fn short() -> Value {
    json!({
        "connect": "1s", "tls": "1s", "command": "1s", "body": "1s", "reply": "2s", "answer": "1s", "final_dot": "2s",
    })
}

fn limits() -> Value {
    json!({"lease_margin": "1s", "backoff": "1s", "backoff_max": "5s"})
}

fn look_up(kind: &str, visibility: &str, section: &Value) -> Value {
    json!({
        "kind": kind, "lag": "4s", "horizon": "1h", "need": 2, "spacing": "1s", "visibility": visibility,
        "per_minute": 600, kind: section,
    })
}
