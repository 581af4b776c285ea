//! While the ledger is being migrated the daemon is alive, not ready, and says so.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use settled::{clock::SystemClock, config, daemon, lifecycle::Shutdown};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::db::Database;

/// Status and body of a GET; `None` while nothing listens.
async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text))
}

/// Asks until the answer fits.
pub(super) async fn until(address: SocketAddr, path: &str, fits: impl Fn(u16, &str) -> bool) -> String {
    let asking = async {
        loop {
            if let Some((status, text)) = get(address, path).await
                && fits(status, &text)
            {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await.expect("it answers so in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_migrates_is_alive_and_not_ready() {
    let db = Database::new().await;
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("key");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        "[instance]\nname = \"test\"\nregion = \"eu\"\n[database]\nurl = \"{}\"\nallow_fsync_off = true\n[http]\nlisten = \"{address}\"\n
         [keys]\nactive = \"k1\"\nsecrets = [{{ kid = \"k1\", file = {secret:?} }}]\n",
        db.url
    );
    let settings = config::load::parse_text("test", &text, std::iter::empty()).unwrap();

    // Somebody else is in the middle of a migration.
    let mut rival = db.pool.begin().await.unwrap();
    sqlx::query("lock table _sqlx_migrations in access exclusive mode").execute(&mut *rival).await.unwrap();
    let seen = async {
        let told = until(address, "/readyz", |status, _| status == 503).await;
        assert!(told.contains("\"starting\":true"), "{told}");
        assert_eq!(get(address, "/livez").await.unwrap().0, 200);
        let (status, told) = get(address, "/v1/intents").await.unwrap();
        assert_eq!(status, 503);
        assert!(told.contains("retry-after: ") && told.contains("urn:settled:problem:unavailable"), "{told}");
        rival.rollback().await.unwrap();
        let told = until(address, "/readyz", |status, _| status == 200).await;
        assert!(told.contains("\"ready\":true"), "{told}");
        assert_eq!(get(address, "/v1/intents").await.unwrap().0, 401, "and it is the real one");
    };
    let (started, ()) = tokio::join!(daemon::start(settings, true, Arc::new(SystemClock), Shutdown::new()), seen);
    started.unwrap().stop().await;
    assert!(get(address, "/livez").await.is_none());
}

/// The moves lock a row and then read its evidence; a default of the database must not change what they see.
#[tokio::test]
async fn the_daemon_keeps_to_its_isolation_whatever_the_database_defaults_to() {
    let db = crate::support::db::Database::new().await;
    sqlx::query(
        "do $$ begin execute format('alter database %I set default_transaction_isolation = ''serializable''', current_database()); end $$",
    )
    .execute(&db.pool)
    .await
    .unwrap();
    let options = settled::store::session::options(&db.url, Default::default()).unwrap();
    let mut conn = <sqlx::PgConnection as sqlx::Connection>::connect_with(&options).await.unwrap();
    let isolation: String = sqlx::query_scalar("show transaction_isolation").fetch_one(&mut conn).await.unwrap();
    assert_eq!(isolation, "read committed");
}
