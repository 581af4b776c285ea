//! `settled quarantine …`: for whoever runs it with the owner's database access.

use serde_json::json;

use super::{
    arguments::Quarantine,
    context::Context,
    exit::{Exit, Failure},
};
use crate::store::{
    pauses::{self, Scope},
    rewinds,
};

/// Intents in doubt are counted up to here.
const MANY: i64 = 10_000;

pub(super) async fn run(context: &Context, which: &Quarantine) -> Result<Exit, Failure> {
    match which {
        Quarantine::Show => show(context).await,
        Quarantine::Lift { reason } => lift(context, reason).await,
    }
}

async fn show(context: &Context) -> Result<Exit, Failure> {
    let mut conn = context.connect().await?;
    let mut rows = Vec::new();
    for rewind in rewinds::open(&mut conn).await? {
        let in_doubt = rewinds::in_doubt(&mut conn, rewind.number, MANY).await?;
        rows.push(json!({ "rewind": rewind, "in_doubt": in_doubt }));
    }
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let heads =
        ["REWIND", "NOTICED", "WHY", "NOTHING CLAIMED BEFORE", "ASKED FIRST UNTIL", "IN DOUBT", "WAITS FOR A PERSON"];
    context.out.rows(&rows, &heads, |row| {
        let rewind = &row["rewind"];
        let waits = rewind["needs_person"] == true && rewind["lifted_at"].is_null();
        vec![
            text(&rewind["number"]),
            text(&rewind["noticed_at"]),
            text(&rewind["why"]),
            text(&rewind["quiet_until"]),
            text(&rewind["ask_first_until"]),
            text(&row["in_doubt"]),
            if waits { "yes" } else { "no" }.to_owned(),
        ]
    })?;
    Ok(Exit::Ok)
}

async fn lift(context: &Context, reason: &str) -> Result<Exit, Failure> {
    // The reason of a pause is kept and shown in the same way.
    let reason =
        pauses::checked(&Scope::All, reason).map_err(|refused| Failure::new(Exit::Invalid, refused.to_string()))?;
    let mut conn = context.connect().await?;
    let lifted = rewinds::lift(&mut conn, &Context::actor(), reason, None).await?;
    if lifted == 0 {
        return Err(Failure::new(Exit::NotFound, "no quarantine is on that was not lifted already"));
    }
    context.out.value(&json!({ "lifted": lifted }), |_| {
        "lifted; what is in doubt is still asked about, and nothing is claimed before the quiet time is over".to_owned()
    })?;
    Ok(Exit::Ok)
}
