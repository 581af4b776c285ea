//! The shop of the demonstration: an application with a database role and tables of its own, which asks for effects inside
//! its own transactions. It knows settled by one SQL function.

use anyhow::Context;
use serde_json::Value;
use sqlx::{Connection, PgConnection, PgPool, Postgres, Transaction, postgres::PgPoolOptions};
use uuid::Uuid;

/// Role of the shop.
pub const ROLE: &str = "shop";
/// Its tenant.
pub const TENANT: &str = "demo";

/// What `settled.enqueue` answered.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Receipt {
    /// accepted, replayed or `already_requested`.
    pub verdict: String,
    /// The intent that stands for the effect.
    pub intent_id: Uuid,
    /// Its state.
    pub state: String,
    /// The downstream's name for it.
    pub provider_id: Option<String>,
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Destination.
    pub destination: &'a str,
    /// Reference.
    pub reference: &'a str,
    /// Payload.
    pub payload: &'a Value,
    /// Run.
    pub run_id: &'a str,
    /// Step.
    pub step: i64,
}

/// The shop, connected as its own role.
pub struct Shop {
    pool: PgPool,
}

impl Shop {
    /// Makes role and tables, as an administrator would.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn open(administrator: &str) -> anyhow::Result<Self> {
        let password = format!("{:032x}", rand::random::<u128>());
        let mut conn = PgConnection::connect(administrator).await.context("open the shop's database")?;
        let script = format!(
            "create role {ROLE} login password '{password}';
             create schema shop authorization {ROLE};
             set role {ROLE};
             create table shop.invoices (number text primary key, amount_cents bigint not null);"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&mut conn).await.context("make the shop's tables")?;
        conn.close().await?;
        let mut url = url::Url::parse(administrator)?;
        let named = url.set_username(ROLE).and_then(|()| url.set_password(Some(&password)));
        named.map_err(|()| anyhow::anyhow!("the database's URL takes no user"))?;
        let pool = PgPoolOptions::new().max_connections(16).connect(url.as_str()).await?;
        Ok(Self { pool })
    }

    /// A transaction of the shop.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn begin(&self) -> anyhow::Result<Transaction<'static, Postgres>> {
        Ok(self.pool.begin().await?)
    }
}

/// Writes an invoice down.
///
/// # Errors
/// When the database refuses.
pub async fn book(transaction: &mut Transaction<'static, Postgres>, number: &str, cents: i64) -> anyhow::Result<()> {
    sqlx::query("insert into shop.invoices (number, amount_cents) values ($1, $2)")
        .bind(number)
        .bind(cents)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Asks for an effect in the same transaction.
///
/// # Errors
/// When the ledger raises: conflict, ended without effect, …
pub async fn enqueue(transaction: &mut Transaction<'static, Postgres>, call: Call<'_>) -> Result<Receipt, sqlx::Error> {
    sqlx::query_as(
        "select verdict, intent_id, state, provider_id
           from settled.enqueue(destination => $1, reference => $2, payload => $3::json, run_id => $4, step => $5)",
    )
    .bind(call.destination)
    .bind(call.reference)
    .bind(call.payload.to_string())
    .bind(call.run_id)
    .bind(call.step)
    .fetch_one(&mut **transaction)
    .await
}

/// Makes the shop's database, as an administrator would.
///
/// # Errors
/// When the server refuses.
pub async fn create_database(administrator: &str, name: &str) -> anyhow::Result<()> {
    let mut conn = PgConnection::connect(administrator).await.context("connect to the private Postgres")?;
    let script = format!("create database {name} template template0 encoding 'UTF8'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&mut conn).await?;
    Ok(conn.close().await?)
}
