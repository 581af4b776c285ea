//! Copies under the same reference that belong to somebody else: a fan-out, an occurrence, another tenant. They neither
//! settle a doubt nor clear the way for a second send.

use settled::{
    demo::fakes::{faults::Fault, webhook::Webhook},
    store::{self, requests::NewRequest},
};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{
    fragments::webhook,
    world::{World, new_request},
};

/// Without a member for the occurrence; `key` says whether items show our key.
fn plain(name: &str, receiver: &Webhook, key: bool) -> String {
    let text =
        webhook(name, receiver, "", "").replace("occurrence_at = \"/occurrence\", attempt_at = \"/attempt\", ", "");
    if key { text } else { text.replace("key_at = \"/key\", ", "") }
}

/// A world in which somebody else's INV-2 is sent, ours is lost, and all controls are there.
struct Family {
    receiver: Webhook,
    world: World,
    id: Uuid,
}

async fn family(entries: &[String], receiver: Webhook, other: NewRequest, ours: NewRequest) -> Family {
    let mut world = World::new(entries).await;
    let mut conn = world.db.pool.acquire().await.unwrap();
    store::producers::grant_destination(&mut conn, "globex", "erp").await.unwrap();
    drop(conn);
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.request(&other).await.unwrap();
    world.dispatch().await;
    world.turn(5);
    receiver.faults().next(Fault::ResetBeforeActing);
    let id = world.request(&ours).await.unwrap().intent_id;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    world.turn(30);
    world.enqueue("erp", "INV-3", PAYLOAD).await;
    world.dispatch().await;
    world.turn(30);
    Family { receiver, world, id }
}

impl Family {
    /// Neither found nor absent: a person must look, for a reason with these words.
    async fn stays_open(&mut self, words: &str) {
        for _ in 0..5 {
            self.world.ask().await;
            self.world.dispatch().await;
            self.world.turn(900);
        }
        let verdicts = self.world.verdicts(self.id).await;
        assert!(verdicts.iter().all(|v| v.starts_with("inconclusive") && v.contains(words)), "{verdicts:#?}");
        assert_eq!(self.world.state(self.id).await, "unknown");
        assert_eq!(self.receiver.effects().count_by_reference("INV-2"), 1, "the other one's");
    }
}

fn ours() -> NewRequest {
    new_request("erp", "INV-2", PAYLOAD, "run-2", 1)
}

fn second_occurrence() -> NewRequest {
    let mut request = new_request("erp", "INV-2", PAYLOAD, "run-3", 1);
    request.options.occurrence = Some(2);
    request
}

#[tokio::test]
async fn a_copy_for_another_destination_is_not_ours() {
    for (key, words) in [(true, "only other effects under the same reference"), (false, "2 intents of ours")] {
        let receiver = Webhook::start().await.unwrap();
        let entries = [plain("erp", &receiver, key), plain("crm", &receiver, key)];
        let other = new_request("crm", "INV-2", PAYLOAD, "run-1", 1);
        family(&entries, receiver, other, ours()).await.stays_open(words).await;
    }
}

#[tokio::test]
async fn another_occurrence_is_not_ours() {
    for (key, words) in [(true, "only other effects under the same reference"), (false, "2 intents of ours")] {
        let receiver = Webhook::start().await.unwrap();
        let entries = [plain("erp", &receiver, key)];
        family(&entries, receiver, ours(), second_occurrence()).await.stays_open(words).await;
    }
}

#[tokio::test]
async fn where_items_show_their_occurrence_another_one_hinders_nothing() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let Family { receiver, mut world, id } = family(&entries, receiver, ours(), second_occurrence()).await;
    world.ask().await;
    world.turn(6);
    world.ask().await;
    assert_eq!(world.state(id).await, "pending", "{:#?}", world.verdicts(id).await);
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent");
    let occurrences: Vec<i32> =
        receiver.effects().all().iter().filter(|e| e.reference == "INV-2").map(|e| e.occurrence).collect();
    assert_eq!(occurrences, [1, 2]);
}

#[tokio::test]
async fn a_copy_of_another_tenant_is_not_ours_and_is_not_named() {
    for (key, words) in [(true, "an intent of another tenant"), (false, "2 intents of ours")] {
        let receiver = Webhook::start().await.unwrap();
        let entries = [plain("erp", &receiver, key)];
        let mut theirs = new_request("erp", "INV-2", PAYLOAD, "run-1", 1);
        theirs.options.tenant = Some("globex".to_owned());
        let mut family = family(&entries, receiver, theirs, ours()).await;
        family.stays_open(words).await;
        let (their_id, their_key): (Uuid, String) =
            sqlx::query_as("select id, key from settled.intents where tenant = 'globex'")
                .fetch_one(&family.world.db.pool)
                .await
                .unwrap();
        let told: Vec<String> = sqlx::query_scalar(
            "select data::text from settled.journal where intent_id = $1
             union all select summary || detail::text from settled.escalations where intent_id = $1",
        )
        .bind(family.id)
        .fetch_all(&family.world.db.pool)
        .await
        .unwrap();
        assert!(told.len() > 3);
        for text in told {
            assert!(!text.contains(&their_id.to_string()) && !text.contains(&their_key), "{text}");
        }
    }
}

#[tokio::test]
async fn a_hit_by_reference_counts_where_one_intent_alone_explains_it() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[plain("erp", &receiver, false)]).await;
    receiver.faults().next(Fault::LoseReply);
    let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    world.ask().await;
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    let weak = "select data->>'weak' from settled.journal where intent_id = $1 and kind = 'look_up'";
    assert_eq!(world.text(weak, id).await.as_deref(), Some("true"));
}

#[tokio::test]
async fn an_item_under_our_key_that_no_intent_has_is_a_conflict_for_a_person() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    receiver.faults().next(Fault::ResetBeforeActing);
    let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    receiver.effects().record(settled::demo::fakes::ledger_of_effects::Arrived {
        key: Some("0123456789abcdef0123456789abcdef".to_owned()),
        reference: "INV-2".to_owned(),
        ..Default::default()
    });
    world.ask().await;
    assert_eq!(world.state(id).await, "unknown");
    assert_eq!(world.reasons(id).await, ["conflict"]);
}
