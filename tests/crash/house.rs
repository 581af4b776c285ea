//! A ledger, three downstreams that can be asked, and the configuration of the daemons between them, with short times.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use settled::{
    demo::{
        configuration::{Configuration, Places},
        fakes::{imap::Imap, ledger_of_effects::Effects, mailbox::Mailbox, sms::Sms, smtp::Smtp, webhook::Webhook},
    },
    store::{
        self,
        requests::{NewRequest, Options},
    },
};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use crate::{
    db::Database,
    process::{PATIENCE, Process},
};

/// Whose intents these are.
pub const TENANT: &str = "demo";
/// A webhook, asked by a window.
pub const ORDERS: &str = "orders-hook";
/// Mail, asked by the audit mailbox.
pub const INVOICES: &str = "invoices-email";
/// SMS, asked by key; its visibility is not ordered.
pub const CODES: &str = "codes-sms";
/// In the order in which work is dealt out.
pub const CHANNELS: [&str; 3] = [ORDERS, INVOICES, CODES];

/// Lives as long as its test. The directory goes last.
pub struct House {
    /// The ledger.
    pub db: Database,
    /// Behind [`ORDERS`].
    pub orders: Webhook,
    /// Behind [`INVOICES`].
    pub smtp: Smtp,
    /// Behind [`CODES`].
    pub sms: Sms,
    mailbox: Arc<Mailbox>,
    _imap: Imap,
    _partner: Webhook,
    directory: tempfile::TempDir,
    started: AtomicI64,
}

/// The logs of a failed test are kept for a look.
impl Drop for House {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.directory.disable_cleanup(true);
            println!("kept the logs in {}", self.directory.path().display());
        }
    }
}

impl House {
    /// `change` alters the configuration before it is written.
    pub async fn build(change: impl FnOnce(&mut toml::Table)) -> Self {
        Self::over(Database::new().await, change, None).await
    }

    /// The same over a database that is already there; `database` is its URL as daemons see it, where that is another one.
    pub async fn over(db: Database, change: impl FnOnce(&mut toml::Table), database: Option<&str>) -> Self {
        let (orders, partner, sms) =
            (Webhook::start().await.unwrap(), Webhook::start().await.unwrap(), Sms::start().await.unwrap());
        let mailbox = Arc::new(Mailbox::default());
        let smtp = Smtp::start(Arc::clone(&mailbox)).await.unwrap();
        let imap = Imap::start(Arc::clone(&mailbox)).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let places = Places {
            api: SocketAddr::from(([127, 0, 0, 1], 0)),
            database: database.unwrap_or(&db.url).to_owned(),
            orders: orders.url(),
            partner: partner.url(),
            sms: sms.url(),
            smtp: smtp.port(),
            imap: imap.port(),
        };
        Configuration::new(directory.path(), places).unwrap().write(1).unwrap();
        let file = directory.path().join("settled.toml");
        let mut settings: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        hurry(&mut settings);
        // Servers for tests are made to be thrown away.
        if let Some(toml::Value::Table(database)) = settings.get_mut("database") {
            database.insert("allow_fsync_off".to_owned(), true.into());
        }
        change(&mut settings);
        std::fs::write(&file, settings.to_string()).unwrap();
        let started = AtomicI64::new(0);
        let house = Self { db, orders, smtp, sms, mailbox, _imap: imap, _partner: partner, directory, started };
        let publish = house.run("publish", &["destinations", "publish"], &[]);
        assert!(publish.end(PATIENCE).await.success(), "{}", publish.last_words());
        house.open_for_business().await;
        house
    }

    /// The application's table, and the right to use the published destinations.
    pub async fn open_for_business(&self) {
        let mut conn = self.db.pool.acquire().await.unwrap();
        sqlx::raw_sql("create table public.orders (number text primary key)").execute(&mut *conn).await.unwrap();
        for name in CHANNELS {
            store::producers::grant_destination(&mut conn, TENANT, name).await.unwrap();
        }
    }

    /// Starts a daemon; it need not be up yet.
    pub fn serve(&self, environment: &[(&str, &str)]) -> Process {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        self.run(&format!("daemon-{number}"), &["serve", "--migrate"], environment)
    }

    /// The same as process number one, as in a container.
    pub fn serve_as_first(&self) -> Process {
        Process::start_as_first(self.directory.path(), "first", &["serve"])
    }

    fn run(&self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Process {
        Process::start(self.directory.path(), name, arguments, environment)
    }

    /// Books an order and asks for its effect in one small transaction, as an application would.
    pub async fn ask(&self, destination: &str, reference: &str) -> Uuid {
        let request = request(destination, reference);
        let mut business = self.db.pool.begin().await.unwrap();
        sqlx::query("insert into public.orders (number) values ($1)")
            .bind(reference)
            .execute(&mut *business)
            .await
            .unwrap();
        let receipt = store::requests::enqueue(&mut business, &request).await.expect("accepted");
        business.commit().await.unwrap();
        receipt.intent_id
    }

    /// The effects behind a destination.
    pub fn effects(&self, destination: &str) -> &Effects {
        match destination {
            ORDERS => self.orders.effects(),
            INVOICES => self.mailbox.effects(),
            CODES => self.sms.effects(),
            other => panic!("no such destination: {other}"),
        }
    }

    /// Where an intent stands.
    pub async fn state(&self, id: Uuid) -> String {
        let state = sqlx::query_scalar("select state from settled.intents where id = $1");
        state.bind(id).fetch_one(&self.db.pool).await.unwrap()
    }

    /// Waits until an intent is in this state.
    pub async fn until_state(&self, id: Uuid, state: &str) {
        let sql = format!("select state = '{state}' from settled.intents where id = '{id}'");
        self.until(&format!("{id} is {state}"), PATIENCE, &sql).await;
    }

    /// Waits a second of the ledger's clock: the pace of a business that goes on.
    pub async fn next_second(&self) {
        sqlx::query("select pg_sleep(1)").execute(&self.db.pool).await.unwrap();
    }

    /// Waits until a question to the ledger is answered with true.
    pub async fn until(&self, what: &str, at_most: Duration, sql: &str) {
        assert!(holds_within(&self.db.pool, at_most, sql).await, "after {at_most:?} it is not so that {what}");
    }
}

async fn holds_within(pool: &PgPool, at_most: Duration, sql: &str) -> bool {
    let began = Instant::now();
    loop {
        let holds: bool = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap();
        if holds {
            return true;
        }
        if began.elapsed() > at_most {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The call of an agent: the same reference, the same call.
pub fn request(destination: &str, reference: &str) -> NewRequest {
    let payload = match destination {
        ORDERS => json!({"type": "order.placed", "order": reference}),
        INVOICES => json!({"to": "ap@acme.test", "subject": format!("Invoice {reference}"), "text": "Please pay."}),
        _ => json!({"to": "+436601234567", "text": format!("Your code for {reference}")}),
    };
    NewRequest {
        destination: destination.to_owned(),
        reference: reference.to_owned(),
        payload: payload.to_string(),
        run_id: Some(format!("run-{reference}")),
        step: Some(1),
        options: Options { tenant: Some(TENANT.to_owned()), ..Options::default() },
    }
}

/// Times of the demonstration, cut shorter: a run of the suite must not last.
fn hurry(settings: &mut toml::Table) {
    put(settings, "dispatcher", &[("heartbeat", "500ms"), ("worker_dead_after", "2s"), ("poll_max", "100ms")]);
    for name in CHANNELS {
        let one = destination(settings, name);
        put(one, "timeouts", &[("connect", "500ms"), ("tls", "500ms"), ("command", "500ms"), ("reply", "1s")]);
        put(one, "timeouts", &[("final_dot", "1s"), ("answer", "500ms")]);
        put(one, "limits", &[("backoff", "200ms"), ("backoff_max", "1s")]);
        put(one, "look_up", &[("spacing", "300ms")]);
    }
}

/// Settings of one destination.
pub fn destination<'s>(settings: &'s mut toml::Table, name: &str) -> &'s mut toml::Table {
    let all = settings.get_mut("destinations").and_then(toml::Value::as_array_mut).unwrap();
    let mut tables = all.iter_mut().filter_map(toml::Value::as_table_mut);
    tables.find(|one| one.get("name").and_then(toml::Value::as_str) == Some(name)).unwrap()
}

/// Sets texts in a section.
pub fn put(table: &mut toml::Table, section: &str, values: &[(&str, &str)]) {
    let section = table.get_mut(section).and_then(toml::Value::as_table_mut).unwrap();
    for (key, value) in values {
        section.insert((*key).to_owned(), toml::Value::String((*value).to_owned()));
    }
}
