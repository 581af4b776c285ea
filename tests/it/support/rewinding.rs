//! A database that loses history: a copy is put aside, and later takes the place of what has happened since.

use sqlx::{Connection, PgConnection};

use super::db::Database;

impl Database {
    /// A copy as a standby or a backup holds it from now on. Connections are cut.
    pub async fn copy_aside(&self) -> String {
        let copy = format!("{}_copy", self.name);
        self.replace(&copy, &format!("create database {copy} template {}", self.name)).await;
        copy
    }

    /// The database is that copy from now on, and forgets what has happened since. Connections are cut.
    pub async fn put_back(&self, copy: &str) {
        self.replace(&self.name, &format!("alter database {copy} rename to {}", self.name)).await;
    }

    async fn replace(&self, gone: &str, sql: &str) {
        let mut url = url::Url::parse(&self.server).unwrap();
        url.set_path("postgres");
        let mut admin = PgConnection::connect(url.as_str()).await.unwrap();
        // One after the other: Postgres copies one template at a time.
        run(&mut admin, "select pg_advisory_lock(7274)").await.unwrap();
        run(&mut admin, &format!("drop database if exists {gone} with (force)")).await.unwrap();
        let cut = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'", self.name);
        loop {
            run(&mut admin, &cut).await.unwrap();
            match run(&mut admin, sql).await {
                Ok(()) => break,
                // 55006: a backend that was told to end has not ended yet.
                Err(error) => assert_eq!(error.as_database_error().and_then(|e| e.code()).as_deref(), Some("55006")),
            }
        }
        run(&mut admin, "select pg_advisory_unlock(7274)").await.unwrap();
        admin.close().await.unwrap();
    }
}

async fn run(conn: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(conn).await.map(drop)
}
