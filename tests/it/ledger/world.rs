//! A ledger with destinations, tenants and roles, and calls as any SQL client makes them.

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, PgPool, Row};
use uuid::Uuid;

use crate::support::db::Database;

/// A ledger of one test. Tenant `acme` may use `mail` (smtp), `hook` (webhook) and `text` (sms); `globex` only `hook`.
pub(super) struct World {
    db: Option<Database>,
    url: String,
    roles: Vec<String>,
}

/// What enqueue answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) verdict: String,
    pub(super) intent_id: Uuid,
    pub(super) state: String,
    pub(super) provider_id: Option<String>,
    pub(super) detail: Option<String>,
}

/// What enqueue raised.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Raised {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) detail: Value,
    pub(super) context: String,
}

/// One call; the tenant is in `options`.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) destination: String,
    pub(super) reference: String,
    pub(super) payload: String,
    pub(super) run_id: Option<String>,
    pub(super) step: Option<i64>,
    pub(super) options: Value,
}

/// A call of `acme`'s to the webhook.
pub(super) fn hook(reference: &str, payload: &str, run_id: &str, step: i64) -> Call {
    call("hook", reference, payload, run_id, step)
}

/// A call of `acme`'s.
pub(super) fn call(destination: &str, reference: &str, payload: &str, run_id: &str, step: i64) -> Call {
    Call {
        destination: destination.to_owned(),
        reference: reference.to_owned(),
        payload: payload.to_owned(),
        run_id: Some(run_id.to_owned()),
        step: Some(step),
        options: json!({"tenant": "acme"}),
    }
}

impl Call {
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.options[name] = value;
        self
    }

    pub(super) fn without_identity(mut self) -> Self {
        self.run_id = None;
        self.step = None;
        self
    }

    pub(super) fn without_tenant(mut self) -> Self {
        self.options.as_object_mut().unwrap().remove("tenant");
        self
    }
}

/// Makes the call on a connection, in its transaction if there is one.
pub(super) async fn ask(conn: &mut PgConnection, call: &Call) -> Result<Answer, Raised> {
    let row = sqlx::query("select * from settled.enqueue($1, $2, $3::text::json, $4, $5, $6)")
        .bind(&call.destination)
        .bind(&call.reference)
        .bind(&call.payload)
        .bind(&call.run_id)
        .bind(call.step)
        .bind(&call.options)
        .fetch_one(conn)
        .await
        .map_err(raised)?;
    Ok(Answer {
        verdict: row.get("verdict"),
        intent_id: row.get("intent_id"),
        state: row.get("state"),
        provider_id: row.get("provider_id"),
        detail: row.get("detail"),
    })
}

/// The error of the database, taken apart.
pub(super) fn raised(error: sqlx::Error) -> Raised {
    let sqlx::Error::Database(error) = error else { panic!("not of the database: {error}") };
    let error = error.downcast::<sqlx::postgres::PgDatabaseError>();
    Raised {
        code: error.code().to_owned(),
        message: error.message().to_owned(),
        detail: error.detail().map_or(Value::Null, |d| serde_json::from_str(d).unwrap_or_else(|_| json!(d))),
        context: error.r#where().unwrap_or_default().to_owned(),
    }
}

impl World {
    pub(super) async fn new() -> Self {
        let db = Database::new().await;
        let world = Self { url: db.url.clone(), db: Some(db), roles: Vec::new() };
        for (name, channel) in [("mail", "smtp"), ("hook", "webhook"), ("text", "sms")] {
            world.destination(name, channel, name, json!({})).await;
        }
        world.grant("globex", "hook").await;
        world
    }

    pub(super) fn pool(&self) -> &PgPool {
        &self.db.as_ref().unwrap().pool
    }

    /// Publishes a destination with these rules and grants it to `acme`.
    pub(super) async fn destination(&self, name: &str, channel: &str, scope: &str, rules: Value) {
        sqlx::query(
            "insert into settled.destinations (name, channel, effect_scope, revision, generation, rules, definition)
             values ($1, $2, $3, 1, 'g1', $4, '{}')",
        )
        .bind(name)
        .bind(channel)
        .bind(scope)
        .bind(rules)
        .execute(self.pool())
        .await
        .unwrap();
        self.grant("acme", name).await;
    }

    pub(super) async fn grant(&self, tenant: &str, destination: &str) {
        self.run(&format!("select settled.grant_destination('{tenant}', '{destination}')")).await;
    }

    /// As the owner.
    pub(super) async fn ask(&self, call: &Call) -> Result<Answer, Raised> {
        ask(&mut self.pool().acquire().await.unwrap(), call).await
    }

    pub(super) async fn run(&self, sql: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
            .execute(self.pool())
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    pub(super) async fn count(&self, sql: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {sql}")))
            .fetch_one(self.pool())
            .await
            .unwrap()
    }

    /// Brings an intent to an end as the daemon would write it.
    pub(super) async fn end(&self, intent: Uuid, state: &str, holds_effect: bool) {
        let sent = if state == "sent" { "sent_at = now(), provider_id = 'msg-1'," } else { "" };
        self.run(&format!(
            "update settled.intents set state = '{state}', {sent} settled_at = now(), holds_effect = {holds_effect} where id = '{intent}';
             delete from settled.queue where intent_id = '{intent}'"
        ))
        .await;
    }

    /// Claims an intent and closes the attempt with this outcome.
    pub(super) async fn attempted(&self, intent: Uuid, outcome: &str) {
        self.run(&format!(
            "update settled.intents set state = 'in_flight', attempt = 1, key = 'k', kid = 'a' where id = '{intent}';
             insert into settled.attempts (intent_id, number, kind, token, worker, generation, claimed_at, lease_until, closed_at, outcome)
             values ('{intent}', 1, 'send', gen_random_uuid(), gen_random_uuid(), 'g1', now(), now(), now(), '{outcome}')"
        ))
        .await;
    }

    /// A database role that may log in; a producer for these tenants.
    pub(super) async fn role(&mut self, tenants: &[&str]) -> String {
        let role = format!("r_{}", Uuid::now_v7().simple());
        self.run(&format!("create role {role} login")).await;
        self.roles.push(role.clone());
        for tenant in tenants {
            self.run(&format!("select settled.grant_producer('{role}', '{tenant}')")).await;
        }
        role
    }

    /// Logs in as a role.
    pub(super) async fn connect(&self, role: &str) -> PgConnection {
        let mut url = url::Url::parse(&self.url).unwrap();
        url.set_username(role).unwrap();
        PgConnection::connect(url.as_str()).await.unwrap()
    }

    /// Logs in as the owner.
    pub(super) async fn owner(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// Waits until so many sessions of this database wait for a lock.
    pub(super) async fn blocked(&self, sessions: i64) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while self
            .count(
                "pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and state = 'active'",
            )
            .await
            < sessions
        {
            assert!(std::time::Instant::now() < deadline, "{sessions} sessions never waited");
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.db.take());
        let (roles, mut url) = (std::mem::take(&mut self.roles), url::Url::parse(&self.url).unwrap());
        if roles.is_empty() || std::thread::panicking() {
            return;
        }
        url.set_path("postgres");
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut admin = PgConnection::connect(url.as_str()).await.unwrap();
                for role in roles {
                    let _ = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("drop role if exists {role}")))
                        .execute(&mut admin)
                        .await;
                }
            });
        });
        let _ = dropped.join();
    }
}
