//! `settled.tokens`: who may call the API. `stl_<kind>_<id>_<secret>`; only SHA-256 of the secret is stored.
//!
//! Called by `api::auth` for every call and by `settled tokens`. A secret has 256 random bits, so a plain digest is enough
//! and no slow hash is needed. Comparison takes the same time wherever the bytes differ.

use chrono::{DateTime, Utc};
use rand::Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use subtle::ConstantTimeEq;

use super::error::StoreError;

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Asks for effects and reads its own; can never decide.
    Producer,
    /// A person who decides.
    Responder,
    /// Everything.
    Admin,
    /// Reads `/metrics`.
    Metrics,
    /// A downstream that reports what became of what it took; its principal is the destination.
    Downstream,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Producer, Self::Responder, Self::Admin, Self::Metrics, Self::Downstream];

    /// The word in the token and in the column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Responder => "responder",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
            Self::Downstream => "downstream",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Principal {
    /// Id of the token.
    pub token: String,
    /// What it may do.
    pub kind: Kind,
    /// Whose it is.
    pub name: String,
    /// The only tenant it sees; `None` for all. A producer always has one.
    pub tenant: Option<String>,
}

impl Principal {
    /// As it stands in the journal: `responder:ada`.
    pub fn actor(&self) -> String {
        format!("{}:{}", self.kind.as_str(), self.name)
    }
}

/// A token as presented, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Presented {
    /// Claimed kind.
    pub kind: Kind,
    /// Id.
    pub id: String,
    secret: String,
}

impl std::fmt::Debug for Presented {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Presented").field("kind", &self.kind).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Presented {
    /// Takes `stl_<kind>_<id>_<secret>` apart; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("stl_")?.splitn(3, '_');
        let kind = Kind::parse(parts.next()?)?;
        let id = parts.next().filter(|id| id.len() == 12 && is_hex(id))?;
        let secret = parts.next().filter(|secret| secret.len() == 64 && is_hex(secret))?;
        Some(Self { kind, id: id.to_owned(), secret: secret.to_owned() })
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// What a new token is for.
#[derive(Debug, Clone)]
pub struct NewToken<'a> {
    /// Kind.
    pub kind: Kind,
    /// Whose it is.
    pub principal: &'a str,
    /// Tenant; a producer needs one.
    pub tenant: Option<&'a str>,
    /// Useless from then on.
    pub expires_at: Option<DateTime<Utc>>,
    /// Who makes it.
    pub created_by: &'a str,
}

/// Makes a token and returns its id and the whole text, which is never seen again.
///
/// # Errors
/// When Postgres does; a producer without a tenant is refused by the table.
pub async fn create(conn: &mut PgConnection, new: &NewToken<'_>) -> Result<(String, String), StoreError> {
    let (mut id_bytes, mut secret_bytes) = ([0u8; 6], [0u8; 32]);
    rand::rng().fill_bytes(&mut id_bytes);
    rand::rng().fill_bytes(&mut secret_bytes);
    let (id, secret) = (hex(&id_bytes), hex(&secret_bytes));
    sqlx::query!(
        "-- tokens::create
        insert into settled.tokens (id, kind, principal, tenant, hash, created_by, expires_at)
        values ($1, $2, $3, $4, $5, $6, $7)",
        id,
        new.kind.as_str(),
        new.principal,
        new.tenant,
        &digest(&secret)[..],
        new.created_by,
        new.expires_at,
    )
    .execute(conn)
    .await?;
    let text = format!("stl_{}_{id}_{secret}", new.kind.as_str());
    Ok((id, text))
}

/// Who presents this token; `None` when it is unknown, wrong, revoked or expired. The caller is not told which.
///
/// # Errors
/// When Postgres does.
pub async fn verify(conn: &mut PgConnection, presented: &Presented) -> Result<Option<Principal>, StoreError> {
    let row = sqlx::query!(
        r#"-- tokens::verify
        select kind, principal, tenant, hash,
               (revoked_at is null and (expires_at is null or expires_at > clock_timestamp())) as "valid!"
          from settled.tokens where id = $1"#,
        presented.id,
    )
    .fetch_optional(conn)
    .await?;
    // A comparison is made also for an id that nobody has.
    let stored = row.as_ref().map_or(&[0u8; 32][..], |row| &row.hash);
    let equal = bool::from(digest(&presented.secret).ct_eq(stored));
    Ok(row.filter(|row| equal && row.valid && row.kind == presented.kind.as_str()).map(|row| Principal {
        token: presented.id.clone(),
        kind: presented.kind,
        name: row.principal,
        tenant: row.tenant,
    }))
}

/// Makes a token useless from now on. False when there is no valid one of that id.
///
/// # Errors
/// When Postgres does.
pub async fn revoke(conn: &mut PgConnection, id: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- tokens::revoke
        update settled.tokens set revoked_at = clock_timestamp() where id = $1 and revoked_at is null",
        id,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A token without its secret.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// Id.
    pub id: String,
    /// Kind.
    pub kind: String,
    /// Whose it is.
    pub principal: String,
    /// Tenant.
    pub tenant: Option<String>,
    /// Since when.
    pub created_at: DateTime<Utc>,
    /// Made by.
    pub created_by: String,
    /// Until when.
    pub expires_at: Option<DateTime<Utc>>,
    /// Useless since.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// All tokens, newest first.
///
/// # Errors
/// When Postgres does.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Listed>, StoreError> {
    Ok(sqlx::query_as!(
        Listed,
        "-- tokens::list
        select id, kind, principal, tenant, created_at, created_by, expires_at, revoked_at
          from settled.tokens order by created_at desc, id",
    )
    .fetch_all(conn)
    .await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_shape_is_a_token() {
        let (id, secret) = ("0123456789ab", "0f".repeat(32));
        assert!(Presented::parse(&format!("stl_admin_{id}_{secret}")).is_some());
        for wrong in [
            format!("stl_root_{id}_{secret}"),
            format!("stl_admin_{id}"),
            format!("stl_admin_{id}_{}", &secret[1..]),
            format!("stl_admin_{id}_{secret}0"),
            format!("stl_admin_{}_{secret}", id.to_uppercase()),
            format!("admin_{id}_{secret}"),
            String::new(),
        ] {
            assert!(Presented::parse(&wrong).is_none(), "{wrong}");
        }
    }
}
