//! The lag is measured on ordinary sends; where it comes too near the declared one, absence is not believed.

use std::sync::Arc;

use settled::demo::fakes::webhook::Webhook;

use super::doubt::{Doubt, PAYLOAD, Setting};
use crate::support::{fragments::webhook, world::World};

const EVERYTHING: &str = "audit = { share = 1.0, per_minute = 1000 }";

/// All ordinary sends are in the sample.
pub fn sampled(receiver: &Webhook) -> String {
    webhook("erp", receiver, "", EVERYTHING)
}

async fn number(world: &World, sql: &str) -> Option<f64> {
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&world.db.pool).await.unwrap()
}

#[tokio::test]
async fn a_sample_is_looked_up_from_early_on_and_tells_how_long_it_took() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let mut world = World::new(&[sampled(&receiver)]).await;
    receiver.effects().hold_reference("INV-1");
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    world.turn(1);
    world.audit().await;
    world.turn(1);
    world.audit().await;
    receiver.effects().release();
    world.turn(1);
    world.audit().await;
    let held = "select a.visible_after from settled.audits a join settled.intents i on i.id = a.intent_id where i.reference = 'inv-1'";
    let seen = number(&world, held).await.expect("measured");
    assert!((2.5..=4.0).contains(&seen), "{seen}");
    assert!(number(&world, &held.replace("visible_after", "invisible_for")).await.is_some_and(|s| s >= 1.5));
    let quick = number(&world, &held.replace("inv-1", "inv-2")).await.expect("measured");
    assert!(quick <= 2.0, "{quick}");
    let mut conn = world.db.pool.acquire().await.unwrap();
    let generation = world.fleet.get("erp").unwrap().generation.clone();
    let at = settled::clock::Clock::sql_now(&*world.clock);
    let measured = settled::store::audits::measured(&mut conn, "erp", &generation, 86_400.0, at).await.unwrap();
    assert_eq!((measured.sends, measured.longest), (2, Some(seen)));
    drop(conn);
    world.turn(15);
    world.audit().await;
    let text = world.sending.metrics.text().unwrap();
    assert!(text.contains("settled_visible_after_seconds{destination=\"erp\",figure=\"longest\"}"), "{text}");
    assert!(text.contains("settled_absence_suspended{destination=\"erp\"} 0"), "{text}");
    assert!(text.contains("settled_audits_total{destination=\"erp\",result=\"one\"} 2"), "{text}");
}

#[tokio::test]
async fn a_send_that_is_invisible_for_half_the_lag_suspends_absence_for_a_day() {
    let setting = Setting { destination: Box::new(sampled), ..Setting::default() };
    let mut doubt = Doubt::new(setting).await;
    let effects = doubt.receiver.effects();
    effects.hold_reference("INV-9");
    doubt.world.enqueue("erp", "INV-9", PAYLOAD).await;
    doubt.world.dispatch().await;
    doubt.world.turn(2);
    doubt.world.ask().await;
    assert_eq!(doubt.world.verdicts(doubt.id).await, ["inconclusive: not seen; equal answer 1 of 2"]);
    doubt.world.turn(4);
    doubt.world.audit().await;
    effects.release();
    doubt.world.turn(2);
    for _ in 0..3 {
        doubt.world.ask().await;
        doubt.world.turn(900);
    }
    let verdicts = doubt.world.verdicts(doubt.id).await;
    assert_eq!(verdicts.len(), 4, "{verdicts:#?}");
    assert!(verdicts[1..].iter().all(|v| v.contains("at least half of the declared lag of 10s")), "{verdicts:#?}");
    assert_eq!(doubt.world.state(doubt.id).await, "unknown");
    doubt.world.turn(15);
    doubt.world.audit().await;
    let text = doubt.world.sending.metrics.text().unwrap();
    assert!(text.contains("settled_absence_suspended{destination=\"erp\"} 1"), "{text}");
    // A day later the sample is forgotten.
    doubt.world.turn(86_400);
    for _ in 0..3 {
        doubt.world.ask().await;
        doubt.world.turn(6);
    }
    let verdicts = doubt.world.verdicts(doubt.id).await;
    assert_eq!(doubt.world.state(doubt.id).await, "pending", "{verdicts:#?}");
}

#[tokio::test]
async fn no_more_than_so_many_sends_of_a_minute_are_sampled_by_all_daemons_together() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "audit = { share = 1.0, per_minute = 3 }")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    for n in 0..8 {
        one.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
        if n % 2 == 0 { one.dispatch().await } else { two.dispatch().await }
    }
    let sampled = "select count(*)::float8 from settled.audits";
    assert_eq!(number(&one, sampled).await, Some(3.0));
    one.turn(61);
    one.enqueue("erp", "INV-9", PAYLOAD).await;
    two.dispatch().await;
    assert_eq!(number(&one, sampled).await, Some(4.0));
}
