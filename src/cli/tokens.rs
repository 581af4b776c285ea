//! `settled tokens`.

use chrono::{TimeDelta, Utc};
use serde_json::json;

use super::{
    arguments::{KindName, Tokens},
    context::Context,
    exit::{Exit, Failure},
};
use crate::store::tokens::{self, Kind, NewToken};

pub(super) async fn run(context: &Context, which: &Tokens) -> Result<Exit, Failure> {
    match which {
        Tokens::Create { kind, principal, tenant, expires_in } => {
            let kind = kind_of(*kind);
            if kind == Kind::Producer && tenant.is_none() {
                return Err(Failure::new(Exit::Invalid, "--tenant: a producer acts for exactly one tenant"));
            }
            if principal.is_empty() || principal.len() > 120 || principal.chars().any(char::is_control) {
                return Err(Failure::new(Exit::Invalid, "principal: must be 1 to 120 characters, none of control"));
            }
            let expires_at = match expires_in {
                Some(span) => Some(
                    TimeDelta::from_std(*span)
                        .ok()
                        .and_then(|span| Utc::now().checked_add_signed(span))
                        .ok_or_else(|| Failure::new(Exit::Invalid, "--expires-in: must be shorter"))?,
                ),
                None => None,
            };
            let new =
                NewToken { kind, principal, tenant: tenant.as_deref(), expires_at, created_by: &Context::actor() };
            let mut conn = context.connect().await?;
            let (id, text) = tokens::create(&mut conn, &new).await?;
            context.out.say(&format!("token {id} of {principal}; it is shown only now"));
            context.out.value(&json!({ "id": id, "token": text, "expires_at": expires_at }), |_| text.clone())?;
            Ok(Exit::Ok)
        }
        Tokens::Revoke { id } => {
            let mut conn = context.connect().await?;
            if !tokens::revoke(&mut conn, id).await? {
                return Err(Failure::new(Exit::NotFound, format!("there is no valid token with id {id}")));
            }
            context.out.value(&json!({ "id": id, "revoked": true }), |_| format!("token {id} is revoked"))?;
            Ok(Exit::Ok)
        }
        Tokens::List => {
            let mut conn = context.connect().await?;
            let all = tokens::list(&mut conn).await?;
            let head = ["ID", "KIND", "PRINCIPAL", "TENANT", "CREATED", "EXPIRES", "REVOKED"];
            let day =
                |at: Option<chrono::DateTime<Utc>>| at.map_or("-".to_owned(), |at| at.format("%F %R").to_string());
            context.out.rows(&all, &head, |t| {
                vec![
                    t.id.clone(),
                    t.kind.clone(),
                    t.principal.clone(),
                    t.tenant.clone().unwrap_or_else(|| "-".to_owned()),
                    day(Some(t.created_at)),
                    day(t.expires_at),
                    day(t.revoked_at),
                ]
            })?;
            Ok(Exit::Ok)
        }
    }
}

fn kind_of(name: KindName) -> Kind {
    match name {
        KindName::Producer => Kind::Producer,
        KindName::Responder => Kind::Responder,
        KindName::Admin => Kind::Admin,
        KindName::Metrics => Kind::Metrics,
        KindName::Downstream => Kind::Downstream,
    }
}
