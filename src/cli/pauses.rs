//! `settled pause` and `settled resume`.

use serde_json::json;

use super::{
    arguments::Scope as Named,
    context::Context,
    exit::{Exit, Failure},
};
use crate::store::{
    destinations,
    pauses::{self, Scope},
};

pub(super) async fn pause(context: &Context, scope: &Named, reason: &str) -> Result<Exit, Failure> {
    let scope = scope_of(scope)?;
    let reason = pauses::checked(&scope, reason).map_err(|refused| Failure::new(Exit::Invalid, refused.to_string()))?;
    let mut conn = context.connect().await?;
    if let Scope::Destination(name) = &scope
        && !destinations::list(&mut conn).await?.iter().any(|d| d.name == *name)
    {
        return Err(Failure::new(Exit::NotFound, format!("destination {name} is not published; nothing was paused")));
    }
    let new = pauses::add(&mut conn, &scope, reason, &Context::actor()).await?;
    let words = if new { "paused" } else { "was paused already; the first reason stays" };
    tell(context, &scope, words)
}

pub(super) async fn resume(context: &Context, scope: &Named) -> Result<Exit, Failure> {
    let scope = scope_of(scope)?;
    let mut conn = context.connect().await?;
    if !pauses::remove(&mut conn, &scope, &Context::actor()).await? {
        return Err(Failure::new(Exit::NotFound, format!("{} is not paused", name(&scope))));
    }
    tell(context, &scope, "resumed")
}

fn scope_of(named: &Named) -> Result<Scope, Failure> {
    match (named.all, &named.destination, &named.tenant) {
        (true, None, None) => Ok(Scope::All),
        (false, Some(destination), None) => Ok(Scope::Destination(destination.clone())),
        (false, None, Some(tenant)) => Ok(Scope::Tenant(tenant.clone())),
        (_, _, _) => Err(Failure::new(Exit::Usage, "give one of --all, --destination, --tenant")),
    }
}

fn name(scope: &Scope) -> String {
    match scope.columns() {
        ("all", _) => "everything".to_owned(),
        (word, name) => format!("{word} {name}"),
    }
}

fn tell(context: &Context, scope: &Scope, words: &str) -> Result<Exit, Failure> {
    let (word, named) = scope.columns();
    context
        .out
        .value(&json!({ "scope": word, "name": named, "result": words }), |_| format!("{} {words}", name(scope)))?;
    Ok(Exit::Ok)
}
