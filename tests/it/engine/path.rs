//! The straight path, and the first turns off it.

use settled::{
    demo::fakes::{faults::Fault, webhook::Webhook},
    engine::runner::Step,
    store::{self, story::What},
};

use crate::support::{
    fragments::{mute_webhook, webhook},
    world::World,
};

const PAYLOAD: &str = r#"{"type":"invoice.created","data":{"amount":40000}}"#;

#[tokio::test]
async fn an_intent_is_sent_once_with_key_and_reference_inside() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-2291", PAYLOAD).await;
    world.dispatch().await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent");
    let effects = receiver.effects().all();
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0].reference, "INV-2291");
    assert_eq!(effects[0].key, world.text("select key from settled.intents where id = $1", id).await);
    let left: i64 = sqlx::query_scalar("select count(*) from settled.queue").fetch_one(&world.db.pool).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_plain_delivery_is_told_by_its_attempt_and_adds_nothing_to_the_journal() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-2291", PAYLOAD).await;
    let rows = "select count(*)::text from settled.journal where intent_id = $1";
    let before = world.text(rows, id).await;
    world.dispatch().await;
    assert_eq!((world.state(id).await.as_str(), world.text(rows, id).await), ("sent", before));
    let mut conn = world.db.pool.acquire().await.unwrap();
    let story = store::story::story(&mut conn, id, None).await.unwrap().unwrap();
    let told: Vec<String> = story
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::AttemptBegan { attempt, worker, .. } => Some(format!("{attempt} begins at {worker}")),
            What::AttemptEnded { attempt, outcome, report, .. } => {
                Some(format!("{attempt} ends {outcome} with {}", report["report"]["code"]))
            }
            What::Request { .. }
            | What::Told { .. }
            | What::EscalationOpened { .. }
            | What::EscalationClosed { .. }
            | What::Decision { .. } => None,
        })
        .collect();
    let worker = world.text("select worker::text from settled.attempts where intent_id = $1", id).await.unwrap();
    assert_eq!(told, [format!("1 begins at {worker}"), "1 ends sent with 200".to_owned()]);
    // Whoever acted on what it was before is told who moved it.
    let newest = store::journal::newest(&mut conn, id, 10).await.unwrap();
    assert_eq!((newest[0].kind.as_str(), newest[0].actor.as_str()), ("move", format!("dispatcher@{worker}").as_str()));
    assert_eq!((newest[0].attempt, newest[0].data["to"].as_str()), (Some(1), Some("sent")));
    assert_eq!(newest.len(), 2);
}

#[tokio::test]
async fn a_lost_reply_is_unknown_and_found_by_asking() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    receiver.faults().next(Fault::LoseReply);
    let id = world.enqueue("erp", "INV-2291", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    world.ask().await;
    assert_eq!(world.state(id).await, "sent", "{:?}", world.verdicts(id).await);
    world.dispatch().await;
    assert_eq!(receiver.effects().all().len(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_and_spends_no_attempt() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    receiver.door().refuse().await.unwrap();
    let id = world.enqueue("erp", "INV-2291", PAYLOAD).await;
    for _ in 0..8 {
        world.dispatch().await;
        assert_eq!(world.state(id).await, "pending");
        world.turn(3600);
    }
    receiver.door().accept().await.unwrap();
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent");
    assert_eq!(receiver.effects().all().len(), 1);
}

#[tokio::test]
async fn a_refusal_fails_and_frees_the_effect_for_a_correction_at_the_same_step() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    receiver.faults().next(Fault::Status { code: 422, act: false });
    let first = world.enqueue("erp", "INV-2291", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(first).await, "failed");
    assert_eq!(world.reasons(first).await, ["refused"]);
    let second = world.enqueue("erp", "INV-2291", r#"{"type":"invoice.created","data":{"amount":41000}}"#).await;
    assert_ne!(first, second);
    world.dispatch().await;
    assert_eq!(world.state(second).await, "sent");
    let keys = "select key from settled.intents where id = $1";
    assert_ne!(world.text(keys, first).await, world.text(keys, second).await);
}

#[tokio::test]
async fn a_doubt_at_a_destination_that_cannot_be_asked_waits_for_a_person() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[mute_webhook("partner", &receiver, "in_doubt = \"person\"")]).await;
    receiver.faults().next(Fault::LoseReply);
    let id = world.enqueue("partner", "INV-2291", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    assert_eq!(world.reasons(id).await, ["no_look_up"]);
    world.turn(100_000);
    world.ask().await;
    world.dispatch().await;
    assert_eq!(receiver.effects().all().len(), 1);
}

#[tokio::test]
async fn refused_credentials_park_the_destination_and_not_the_intent() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    receiver.faults().next(Fault::Status { code: 401, act: false });
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(7200);
    world.dispatch().await;
    assert_eq!(world.state(id).await, "pending");
    let parked: i64 = sqlx::query_scalar(
        "select count(*) from settled.escalations where reason = 'destination_parked' and closed_at is null",
    )
    .fetch_one(&world.db.pool)
    .await
    .unwrap();
    assert_eq!((parked, receiver.effects().all().len()), (1, 0));
    let mut conn = world.db.pool.acquire().await.unwrap();
    assert!(settled::store::generations::unpark(&mut conn, "erp").await.unwrap());
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent");
}

#[tokio::test]
async fn a_lapsed_lease_is_a_doubt_and_a_late_result_is_still_evidence() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-2291", PAYLOAD).await;
    world.dispatcher.step().await.unwrap();
    world.sending.tracker.close();
    world.sending.tracker.wait().await;
    world.sending.tracker.reopen();
    // The result is in hand, but not written, when the lease ends.
    world.turn(3600);
    world.reaper.step().await.unwrap();
    assert_eq!(world.state(id).await, "unknown");
    world.record().await;
    assert_eq!(world.state(id).await, "sent");
    assert_eq!(receiver.effects().all().len(), 1);
}

#[tokio::test]
async fn a_deadline_is_never_passed_in_silence() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-2291", PAYLOAD).await;
    sqlx::query("update settled.intents set deadline = now() + interval '1 hour' where id = $1")
        .bind(id)
        .execute(&world.db.pool)
        .await
        .unwrap();
    sqlx::query("update settled.queue set deadline = now() + interval '1 hour'").execute(&world.db.pool).await.unwrap();
    world.turn(7200);
    world.dispatch().await;
    world.sweeper.step().await.unwrap();
    assert_eq!(world.state(id).await, "cancelled");
    assert_eq!(world.reasons(id).await, ["deadline_passed"]);
    assert_eq!(receiver.effects().all().len(), 0);
}

#[tokio::test]
async fn people_are_told_of_a_doubt_whose_deadline_is_near_and_the_deadline_ends_no_doubt() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-2291", PAYLOAD).await;
    sqlx::query("update settled.intents set deadline = now() + interval '2 hours' where id = $1")
        .bind(id)
        .execute(&world.db.pool)
        .await
        .unwrap();
    receiver.effects().hold();
    receiver.faults().next(Fault::LoseReply);
    world.dispatch().await;
    world.sweeper.step().await.unwrap();
    assert!(!world.reasons(id).await.contains(&"deadline_near".to_owned()));
    world.turn(7200 - 600);
    world.sweeper.step().await.unwrap();
    assert!(world.reasons(id).await.contains(&"deadline_near".to_owned()), "{:?}", world.reasons(id).await);
    world.turn(3600);
    for _ in 0..3 {
        world.sweeper.step().await.unwrap();
        world.ask().await;
        world.dispatch().await;
    }
    assert_eq!(world.state(id).await, "unknown");
    receiver.effects().release();
    world.turn(600);
    world.ask().await;
    assert_eq!(world.state(id).await, "sent", "{:?}", world.verdicts(id).await);
    assert_eq!(receiver.effects().all().len(), 1);
}
