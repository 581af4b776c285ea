//! Cases of kind POISON: what one bad row, one bad intent or one dead endpoint does to the others. `tests/CASES.md` names them.

use std::sync::Arc;

use settled::{
    demo::fakes::{
        faults::{Fault, Stage, When},
        mailbox::Mailbox,
        smtp::Smtp,
        webhook::Webhook,
    },
    engine::runner::Step,
};
use uuid::Uuid;

use crate::support::{
    fragments::{mute_webhook, webhook},
    world::World,
};

const PAYLOAD: &str = r#"{"n":1}"#;

fn mail(relay: &Smtp) -> String {
    format!(
        "name = \"mail\"\nchannel = \"smtp\"\nin_doubt = \"person\"\nallow_addresses = [\"127.0.0.0/8\"]\n\
         [smtp]\nhost = \"127.0.0.1\"\nport = {}\ntls = \"none\"\nfrom = \"billing@example.test\"\n",
        relay.port()
    )
}

fn letter(n: usize) -> String {
    format!(r#"{{"to":"ap{n}@acme.test","subject":"Invoice INV-{n}","text":"t"}}"#)
}

async fn count(world: &World, what: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {what}")))
        .fetch_one(&world.db.pool)
        .await
        .unwrap()
}

/// A pending intent with this payload, written past every check, as an owner of the database can; with the lowest of ids.
async fn smuggle(world: &World, n: u32, payload: &str) -> Uuid {
    let id = Uuid::from_u128(u128::from(n));
    sqlx::query(
        "with i as (
           insert into settled.intents (id, tenant, destination, effect_scope, recipient, reference, state, fingerprint,
             canon_version, declarations, due_at)
           values ($1, 'acme', 'mail', 'mail', 'x@y.test', 'bad-' || $2, 'pending', '', 1, 1, now() - interval '1 hour') returning id),
         r as (
           insert into settled.requests (id, intent_id, tenant, run_id, step, reference, fingerprint, canon_version, verdict,
             surface, principal)
           select id, id, 'acme', 'bad-' || $2, 1, 'BAD-' || $2, '', 1, 'accepted', 'sql', 'owner' from i),
         p as (insert into settled.payloads (intent_id, salt, body) select id, '', $3 from i)
         insert into settled.queue (intent_id, destination, tenant, kind, due_at)
         select id, 'mail', 'acme', 'send', now() - interval '1 hour' from i",
    )
    .bind(id)
    .bind(n.to_string())
    .bind(payload)
    .execute(&world.db.pool)
    .await
    .unwrap();
    id
}

#[tokio::test]
async fn case_039_malformed_rows_end_with_a_reason_after_one_look_and_the_good_ones_flow() {
    let mailbox = Arc::new(Mailbox::default());
    let relay = Smtp::start(Arc::clone(&mailbox)).await.unwrap();
    let mut world = World::new(&[mail(&relay)]).await;
    let mut bad = Vec::new();
    for (n, payload) in
        ["[]", "null", r#"{"subject":"s","text":"t"}"#, r#"{"to":42,"subject":"s","text":"t"}"#, "", "{\"to\":"]
            .iter()
            .enumerate()
    {
        bad.push(smuggle(&world, 1 + u32::try_from(n).unwrap(), payload).await);
    }
    let mut good = Vec::new();
    for n in 0..100 {
        good.push(world.enqueue("mail", &format!("INV-{n}"), &letter(n)).await);
    }
    for _ in 0..8 {
        world.dispatch().await;
    }
    for id in bad {
        assert_eq!(world.state(id).await, "failed");
        assert_eq!(world.reasons(id).await, ["unsupported"]);
        let why = world.text("select summary from settled.escalations where intent_id = $1", id).await.unwrap();
        assert!(why.contains("unsupported: "), "{why}");
        assert_eq!(world.text("select attempt::text from settled.intents where id = $1", id).await.unwrap(), "1");
    }
    for id in good {
        assert_eq!(world.state(id).await, "sent");
    }
    assert_eq!(mailbox.mails().len(), 100);
    // Through the door of the ledger none of them comes in; a channel cannot be named at all.
    for payload in ["[]", "null", r#"{"subject":"s","text":"t"}"#, r#"{"to":42,"subject":"s","text":"t"}"#] {
        let request = crate::support::world::new_request("mail", "INV-X", payload, "run-x", 1);
        world.request(&request).await.unwrap_err();
    }
}

#[tokio::test]
async fn case_040_a_dead_endpoint_is_probed_now_and_then_and_nobody_else_notices() {
    let (dead, alive) = (Webhook::start().await.unwrap(), Webhook::start().await.unwrap());
    dead.door().refuse().await.unwrap();
    let mut world = World::new(&[webhook("dead", &dead, "", ""), webhook("alive", &alive, "", "")]).await;
    for n in 0..200 {
        world.enqueue("dead", &format!("INV-{n}"), PAYLOAD).await;
    }
    for n in 0..10 {
        world.enqueue("alive", &format!("ALIVE-{n}"), PAYLOAD).await;
    }
    let mut a_minute = Vec::new();
    for _ in 0..20 {
        let before = count(
            &world,
            "settled.attempts where generation = (select generation from settled.destinations where name = 'dead')",
        )
        .await;
        for _ in 0..12 {
            world.dispatch().await;
            world.turn(5);
        }
        let after = count(
            &world,
            "settled.attempts where generation = (select generation from settled.destinations where name = 'dead')",
        )
        .await;
        a_minute.push(after - before);
        world.sweeper.step().await.unwrap();
    }
    assert_eq!(alive.effects().all().len(), 10);
    assert!(a_minute[0] <= 20, "{a_minute:?}");
    assert!(a_minute[1..].iter().all(|connects| *connects <= 3), "{a_minute:?}");
    assert!(a_minute[15..].iter().sum::<i64>() >= 1, "it goes on being tried: {a_minute:?}");
    // Refused connections spend nothing, and people are told once, of the destination and of no intent.
    assert_eq!(count(&world, "settled.intents where destination = 'dead' and state = 'pending'").await, 200);
    let told: Vec<(String, String, String)> =
        sqlx::query_as("select subject, reason, destination from settled.escalations")
            .fetch_all(&world.db.pool)
            .await
            .unwrap();
    assert_eq!(told, [("destination".to_owned(), "destination_parked".to_owned(), "dead".to_owned())]);
    assert_eq!(count(&world, "settled.destinations where parked_at is not null").await, 0);
    // Back again it is sent to, slowly at first, and what was told is taken back.
    dead.door().accept().await.unwrap();
    for _ in 0..900 {
        world.dispatch().await;
        world.turn(1);
    }
    world.sweeper.step().await.unwrap();
    assert_eq!(count(&world, "settled.intents where state = 'sent'").await, 210);
    assert_eq!(count(&world, "settled.escalations where closed_at is null").await, 0);
    assert!(dead.effects().duplicates().is_empty());
}

#[tokio::test]
async fn case_040_one_intent_that_is_refused_opens_no_breaker() {
    let receiver = Webhook::start().await.unwrap();
    let entry = webhook("erp", &receiver, "", "").replace("[limits]", "[limits]\nbreaker_after = 1\nconcurrency = 4");
    let mut world = World::new(&[entry]).await;
    receiver.faults().for_reference("INV-50", Fault::Status { code: 400, act: false });
    for n in 0..101 {
        world.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
    }
    for _ in 0..26 {
        world.dispatch().await;
    }
    assert_eq!(count(&world, "settled.intents where state = 'sent'").await, 100);
    assert_eq!(count(&world, "settled.intents where state = 'failed'").await, 1);
    assert!(!world.fleet.get("erp").unwrap().breaker.is_open());
}

#[tokio::test]
async fn doubts_open_the_breaker_as_well_and_a_probe_that_was_refused_a_connection_spends_no_attempt() {
    let receiver = Webhook::start().await.unwrap();
    let entry = mute_webhook("erp", &receiver, "in_doubt = \"person\"")
        .replace("[limits]", "[limits]\nbreaker_after = 3\nconcurrency = 3\nattempts = 1");
    let mut world = World::new(&[entry]).await;
    receiver.faults().always(Fault::LoseReply);
    for n in 0..20 {
        world.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
    }
    for _ in 0..5 {
        world.dispatch().await;
    }
    assert_eq!(receiver.faults().count(Stage::Act), 3, "it is open after three doubts in a row");
    receiver.door().refuse().await.unwrap();
    for _ in 0..50 {
        world.turn(60);
        world.dispatch().await;
    }
    assert_eq!(count(&world, "settled.intents where state = 'pending'").await, 17);
    assert_eq!(count(&world, "settled.intents where state = 'unknown'").await, 3);
}

#[tokio::test]
async fn case_078_greylisting_of_the_sender_holds_the_destination_and_loses_nothing() {
    let mailbox = Arc::new(Mailbox::default());
    let relay = Smtp::start(Arc::clone(&mailbox)).await.unwrap();
    let mut world = World::new(&[mail(&relay)]).await;
    relay.faults().add(Stage::From, When::Any, u64::MAX, Fault::Status { code: 451, act: false });
    for n in 0..100 {
        world.enqueue("mail", &format!("INV-{n}"), &letter(n)).await;
    }
    let mut a_minute = Vec::new();
    for _ in 0..10 {
        let before = relay.door().accepted();
        for _ in 0..60 {
            world.dispatch().await;
            world.turn(1);
        }
        a_minute.push(relay.door().accepted() - before);
        world.sweeper.step().await.unwrap();
    }
    assert!(a_minute[0] <= 16, "{a_minute:?}");
    assert!(a_minute[1..].iter().sum::<u64>() <= 4, "{a_minute:?}");
    assert_eq!(count(&world, "settled.intents where state = 'pending'").await, 100);
    assert_eq!(count(&world, "settled.escalations").await, 0);
    relay.faults().clear();
    for _ in 0..1200 {
        world.dispatch().await;
        world.turn(3);
    }
    assert_eq!(mailbox.mails().len(), 100);
    assert_eq!(count(&world, "settled.intents where state = 'sent'").await, 100);
}
