//! `/v1/pauses`: people stop and resume sending.

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};

use super::{
    AppState,
    auth::Caller,
    body,
    openapi::{bodies::PauseScope, refusals},
    problem::{Kind as ProblemKind, Problem},
};
use crate::store::{
    destinations,
    pauses::{self, Pause, Scope},
    tokens::Principal,
};

/// What is paused or resumed.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PauseCall, example = json!({ "scope": "destination", "name": "erp-orders", "reason": "maintenance" }))]
pub(super) struct Named {
    /// `all`, `destination` or `tenant`.
    #[schema(value_type = PauseScope)]
    scope: String,
    /// Name of the destination or tenant; absent or empty for all.
    #[serde(default)]
    #[schema(max_length = 63, pattern = "^[A-Za-z0-9._-]*$")]
    name: String,
    /// Why; needed to pause, shown everywhere.
    #[serde(default)]
    #[schema(max_length = 2000)]
    reason: String,
}

/// The pauses in force that this token may see.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(example = json!({ "pauses": [{ "scope": "destination", "name": "erp-orders", "reason": "maintenance",
    "paused_by": "responder:ada", "paused_at": "2026-12-01T09:00:00Z" }] }))]
pub(super) struct Pauses {
    /// Oldest first.
    pauses: Vec<Pause>,
}

/// What is resumed.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ResumeCall, example = json!({ "scope": "destination", "name": "erp-orders" }))]
pub(super) struct Resumed {
    /// `all`, `destination` or `tenant`.
    #[schema(value_type = PauseScope)]
    scope: String,
    /// Name of the destination or tenant; absent or empty for all.
    #[serde(default)]
    #[schema(max_length = 63, pattern = "^[A-Za-z0-9._-]*$")]
    name: String,
}

impl Resumed {
    fn scope(&self) -> Result<Scope, Problem> {
        match (self.scope.as_str(), self.name.as_str()) {
            ("all", "") => Ok(Scope::All),
            ("destination", name) if !name.is_empty() => Ok(Scope::Destination(name.to_owned())),
            ("tenant", name) if !name.is_empty() => Ok(Scope::Tenant(name.to_owned())),
            ("all", _) => Err(Problem::field(ProblemKind::Invalid, "name", "must be absent where scope is all")),
            ("destination" | "tenant", _) => Err(Problem::field(ProblemKind::Invalid, "name", "must be given")),
            (_, _) => Err(Problem::field(ProblemKind::Invalid, "scope", "must be all, destination or tenant")),
        }
    }
}

/// A person of one tenant pauses that tenant only.
fn may_touch(person: &Principal, scope: &Scope) -> Result<(), Problem> {
    match (&person.tenant, scope) {
        (None, _) => Ok(()),
        (Some(own), Scope::Tenant(name)) if own == name => Ok(()),
        (Some(own), Scope::All | Scope::Destination(_) | Scope::Tenant(_)) => {
            Err(Problem::new(ProblemKind::Forbidden, format!("this token acts for tenant {own} only")))
        }
    }
}

/// What is paused.
#[utoipa::path(
    get, path = "/v1/pauses", tag = "pauses", operation_id = "list_pauses",
    summary = "What is paused",
    description = "A person of one tenant is not told of the pauses of others.",
    responses((status = 200, description = "The pauses in force", body = Pauses), refusals::Reading),
    security(("responder" = []), ("admin" = [])),
)]
pub(super) async fn list(State(state): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    let person = caller.must_be_person()?;
    let mut conn = state.pool.acquire().await?;
    Ok(Json(seen_by(person, pauses::list(&mut conn).await?)).into_response())
}

/// A person of one tenant is not told of the others.
fn seen_by(person: &Principal, mut pauses: Vec<Pause>) -> Pauses {
    if let Some(own) = &person.tenant {
        pauses.retain(|pause| pause.scope != "tenant" || pause.name == *own);
    }
    Pauses { pauses }
}

/// Stops sending.
#[utoipa::path(
    post, path = "/v1/pauses", tag = "pauses", operation_id = "pause",
    summary = "Stop sending: all, to a destination, or for a tenant",
    description = "What is being sent ends; nothing begins until it is resumed. A person of one tenant pauses that tenant only.",
    request_body = Named,
    responses((status = 201, description = "Paused", body = Pauses),
        (status = 200, description = "It was paused already; the first reason stays", body = Pauses), refusals::Pausing),
    security(("responder" = []), ("admin" = [])),
)]
pub(super) async fn add(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let person = caller.must_be_person()?;
    let bytes = body::read(&headers, body).await?;
    let Named { scope, name, reason } = body::parse(&bytes)?;
    let scope = Resumed { scope, name }.scope()?;
    may_touch(person, &scope)?;
    let reason = pauses::checked(&scope, &reason)
        .map_err(|refused| Problem::field(ProblemKind::Invalid, refused.field, refused.rule))?;
    let mut conn = state.pool.acquire().await?;
    if let Scope::Destination(name) = &scope
        && !destinations::list(&mut conn).await?.iter().any(|d| d.name == *name)
    {
        let words = format!("destination {name} is not published; nothing was paused");
        return Err(Problem::new(ProblemKind::NotFound, words));
    }
    let new = pauses::add(&mut conn, &scope, reason, &person.actor()).await?;
    tracing::info!(act = "pause", actor = %person.actor(), scope = ?scope, new, "act");
    state.metrics.act("pause", if new { "applied" } else { "unchanged" });
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(seen_by(person, pauses::list(&mut conn).await?))).into_response())
}

/// Sends again.
#[utoipa::path(
    delete, path = "/v1/pauses", tag = "pauses", operation_id = "resume",
    summary = "Send again what a pause stopped",
    description = "The pause is named in the body; 404 where it is not paused.",
    request_body = Resumed,
    responses((status = 200, description = "The pauses that are left", body = Pauses), refusals::Pausing),
    security(("responder" = []), ("admin" = [])),
)]
pub(super) async fn remove(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let person = caller.must_be_person()?;
    let bytes = body::read(&headers, body).await?;
    let scope = body::parse::<Resumed>(&bytes)?.scope()?;
    may_touch(person, &scope)?;
    let mut conn = state.pool.acquire().await?;
    let gone = pauses::remove(&mut conn, &scope, &person.actor()).await?;
    tracing::info!(act = "resume", actor = %person.actor(), scope = ?scope, gone, "act");
    state.metrics.act("resume", if gone { "applied" } else { "unchanged" });
    if !gone {
        return Err(Problem::new(ProblemKind::NotFound, "it is not paused"));
    }
    state.wake.notify_waiters();
    Ok(Json(seen_by(person, pauses::list(&mut conn).await?)).into_response())
}
