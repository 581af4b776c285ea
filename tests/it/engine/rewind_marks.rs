//! After a rewind: what had ended without effect, what comes back for attempts and intents that the database does not know.

use settled::{
    domain::outcome::{Ended, Outcome, Report},
    engine::results::Finished,
};
use uuid::Uuid;

use super::{doubt::PAYLOAD, rewind::House};
use crate::support::world::{World, new_request};

fn marks(world: &World, id: Uuid) -> impl Future<Output = Option<String>> {
    world.text("select array_to_string(marks, ',') from settled.intents where id = $1", id)
}

async fn cancelled(house: &House, reference: &str) -> Uuid {
    let id = house.world.enqueue("erp", reference, PAYLOAD).await;
    sqlx::query("select settled.cancel($1, 'not wanted')").bind(id).execute(&house.world.db.pool).await.unwrap();
    id
}

#[tokio::test]
async fn what_had_ended_without_effect_stays_so_is_marked_and_moves_by_evidence_only() {
    let mut house = House::new("").await;
    let id = cancelled(&house, "INV-1").await;
    house.remember().await;
    house.rewind().await;
    assert_eq!(
        (house.world.state(id).await, marks(&house.world, id).await),
        ("cancelled".into(), Some("history_lost".into()))
    );
    // It had been sent after all, in the history that is gone, and whoever sent it still has the reply.
    let finished = result(id, "INV-1", 1, Outcome::Sent { provider_id: Some("evt-1".to_owned()) });
    house.world.write(vec![finished]).await;
    assert_eq!(house.world.state(id).await, "sent");
    assert_eq!(marks(&house.world, id).await.as_deref(), Some("history_lost,late_result"));
    assert_eq!(house.world.reasons(id).await, ["late_result"]);
}

#[tokio::test]
async fn a_call_whose_end_is_no_longer_certain_cannot_be_corrected_under_a_new_key() {
    let mut house = House::new("").await;
    let id = cancelled(&house, "INV-1").await;
    house.remember().await;
    house.rewind().await;
    let other = new_request("erp", "INV-1", r#"{"type":"invoice.paid"}"#, "run-INV-1", 1);
    let refused = house.world.request(&other).await.unwrap_err();
    assert!(refused.to_string().contains("conflict"), "{refused} about {id}");
}

#[tokio::test]
async fn the_result_of_a_lost_attempt_is_not_that_of_its_namesake() {
    let mut house = House::new("absent_by_lag = \"resend\"").await;
    house.receiver.keep_keys(false);
    house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.world.dispatch().await;
    house.world.turn(120);
    let id = house.world.enqueue("erp", "INV-2", PAYLOAD).await;
    house.remember().await;
    // Nothing of it is visible when it is asked about: the declared lag was wrong.
    house.receiver.effects().hold_reference("INV-2");
    let mut lost = house.world.send_only().await;
    house.rewind().await;
    house.ask_until_known(id).await;
    house.world.dispatch().await;
    assert_eq!((house.world.state(id).await.as_str(), house.sends().0), ("sent", 3));
    assert_eq!(marks(&house.world, id).await.as_deref(), Some(""));
    house.world.write(vec![lost.remove(0)]).await;
    assert_eq!(marks(&house.world, id).await.as_deref(), Some("duplicate_found"));
    assert_eq!(house.world.reasons(id).await, ["duplicate_found"]);
}

#[tokio::test]
async fn a_result_for_an_intent_that_is_gone_is_kept_and_people_are_told() {
    let mut house = House::new("").await;
    house.remember().await;
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    let results = house.world.send_only().await;
    house.rewind().await;
    house.world.write(results).await;
    let kept: (String, String) = sqlx::query_as("select status, received_by from settled.sightings")
        .fetch_one(&house.world.db.pool)
        .await
        .unwrap();
    assert_eq!(kept, ("accepted".to_owned(), "dispatcher".to_owned()));
    let named: Option<Uuid> = sqlx::query_scalar(
        "select (detail ->> 'intent')::uuid from settled.escalations where reason = 'orphan_sighting'",
    )
    .fetch_one(&house.world.db.pool)
    .await
    .unwrap();
    assert_eq!(named, Some(id));
    let told: Vec<(String, String)> = sqlx::query_as(
        "select subject, destination from settled.escalations where reason = 'orphan_sighting' and closed_at is null",
    )
    .fetch_all(&house.world.db.pool)
    .await
    .unwrap();
    assert_eq!(told, [("sighting".to_owned(), "erp".to_owned())]);
}

#[tokio::test]
async fn what_was_reported_under_a_key_of_lost_attempts_is_never_absent() {
    let mut house = House::new("absent_by_lag = \"resend\"").await;
    house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.world.dispatch().await;
    house.world.turn(120);
    house.remember().await;
    let call = new_request("erp", "INV-2", PAYLOAD, "run-2", 1);
    house.world.request(&call).await.unwrap();
    // The reply comes back after its row is gone, and asking does not show it: the declared lag was wrong.
    house.receiver.effects().hold_reference("INV-2");
    let results = house.world.send_only().await;
    house.rewind().await;
    house.world.write(results).await;
    let again = house.world.request(&call).await.unwrap().intent_id;
    house.ask_until_known(again).await;
    house.world.dispatch().await;
    let verdicts = house.world.verdicts(again).await;
    assert_eq!((house.world.state(again).await.as_str(), house.sends().1), ("unknown", 2), "{verdicts:?}");
    assert!(verdicts.iter().any(|verdict| verdict.contains("reported")), "{verdicts:?}");
}

fn result(intent_id: Uuid, reference: &str, attempt: i32, outcome: Outcome) -> Finished {
    let now = chrono::Utc::now();
    Finished {
        intent_id,
        destination: "erp".to_owned(),
        key: "0".repeat(32),
        reference: reference.to_ascii_lowercase(),
        occurrence: 1,
        recipient: String::new(),
        attempt,
        token: Uuid::new_v4(),
        generation: String::new(),
        claimed_at: now,
        lease_until: now,
        digest: None,
        ended: Ended { outcome, report: Report::nothing_written("told by the test") },
        urgent: false,
    }
}
