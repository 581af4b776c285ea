//! Which database roles may ask, for which tenant, and which tenant may use which destination. Called by the CLI as the owner.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

/// A role that acts for a tenant.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Producer {
    /// Database role.
    pub role: String,
    /// Its tenant; a role may have several rows.
    pub tenant: String,
    /// Destinations granted to that tenant.
    pub destinations: Vec<String>,
    /// Since when.
    pub granted_at: DateTime<Utc>,
    /// By whom.
    pub granted_by: String,
}

/// Lets an existing role act for a tenant. False where it already could.
pub async fn grant(conn: &mut PgConnection, role: &str, tenant: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- producers::grant
        select settled.grant_producer($1::text::name, $2) as "granted!""#,
        role,
        tenant
    )
    .fetch_one(conn)
    .await
}

/// Ends it; with its last tenant the role loses every right. False where there was none.
pub async fn revoke(conn: &mut PgConnection, role: &str, tenant: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- producers::revoke
        select settled.revoke_producer($1::text::name, $2) as "revoked!""#,
        role,
        tenant
    )
    .fetch_one(conn)
    .await
}

/// All producers, by role and tenant.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Producer>, sqlx::Error> {
    sqlx::query_as!(
        Producer,
        r#"-- producers::list
        select p.role::text as "role!", p.tenant,
          array(select g.destination from settled.grants g where g.tenant = p.tenant order by g.destination) as "destinations!",
          p.granted_at, p.granted_by
        from settled.producers p order by p.role, p.tenant"#
    )
    .fetch_all(conn)
    .await
}

/// Lets a tenant use a destination. False where it already could.
pub async fn grant_destination(conn: &mut PgConnection, tenant: &str, destination: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- producers::grant_destination
        select settled.grant_destination($1, $2) as "granted!""#,
        tenant,
        destination
    )
    .fetch_one(conn)
    .await
}

/// Ends it; what was accepted before is still served. False where there was none.
pub async fn revoke_destination(conn: &mut PgConnection, tenant: &str, destination: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- producers::revoke_destination
        select settled.revoke_destination($1, $2) as "revoked!""#,
        tenant,
        destination
    )
    .fetch_one(conn)
    .await
}
