//! Cases of kind DUP: how other systems sent twice. `tests/CASES.md` names them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use settled::{
    demo::fakes::{
        faults::{Fault, Stage},
        imap::Imap,
        latch::Latch,
        mailbox::Mailbox,
        sms::Sms,
        smtp::Smtp,
        webhook::Webhook,
    },
    engine::{admission, runner::Step},
    store::requests::{EnqueueError, Verdict},
};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{
    db::Database,
    fragments::{mail, mute_webhook, texts, webhook},
    process::killed_after,
    world::{World, new_request},
};

/// Long enough for a busy machine; nothing waits that long.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn case_002_a_final_dot_that_is_answered_too_late_is_asked_about_and_not_sent_again() {
    let mailbox = Arc::new(Mailbox::default());
    let relay = Smtp::start(Arc::clone(&mailbox)).await.unwrap();
    let audit = Imap::start(Arc::clone(&mailbox)).await.unwrap();
    let password = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password.path(), "audit\n").unwrap();
    let mut world = World::new(&[mail("post", &relay, &audit, password.path(), "300ms")]).await;
    // Accepted, and answered when nobody listens any more.
    let late = Arc::new(Latch::default());
    relay.faults().at(Stage::Act, Fault::HoldUntilReleased { act: true, latch: Arc::clone(&late) });
    let payload = r#"{"to":"ap@acme.test","subject":"Invoice INV-2291","text":"Please find the invoice."}"#;
    let id = world.enqueue("post", "INV-2291", payload).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    late.release();
    for _ in 0..3 {
        world.dispatch().await;
        world.turn(3600);
    }
    assert_eq!(world.state(id).await, "unknown", "no back-off ever starts for a doubt");
    world.ask().await;
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    assert_eq!((mailbox.mails().len(), relay.faults().count(Stage::Act)), (1, 1));
}

#[tokio::test]
async fn case_094_the_name_that_a_mailbox_is_asked_for_is_made_of_safe_characters_whatever_the_reference_is() {
    let mailbox = Arc::new(Mailbox::default());
    let relay = Smtp::start(Arc::clone(&mailbox)).await.unwrap();
    let audit = Imap::start(Arc::clone(&mailbox)).await.unwrap();
    let password = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password.path(), "audit\n").unwrap();
    let mut world = World::new(&[mail("post", &relay, &audit, password.path(), "300ms")]).await;
    let payload = r#"{"to":"ap@acme.test","subject":"Invoice INV_22.9-1","text":"Please find INV_22.9-1."}"#;
    for odd in ["!&!=?\u{fc}", "INV 1", "<INV-1>", "INV-1\r\nX: y"] {
        let refused = world.request(&new_request("post", odd, payload, "run-odd", 1)).await.unwrap_err();
        assert!(refused.to_string().contains("/reference"), "{odd:?}: {refused}");
    }
    relay.faults().at(Stage::Act, Fault::LoseReply);
    let id = world.enqueue("post", "INV_22.9-1", payload).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    world.turn(3600);
    world.ask().await;
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    let key = world.text("select key from settled.intents where id = $1", id).await.unwrap();
    assert!(key.len() == 32 && key.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{key}");
    assert!(audit.commands().iter().all(|command| !command.to_ascii_lowercase().contains("inv_22.9-1")));
    assert_eq!(mailbox.mails().len(), 1);
}

#[tokio::test]
async fn case_003_a_daemon_killed_in_mid_send_at_a_destination_that_cannot_be_asked_leaves_it_to_a_person() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let entries = [mute_webhook("partner", &receiver, "in_doubt = \"person\"")];
    let mut world = World::new(&entries).await;
    let id = world.enqueue("partner", "INV-1", PAYLOAD).await;
    let latch = Arc::new(Latch::default());
    receiver.faults().next(Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) });
    let held = Arc::clone(&latch);
    killed_after(&world.db.url, &entries, async move |doomed: &mut World| {
        doomed.dispatcher.step().await.unwrap();
        assert!(held.arrived(1, SOON).await);
    })
    .await;
    latch.release();
    assert_eq!(world.state(id).await, "in_flight");
    world.turn(30);
    world.reaper.step().await.unwrap();
    assert_eq!(world.state(id).await, "unknown");
    assert_eq!(world.reasons(id).await, ["no_look_up"]);
    for _ in 0..3 {
        world.turn(86_400);
        world.ask().await;
        world.dispatch().await;
    }
    assert_eq!((world.state(id).await.as_str(), receiver.effects().all().len()), ("unknown", 1));
}

/// Ends every session of this database that waits for a lock, until the future is over.
async fn breaking_waiters<T>(world: &Arc<Database>, writing: impl Future<Output = T>) -> T {
    tokio::pin!(writing);
    loop {
        tokio::select! {
            done = &mut writing => return done,
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity
                              where datname = current_database() and wait_event_type = 'Lock'")
                    .execute(&world.pool).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn case_004_a_result_that_cannot_be_written_is_kept_and_written_later_not_sent_again() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    let results = world.send_only().await;
    let db = Arc::clone(&world.db);
    let mut other = db.pool.begin().await.unwrap();
    sqlx::query("lock table settled.intents in access exclusive mode").execute(&mut *other).await.unwrap();
    let left = breaking_waiters(&db, world.try_write(results)).await;
    assert_eq!(left.len(), 1, "a result in hand is not lost with its connection");
    other.rollback().await.unwrap();
    assert_eq!(world.state(id).await, "in_flight");
    world.dispatch().await;
    world.write(left).await;
    assert_eq!(world.state(id).await, "sent");
    assert_eq!((receiver.faults().count(Stage::Act), receiver.effects().all().len()), (1, 1));
}

/// Steps and writes until nothing is left, taking again what Postgres could not serialise.
async fn drain(world: &mut World) {
    let mut unwritten = Vec::new();
    let mut idle = 0;
    while idle < 3 {
        let stepped = world.dispatcher.step().await;
        assert!(
            stepped.as_ref().is_ok_and(|_| true) || stepped.as_ref().is_err_and(|e| e.is_transient()),
            "{stepped:?}"
        );
        let before = unwritten.len();
        unwritten.extend(world.ended().await);
        let worked = unwritten.len() > before || stepped.is_err();
        unwritten = world.try_write(unwritten).await;
        idle = if worked || !unwritten.is_empty() { 0 } else { idle + 1 };
    }
}

#[tokio::test]
async fn case_005_serialization_failures_are_taken_again_in_the_ledger_and_never_at_the_downstream() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let home = World::new(&entries).await;
    home.db.set("default_transaction_isolation", "serializable").await;
    for n in 0..200 {
        home.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
    }
    let mut daemons = Vec::new();
    for _ in 0..4 {
        let daemon = World::over(Database::again(&home.db.url).await, &entries, 1, "k1").await;
        let level: String = sqlx::query_scalar("show transaction_isolation").fetch_one(&daemon.db.pool).await.unwrap();
        assert_eq!(level, "serializable");
        daemons.push(daemon);
    }
    let rival = Database::again(&home.db.url).await;
    let meddling = async {
        loop {
            // Its own failures are its own business.
            let _lost = sqlx::query("update settled.intents set detail = 'looked at' where state <> 'sent'")
                .execute(&rival.pool)
                .await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = meddling => {}
        _ = join_all(daemons.iter_mut().map(drain)) => {}
    }
    let open: i64 = sqlx::query_scalar(
        "select count(*) from settled.intents i left join settled.queue q on q.intent_id = i.id
          where i.state <> 'sent' or q.leased_until is not null",
    )
    .fetch_one(&home.db.pool)
    .await
    .unwrap();
    assert_eq!(open, 0);
    assert_eq!((receiver.effects().all().len(), receiver.faults().count(Stage::Act)), (200, 200));
    assert!(receiver.effects().duplicates().is_empty());
}

#[tokio::test]
async fn case_006_a_provider_that_is_slower_than_our_patience_is_asked_by_recipient_and_found_by_our_marks() {
    let provider = Sms::start().await.unwrap();
    let mut world = World::new(&[texts("texts", &provider, "")]).await;
    let text = |to: &str| format!(r#"{{"to":"{to}","text":"Invoice INV-2291 is due"}}"#);
    // Stored at once, answered when nobody listens, listed much later: no id ever came back.
    let latch = Arc::new(Latch::default());
    provider.faults().next(Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) });
    provider.effects().hold();
    let id = world.enqueue("texts", "INV-2291", &text("+4915112345678")).await;
    world.dispatch().await;
    latch.release();
    assert_eq!(world.state(id).await, "unknown");
    for _ in 0..3 {
        world.ask().await;
        world.dispatch().await;
        world.turn(5);
    }
    assert_eq!(world.state(id).await, "unknown", "an early empty list is no proof: {:#?}", world.verdicts(id).await);
    provider.effects().release();
    world.turn(3600);
    world.ask().await;
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    let asked = provider.desk().asked();
    assert!(asked.iter().any(|q| q.contains("recipient=%2B4915112345678") && q.contains("from=")), "{asked:#?}");
    assert_eq!(provider.effects().all().len(), 1);
}

#[tokio::test]
async fn case_008_both_attempts_of_an_intent_carry_one_key() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    receiver.faults().next(Fault::Status { code: 429, act: false });
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "pending");
    let key = world.text("select key from settled.intents where id = $1", id).await;
    world.turn(3600);
    world.dispatch().await;
    let effects = receiver.effects().all();
    assert_eq!((effects.len(), &effects[0].key, effects[0].attempt), (1, &key, Some(2)));
}

#[tokio::test]
async fn case_009_a_slow_send_holds_up_no_lease_but_its_own() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let latch = Arc::new(Latch::default());
    let entries = [webhook("erp", &receiver, "", "").replace("[limits]", "[limits]\nconcurrency = 20")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    receiver.faults().for_reference("INV-0", Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) });
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(one.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await);
    }
    one.dispatcher.step().await.unwrap();
    receiver.effects().wait_for(SOON, |all| all.len() == 20).await.unwrap();
    // The lease of all of them ends while the slow one hangs.
    one.turn(30);
    two.dispatch().await;
    two.reaper.step().await.unwrap();
    two.dispatch().await;
    latch.release();
    one.finish().await;
    for id in ids {
        let state = one.state(id).await;
        assert!(state == "sent" || state == "unknown", "{state}");
        two.ask().await;
        assert_eq!(one.state(id).await, "sent");
    }
    assert_eq!(receiver.effects().all().len(), 20);
    assert!(receiver.effects().duplicates().is_empty());
}

#[tokio::test]
async fn case_010_an_agent_that_decides_again_gets_the_earlier_one_and_nothing_is_sent_twice() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let said = |words: &str| format!(r#"{{"text":"{words}"}}"#);
    let step = |n: i64, words: &str| new_request("erp", "INV-2291", &said(words), "run-1", n);
    let first = admission::admit(&world.db.pool, &step(1, "The invoice is attached.")).await.unwrap();
    world.dispatch().await;
    for (n, words) in [(2, "Here is the invoice."), (3, "The invoice is attached, again."), (4, "Invoice.")] {
        let refused = admission::admit(&world.db.pool, &step(n, words)).await.unwrap_err();
        let EnqueueError::Conflict { conflict, .. } = refused else { panic!("{refused:?}") };
        assert_eq!((conflict.intent_id, conflict.state.as_str()), (first.intent_id, "sent"));
    }
    // In the same words it is told what became of it.
    let told = admission::admit(&world.db.pool, &step(5, "The invoice is attached.")).await.unwrap();
    assert_eq!(
        (told.verdict, told.intent_id, told.state.as_str()),
        (Verdict::AlreadyRequested, first.intent_id, "sent")
    );
    world.dispatch().await;
    assert_eq!(receiver.effects().all().len(), 1);
    // A second one that is wanted is another occurrence.
    let mut wanted = step(6, "The invoice is attached.");
    wanted.options.occurrence = Some(2);
    assert_eq!(admission::admit(&world.db.pool, &wanted).await.unwrap().verdict, Verdict::Accepted);
    world.dispatch().await;
    assert_eq!(receiver.effects().all().len(), 2);
}

#[tokio::test]
async fn case_011_fifty_calls_of_one_step_make_one_row_one_send_and_fifty_answers() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let request = new_request("erp", "INV-1", PAYLOAD, "run-1", 1);
    let pool = world.db.pool.clone();
    let early = join_all((0..25).map(|_| admission::admit(&pool, &request))).await;
    world.dispatch().await;
    let late = join_all((0..25).map(|_| admission::admit(&pool, &request))).await;
    world.dispatch().await;
    let ids: Vec<Uuid> = early.into_iter().chain(late).map(|answer| answer.unwrap().intent_id).collect();
    assert_eq!(ids.len(), 50);
    assert!(ids.iter().all(|id| *id == ids[0]));
    let rows: (i64, i64) =
        sqlx::query_as("select (select count(*) from settled.intents), (select count(*) from settled.requests)")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!((rows, receiver.faults().count(Stage::Act)), ((1, 1), 1));
}
