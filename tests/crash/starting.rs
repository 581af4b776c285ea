//! Several daemons come up at once over an empty database.

use crate::{
    count::AT_REST,
    house::{House, INVOICES, ORDERS},
    process::PATIENCE,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_starting_at_once_migrate_once() {
    let house = House::build(|_| {}).await;
    let emptied = "drop schema settled cascade; drop table public._sqlx_migrations; drop table public.orders";
    sqlx::raw_sql(emptied).execute(&house.db.pool).await.unwrap();
    // Three, since two could still meet at a kind moment.
    let daemons = [house.serve(&[]), house.serve(&[]), house.serve(&[])];
    for daemon in &daemons {
        daemon.up().await;
    }
    // Numbers have gaps.
    let all: Vec<i64> = settled::store::MIGRATOR.iter().map(|migration| migration.version).collect();
    let applied = format!(
        "select array_agg(version order by version) = '{{{}}}' and bool_and(success) from public._sqlx_migrations",
        all.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
    );
    house.until("every migration ran once", PATIENCE, &applied).await;
    house.until("the database belongs to one instance", PATIENCE, "select count(*) = 1 from settled.instance").await;
    house
        .until("three workers live", PATIENCE, "select count(*) = 3 from settled.workers where stopped_at is null")
        .await;

    house.open_for_business().await;
    for number in 0..10 {
        house.ask([ORDERS, INVOICES][number % 2], &format!("M-{number}")).await;
    }
    house.until("everything is settled", PATIENCE, AT_REST).await;
    let count = crate::count::Count::of(&house).await;
    count.assert_clean();
    assert_eq!(count.sent, 10);
}
