//! A migrated database for each test, copied from a template.
//!
//! `SETTLED_TEST_POSTGRES` names a server by the URL of a superuser; `make test` starts a private one.

use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use uuid::Uuid;

/// One test's own database; dropped with the value.
pub struct Database {
    /// Pool of the owner.
    pub pool: PgPool,
    /// Its URL, as superuser.
    pub url: String,
    pub(super) name: String,
    pub(super) server: String,
    /// This value drops the database with itself.
    pub(super) owns: bool,
}

fn server() -> String {
    std::env::var("SETTLED_TEST_POSTGRES")
        .expect("SETTLED_TEST_POSTGRES must name a server, for example postgres://postgres@127.0.0.1:5432; `make test` starts one")
}

fn with_database(server: &str, name: &str) -> String {
    let mut url = url::Url::parse(server).expect("SETTLED_TEST_POSTGRES is a URL");
    url.set_path(name);
    url.to_string()
}

/// Copies are taken from a template whose name carries the digest of all migrations.
fn template_name() -> String {
    use sha2::{Digest, Sha256};
    let mut digest = Sha256::new();
    for migration in settled::store::MIGRATOR.iter() {
        digest.update(&*migration.checksum);
    }
    digest.finalize().iter().take(6).fold("settled_template_".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

impl Database {
    /// A fresh, migrated database.
    pub async fn new() -> Self {
        let server = server();
        let template = template_name();
        let name = format!("t_{}", Uuid::now_v7().simple());
        let mut admin =
            PgConnection::connect(&with_database(&server, "postgres")).await.expect("the test server answers");
        // One test makes the template, the others wait; CREATE DATABASE needs a template nobody is connected to.
        run(&mut admin, "select pg_advisory_lock(7274)").await;
        let there: bool = sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
            .bind(&template)
            .fetch_one(&mut admin)
            .await
            .unwrap();
        if !there {
            let building = format!("{template}_new");
            run(&mut admin, &format!("drop database if exists {building}")).await;
            run(&mut admin, &format!("create database {building} template template0 encoding 'UTF8'")).await;
            let mut inside = PgConnection::connect(&with_database(&server, &building)).await.unwrap();
            settled::store::MIGRATOR.run(&mut inside).await.expect("migrations apply");
            inside.close().await.unwrap();
            run(&mut admin, &format!("alter database {building} rename to {template}")).await;
        }
        run(&mut admin, &format!("create database {name} template {template}")).await;
        run(&mut admin, "select pg_advisory_unlock(7274)").await;
        admin.close().await.unwrap();
        let url = with_database(&server, &name);
        let pool = PgPoolOptions::new().max_connections(12).connect(&url).await.unwrap();
        Self { pool, url, name, server, owns: true }
    }
}

async fn run(conn: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(conn).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

impl Drop for Database {
    #[expect(clippy::print_stderr, reason = "whoever looks at a failed test wants to know where its rows are")]
    fn drop(&mut self) {
        if !self.owns {
            return;
        }
        let (server, name) = (self.server.clone(), self.name.clone());
        // A database of a failed test is kept for a look.
        if std::thread::panicking() {
            eprintln!("kept database {name}");
            return;
        }
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut admin = PgConnection::connect(&with_database(&server, "postgres")).await.unwrap();
                run(&mut admin, &format!("drop database if exists {name} with (force)")).await;
            });
        });
        let _ = dropped.join();
    }
}
