//! `/v1/escalations` and `/v1/intents/{id}/acts/{act}`: what people read before they decide, and their acts. Producers get 403.
//!
//! Reading changes nothing; every act is a POST with the version that the person saw.

use axum::{
    Json,
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{
    AppState,
    auth::Caller,
    body,
    intents::wrong_query,
    openapi::{
        bodies::{Openness, Verb},
        refusals,
    },
    problem::{Kind as ProblemKind, Problem},
    segments::Segments,
};
use crate::{
    config::{compensate::Compensate, destination::Destination},
    domain::{absence::Case, reason::Reason, state::State as IntentState},
    engine::resolution::{self, Act, ActError, Asking, Person, Resolved, Suggestion, Target, Words},
    store::{
        attempts,
        escalations::reading::{self, Cause, Escalation, Filter, Stakes},
        generations,
        story::{self, Story, What},
        tokens::Principal,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Listed {
    /// `open` (default) or `closed`.
    #[param(value_type = Option<Openness>)]
    state: Option<String>,
    /// Snoozed ones as well.
    snoozed: Option<bool>,
    /// Only this reason.
    #[param(value_type = Option<Reason>)]
    reason: Option<String>,
    /// Only this destination.
    destination: Option<String>,
    /// Only this tenant; a token of one tenant may name its own only.
    tenant: Option<String>,
    /// Claimed by somebody, or by nobody.
    claimed: Option<bool>,
    /// Claimed by or assigned to the caller.
    mine: Option<bool>,
    /// Only this cause.
    cause: Option<String>,
    /// Only of this intent.
    intent: Option<Uuid>,
    /// Only older ones: `next` of the page before.
    before: Option<Uuid>,
    /// At most so many.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<i64>,
}

/// A page of escalations.
#[derive(Serialize, ToSchema)]
#[schema(as = EscalationPage)]
struct Page {
    /// Newest first.
    escalations: Vec<Escalation>,
    /// All that are open, by cause, most of them first.
    causes: Vec<Cause>,
    /// `before` of the following page; none where this is the last.
    next: Option<Uuid>,
}

/// Escalations, newest first, and how many are open by cause.
#[utoipa::path(
    get, path = "/v1/escalations", tag = "people", operation_id = "list_escalations",
    summary = "What waits for a person, newest first",
    description = "A page at a time, and how many are open by cause. A person of one tenant sees that tenant only.",
    params(Listed),
    responses((status = 200, description = "A page", body = Page), refusals::Reading),
    security(("responder" = []), ("admin" = [])),
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    query: Result<Query<Listed>, QueryRejection>,
) -> Result<Response, Problem> {
    let person = caller.must_be_person()?;
    let Query(listed) = query.map_err(|e| wrong_query(&e))?;
    let limit = listed.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(Problem::field(ProblemKind::Invalid, "limit", "must be 1 to 200"));
    }
    let closed = match listed.state.as_deref() {
        None | Some("open") => false,
        Some("closed") => true,
        Some(_) => return Err(Problem::field(ProblemKind::Invalid, "state", "must be open or closed")),
    };
    if listed.reason.as_deref().is_some_and(|word| Reason::parse(word).is_none()) {
        return Err(Problem::field(ProblemKind::Invalid, "reason", "must be the name of a reason"));
    }
    let tenant = match (&person.tenant, &listed.tenant) {
        (Some(own), Some(asked)) if own != asked => {
            return Err(Problem::new(ProblemKind::Forbidden, format!("this token sees tenant {own} only")));
        }
        (Some(own), _) => Some(own.as_str()),
        (None, asked) => asked.as_deref(),
    };
    let actor = person.actor();
    let filter = Filter {
        closed,
        snoozed: listed.snoozed.unwrap_or(false),
        reason: listed.reason.as_deref(),
        destination: listed.destination.as_deref(),
        tenant,
        claimed: listed.claimed,
        of: listed.mine.unwrap_or(false).then_some(actor.as_str()),
        intent_id: listed.intent,
        cause: listed.cause.as_deref(),
        before: listed.before,
        limit,
    };
    let at = state.clock.sql_now();
    let mut conn = state.pool.acquire().await?;
    let escalations = reading::list(&mut conn, &filter, at).await?;
    let causes = reading::causes(&mut conn, tenant, at).await?;
    let full = usize::try_from(limit).is_ok_and(|limit| escalations.len() == limit);
    let next = escalations.last().filter(|_| full).map(|last| last.id);
    Ok(Json(Page { escalations, causes, next }).into_response())
}

/// What a person decides from.
#[derive(Serialize, ToSchema)]
#[schema(as = EscalationView)]
struct View {
    /// Why a person is asked.
    escalation: Escalation,
    /// Of the escalation and of the intent: what the acts must name.
    versions: Versions,
    /// Everything that is known about the intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    intent: Option<Story>,
    /// To whom, and what stands in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    stakes: Option<Stakes>,
    /// What each mistake costs.
    costs: Costs,
    /// What `compensate` would ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    counter_action: Option<Compensate>,
    /// What asking can prove, for each attempt in doubt.
    doubts: Vec<Doubt>,
    /// What asking said, newest first, each with its controls.
    questions: Vec<Asked>,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<Suggestion>,
}

/// Optimistic versions.
#[derive(Serialize, ToSchema)]
struct Versions {
    /// For acts about who takes care of it.
    escalation: i64,
    /// For acts that decide about the intent.
    intent: Option<i64>,
}

/// What each mistake costs, in the destination's own words.
#[derive(Serialize, ToSchema)]
struct Costs {
    /// If it happens twice.
    if_twice: String,
    /// If it never happens.
    if_never: String,
}

impl Costs {
    fn of(destination: Option<&Destination>) -> Self {
        let say = |words: Option<&String>| words.cloned().unwrap_or_else(|| "not stated by the destination".to_owned());
        Self {
            if_twice: say(destination.and_then(|d| d.if_twice.as_ref())),
            if_never: say(destination.and_then(|d| d.if_never.as_ref())),
        }
    }
}

/// One answer of a downstream.
#[derive(Serialize, ToSchema)]
#[schema(as = Question)]
struct Asked {
    /// When.
    at: DateTime<Utc>,
    /// The attempt that was asked about.
    attempt: Option<i32>,
    /// What asking concluded.
    verdict: String,
    /// Why not more.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// What was looked for by the same path, and what came back.
    controls: Vec<String>,
}

/// How many answers are shown.
const ANSWERS: usize = 5;

fn questions(story: Option<&Story>) -> Vec<Asked> {
    let rows = story.into_iter().flat_map(|story| story.events.iter().rev());
    rows.filter_map(|event| match &event.what {
        What::Told { kind, attempt, data, .. } if kind == "look_up" => Some(Asked {
            at: event.at,
            attempt: *attempt,
            verdict: data["verdict"].as_str().unwrap_or("-").to_owned(),
            why: data["why"].as_str().map(str::to_owned),
            controls: Case::from_record(&data["record"]).map(|case| case.in_words()).unwrap_or_default(),
        }),
        What::Told { .. }
        | What::Request { .. }
        | What::AttemptBegan { .. }
        | What::AttemptEnded { .. }
        | What::EscalationOpened { .. }
        | What::EscalationClosed { .. }
        | What::Decision { .. } => None,
    })
    .take(ANSWERS)
    .collect()
}

/// An attempt in doubt, and what asking about it can prove.
#[derive(Serialize, ToSchema)]
struct Doubt {
    /// Number of the attempt.
    attempt: i32,
    /// From when and until when.
    #[serde(flatten)]
    asking: Asking,
}

/// One escalation with its intent's story, what each mistake costs, and what to do next.
#[utoipa::path(
    get, path = "/v1/escalations/{id}", tag = "people", operation_id = "show_escalation",
    summary = "What a person decides from",
    description = "The escalation, the story of its intent, what each mistake costs, what asking has said and can still prove, and \
        a suggestion. Reading changes nothing.",
    params(("id" = Uuid, Path, description = "The escalation")),
    responses((status = 200, description = "The escalation", body = View), refusals::ReadingOne),
    security(("responder" = []), ("admin" = [])),
)]
pub(super) async fn show(
    State(state): State<AppState>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Response, Problem> {
    let person = caller.must_be_person()?;
    let id = escalation_id(&id)?;
    let mut conn = state.pool.acquire().await?;
    let escalation = reading::get(&mut conn, id, person.tenant.as_deref()).await?.ok_or_else(|| not_found(id))?;
    Ok(Json(view(&mut conn, escalation, person).await?).into_response())
}

async fn view(conn: &mut PgConnection, escalation: Escalation, person: &Principal) -> Result<View, Problem> {
    let (mut story, mut stakes, mut doubts) = (None, None, Vec::new());
    if let Some(intent_id) = escalation.intent_id {
        story = story::story(conn, intent_id, person.tenant.as_deref()).await?;
        stakes = reading::stakes(conn, intent_id).await?;
        doubts = doubts_of(conn, intent_id, &escalation.destination).await?;
    }
    let definition = stakes.as_ref().and_then(|s| serde_json::from_value::<Destination>(s.definition.clone()).ok());
    let intent_state = escalation.state.as_deref().and_then(IntentState::parse);
    let open = escalation.closed_at.is_none();
    let suggestion =
        Reason::parse(&escalation.reason).filter(|_| open).map(|reason| resolution::suggest(reason, intent_state));
    let questions = questions(story.as_ref());
    Ok(View {
        versions: Versions { escalation: escalation.version, intent: escalation.intent_version },
        escalation,
        intent: story,
        stakes,
        costs: Costs::of(definition.as_ref()),
        counter_action: definition.and_then(|d| d.compensate),
        doubts,
        questions,
        suggestion,
    })
}

/// Attempts that ended in doubt, and what the generation that each used can prove.
async fn doubts_of(conn: &mut PgConnection, intent_id: Uuid, destination: &str) -> Result<Vec<Doubt>, Problem> {
    let mut doubts = Vec::new();
    for row in attempts::of(conn, intent_id).await? {
        if row.attempt.outcome.as_ref().is_none_or(|outcome| outcome.as_str() != "ambiguous") {
            continue;
        }
        let definition = generations::definition(conn, destination, &row.generation).await?;
        let Some(config) = definition.and_then(|d| serde_json::from_value::<Destination>(d).ok()) else { continue };
        let closure = row.closure_at.unwrap_or(row.lease_until);
        let asking = resolution::asking(&config, row.claimed_at, closure);
        doubts.push(Doubt { attempt: row.attempt.number, asking });
    }
    Ok(doubts)
}

/// An act on an escalation, or on the intent that it is about.
#[utoipa::path(
    post, path = "/v1/escalations/{id}/{act}", tag = "people", operation_id = "act_on_escalation",
    summary = "Act on an escalation, or on the intent that it is about",
    description = "What must be said depends on the verb: `reason` for most, `evidence` for `sent` and `absent`, `until` for \
        `snooze`, `to` for `assign`, `reference` for `send_again`, `statement` for `retract`; a member that the verb has no use for \
        is refused. Acts that decide need the version that was seen, of the escalation for `acknowledge`, else of the intent. The \
        same act by the same person is answered again and does nothing. `unpark` is for admins.",
    params(("id" = Uuid, Path, description = "The escalation"), ("act" = Verb, Path, description = "The verb"),
        ("If-Match" = Option<i64>, Header, description = "The version that was seen, instead of `version`; bare or quoted",
            example = 3)),
    request_body(content = Words, description = "What is said with it; without a body nothing is", example = json!({
        "evidence": "order 4711 is in the ERP, entered at 09:01", "version": 3 })),
    responses((status = 200, description = "What it has led to", body = Resolved), refusals::Acting),
    security(("responder" = []), ("admin" = [])),
)]
pub(super) async fn act_on_escalation(
    State(state): State<AppState>,
    caller: Caller,
    Segments((id, verb)): Segments<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let person = caller.must_be_person()?;
    let target = Target::Escalation(escalation_id(&id)?);
    act(&state, person, target, &verb, &headers, body).await
}

/// An act on an intent, escalated or not.
#[utoipa::path(
    post, path = "/v1/intents/{id}/acts/{act}", tag = "people", operation_id = "act_on_intent",
    summary = "Act on an intent, escalated or not",
    description = "As on an escalation, with the version of the intent. Acts about who takes care of an escalation need an \
        escalation that is open.",
    params(("id" = Uuid, Path, description = "The intent"), ("act" = Verb, Path, description = "The verb"),
        ("If-Match" = Option<i64>, Header, description = "The version that was seen, instead of `version`; bare or quoted",
            example = 3)),
    request_body(content = Words, description = "What is said with it; without a body nothing is", example = json!({
        "reason": "the customer has paid already", "version": 3 })),
    responses((status = 200, description = "What it has led to", body = Resolved), refusals::Acting),
    security(("responder" = []), ("admin" = [])),
)]
pub(super) async fn act_on_intent(
    State(state): State<AppState>,
    caller: Caller,
    Segments((id, verb)): Segments<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let person = caller.must_be_person()?;
    let target = Target::Intent(super::intents::intent_id(&id)?);
    act(&state, person, target, &verb, &headers, body).await
}

/// One act, whatever path it came by.
pub(super) async fn act(
    state: &AppState,
    person: &Principal,
    target: Target,
    verb: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let words = words(headers, body).await?;
    let act = Act::read(&verb.replace('-', "_"), &words)?;
    let expected = expected(headers, words.version)?;
    if act.decides() && expected.is_none() {
        return Err(Problem::field(
            ProblemKind::Incomplete,
            "version",
            "must be the version that was decided on (or an If-Match header)",
        ));
    }
    let Some(fleet) = &state.fleet else {
        return Err(Problem::new(ProblemKind::Unavailable, "this process serves no destinations"));
    };
    let result =
        resolution::act(&state.pool, fleet, &*state.clock, &Person::from(person), target, &act, expected).await;
    let outcome = match &result {
        Ok(resolved) if resolved.repeated => "unchanged",
        Ok(_) => "applied",
        Err(ActError::Stale { .. }) => "stale",
        Err(ActError::Store(_)) => "error",
        Err(
            ActError::Forbidden(_)
            | ActError::NotFound(_)
            | ActError::Incomplete { .. }
            | ActError::NotPossible(_)
            | ActError::ReRequested { .. },
        ) => "refused",
    };
    state.metrics.act(act.verb(), outcome);
    let resolved = result?;
    if let Some(to) = resolved.state.filter(|_| resolved.moved) {
        state.metrics.moved(to, "person");
    }
    state.wake.notify_waiters();
    Ok(Json(resolved).into_response())
}

/// A call without a body says nothing; that is enough for claim, release, ask and the like.
async fn words(headers: &HeaderMap, body: Body) -> Result<Words, Problem> {
    let empty = headers.get(header::CONTENT_LENGTH).is_none_or(|value| value.as_bytes() == b"0");
    let announced = [header::CONTENT_TYPE, header::TRANSFER_ENCODING].iter().any(|name| headers.contains_key(name));
    if empty && !announced {
        return Ok(Words::default());
    }
    let bytes = body::read(headers, body).await?;
    body::parse(&bytes)
}

/// The version in the body or in `If-Match`; where both are given they must agree.
fn expected(headers: &HeaderMap, given: Option<i64>) -> Result<Option<i64>, Problem> {
    let Some(tag) = headers.get(header::IF_MATCH) else { return Ok(given) };
    let number = tag.to_str().ok().and_then(|text| text.trim().trim_matches('"').parse::<i64>().ok());
    match (number, given) {
        (None, _) => Err(Problem::field(ProblemKind::Invalid, "If-Match", "must be one version, such as \"3\"")),
        (Some(number), Some(given)) if number != given => {
            Err(Problem::field(ProblemKind::Invalid, "version", "must agree with If-Match"))
        }
        (Some(number), _) => Ok(Some(number)),
    }
}

fn escalation_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| Problem::field(ProblemKind::Invalid, "id", "must be the id of an escalation (UUID)"))
}

fn not_found(id: Uuid) -> Problem {
    Problem::new(ProblemKind::NotFound, format!("there is no escalation {id} that this token may see"))
}

impl From<ActError> for Problem {
    fn from(error: ActError) -> Self {
        let words = error.to_string();
        match error {
            ActError::Forbidden(_) => Self::new(ProblemKind::Forbidden, words),
            ActError::NotFound(_) => Self::new(ProblemKind::NotFound, words),
            ActError::Incomplete { field, rule } => Self::field(ProblemKind::Incomplete, field, rule),
            ActError::NotPossible(_) => Self::new(ProblemKind::NotPossible, words),
            ActError::ReRequested { intent } => {
                Self::new(ProblemKind::NotPossible, words).with("re_requested_as", intent.to_string())
            }
            ActError::Stale { who, what, when, version } => Self::new(ProblemKind::Stale, words)
                .with("who", who)
                .with("what", what)
                .with("when", when.map(|at| at.to_rfc3339()))
                .with("version", version),
            ActError::Store(error) => error.into(),
        }
    }
}
