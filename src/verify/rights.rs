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
    match producer_decides {
        None => findings
            .unseen(SUBJECT, "not verified: whether a producer's token can decide (give --url and --token-file)"),
        Some(status) => findings.either(
            status == 403,
            SUBJECT,
            "a producer's token cannot decide",
            format!("the API answered its try with {status}"),
        ),
    }
    Ok(())
}
