//! `settled.instance`: which installation this database belongs to.

use sqlx::PgConnection;

use super::error::StoreError;

/// Whose database this is, compared with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Belongs {
    /// To this installation.
    Here,
    /// It was claimed for this installation just now.
    Claimed,
    /// To another: nothing may be dispatched.
    Elsewhere {
        /// What differs, in words.
        why: String,
    },
}

/// Claims a fresh database, or compares. Whether it is still where it was left is for `engine::watch` to say.
///
/// # Errors
/// When Postgres does.
pub async fn belongs(conn: &mut PgConnection, name: &str, region: &str) -> Result<Belongs, StoreError> {
    let inserted = sqlx::query!(
        "-- instance::claim
        insert into settled.instance (name, region, system_identifier, timeline)
        select $1, $2, s.system_identifier::text, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
          from pg_control_system() s
        on conflict do nothing",
        name,
        region,
    )
    .execute(&mut *conn)
    .await?;
    if inserted.rows_affected() == 1 {
        return Ok(Belongs::Claimed);
    }
    let row = sqlx::query!(
        "-- instance::compare
        select name, region from settled.instance"
    )
    .fetch_one(conn)
    .await?;
    let why = if row.name != name {
        format!("the database belongs to instance {}, the configuration says {name}", row.name)
    } else if row.region != region {
        format!("the database belongs to region {}, the configuration says {region}", row.region)
    } else {
        return Ok(Belongs::Here);
    };
    Ok(Belongs::Elsewhere { why })
}

/// How safely this server keeps what it has acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Safety {
    /// What was acknowledged is on disk.
    pub fsync: bool,
    /// Pages that were half written are repaired after a crash.
    pub full_page_writes: bool,
    /// The default of the session; claims, admissions and results are durable whatever it is.
    pub synchronous_commit: String,
    /// Standbys whose word a commit waits for; empty: none.
    pub synchronous_standbys: String,
    /// Standbys that are attached.
    pub standbys: i64,
}

/// Reads what the server is set to. Any role may.
///
/// # Errors
/// When Postgres does.
pub async fn safety(conn: &mut PgConnection) -> Result<Safety, StoreError> {
    let row = sqlx::query!(
        r#"-- instance::safety
        select current_setting('fsync')::boolean as "fsync!", current_setting('full_page_writes')::boolean as "full_page_writes!",
               current_setting('synchronous_commit') as "synchronous_commit!",
               current_setting('synchronous_standby_names') as "synchronous_standbys!",
               -- What takes a base backup is no standby; an ordinary role is not told which they are.
               (select count(*) from pg_stat_replication where state is distinct from 'backup') as "standbys!""#
    )
    .fetch_one(conn)
    .await?;
    Ok(Safety {
        fsync: row.fsync,
        full_page_writes: row.full_page_writes,
        synchronous_commit: row.synchronous_commit,
        synchronous_standbys: row.synchronous_standbys,
        standbys: row.standbys,
    })
}
