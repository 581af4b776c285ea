//! What the ledger decides.

use crate::support::db::Database;

#[tokio::test]
async fn a_fresh_database_has_the_tables() {
    let db = Database::new().await;
    let n: i64 = sqlx::query_scalar("select count(*) from information_schema.tables where table_schema = 'settled'")
        .fetch_one(&db.pool)
        .await
        .unwrap();
    assert!(n >= 15, "{n}");
}
