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

/// Claims a fresh database, or compares.
///
/// # Errors
/// When Postgres does.
pub async fn belongs(conn: &mut PgConnection, name: &str, region: &str) -> Result<Belongs, StoreError> {
    let inserted = sqlx::query!(
        "-- instance::claim
        insert into settled.instance (name, region, system_identifier, timeline)
        select $1, $2, s.system_identifier::text, c.timeline_id
          from pg_control_system() s, pg_control_checkpoint() c
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
        r#"-- instance::compare
        select i.name, i.region, i.system_identifier, s.system_identifier::text as "here!"
          from settled.instance i, pg_control_system() s"#
    )
    .fetch_one(conn)
    .await?;
    let why = if row.name != name {
        format!("the database belongs to instance {}, the configuration says {name}", row.name)
    } else if row.region != region {
        format!("the database belongs to region {}, the configuration says {region}", row.region)
    } else if row.system_identifier != row.here {
        "the database was copied to another cluster; a copy is a second sender".to_owned()
    } else {
        return Ok(Belongs::Here);
    };
    Ok(Belongs::Elsewhere { why })
}
