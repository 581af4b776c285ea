//! What a destination says about doubt holds, however well its downstream can be asked.

use settled::demo::fakes::webhook::Webhook;

use super::doubt::{Doubt, Setting};
use crate::support::fragments::webhook;

fn under(policy: &'static str) -> Setting {
    Setting {
        destination: Box::new(move |receiver: &Webhook| {
            webhook("erp", receiver, &format!("in_doubt = \"{policy}\""), "")
        }),
        ..Setting::default()
    }
}

#[tokio::test]
async fn at_most_once_is_never_sent_again_even_when_it_is_proven_absent() {
    let mut doubt = Doubt::ended(under("at_most_once"), "abandoned").await;
    doubt.ask(6).await;
    assert_eq!(doubt.world.state(doubt.id).await, "abandoned", "{:#?}", doubt.world.verdicts(doubt.id).await);
    doubt.nothing_was_sent();
}

#[tokio::test]
async fn where_a_person_decides_a_proof_of_absence_sends_nothing_by_itself() {
    let mut doubt = Doubt::ended(under("person"), "unknown").await;
    doubt.ask(6).await;
    assert_eq!(doubt.world.state(doubt.id).await, "unknown", "{:#?}", doubt.world.verdicts(doubt.id).await);
    assert_eq!(doubt.world.reasons(doubt.id).await, ["no_look_up"]);
    doubt.nothing_was_sent();
}
