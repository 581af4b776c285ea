//! `settled show`, `settled list`.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    arguments::List,
    context::Context,
    exit::{Exit, Failure},
    story as timeline,
};
use crate::store::{
    listing::{self, Filter},
    story,
};

/// The story of one intent; where a reference is given, of all that carry it.
pub(super) async fn show(context: &Context, intent: &str, tenant: Option<&str>) -> Result<Exit, Failure> {
    let mut conn = context.connect().await?;
    let ids: Vec<Uuid> = match intent.parse() {
        Ok(id) => vec![id],
        Err(_) => {
            let filter = Filter { reference: Some(intent), tenant, limit: 20, ..Filter::default() };
            let mut found = listing::list(&mut conn, &filter).await?;
            found.reverse();
            found.into_iter().map(|receipt| receipt.intent_id).collect()
        }
    };
    let mut shown = 0;
    for id in ids {
        if let Some(story) = story::story(&mut conn, id, tenant).await? {
            context.out.value(&story, timeline::text)?;
            shown += 1;
        }
    }
    if shown == 0 {
        return Err(Failure::new(Exit::NotFound, format!("there is no intent {intent}")));
    }
    Ok(Exit::Ok)
}

pub(super) async fn list(context: &Context, list: &List) -> Result<Exit, Failure> {
    let mut conn = context.connect().await?;
    let filter = Filter {
        reference: list.reference.as_deref(),
        state: list.state.map(|state| state.as_str()),
        destination: list.destination.as_deref(),
        tenant: list.tenant.as_deref(),
        before: list.before,
        limit: list.limit,
    };
    if list.unserved {
        return unserved(context, &mut conn, &filter).await;
    }
    let found = listing::list(&mut conn, &filter).await?;
    let head = ["INTENT", "CREATED", "TENANT", "DESTINATION", "REFERENCE", "STATE", "ATTEMPTS", "PROVIDER ID"];
    context.out.rows(&found, &head, |r| {
        let mut state = r.state.clone();
        if r.with_a_person {
            state.push_str(" (with a person)");
        }
        let reference =
            if r.occurrence > 1 { format!("{} #{}", r.reference, r.occurrence) } else { r.reference.clone() };
        vec![
            r.intent_id.to_string(),
            r.created_at.format("%F %T").to_string(),
            r.tenant.clone(),
            r.destination.clone(),
            reference,
            state,
            r.attempts.to_string(),
            r.provider_id.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    })?;
    if usize::try_from(list.limit).is_ok_and(|limit| found.len() == limit)
        && let Some(last) = found.last()
    {
        context.out.say(&format!("older ones: --before {}", last.intent_id));
    }
    Ok(Exit::Ok)
}

/// Calls whose intent ended without effect, each of them: whoever made it must be told.
async fn unserved(context: &Context, conn: &mut PgConnection, filter: &Filter<'_>) -> Result<Exit, Failure> {
    let found = listing::unserved(conn, filter).await?;
    let head = ["ASKED", "TENANT", "BY", "RUN", "STEP", "DESTINATION", "REFERENCE", "INTENT", "STATE", "WHY"];
    context.out.rows(&found, &head, |r| {
        let step = if r.slot.is_empty() { r.step.to_string() } else { format!("{} {}", r.step, r.slot) };
        vec![
            r.at.format("%F %T").to_string(),
            r.tenant.clone(),
            format!("{} over {}", r.principal, r.surface),
            r.run_id.clone(),
            step,
            r.destination.clone(),
            r.reference.clone(),
            r.intent_id.to_string(),
            r.state.clone(),
            r.detail.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    })?;
    if usize::try_from(filter.limit).is_ok_and(|limit| found.len() == limit)
        && let Some(last) = found.last()
    {
        context.out.say(&format!("older ones: --before {}", last.request_id));
    }
    Ok(Exit::Ok)
}
