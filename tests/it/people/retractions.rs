//! A wrong statement is withdrawn; the journal shows both.

use std::time::Duration;

use settled::{
    config::destination::Approval,
    domain::state::State,
    engine::resolution::{ActError, Person, Resolved, Target, Words},
};
use uuid::Uuid;

use super::desk::{act, acts, ada, bob, decide, does, root, say};
use crate::support::ledger::{Ledger, lost, refused, sent, unaskable};

async fn retract(ledger: &Ledger, who: &Person, id: Uuid, row: Option<i64>) -> Result<Resolved, ActError> {
    act(ledger, who, Target::Intent(id), "retract", Words { statement: row, ..say("retract") }).await
}

#[tokio::test]
async fn a_wrong_sent_is_withdrawn_and_the_doubt_is_back() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let wrong = does(&ledger, &ada(), id, "sent").await;
    let back = retract(&ledger, &ada(), id, wrong.journal_id).await.unwrap();
    assert_eq!((back.state, back.holds_effect), (Some("unknown"), Some(true)));
    assert_eq!(ledger.open_escalations(id).await, ["no_look_up"], "a person is asked again");
    let rows = ledger.journal(id, "act").await;
    assert_eq!(rows[0].1["act"], "sent");
    assert_eq!(rows[1].1["retracts"].as_i64(), wrong.journal_id);
    assert!(retract(&ledger, &ada(), id, wrong.journal_id).await.unwrap().repeated);
    assert_eq!(acts(&ledger, id).await, ["sent", "retract"]);
    assert_eq!(ledger.fold_state(id).await, State::Unknown);
}

#[tokio::test]
async fn a_wrong_absence_is_withdrawn_and_the_effect_is_taken_back() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    does(&ledger, &ada(), id, "close").await;
    let wrong = does(&ledger, &ada(), id, "absent").await;
    assert_eq!(wrong.holds_effect, Some(false));
    let back = retract(&ledger, &ada(), id, wrong.journal_id).await.unwrap();
    assert_eq!((back.state, back.holds_effect), (Some("abandoned"), Some(true)), "as it was before");
}

#[tokio::test]
async fn an_absence_on_which_somebody_else_has_built_is_not_withdrawn() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let wrong = does(&ledger, &ada(), id, "absent").await;
    let other = ledger.enqueue("INV-1").await;
    let refused = retract(&ledger, &ada(), id, wrong.journal_id).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("re-requested as {other}"));
    assert_eq!(acts(&ledger, id).await, ["absent"], "nothing was written");
}

#[tokio::test]
async fn only_ones_own_statement_or_for_an_admin_anybodys() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let wrong = does(&ledger, &ada(), id, "sent").await;
    assert!(matches!(retract(&ledger, &bob(), id, wrong.journal_id).await, Err(ActError::Forbidden(_))));
    assert_eq!(retract(&ledger, &root(), id, wrong.journal_id).await.unwrap().state, Some("unknown"));
}

#[tokio::test]
async fn machine_evidence_is_never_withdrawn() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let why = "the index was away".to_owned();
    ledger.look_up_says(id, settled::domain::evidence::Verdict::Inconclusive { why }).await;
    for kind in ["look_up", "move"] {
        let row: i64 = sqlx::query_scalar("select min(id) from settled.journal where intent_id = $1 and kind = $2")
            .bind(id)
            .bind(kind)
            .fetch_one(ledger.pool())
            .await
            .unwrap();
        let refused = retract(&ledger, &root(), id, Some(row)).await.unwrap_err();
        assert!(matches!(refused, ActError::NotPossible(words) if words.contains("machine")), "{kind}");
    }
    let other = ledger.enqueue("INV-2").await;
    ledger.attempt(other, lost()).await;
    let elsewhere = does(&ledger, &ada(), other, "sent").await;
    let refused = retract(&ledger, &root(), id, elsewhere.journal_id).await.unwrap_err();
    assert!(matches!(refused, ActError::Incomplete { field: "statement", .. }), "another intent's");
}

#[tokio::test]
async fn an_approval_is_withdrawn_until_it_was_used() {
    let ledger = Ledger::empty().await;
    let mut config = unaskable("careful");
    config.approval = Approval::Always;
    ledger.destination(config).await;
    let id = ledger.ask_for(&ledger.call("INV-1")).await.unwrap().intent_id;
    let given = does(&ledger, &ada(), id, "approve").await;
    assert_eq!(given.state, Some("pending"));
    assert_eq!(retract(&ledger, &ada(), id, given.journal_id).await.unwrap().state, Some("held"));
    assert_eq!(ledger.fold_state(id).await, State::Held);
    assert_eq!(ledger.open_escalations(id).await, ["approval_required"]);
    let again = does(&ledger, &ada(), id, "approve").await;
    assert!(!again.repeated, "the first one is withdrawn");
    ledger.attempt(id, lost()).await;
    assert!(matches!(retract(&ledger, &ada(), id, again.journal_id).await, Err(ActError::NotPossible(_))));
    let rejected = ledger.ask_for(&ledger.call("INV-2")).await.unwrap().intent_id;
    let no = does(&ledger, &ada(), rejected, "reject").await;
    let back = retract(&ledger, &ada(), rejected, no.journal_id).await.unwrap();
    assert_eq!((back.state, back.holds_effect), (Some("held"), Some(true)));
}

#[tokio::test]
async fn sending_again_is_withdrawn_until_an_attempt_was_made_upon_it() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, refused(422)).await;
    does(&ledger, &ada(), id, "send_again").await;
    ledger.clock.advance(Duration::from_secs(11));
    decide(&ledger).await;
    let applied: i64 = sqlx::query_scalar("select max(id) from settled.journal where intent_id = $1 and kind = 'act'")
        .bind(id)
        .fetch_one(ledger.pool())
        .await
        .unwrap();
    let back = retract(&ledger, &ada(), id, Some(applied)).await.unwrap();
    assert_eq!((back.state, back.holds_effect), (Some("failed"), Some(false)));
    does(&ledger, &ada(), id, "send_again").await;
    ledger.clock.advance(Duration::from_secs(11));
    decide(&ledger).await;
    assert_eq!(ledger.attempt(id, sent("p-2")).await, State::Sent);
}
