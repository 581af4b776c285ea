//! The database forgets: a copy from before takes its place while the daemon runs. What the copy shows as unsent may have been
//! sent, and is asked about before anything is sent again.

use std::sync::Arc;

use settled::{
    demo::fakes::{faults::Stage, webhook::Webhook},
    engine::{
        runner::{Progress, Step},
        watch::Beaten,
    },
    store,
};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{
    fragments::{mute_webhook, webhook},
    world::{CALLERS, World, new_request},
};

/// A daemon with one destination, and what it sends to.
pub(super) struct House {
    pub receiver: Arc<Webhook>,
    pub world: World,
    copy: String,
}

impl House {
    pub(super) async fn new(look_up: &str) -> Self {
        let receiver = Arc::new(Webhook::start().await.unwrap());
        let world = World::new(&[webhook("erp", &receiver, "", look_up)]).await;
        Self { receiver, world, copy: String::new() }
    }

    /// From here on everything will be forgotten.
    pub(super) async fn remember(&mut self) {
        self.world.beat().await;
        self.copy = self.world.db.copy_aside().await;
        // Acknowledged, and then forgotten.
        self.world.beat().await;
    }

    /// The standby is promoted, the backup restored: this process finds out at its next heartbeat.
    pub(super) async fn forget(&mut self) {
        self.world.db.put_back(&self.copy).await;
    }

    /// … and has found out, and put everything in doubt.
    pub(super) async fn rewind(&mut self) {
        self.forget().await;
        assert!(matches!(self.world.beat().await, Beaten::Rewound { .. }));
        self.quarantine().await;
    }

    pub(super) async fn quarantine(&self) {
        let mut quarantine = self.world.quarantine();
        while quarantine.step().await.unwrap() != Progress::Idle {}
    }

    pub(super) fn sends(&self) -> (usize, u64) {
        (self.receiver.effects().all().len(), self.receiver.faults().count(Stage::Act))
    }

    /// Asks so many times, turning the clock.
    pub(super) async fn ask(&mut self, times: usize) {
        for _ in 0..times {
            self.world.turn(20);
            self.world.ask().await;
        }
    }

    /// Asks until it is known, turning the clock.
    pub(super) async fn ask_until_known(&mut self, id: Uuid) {
        for _ in 0..8 {
            if self.world.state(id).await != "unknown" {
                return;
            }
            self.ask(1).await;
        }
    }
}

#[tokio::test]
async fn what_was_sent_in_lost_history_is_found_and_not_sent_again() {
    let mut house = House::new("").await;
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.remember().await;
    house.world.dispatch().await;
    assert_eq!((house.world.state(id).await.as_str(), house.sends()), ("sent", (1, 1)));
    house.rewind().await;
    assert_eq!(house.world.state(id).await, "unknown");
    house.world.dispatch().await;
    house.world.ask().await;
    house.world.dispatch().await;
    assert_eq!((house.world.state(id).await.as_str(), house.sends()), ("sent", (1, 1)));
    assert_eq!(house.world.verdicts(id).await, ["found"]);
}

#[tokio::test]
async fn what_is_found_of_lost_history_is_explained_by_its_own_row_and_alarms_nobody() {
    let mut house = House::new("").await;
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.remember().await;
    house.world.dispatch().await;
    house.rewind().await;
    house.world.ask().await;
    assert_eq!(house.world.state(id).await, "sent");
    let pinned = house.world.text("select key from settled.intents where id = $1", id).await;
    assert_eq!(pinned, house.receiver.effects().all()[0].key, "the key that it was found by");
    // The listing of everything, an hour later.
    house.world.turn(60);
    house.world.audit().await;
    house.world.turn(3700);
    house.world.audit().await;
    let told: Vec<String> =
        sqlx::query_scalar("select summary from settled.escalations where reason = 'orphan_sighting'")
            .fetch_all(&house.world.db.pool)
            .await
            .unwrap();
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn between_a_rewind_and_the_look_at_it_nothing_is_claimed() {
    let mut house = House::new("").await;
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    // As a promoted standby shows itself: this transaction is the first to see it.
    house.world.beat().await;
    sqlx::query("update settled.instance set history = gen_random_uuid()").execute(&house.world.db.pool).await.unwrap();
    house.world.dispatch().await;
    assert_eq!((house.world.state(id).await.as_str(), house.sends()), ("pending", (0, 0)));
    house.world.sending.watch.alarmed().await;
    // Somebody has written it down, and it concerned nothing here.
    assert_eq!(house.world.beat().await, Beaten::Noted);
    house.world.dispatch().await;
    assert_eq!((house.world.state(id).await.as_str(), house.sends()), ("sent", (1, 1)));
}

#[tokio::test]
async fn two_daemons_write_one_rewind_down_once_and_people_are_told_once() {
    let mut house = House::new("").await;
    let other = house.world.beside(&[webhook("erp", &house.receiver, "", "")], 1, "k1").await;
    other.beat().await;
    house.remember().await;
    other.beat().await;
    house.forget().await;
    let seen = [house.world.beat().await, other.beat().await, house.world.beat().await, other.beat().await];
    assert_eq!(seen, [Beaten::Rewound { number: 1 }, Beaten::Noted, Beaten::Whole, Beaten::Whole]);
    let told: Vec<(String, String)> = sqlx::query_as("select subject, reason from settled.escalations")
        .fetch_all(&house.world.db.pool)
        .await
        .unwrap();
    assert_eq!(told, [("instance".to_owned(), "ledger_rewound".to_owned())]);
    let text = house.world.sending.metrics.text().unwrap();
    assert!(text.contains("settled_failure_modes_total{mode=\"ledger_rewound\"} 1"), "{text}");
}

#[tokio::test]
async fn a_rewind_that_takes_the_record_of_an_earlier_one_with_it_is_noticed_as_well() {
    let mut house = House::new("").await;
    house.remember().await;
    let early = house.copy.clone();
    // What was noticed is forgotten again with the next rewind.
    sqlx::query("update settled.instance set history = gen_random_uuid()").execute(&house.world.db.pool).await.unwrap();
    assert_eq!(house.world.beat().await, Beaten::Noted);
    house.copy = early;
    house.forget().await;
    assert!(matches!(house.world.beat().await, Beaten::Rewound { .. }));
}

#[tokio::test]
async fn what_was_never_sent_is_sent_once_after_the_quiet_time_and_a_proof() {
    let mut house = House::new("absent_by_lag = \"resend\"").await;
    let elder = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.world.dispatch().await;
    house.world.turn(120);
    let id = house.world.enqueue("erp", "INV-2", PAYLOAD).await;
    house.remember().await;
    house.rewind().await;
    house.world.ask().await;
    house.world.dispatch().await;
    assert_eq!(
        (house.world.state(id).await.as_str(), house.sends()),
        ("unknown", (1, 1)),
        "lease and lag have not gone by"
    );
    house.ask_until_known(id).await;
    house.world.dispatch().await;
    assert_eq!(
        (house.world.state(id).await.as_str(), house.sends()),
        ("sent", (2, 2)),
        "{:?}",
        house.world.verdicts(id).await
    );
    assert_eq!(house.world.state(elder).await, "sent");
    assert!(house.receiver.effects().duplicates().is_empty());
}

#[tokio::test]
async fn a_call_that_is_repeated_after_its_admission_was_lost_is_asked_about_first() {
    let mut house = House::new("").await;
    house.remember().await;
    let call = new_request("erp", "INV-1", PAYLOAD, "run-1", 1);
    let lost = house.world.request(&call).await.unwrap().intent_id;
    house.world.dispatch().await;
    assert_eq!(house.world.state(lost).await, "sent");
    house.rewind().await;
    let again = house.world.request(&call).await.unwrap();
    assert_eq!((again.verdict.as_str(), again.state.as_str()), ("accepted", "unknown"));
    assert!(again.detail.unwrap().contains("lost history"));
    house.world.dispatch().await;
    house.world.ask().await;
    assert_eq!(house.world.state(again.intent_id).await, "sent");
    assert_eq!(house.sends(), (1, 1));
}

#[tokio::test]
async fn the_effect_under_another_identity_is_never_absent() {
    let mut house = House::new("absent_by_lag = \"resend\"").await;
    house.remember().await;
    house.world.request(&new_request("erp", "INV-1", PAYLOAD, "run-1", 1)).await.unwrap();
    house.world.dispatch().await;
    house.rewind().await;
    // The agent plans anew and asks for the same effect as another call: another key.
    let again = house.world.request(&new_request("erp", "INV-1", PAYLOAD, "run-2", 7)).await.unwrap().intent_id;
    house.ask(5).await;
    house.world.dispatch().await;
    let verdicts = house.world.verdicts(again).await;
    assert!(verdicts.iter().all(|v| v.starts_with("conflict")) && !verdicts.is_empty(), "{verdicts:?}");
    assert_eq!((house.world.state(again).await.as_str(), house.sends()), ("unknown", (1, 1)));
}

#[tokio::test]
async fn a_lost_key_is_found_under_every_secret_that_is_still_held() {
    let mut house = House::new("").await;
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.remember().await;
    house.world.dispatch().await;
    house.rewind().await;
    // The secret was replaced meanwhile: what would be sent now carries another key.
    let db = Arc::clone(&house.world.db);
    house.world = World::over(db, &[webhook("erp", &house.receiver, "", "")], 1, "k2").await;
    house.world.turn(120);
    house.world.ask().await;
    assert_eq!((house.world.state(id).await.as_str(), house.sends()), ("sent", (1, 1)));
}

#[tokio::test]
async fn absence_at_another_downstream_than_the_lost_attempts_may_have_used_proves_nothing() {
    let mut house = House::new("absent_by_lag = \"resend\"").await;
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.remember().await;
    house.world.dispatch().await;
    house.forget().await;
    assert!(matches!(house.world.beat().await, Beaten::Rewound { .. }));
    // Before anything is put in doubt the destination is pointed elsewhere, as one does in such an hour.
    let other = Webhook::start().await.unwrap();
    let db = Arc::clone(&house.world.db);
    house.world = World::over(db, &[webhook("erp", &other, "", "absent_by_lag = \"resend\"")], 2, "k1").await;
    let published = "update settled.generations g set published_at = i.created_at + interval '1 day'
        from settled.intents i, settled.destinations d
        where i.id = $1 and d.name = g.destination and d.generation = g.generation returning d.name";
    assert_eq!(house.world.text(published, id).await.as_deref(), Some("erp"));
    house.quarantine().await;
    house.ask(8).await;
    house.world.dispatch().await;
    let verdicts = house.world.verdicts(id).await;
    assert!(verdicts.iter().any(|v| v.contains("meant another downstream")), "{verdicts:?}");
    assert_eq!((house.world.state(id).await.as_str(), house.sends()), ("unknown", (1, 1)));
    assert_eq!(other.effects().all().len(), 0);
}

#[tokio::test]
async fn what_was_in_flight_when_history_was_lost_is_in_doubt_and_its_late_result_counts() {
    let mut house = House::new("").await;
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.world.beat().await;
    let results = house.world.send_only().await;
    house.remember().await;
    house.rewind().await;
    assert_eq!(house.world.state(id).await, "unknown");
    let closure: String = house
        .world
        .text("select (a.closure_at >= w.closure_at)::text from settled.attempts a, settled.rewinds w where a.intent_id = $1", id)
        .await
        .unwrap();
    assert_eq!(closure, "true", "the later of the end of the lease and the rewind plus the lease");
    house.world.write(results).await;
    assert_eq!((house.world.state(id).await.as_str(), house.sends()), ("sent", (1, 1)));
}

#[tokio::test]
async fn a_request_whose_transaction_was_open_during_the_rewind_is_not_claimed_before_it_was_asked_about() {
    let mut house = House::new("").await;
    house.remember().await;
    house.forget().await;
    let mut open = house.world.db.pool.begin().await.unwrap();
    let call = new_request("erp", "INV-1", PAYLOAD, "run-1", 1);
    let receipt = store::requests::enqueue(&mut open, &call).await.unwrap();
    assert!(matches!(house.world.beat().await, Beaten::Rewound { .. }));
    house.quarantine().await;
    open.commit().await.unwrap();
    house.world.turn(600);
    house.world.dispatch().await;
    assert_eq!((house.world.state(receipt.intent_id).await.as_str(), house.sends()), ("pending", (0, 0)));
    house.quarantine().await;
    assert_eq!(house.world.state(receipt.intent_id).await, "unknown");
}

#[tokio::test]
async fn where_nobody_can_be_asked_everything_waits_for_a_person_under_one_cause() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let entry = |name: &str| {
        mute_webhook(name, &receiver, "in_doubt = 'person'\nif_twice = 'paid twice'\nif_never = 'not paid'")
    };
    let world = World::new(&[entry("one"), entry("two")]).await;
    let mut house = House { receiver: Arc::clone(&receiver), world, copy: String::new() };
    let ids = [
        house.world.enqueue("one", "INV-1", PAYLOAD).await,
        house.world.enqueue("one", "INV-2", PAYLOAD).await,
        house.world.enqueue("two", "INV-3", PAYLOAD).await,
    ];
    house.remember().await;
    house.rewind().await;
    house.world.turn(3600);
    house.world.ask().await;
    house.world.dispatch().await;
    for id in ids {
        assert_eq!(
            (house.world.state(id).await.as_str(), house.world.reasons(id).await),
            ("unknown", vec!["no_look_up".to_owned()])
        );
    }
    let causes: Vec<String> = sqlx::query_scalar("select distinct cause from settled.escalations")
        .fetch_all(&house.world.db.pool)
        .await
        .unwrap();
    assert_eq!((causes, house.sends()), (vec!["ledger_rewound".to_owned()], (0, 0)));
}

async fn quarantines(world: &World) -> (i64, Option<Uuid>) {
    let open = "select count(*) from settled.rewinds where ended_at is null";
    let told = "select id from settled.escalations where reason = 'ledger_rewound' and closed_at is null";
    (
        sqlx::query_scalar(open).fetch_one(&world.db.pool).await.unwrap(),
        sqlx::query_scalar(told).fetch_optional(&world.db.pool).await.unwrap(),
    )
}

#[tokio::test]
async fn a_quarantine_ends_by_itself_when_its_times_are_over_and_its_questions_are_answered() {
    let mut house = House::new("").await;
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.remember().await;
    house.world.dispatch().await;
    house.rewind().await;
    house.world.clock.advance(CALLERS);
    house.world.turn(1);
    house.quarantine().await;
    assert!(matches!(quarantines(&house.world).await, (1, Some(_))), "a question is open");
    house.world.ask().await;
    assert_eq!(house.world.state(id).await, "sent");
    house.quarantine().await;
    assert_eq!(quarantines(&house.world).await, (0, None));
    let next = house.world.request(&new_request("erp", "INV-2", PAYLOAD, "run-2", 1)).await.unwrap();
    // The ledger's own clock has not moved: it still asks first.
    assert_eq!(next.state, "unknown");
}

#[tokio::test]
async fn a_person_may_end_asking_first_and_nothing_is_claimed_earlier_for_it() {
    let mut house = House::new("").await;
    house.remember().await;
    house.rewind().await;
    let mut conn = house.world.db.pool.acquire().await.unwrap();
    let now = Some(chrono::Utc::now());
    assert_eq!(store::rewinds::lift(&mut conn, "admin:ada", "a planned switchover", now).await.unwrap(), 1);
    assert_eq!(store::rewinds::lift(&mut conn, "admin:ada", "again", now).await.unwrap(), 0);
    drop(conn);
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    assert_eq!(house.world.state(id).await, "pending");
    house.world.dispatch().await;
    assert_eq!(house.world.state(id).await, "pending", "the quiet time has not gone by");
    house.world.turn(60);
    house.world.dispatch().await;
    assert_eq!((house.world.state(id).await.as_str(), house.sends()), ("sent", (1, 1)));
    let told: i64 = sqlx::query_scalar(
        "select count(*) from settled.journal where kind = 'administration' and actor = 'admin:ada' and data->>'act' = 'lift_quarantine'",
    )
    .fetch_one(&house.world.db.pool)
    .await
    .unwrap();
    assert_eq!(told, 1);
}

#[tokio::test]
async fn a_copy_in_another_cluster_sends_nothing_until_a_person_says_that_it_may() {
    let mut house = House::new("").await;
    sqlx::query("update settled.instance set system_identifier = '1'").execute(&house.world.db.pool).await.unwrap();
    assert!(matches!(house.world.beat().await, Beaten::Rewound { .. }));
    house.quarantine().await;
    house.world.clock.advance(CALLERS * 2);
    house.quarantine().await;
    let id = house.world.enqueue("erp", "INV-1", PAYLOAD).await;
    house.ask(3).await;
    sqlx::query("update settled.rewinds set ask_first_until = created_at - interval '1 hour' from settled.instance")
        .execute(&house.world.db.pool)
        .await
        .unwrap();
    let later = house.world.enqueue("erp", "INV-2", PAYLOAD).await;
    house.world.dispatch().await;
    assert_eq!(house.sends(), (0, 0));
    let mut conn = house.world.db.pool.acquire().await.unwrap();
    store::rewinds::lift(&mut conn, "admin:ada", "restored; the old one is switched off", None).await.unwrap();
    drop(conn);
    house.world.turn(60);
    house.world.dispatch().await;
    assert_eq!(house.world.state(later).await, "sent");
    assert_eq!(house.world.state(id).await, "unknown");
}
