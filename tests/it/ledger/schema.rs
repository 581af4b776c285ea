//! What a migrated database looks like.

use sqlx::Connection;

use crate::ledger::world::World;
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

#[tokio::test]
async fn every_function_says_what_it_is_for() {
    let db = Database::new().await;
    let silent: Vec<String> = sqlx::query_scalar(
        "select p.proname::text from pg_proc p
         where p.pronamespace = 'settled'::regnamespace and obj_description(p.oid, 'pg_proc') is null order by 1",
    )
    .fetch_all(&db.pool)
    .await
    .unwrap();
    assert_eq!(silent, Vec::<String>::new());
}

#[tokio::test]
async fn public_has_no_right_on_anything() {
    let db = Database::new().await;
    let open: Vec<String> = sqlx::query_scalar(
        "select 'function ' || p.oid::regprocedure from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
         where p.pronamespace = 'settled'::regnamespace and a.grantee = 0
         union all
         select 'relation ' || c.oid::regclass from pg_class c, aclexplode(c.relacl) a
         where c.relnamespace = 'settled'::regnamespace and a.grantee = 0
         union all
         select 'schema ' || n.nspname from pg_namespace n, aclexplode(n.nspacl) a where n.nspname = 'settled' and a.grantee = 0",
    )
    .fetch_all(&db.pool)
    .await
    .unwrap();
    assert_eq!(open, Vec::<String>::new());
}

#[tokio::test]
async fn ids_are_of_version_7_and_sort_by_time() {
    let db = Database::new().await;
    let ids: Vec<uuid::Uuid> =
        sqlx::query_scalar("select settled.uuid_v7() from generate_series(1, 200)").fetch_all(&db.pool).await.unwrap();
    for id in &ids {
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
    }
    let (seconds, _) = ids[0].get_timestamp().unwrap().to_unix();
    assert!(chrono::Utc::now().timestamp().abs_diff(i64::try_from(seconds).unwrap()) < 60);
    let far: bool = sqlx::query_scalar("select settled.uuid_v7() < (select settled.uuid_v7() from pg_sleep(0.002))")
        .fetch_one(&db.pool)
        .await
        .unwrap();
    assert!(far);
}

#[tokio::test]
async fn a_database_of_another_encoding_is_refused() {
    let db = Database::new().await;
    let name = format!("latin_{}", uuid::Uuid::now_v7().simple());
    sqlx::query(sqlx::AssertSqlSafe(format!("create database {name} encoding 'LATIN1' locale 'C' template template0")))
        .execute(&db.pool)
        .await
        .unwrap();
    let mut url = url::Url::parse(&db.url).unwrap();
    url.set_path(&name);
    let mut inside = sqlx::PgConnection::connect(url.as_str()).await.unwrap();
    let refused = settled::store::MIGRATOR.run(&mut inside).await.unwrap_err();
    inside.close().await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("drop database {name}"))).execute(&db.pool).await.unwrap();
    assert!(format!("{refused:?}").contains("UTF8"), "{refused:?}");
}

#[tokio::test]
async fn no_index_of_intents_names_a_column_that_a_move_changes() {
    let world = World::new().await;
    let named: Vec<String> = sqlx::query_scalar(
        "select distinct a.attname::text from pg_index x join pg_attribute a on a.attrelid = x.indrelid and a.attnum = any (x.indkey)
         where x.indrelid = 'settled.intents'::regclass order by 1",
    )
    .fetch_all(world.pool())
    .await
    .unwrap();
    assert_eq!(named, ["effect_scope", "id", "occurrence", "recipient", "reference", "tenant"]);
}
