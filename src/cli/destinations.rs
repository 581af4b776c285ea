//! `settled destinations`.

use serde::Serialize;

use super::{
    arguments::Destinations,
    context::Context,
    exit::{Exit, Failure},
};
use crate::{
    config::{check, destination::Destination},
    store::listing::{self, PublishedDestination},
};

pub(super) async fn run(context: &Context, which: &Destinations) -> Result<Exit, Failure> {
    match which {
        Destinations::List => list(context).await,
        Destinations::Test { .. } | Destinations::Ask { .. } | Destinations::Publish => todo!(),
    }
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    published: PublishedDestination,
    in_doubt_in_words: String,
    effective: String,
}

/// What is published, and in words what happens in doubt.
async fn list(context: &Context) -> Result<Exit, Failure> {
    let mut conn = context.connect().await?;
    let shown: Vec<Shown> = listing::destinations(&mut conn)
        .await?
        .into_iter()
        .map(|published| match serde_json::from_value::<Destination>(published.definition.clone()) {
            Ok(d) => Shown { published, in_doubt_in_words: check::doubt_in_words(&d), effective: check::effective(&d) },
            Err(error) => Shown {
                published,
                in_doubt_in_words: format!("(published by another version: {error})"),
                effective: String::new(),
            },
        })
        .collect();
    if context.out.json {
        context.out.rows(&shown, &[], |_| Vec::new())?;
        return Ok(Exit::Ok);
    }
    for one in &shown {
        context.out.value(&(), |()| words(one))?;
    }
    if shown.is_empty() {
        context.out.say("nothing is published; `settled destinations publish` does it");
    }
    Ok(Exit::Ok)
}

fn words(shown: &Shown) -> String {
    let p = &shown.published;
    let mut text = format!(
        "{}  ({}, revision {}, generation {})\n  in doubt: {}\n  {}\n  {} waiting, {} in doubt\n",
        p.name,
        p.channel,
        p.revision,
        p.generation.get(..12).unwrap_or(&p.generation),
        shown.in_doubt_in_words,
        shown.effective,
        p.queued,
        p.in_doubt
    );
    for (mark, reason) in [("PAUSED", &p.paused_reason), ("PARKED", &p.parked_reason)] {
        if let Some(reason) = reason {
            text.push_str(&format!("  {mark}: {reason}\n"));
        }
    }
    if let Some(at) = p.withdrawn_at {
        text.push_str(&format!("  WITHDRAWN since {}: its intents are unserved\n", at.format("%F %R")));
    }
    text
}
