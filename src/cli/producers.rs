//! `settled producers`.

use serde_json::json;

use super::{
    arguments::Producers,
    context::Context,
    exit::{Exit, Failure},
};
use crate::store::producers;

pub(super) async fn run(context: &Context, which: &Producers) -> Result<Exit, Failure> {
    let mut conn = context.connect().await?;
    match which {
        Producers::Grant { role, tenant, destinations } => {
            let new = producers::grant(&mut conn, role, tenant)
                .await
                .map_err(|e| absent(e, "42704", || format!("there is no database role {role}; make it first")))?;
            let mut granted = Vec::new();
            for destination in destinations {
                let unpublished = || format!("destination {destination} is not published");
                if producers::grant_destination(&mut conn, tenant, destination)
                    .await
                    .map_err(|e| absent(e, "23503", unpublished))?
                {
                    granted.push(destination.clone());
                }
            }
            let told = json!({ "role": role, "tenant": tenant, "new": new, "destinations_granted": granted });
            context.out.value(&told, |_| {
                let what = if granted.is_empty() { "no further destination".to_owned() } else { granted.join(", ") };
                format!("role {role} acts for tenant {tenant}; granted: {what}")
            })?;
        }
        Producers::Revoke { role, tenant, destinations } if destinations.is_empty() => {
            if !producers::revoke(&mut conn, role, tenant).await? {
                return Err(Failure::new(Exit::NotFound, format!("role {role} does not act for tenant {tenant}")));
            }
            let told = json!({ "role": role, "tenant": tenant, "revoked": true });
            context.out.value(&told, |_| format!("role {role} no longer acts for tenant {tenant}"))?;
        }
        Producers::Revoke { tenant, destinations, .. } => {
            let mut revoked = Vec::new();
            for destination in destinations {
                if producers::revoke_destination(&mut conn, tenant, destination).await? {
                    revoked.push(destination.clone());
                }
            }
            if revoked.is_empty() {
                return Err(Failure::new(
                    Exit::NotFound,
                    format!("tenant {tenant} may use none of these destinations"),
                ));
            }
            let told = json!({ "tenant": tenant, "destinations_revoked": revoked });
            context.out.value(&told, |_| format!("tenant {tenant} may no longer use {}", revoked.join(", ")))?;
        }
        Producers::List => {
            let all = producers::list(&mut conn).await?;
            context.out.rows(&all, &["ROLE", "TENANT", "DESTINATIONS", "SINCE", "BY"], |p| {
                vec![
                    p.role.clone(),
                    p.tenant.clone(),
                    p.destinations.join(", "),
                    p.granted_at.format("%F %R").to_string(),
                    p.granted_by.clone(),
                ]
            })?;
        }
    }
    Ok(Exit::Ok)
}

/// Something that a grant names is not there: said in words, where Postgres answers with this code.
fn absent(error: sqlx::Error, code: &str, words: impl FnOnce() -> String) -> Failure {
    match error.as_database_error().and_then(|e| e.code()).as_deref() == Some(code) {
        true => Failure::new(Exit::NotFound, words()),
        false => error.into(),
    }
}
