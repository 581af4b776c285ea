//! Every answer and every raise of `settled.enqueue` and `settled.cancel`.

use serde_json::json;
use sqlx::Row;
use uuid::Uuid;

use super::world::{Raised, World, call, hook, raised};

const A: &str = r#"{"amount": 1}"#;
const B: &str = r#"{"amount": 2}"#;
const MAIL: &str = r#"{"to": "ap@acme.test", "subject": "Invoice INV-1", "text": "hello"}"#;

async fn cancel(world: &World, intent: Uuid) -> Result<String, Raised> {
    sqlx::query_scalar("select settled.cancel($1, 'no longer wanted')")
        .bind(intent)
        .fetch_one(world.pool())
        .await
        .map_err(raised)
}

#[tokio::test]
async fn a_new_effect_is_accepted_and_written_whole() {
    let world = World::new().await;
    let answer = world.ask(&call("mail", "INV-1", MAIL, "run-1", 3).with("slot", json!("ap"))).await.unwrap();
    assert_eq!((answer.verdict.as_str(), answer.state.as_str()), ("accepted", "pending"));
    let row = sqlx::query(
        "select i.*, r.run_id, r.slot, r.reference as spelled, r.verdict, r.principal, p.body, q.kind, j.kind as told, j.actor
         from settled.intents i join settled.requests r on r.intent_id = i.id join settled.payloads p on p.intent_id = i.id
         join settled.queue q on q.intent_id = i.id join settled.journal j on j.intent_id = i.id",
    )
    .fetch_one(world.pool())
    .await
    .unwrap();
    let text = |column: &str| row.get::<String, _>(column);
    assert_eq!(row.get::<Uuid, _>("id"), answer.intent_id);
    assert_eq!(
        (text("recipient"), text("reference"), text("spelled")),
        ("ap@acme.test".into(), "inv-1".into(), "INV-1".into())
    );
    assert_eq!((text("run_id"), text("slot"), text("verdict")), ("run-1".into(), "ap".into(), "accepted".into()));
    assert_eq!(text("body"), MAIL, "stored as given");
    assert_eq!((text("kind"), text("told"), text("actor")), ("send".into(), "move".into(), "producer:postgres".into()));
    assert!(row.get::<bool, _>("holds_effect"));
}

#[tokio::test]
async fn the_same_call_again_is_replayed_in_whatever_state_still_means_an_effect() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    for state in ["in_flight", "unknown", "abandoned", "sent"] {
        match state {
            "in_flight" => world.attempted(first.intent_id, "ambiguous").await,
            "unknown" => world.run("update settled.intents set state = 'unknown'").await,
            "abandoned" => world.end(first.intent_id, "abandoned", true).await,
            _ => world.end(first.intent_id, "sent", true).await,
        }
        let again = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
        assert_eq!(
            (again.verdict.as_str(), again.state.as_str(), again.intent_id),
            ("replayed", state, first.intent_id)
        );
        let repeat = world.ask(&hook("inv-1", A, "run-2", 1).with("slot", json!(state))).await.unwrap();
        assert_eq!((repeat.verdict.as_str(), repeat.state.as_str()), ("already_requested", state));
        assert_eq!(repeat.intent_id, first.intent_id);
    }
    let again = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    assert_eq!(again.provider_id.as_deref(), Some("msg-1"));
    assert_eq!(world.count("settled.requests").await, 5, "a repeat is a row of its own, a replay is none");
    let repeat = world.ask(&hook("inv-1", A, "run-2", 1).with("slot", json!("sent"))).await.unwrap();
    assert_eq!(repeat.verdict, "replayed", "a repeat that comes again is a replay");
}

#[tokio::test]
async fn other_content_at_the_same_identity_is_a_conflict_that_names_the_fields() {
    let world = World::new().await;
    let first =
        world.ask(&hook("INV-1", r#"{"amount": 1, "lines": [{"a/b": 1}], "same": 1}"#, "run-1", 1)).await.unwrap();
    let error = world
        .ask(&hook("INV-1", r#"{"amount": 2, "lines": [{"a/b": 2}, 3], "same": 1}"#, "run-1", 1))
        .await
        .unwrap_err();
    assert_eq!(error.code, "ST409");
    assert_eq!(
        error.detail,
        json!({"kind": "identity", "intent_id": first.intent_id, "state": "pending",
               "pointers": ["/payload/amount", "/payload/lines/0/a~1b", "/payload/lines/1"]})
    );
    assert!(error.message.starts_with("conflict: "), "{}", error.message);
    let error = world.ask(&hook("INV-2", A, "run-1", 1)).await.unwrap_err();
    assert_eq!(error.detail["pointers"][0], "/reference");
    let error = world.ask(&call("mail", "INV-1", MAIL, "run-1", 1)).await.unwrap_err();
    assert_eq!(error.detail["pointers"][0], "/destination", "a re-plan that swaps the channel must not send twice");
    assert_eq!(world.count("settled.intents").await, 1);
}

#[tokio::test]
async fn other_content_of_the_same_effect_is_a_conflict_of_the_effect() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    let error = world.ask(&hook("inv-1", B, "run-2", 1)).await.unwrap_err();
    assert_eq!(error.code, "ST409");
    assert_eq!(
        error.detail,
        json!({"kind": "effect", "intent_id": first.intent_id, "state": "pending", "pointers": ["/payload/amount"]})
    );
    assert_eq!(world.count("settled.requests").await, 1, "a conflict is no request");
}

#[tokio::test]
async fn destinations_with_one_scope_share_their_effects() {
    let world = World::new().await;
    world.destination("billing-mail", "smtp", "mail", json!({})).await;
    world.ask(&call("mail", "INV-1", MAIL, "run-1", 1)).await.unwrap();
    let error = world.ask(&call("billing-mail", "INV-1", MAIL, "run-2", 1)).await.unwrap_err();
    assert_eq!((error.code.as_str(), &error.detail["pointers"]), ("ST409", &json!(["/destination"])));
}

#[tokio::test]
async fn another_recipient_or_occurrence_is_another_effect() {
    let world = World::new().await;
    world.ask(&call("mail", "INV-1", MAIL, "run-1", 1)).await.unwrap();
    let other = MAIL.replace("ap@", "cfo@");
    assert_eq!(world.ask(&call("mail", "INV-1", &other, "run-1", 2)).await.unwrap().verdict, "accepted");
    let second = call("mail", "INV-1", MAIL, "run-1", 3).with("occurrence", json!(2));
    assert_eq!(world.ask(&second).await.unwrap().verdict, "accepted");
}

#[tokio::test]
async fn a_replay_of_what_ended_without_effect_raises() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    assert_eq!(cancel(&world, first.intent_id).await.unwrap(), "cancelled");
    let error = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap_err();
    assert_eq!((error.code.as_str(), &error.detail["state"]), ("ST411", &json!("cancelled")));
    assert!(error.message.starts_with("ended_without_effect: "), "{}", error.message);
}

#[tokio::test]
async fn a_repeat_of_what_ended_but_holds_its_effect_raises_until_it_is_freed() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    world.attempted(first.intent_id, "ambiguous").await;
    world.end(first.intent_id, "failed", true).await;
    let error = world.ask(&hook("INV-1", A, "run-2", 1)).await.unwrap_err();
    assert_eq!((error.code.as_str(), &error.detail["intent_id"]), ("ST412", &json!(first.intent_id)));
    assert_eq!(world.count("settled.requests").await, 1);
    world.run("update settled.intents set holds_effect = false").await;
    let freed = world.ask(&hook("INV-1", A, "run-2", 1)).await.unwrap();
    assert_eq!(freed.verdict, "accepted");
    assert_ne!(freed.intent_id, first.intent_id);
}

#[tokio::test]
async fn a_refused_request_may_be_corrected_at_the_same_step() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    world.attempted(first.intent_id, "refused").await;
    world.end(first.intent_id, "failed", false).await;
    assert_eq!(
        world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap_err().code,
        "ST411",
        "the same again is no correction"
    );
    let corrected = world.ask(&hook("INV-1", B, "run-1", 1)).await.unwrap();
    assert_eq!(corrected.verdict, "accepted");
    assert_ne!(corrected.intent_id, first.intent_id);
    let revision: i32 = sqlx::query_scalar("select revision from settled.intents where id = $1")
        .bind(corrected.intent_id)
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert_eq!(revision, 1);
    assert_eq!(
        world.ask(&hook("INV-1", B, "run-1", 1)).await.unwrap().intent_id,
        corrected.intent_id,
        "the highest counts"
    );
    let back = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap_err();
    assert_eq!((back.code.as_str(), &back.detail["intent_id"]), ("ST409", &json!(corrected.intent_id)));
}

#[tokio::test]
async fn what_was_in_doubt_is_never_corrected() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    world.attempted(first.intent_id, "ambiguous").await;
    world.end(first.intent_id, "failed", false).await;
    let error = world.ask(&hook("INV-1", B, "run-1", 1)).await.unwrap_err();
    assert_eq!((error.code.as_str(), &error.detail["kind"]), ("ST409", &json!("identity")));
}

#[tokio::test]
async fn a_correction_that_meets_a_taken_effect_is_a_repeat_or_a_conflict() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    cancel(&world, first.intent_id).await.unwrap();
    let other = world.ask(&hook("INV-1", B, "run-2", 1)).await.unwrap();
    let repeat = world.ask(&hook("INV-1", B, "run-1", 1)).await.unwrap();
    assert_eq!((repeat.verdict.as_str(), repeat.intent_id), ("already_requested", other.intent_id));
    let third = world.ask(&hook("INV-3", A, "run-3", 1)).await.unwrap();
    cancel(&world, third.intent_id).await.unwrap();
    let error = world.ask(&hook("INV-1", r#"{"amount": 9}"#, "run-3", 1)).await.unwrap_err();
    assert_eq!((error.code.as_str(), &error.detail["kind"]), ("ST409", &json!("effect")));
}

#[tokio::test]
async fn a_call_without_identity_is_told_so() {
    let world = World::new().await;
    let error = world.ask(&hook("INV-1", A, "", 0).without_identity()).await.unwrap_err();
    assert_eq!(error.code, "ST401");
    assert!(error.message.starts_with("identity_required"), "{}", error.message);
}

#[tokio::test]
async fn a_caller_key_stands_in_for_the_identity() {
    let world = World::new().await;
    let keyed = |reference: &str, payload: &str| {
        hook(reference, payload, "", 0).without_identity().with("caller_key", json!("8e03978e-40d5"))
    };
    let first = world.ask(&keyed("INV-1", A)).await.unwrap();
    let again = world.ask(&keyed("INV-1", A)).await.unwrap();
    assert_eq!((again.verdict.as_str(), again.intent_id), ("replayed", first.intent_id));
    let error = world.ask(&keyed("INV-1", B)).await.unwrap_err();
    assert_eq!((error.code.as_str(), &error.detail["kind"]), ("ST409", &json!("caller_key")));
    let run_id: String =
        sqlx::query_scalar("select run_id from settled.requests").fetch_one(world.pool()).await.unwrap();
    assert!(run_id.starts_with("key:") && !run_id.contains("8e03978e"), "{run_id}");
    let forged = world.ask(&hook("INV-1", A, &run_id, 0)).await.unwrap_err();
    assert_eq!(forged.detail, json!({"field": "/run_id", "rule": "reserved"}));
}

#[tokio::test]
async fn a_passed_deadline_accepts_nothing_but_still_answers_for_what_was_accepted() {
    let world = World::new().await;
    let late = json!("2020-01-01T00:00:00Z");
    let error = world.ask(&hook("INV-1", A, "run-1", 1).with("deadline", late.clone())).await.unwrap_err();
    assert_eq!(error.code, "ST410");
    assert!(error.message.starts_with("expired"), "{}", error.message);
    assert_eq!(world.count("settled.intents").await, 0);
    world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    assert_eq!(world.ask(&hook("INV-1", A, "run-1", 1).with("deadline", late)).await.unwrap().verdict, "replayed");
}

#[tokio::test]
async fn due_at_and_deadline_reach_the_queue() {
    let world = World::new().await;
    world
        .ask(
            &hook("INV-1", A, "run-1", 1)
                .with("due_at", json!("2099-01-01T01:00:00+01:00"))
                .with("deadline", json!("2099-01-02T00:00:00Z")),
        )
        .await
        .unwrap();
    assert_eq!(
        world.count("settled.queue where kind = 'send' and due_at = '2099-01-01T00:00:00Z' and deadline = '2099-01-02T00:00:00Z'").await,
        1
    );
}

#[tokio::test]
async fn an_unknown_or_withdrawn_destination_is_not_found_but_answers_for_what_was_accepted() {
    let world = World::new().await;
    assert_eq!(world.ask(&call("nowhere", "INV-1", A, "run-1", 1)).await.unwrap_err().code, "ST404");
    world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    world.run("update settled.destinations set withdrawn_at = now() where name = 'hook'").await;
    let error = world.ask(&hook("INV-2", A, "run-1", 2)).await.unwrap_err();
    assert_eq!(error.code, "ST404");
    assert!(error.message.contains("withdrawn"), "{}", error.message);
    assert_eq!(world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap().verdict, "replayed");
}

#[tokio::test]
async fn what_needs_a_person_is_held_with_an_escalation() {
    let world = World::new().await;
    world.destination("careful", "webhook", "careful", json!({"approval": "always"})).await;
    let held = world.ask(&call("careful", "INV-1", A, "run-1", 1)).await.unwrap();
    assert_eq!((held.verdict.as_str(), held.state.as_str()), ("accepted", "held"));
    assert_eq!(held.detail.as_deref(), Some("waits for a person"));
    let model = hook("INV-1", A, "run-1", 2).with("occurrence", json!(2)).with("surface", json!("mcp"));
    assert_eq!(world.ask(&model).await.unwrap().state, "held");
    let program = hook("INV-1", A, "run-1", 3).with("occurrence", json!(3)).with("surface", json!("http"));
    assert_eq!(world.ask(&program).await.unwrap().state, "pending");
    let reasons: Vec<String> = sqlx::query_scalar("select reason from settled.escalations order by reason")
        .fetch_all(world.pool())
        .await
        .unwrap();
    assert_eq!(reasons, ["approval_required", "repeat_flagged"]);
    assert_eq!(world.count("settled.queue where kind = 'wait'").await, 2);
    cancel(&world, held.intent_id).await.unwrap();
    assert_eq!(world.count("settled.escalations where resolution = 'cancelled'").await, 1);
}

#[tokio::test]
async fn a_purged_payload_is_answered_without_comparing() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    world.end(first.intent_id, "sent", true).await;
    world.run("delete from settled.payloads").await;
    for (run, verdict) in [("run-1", "replayed"), ("run-2", "already_requested")] {
        let answer = world.ask(&hook("INV-1", B, run, 1)).await.unwrap();
        assert_eq!((answer.verdict.as_str(), answer.detail.as_deref()), (verdict, Some("content not compared")));
    }
    let error = world.ask(&hook("INV-2", B, "run-1", 1)).await.unwrap_err();
    assert_eq!((error.code.as_str(), &error.detail["pointers"]), ("ST409", &json!(["/reference"])));
}

#[tokio::test]
async fn new_declarations_or_rules_compare_both_sides_anew() {
    let world = World::new().await;
    world.ask(&hook("INV-1", r#"{"at": 1, "tags": ["b", "a"]}"#, "run-1", 1)).await.unwrap();
    let sorted = hook("INV-1", r#"{"at": 2, "tags": ["a", "b"]}"#, "run-1", 1);
    assert_eq!(
        world.ask(&sorted).await.unwrap_err().detail["pointers"],
        json!(["/payload/at", "/payload/tags/0", "/payload/tags/1"])
    );
    world
        .run(r#"update settled.destinations set revision = 2, rules = '{"canonical": {"sets": ["/tags"], "volatile": ["/at"]}}' where name = 'hook'"#)
        .await;
    assert_eq!(world.ask(&sorted).await.unwrap().verdict, "replayed");
    let other = world.ask(&hook("INV-1", r#"{"at": 2, "tags": ["a", "c"]}"#, "run-1", 1)).await.unwrap_err();
    assert_eq!(other.detail["pointers"], json!(["/payload/tags"]), "a set differs as a whole");
    // What is stored does not keep the declarations of today: compared as it stands.
    world
        .run(r#"update settled.destinations set revision = 3, rules = '{"canonical": {"money": [{"at": "/tags", "currency": "EUR"}]}}' where name = 'hook'"#)
        .await;
    assert_eq!(world.ask(&hook("INV-1", r#"{"at": 1, "tags": "5"}"#, "run-1", 1)).await.unwrap_err().code, "ST409");
}

async fn settings(conn: &mut sqlx::PgConnection) -> (String, String, String) {
    sqlx::query_as(
        "select current_setting('synchronous_commit'), current_setting('lock_timeout'), current_setting('search_path')",
    )
    .fetch_one(conn)
    .await
    .unwrap()
}

#[tokio::test]
async fn the_function_makes_its_transaction_durable_and_leaves_the_rest_alone() {
    let world = World::new().await;
    let mut conn = world.owner().await;
    for sql in ["set synchronous_commit = off", "set lock_timeout = '7s'", "begin"] {
        sqlx::query(sql).execute(&mut conn).await.unwrap();
    }
    let before = settings(&mut conn).await;
    super::world::ask(&mut conn, &hook("INV-1", A, "run-1", 1)).await.unwrap();
    let inside = settings(&mut conn).await;
    assert_eq!((before.0.as_str(), inside.0.as_str()), ("off", "on"));
    assert_eq!((before.1, before.2), (inside.1, inside.2));
    sqlx::query("commit").execute(&mut conn).await.unwrap();
    assert_eq!(settings(&mut conn).await.0, "off");
}

#[tokio::test]
async fn only_what_was_never_attempted_can_be_cancelled() {
    let world = World::new().await;
    let first = world.ask(&hook("INV-1", A, "run-1", 1)).await.unwrap();
    world.attempted(first.intent_id, "not_sent").await;
    for state in ["in_flight", "pending"] {
        world.run(&format!("update settled.intents set state = '{state}' where state <> '{state}'")).await;
        let error = cancel(&world, first.intent_id).await.unwrap_err();
        assert_eq!((error.code.as_str(), &error.detail["state"]), ("ST413", &json!(state)));
    }
    let error = cancel(&world, Uuid::now_v7()).await.unwrap_err();
    assert_eq!(error.code, "ST404");
    let second = world.ask(&hook("INV-2", A, "run-1", 2)).await.unwrap();
    assert_eq!(cancel(&world, second.intent_id).await.unwrap(), "cancelled");
    assert_eq!(cancel(&world, second.intent_id).await.unwrap(), "cancelled", "twice is once");
    assert_eq!(world.count("settled.queue").await, 1);
    assert_eq!(
        world
            .count("settled.journal where kind = 'act' and data ->> 'reason' = 'no longer wanted' and data #>> '{statement,statement}' = 'cancelled'")
            .await,
        1
    );
    let again = world.ask(&hook("INV-2", A, "run-9", 2)).await.unwrap();
    assert_eq!(again.verdict, "accepted", "a cancelled intent that was never attempted frees its effect");
}
