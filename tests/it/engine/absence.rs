//! Absence, end to end: an answer of the downstream against the controls that stand beside it.

use std::sync::{Arc, Mutex};

use serde_json::json;
use settled::{
    demo::fakes::{
        desk::{Matching, Paging},
        faults::{Fault, Stage},
        webhook::Webhook,
    },
    engine::runner::Step,
};

use super::doubt::{Doubt, PAYLOAD, Setting};
use crate::support::{
    fragments::webhook,
    scripted::{Act, Scripted, json as reply},
    world::World,
};

/// A question for each name, by reference; references are lower case here because the fake does not fold.
fn by_reference(receiver: &Webhook, matching: &str) -> String {
    let base = receiver.url();
    let text = webhook("erp", receiver, "", "");
    let (head, _) = text.split_once("[look_up.http]").unwrap();
    format!(
        r#"{head}
[look_up.http]
per = "key"
url = "{base}/events?reference={{reference}}"
answer = {{ items = "/events", key_at = "/key", reference_at = "/reference", id_at = "/id", match = "{matching}", folds_case = true }}
pages = {{ next_at = "/next", max = 20 }}
account = {{ url = "{base}/account", expect = {{ "/account" = "demo-webhook" }} }}
"#
    )
}

#[tokio::test]
async fn with_all_controls_it_is_absent_and_sent_again() {
    Doubt::bracketed().await.sent_again("INV-2").await;
}

#[tokio::test]
async fn before_the_lag_has_gone_by_it_is_never_absent() {
    let mut doubt = Doubt::bracketed().await;
    let started: chrono::DateTime<chrono::Utc> =
        sqlx::query_scalar("select closure_at from settled.attempts where intent_id = $1")
            .bind(doubt.id)
            .fetch_one(&doubt.world.db.pool)
            .await
            .unwrap();
    // Back to the moment after the closure.
    doubt.world.clock.set_wall(started + chrono::TimeDelta::seconds(8));
    for _ in 0..3 {
        sqlx::query("update settled.queue set due_at = $1").bind(started).execute(&doubt.world.db.pool).await.unwrap();
        doubt.world.ask().await;
    }
    let verdicts = doubt.world.verdicts(doubt.id).await;
    assert!(verdicts.iter().all(|v| v.contains("the lag has not gone by")) && verdicts.len() == 3, "{verdicts:#?}");
    doubt.nothing_was_sent();
}

#[tokio::test]
async fn without_any_control_it_is_never_absent() {
    let mut doubt = Doubt::new(Setting { elder: false, younger: false, ..Setting::default() }).await;
    doubt.never_absent("no known item was looked for").await;
}

#[tokio::test]
async fn without_a_younger_witness_it_is_never_absent_and_a_person_is_asked() {
    let mut doubt = Doubt::new(Setting { younger: false, ..Setting::default() }).await;
    doubt.ask(3).await;
    let verdicts = doubt.world.verdicts(doubt.id).await;
    assert!(!verdicts.iter().any(|v| v == "absent"), "{verdicts:#?}");
    assert_eq!(doubt.world.state(doubt.id).await, "unknown");
    assert_eq!(doubt.world.reasons(doubt.id).await, ["inconclusive"]);
    doubt.nothing_was_sent();
}

#[tokio::test]
async fn without_a_younger_witness_a_destination_that_accepts_the_lag_sends_again() {
    let destination = |receiver: &Webhook| webhook("erp", receiver, "", "absent_by_lag = \"resend\"");
    let setting = Setting { younger: false, destination: Box::new(destination), ..Setting::default() };
    Doubt::new(setting).await.sent_again("INV-2").await;
}

#[tokio::test]
async fn a_downstream_without_an_order_is_never_absent_by_a_bracket() {
    let unordered = |receiver: &Webhook| {
        webhook("erp", receiver, "", "").replace("visibility = \"ordered\"", "visibility = \"unordered\"")
    };
    let mut doubt = Doubt::new(Setting { destination: Box::new(unordered), ..Setting::default() }).await;
    doubt.ask(3).await;
    let verdicts = doubt.world.verdicts(doubt.id).await;
    assert!(!verdicts.iter().any(|v| v == "absent"), "{verdicts:#?}");
    assert_eq!(doubt.world.reasons(doubt.id).await, ["inconclusive"]);
    doubt.nothing_was_sent();
}

#[tokio::test]
async fn where_the_elder_witness_is_missed_it_is_never_absent() {
    let mut doubt = Doubt::prepared(Setting::default(), |receiver| receiver.effects().hold_reference("INV-1")).await;
    doubt.never_absent("an elder witness that is known as sent was not seen").await;
}

#[tokio::test]
async fn where_the_younger_witness_is_missed_it_is_never_absent() {
    let mut doubt = Doubt::prepared(Setting::default(), |receiver| receiver.effects().hold_reference("INV-3")).await;
    doubt.never_absent("a younger witness that is known as sent was not seen").await;
}

/// Everything is found but the one key that is in doubt.
#[tokio::test]
async fn where_a_made_up_name_is_found_it_is_never_absent() {
    let subject = Arc::new(Mutex::new(String::new()));
    let key = Arc::clone(&subject);
    let agreeable = Scripted::new(move |got| {
        let name = got.path().rsplit('/').next().unwrap().to_owned();
        if got.path() == "/account" {
            reply(200, &json!({"account": "demo-webhook"}))
        } else if name == *key.lock().unwrap() {
            reply(404, &json!({}))
        } else {
            reply(200, &json!({"id": "EV1", "key": name}))
        }
    })
    .await;
    let base = agreeable.base.clone();
    let by_key = move |receiver: &Webhook| {
        let text = webhook("erp", receiver, "", "");
        let (head, _) = text.split_once("[look_up.http]").unwrap();
        format!(
            r#"{head}
[look_up.http]
per = "key"
url = "{base}/events/{{key}}"
answer = {{ absent = [404], key_at = "/key", id_at = "/id" }}
account = {{ url = "{base}/account", expect = {{ "/account" = "demo-webhook" }} }}
"#
        )
    };
    let mut doubt = Doubt::new(Setting { destination: Box::new(by_key), ..Setting::default() }).await;
    *subject.lock().unwrap() =
        doubt.world.text("select key from settled.intents where id = $1", doubt.id).await.unwrap();
    doubt.never_absent("a made-up name was found").await;
}

#[tokio::test]
async fn a_last_page_that_is_full_is_never_absent() {
    let pages_of_two =
        |receiver: &Webhook| webhook("erp", receiver, "", "").replace("full_page = 100", "full_page = 2");
    let mut doubt = Doubt::new(Setting { destination: Box::new(pages_of_two), ..Setting::default() }).await;
    doubt.receiver.desk().set_page_size(2);
    doubt.receiver.desk().set_paging(Paging::CutOff);
    doubt.never_absent("the last page is full").await;
}

#[tokio::test]
async fn a_list_that_never_ends_is_never_absent() {
    let mut doubt = Doubt::bracketed().await;
    doubt.receiver.desk().set_paging(Paging::Endless);
    doubt.never_absent("the same page came twice").await;
}

#[tokio::test]
async fn a_log_in_page_is_never_absent() {
    let mut doubt = Doubt::bracketed().await;
    doubt.receiver.desk().faults.always(Fault::HtmlPage { act: false });
    doubt.never_absent("cannot be read as yes or no").await;
}

#[tokio::test]
async fn another_account_is_never_absent() {
    let mut doubt = Doubt::bracketed().await;
    doubt.receiver.desk().set_account("somebody-else");
    doubt.never_absent("another account").await;
}

#[tokio::test]
async fn an_error_between_two_equal_answers_makes_the_row_start_anew() {
    let mut doubt = Doubt::bracketed().await;
    doubt.world.ask().await;
    doubt.world.turn(6);
    doubt.receiver.desk().faults.next(Fault::Status { code: 503, act: false });
    doubt.world.ask().await;
    doubt.world.turn(900);
    doubt.world.ask().await;
    assert_eq!(doubt.world.state(doubt.id).await, "unknown", "{:#?}", doubt.world.verdicts(doubt.id).await);
    doubt.world.turn(6);
    doubt.world.ask().await;
    assert_eq!(doubt.world.state(doubt.id).await, "pending", "{:#?}", doubt.world.verdicts(doubt.id).await);
}

/// inv-229 is in doubt, its neighbour is there, and the downstream's filter gives one for the other.
async fn beside_a_neighbour(matching: &'static str, neighbour: &str) -> Doubt {
    let destination = move |receiver: &Webhook| by_reference(receiver, matching);
    let setting =
        Setting { destination: Box::new(destination), reference: "inv-229", younger: false, ..Setting::default() };
    let mut doubt = Doubt::new(setting).await;
    doubt.receiver.desk().set_matching(Matching::Prefix);
    doubt.world.enqueue("erp", neighbour, PAYLOAD).await;
    doubt.world.dispatch().await;
    doubt.world.turn(30);
    doubt
}

#[tokio::test]
async fn inv_2291_is_never_taken_for_inv_229() {
    for matching in ["eq", "token"] {
        let mut doubt = beside_a_neighbour(matching, "inv-2291").await;
        // Absent by everything else that must hold, so it may go out; only never found.
        doubt.sent_again("inv-229").await;
        let verdicts = doubt.world.verdicts(doubt.id).await;
        assert!(!verdicts.iter().any(|v| v.starts_with("found")), "{verdicts:#?}");
        assert_eq!(doubt.receiver.effects().count_by_reference("inv-2291"), 1);
    }
}

#[tokio::test]
async fn a_near_miss_that_cannot_be_told_apart_is_never_absent() {
    let mut doubt = beside_a_neighbour("token", "inv-229.1").await;
    doubt.ask(5).await;
    let verdicts = doubt.world.verdicts(doubt.id).await;
    assert!(verdicts.iter().all(|v| v.contains("stands inside a longer one")), "{verdicts:#?}");
    assert_eq!(doubt.world.state(doubt.id).await, "unknown");
    assert_eq!(doubt.receiver.effects().count_by_reference("inv-229"), 0);
}

#[tokio::test]
async fn a_filter_that_the_downstream_ignores_finds_nothing_that_is_not_ours() {
    let destination = |receiver: &Webhook| by_reference(receiver, "eq");
    let setting = Setting { destination: Box::new(destination), reference: "inv-2", ..Setting::default() };
    let mut doubt = Doubt::new(setting).await;
    doubt.receiver.desk().set_matching(Matching::Ignored);
    doubt.ask(3).await;
    let verdicts = doubt.world.verdicts(doubt.id).await;
    assert!(!verdicts.iter().any(|v| v.starts_with("found")), "{verdicts:#?}");
    assert_eq!(doubt.receiver.effects().count_by_reference("inv-2"), 1);
    assert_eq!(doubt.receiver.faults().count(Stage::Act), 4);
}

/// Postgres can keep no U+0000. An answer that holds one must not be asked for again and again without an end.
#[tokio::test]
async fn an_answer_with_control_characters_in_it_is_kept_and_ends_the_doubt() {
    let hostile = Scripted::new(move |got| {
        let name = got.path().rsplit('/').next().unwrap().to_owned();
        let text = "EV\u{0}1\u{1b}[31m\u{9b}31m\u{202e}2\r\nFAKE";
        match got.path() {
            "/account" => reply(200, &json!({"account": "demo-webhook"})),
            _ => reply(200, &json!({"id": text, "key": name, "status": text})),
        }
    })
    .await;
    let base = hostile.base.clone();
    let by_key = move |receiver: &Webhook| {
        let text = webhook("erp", receiver, "", "");
        let (head, _) = text.split_once("[look_up.http]").unwrap();
        format!(
            r#"{head}
[look_up.http]
per = "key"
url = "{base}/events/{{key}}"
answer = {{ absent = [404], key_at = "/key", id_at = "/id", status_at = "/status" }}
account = {{ url = "{base}/account", expect = {{ "/account" = "demo-webhook" }} }}
"#
        )
    };
    let mut doubt = Doubt::new(Setting { destination: Box::new(by_key), ..Setting::default() }).await;
    doubt.world.ask().await;
    assert_eq!(doubt.world.state(doubt.id).await, "sent", "{:#?}", doubt.world.verdicts(doubt.id).await);
    let id = doubt.world.text("select provider_id from settled.intents where id = $1", doubt.id).await.unwrap();
    assert_eq!(id, "EV 1 [31m 31m 2  FAKE");
    doubt.nothing_was_sent();
}

/// One destination's look-up takes every question and never answers; the other one's is as quick as ever.
#[tokio::test]
async fn a_downstream_that_never_answers_does_not_hold_up_what_is_asked_of_others() {
    let silent = Scripted::new(|_| Act::Silence).await;
    let receiver = Webhook::start().await.unwrap();
    let quick = webhook("erp", &receiver, "", "");
    let base = silent.base.clone();
    let slow = quick
        .replace("name = \"erp\"", "name = \"crm\"")
        .replace(&format!("{}/events", receiver.url()), &format!("{base}/events"))
        .replace(&format!("{}/account", receiver.url()), &format!("{base}/account"))
        .replace("reply = \"2s\"", "reply = \"45s\"");
    let mut world = World::new(&[slow, quick]).await;
    receiver.faults().for_reference("INV-1", Fault::LoseReply);
    receiver.faults().for_reference("INV-2", Fault::LoseReply);
    let held_up = world.enqueue("crm", "INV-1", PAYLOAD).await;
    let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!((world.state(held_up).await, world.state(id).await), ("unknown".to_owned(), "unknown".to_owned()));
    world.turn(60);
    let asked = tokio::time::timeout(std::time::Duration::from_secs(20), world.reconciler.step()).await;
    assert!(asked.is_ok_and(|step| step.is_ok()), "the step waits for the one that never answers");
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    assert!(!silent.got().is_empty());
}

/// A stop while a downstream keeps us waiting: the asking ends, nothing is concluded from it, and no session is left in the
/// middle of a transaction.
#[tokio::test]
async fn a_stop_ends_a_question_without_a_verdict_and_leaves_every_session_usable() {
    let silent = Scripted::new(|_| Act::Silence).await;
    let receiver = Webhook::start().await.unwrap();
    let entry = webhook("erp", &receiver, "", "")
        .replace(&format!("{}/events", receiver.url()), &format!("{}/events", silent.base))
        .replace(&format!("{}/account", receiver.url()), &format!("{}/account", silent.base))
        .replace("reply = \"2s\"", "reply = \"10m\"");
    let mut world = World::new(&[entry]).await;
    receiver.faults().next(Fault::LoseReply);
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(1200);
    world.reconciler.step().await.unwrap();
    assert!(!silent.got().is_empty(), "it is being asked about");
    world.sending.stopping.cancel();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), world.reconciler.finish()).await;
    assert!(ended.is_ok(), "the question outlives the stop");
    assert_eq!((world.state(id).await.as_str(), world.verdicts(id).await.len()), ("unknown", 0));
    let open: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null",
    )
    .fetch_one(&world.db.pool)
    .await
    .unwrap();
    assert_eq!(open, 0);
}
