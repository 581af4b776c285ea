//! Statements of `settled bench`: what a producer would run, and the bare inserts it is compared with.

use sqlx::PgPool;

/// The yardstick's table.
///
/// # Errors
/// When Postgres does.
pub async fn bare_table(pool: &PgPool) -> Result<(), sqlx::Error> {
    // Not in the schema, so no checked macro can name it.
    sqlx::raw_sql("create table public.bare (id uuid primary key, n bigint, payload text)").execute(pool).await?;
    Ok(())
}

/// One bare insert of the bytes of a request.
///
/// # Errors
/// When Postgres does.
pub async fn bare_insert(pool: &PgPool, n: i64) -> Result<(), sqlx::Error> {
    sqlx::query("-- bench::bare_insert\ninsert into public.bare values ($1, $2, $3)")
        .bind(uuid::Uuid::now_v7())
        .bind(n)
        .bind(payload())
        .execute(pool)
        .await?;
    Ok(())
}

/// One enqueue in its own transaction.
///
/// # Errors
/// When Postgres does.
pub async fn enqueue(pool: &PgPool, reference: &str) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"-- bench::enqueue
        select verdict as "verdict!" from settled.enqueue('sink', $1, $2::text::json, $1, 1, '{"tenant": "bench"}')"#,
        reference,
        payload(),
    )
    .fetch_one(pool)
    .await?;
    Ok(())
}

/// Many in one transaction.
///
/// # Errors
/// When Postgres does.
pub async fn enqueue_range(pool: &PgPool, from: i64, upto: i64) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"-- bench::enqueue_range
        select count(*) as "count!" from settled.enqueue_many(
            (select json_agg(json_build_object('destination', 'sink', 'reference', 'bulk-' || n, 'payload', $3::text::json,
                    'run_id', 'bulk-' || n, 'step', 1))
               from generate_series($1::bigint, $2::bigint - 1) n),
            'all_or_nothing', '{"tenant": "bench"}')"#,
        from,
        upto,
        payload(),
    )
    .fetch_one(pool)
    .await?;
    Ok(())
}

/// Refreshes the planner's figures.
///
/// # Errors
/// When Postgres does.
pub async fn analyze(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("vacuum analyze").execute(pool).await?;
    sqlx::raw_sql("checkpoint").execute(pool).await?;
    Ok(())
}

/// Bytes of WAL so far.
///
/// # Errors
/// When Postgres does.
pub async fn wal_position(pool: &PgPool) -> Result<f64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- bench::wal_position
        select (pg_current_wal_lsn() - '0/0'::pg_lsn)::double precision as "bytes!""#
    )
    .fetch_one(pool)
    .await
}

/// How many intents have been sent.
///
/// # Errors
/// When Postgres does.
pub async fn sent(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- bench::sent
        select count(*) as "count!" from settled.intents where state = 'sent'"#
    )
    .fetch_one(pool)
    .await
}

/// About 500 bytes.
fn payload() -> String {
    format!(r#"{{"type":"invoice.created","data":{{"amount":40000,"currency":"EUR","text":"{}"}}}}"#, "x".repeat(420))
}
