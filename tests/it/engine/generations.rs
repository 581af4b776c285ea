//! The destination changed while an intent was in doubt: the one that the attempt was sent to is asked, with its own
//! witnesses.

use settled::demo::fakes::{faults::Fault, webhook::Webhook};

use super::doubt::PAYLOAD;
use crate::support::{fragments::webhook, world::World};

#[tokio::test]
async fn the_old_address_is_asked_when_the_destination_has_moved_while_in_doubt() {
    let (old, new) = (Webhook::start().await.unwrap(), Webhook::start().await.unwrap());
    let mut before = World::new(&[webhook("erp", &old, "", "")]).await;
    old.faults().next(Fault::LoseReply);
    let id = before.enqueue("erp", "INV-2", PAYLOAD).await;
    before.dispatch().await;
    assert_eq!(before.state(id).await, "unknown");
    let mut after = before.beside(&[webhook("erp", &new, "", "")], 2, "k1").await;
    after.ask().await;
    assert_eq!(after.state(id).await, "sent", "{:#?}", after.verdicts(id).await);
    assert!(!old.desk().asked().is_empty() && new.desk().asked().is_empty());
    // What comes now goes to the new one.
    after.enqueue("erp", "INV-3", PAYLOAD).await;
    after.dispatch().await;
    assert_eq!((old.effects().all().len(), new.effects().all().len()), (1, 1));
}

#[tokio::test]
async fn a_witness_of_another_generation_is_no_witness() {
    let (old, new) = (Webhook::start().await.unwrap(), Webhook::start().await.unwrap());
    let mut before = World::new(&[webhook("erp", &old, "", "")]).await;
    before.enqueue("erp", "INV-1", PAYLOAD).await;
    before.dispatch().await;
    before.turn(5);
    old.faults().next(Fault::ResetBeforeActing);
    let id = before.enqueue("erp", "INV-2", PAYLOAD).await;
    before.dispatch().await;
    let mut after = before.beside(&[webhook("erp", &new, "", "")], 2, "k1").await;
    after.turn(30);
    after.enqueue("erp", "INV-3", PAYLOAD).await;
    after.dispatch().await;
    assert_eq!(new.effects().count_by_reference("INV-3"), 1);
    after.turn(30);
    for _ in 0..5 {
        after.ask().await;
        after.dispatch().await;
        after.turn(900);
    }
    let verdicts = after.verdicts(id).await;
    assert!(verdicts.len() > 1 && !verdicts.iter().any(|v| v == "absent"), "{verdicts:#?}");
    assert_eq!(after.state(id).await, "unknown");
    assert_eq!(old.effects().count_by_reference("INV-2") + new.effects().count_by_reference("INV-2"), 0);
    assert!(new.desk().asked().is_empty(), "the new one was asked about the old one's");
}

#[tokio::test]
async fn a_generation_that_cannot_be_asked_any_more_proves_nothing() {
    let (old, new) = (Webhook::start().await.unwrap(), Webhook::start().await.unwrap());
    let mut before = World::new(&[webhook("erp", &old, "", "")]).await;
    old.faults().next(Fault::ResetBeforeActing);
    let id = before.enqueue("erp", "INV-2", PAYLOAD).await;
    before.dispatch().await;
    old.door().refuse().await.unwrap();
    let mut after = before.beside(&[webhook("erp", &new, "", "")], 2, "k1").await;
    for _ in 0..3 {
        after.turn(900);
        after.ask().await;
        after.dispatch().await;
    }
    let verdicts = after.verdicts(id).await;
    assert!(!verdicts.is_empty() && verdicts.iter().all(|v| v.starts_with("inconclusive")), "{verdicts:#?}");
    assert_eq!(after.state(id).await, "unknown");
    assert_eq!(new.effects().all().len(), 0);
}

#[tokio::test]
async fn the_key_of_an_intent_in_doubt_survives_a_new_secret() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let mut before = World::new(&entries).await;
    receiver.faults().next(Fault::LoseReply);
    let id = before.enqueue("erp", "INV-1", PAYLOAD).await;
    before.dispatch().await;
    let pinned = "select kid || ' ' || key from settled.intents where id = $1";
    let under_k1 = before.text(pinned, id).await;
    assert!(under_k1.as_deref().unwrap().starts_with("k1 "));
    let mut after = before.beside(&entries, 1, "k2").await;
    // The same call again, under the new secret: the same row.
    assert_eq!(after.enqueue("erp", "INV-1", PAYLOAD).await, id);
    after.ask().await;
    assert_eq!(after.state(id).await, "sent", "{:#?}", after.verdicts(id).await);
    assert_eq!(after.text(pinned, id).await, under_k1);
    let second = after.enqueue("erp", "INV-2", PAYLOAD).await;
    after.dispatch().await;
    assert!(after.text(pinned, second).await.unwrap().starts_with("k2 "));
    let rows: i64 =
        sqlx::query_scalar("select count(*) from settled.requests").fetch_one(&after.db.pool).await.unwrap();
    assert_eq!((rows, receiver.effects().all().len()), (2, 2));
    for effect in receiver.effects().all() {
        assert_eq!(receiver.effects().count_by_key(effect.key.as_deref().unwrap()), 1);
    }
}

#[tokio::test]
async fn an_intent_that_was_proven_absent_under_the_old_secret_goes_out_under_its_old_key() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let mut before = World::new(&entries).await;
    before.enqueue("erp", "INV-1", PAYLOAD).await;
    before.dispatch().await;
    before.turn(5);
    receiver.faults().next(Fault::ResetBeforeActing);
    let id = before.enqueue("erp", "INV-2", PAYLOAD).await;
    before.dispatch().await;
    let key = before.text("select key from settled.intents where id = $1", id).await;
    let mut after = before.beside(&entries, 1, "k2").await;
    after.turn(30);
    after.enqueue("erp", "INV-3", PAYLOAD).await;
    after.dispatch().await;
    after.turn(30);
    after.ask().await;
    after.turn(6);
    after.ask().await;
    after.dispatch().await;
    assert_eq!(after.state(id).await, "sent", "{:#?}", after.verdicts(id).await);
    assert_eq!(receiver.effects().count_by_key(key.as_deref().unwrap()), 1);
}
