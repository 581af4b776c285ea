//! The private Postgres of the demonstration.

use settled::demo::cluster::{Access, Cluster, Options, hold::hold_postgres_for};
use sqlx::Connection;

async fn start(access: Access) -> Cluster {
    let options = Options { access, keep: false };
    tokio::task::spawn_blocking(move || Cluster::start(&options)).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_private_cluster_is_utf8_durable_guarded_and_gone_afterwards() {
    let cluster = start(Access::Password).await;
    let mut conn = sqlx::PgConnection::connect(&cluster.url("postgres")).await.unwrap();
    let settings: (String, String, String) = sqlx::query_as(
        "select current_setting('server_encoding'), current_setting('fsync'), current_setting('listen_addresses')",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(settings, ("UTF8".into(), "on".into(), "127.0.0.1".into()));
    let without = format!("postgres://postgres@127.0.0.1:{}/postgres", cluster.port());
    assert!(sqlx::PgConnection::connect(&without).await.is_err(), "no password was asked for");
    let (directory, url) = (cluster.directory().to_owned(), cluster.url("postgres"));
    assert!(directory.exists());
    drop(conn);
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
    assert!(!directory.exists());
    assert!(sqlx::PgConnection::connect(&url).await.is_err());
}

#[tokio::test]
async fn a_command_gets_a_cluster_and_gives_its_exit_code() {
    let script = r#"case "$SETTLED_TEST_POSTGRES" in postgres://postgres@127.0.0.1:*/postgres) exit 7;; esac; exit 1"#;
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    assert_eq!(hold_postgres_for(command).await.unwrap(), 7);
    assert!(hold_postgres_for(Vec::new()).await.is_err());
}
