//! Who may do what: producers ask, and nothing else.

use sqlx::PgPool;

use super::Findings;
use crate::store::{self, error::StoreError};

const SUBJECT: &str = "producers";

pub(super) async fn look(
    pool: &PgPool,
    producer_decides: Option<u16>,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    let mut conn = pool.acquire().await?;
    let (roles, excess) = store::verify::excess_of_producers(&mut conn).await?;
    for one in &excess {
        findings.failed(SUBJECT, format!("role {} may do more than ask: {}", one.role, one.may));
    }
    if roles == 0 {
        findings.unseen(SUBJECT, "not verified: no role is a producer yet");
    } else if excess.is_empty() {
        findings.verified(SUBJECT, format!("none of {roles} roles can read or write a table, or decide, in Postgres"));
    }
    let guarantee = "a producer's token cannot decide";
    match producer_decides {
        None => findings.unseen(SUBJECT, format!("{guarantee}: not verified; give --url and --token-file")),
        Some(403) => findings.verified(SUBJECT, format!("{guarantee}: the API answered its try with 403")),
        // Past the check of rights: there is no such intent, or not in that version.
        Some(status @ (200..300 | 404 | 409)) => {
            findings
                .failed(SUBJECT, format!("{guarantee}: the API answered its try with {status}; is it a producer's?"));
        }
        Some(status) => findings.unseen(SUBJECT, format!("{guarantee}: not verified; the API answered with {status}")),
    }
    Ok(())
}
