//! Nobody knows whether it arrived, and then somebody does.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::{
    super::{
        application::{Call, book, enqueue},
        fakes::faults::Fault,
        house::House,
        telling::Telling,
    },
    PATIENCE,
    clean::{ask_for_order, invoice, order},
};

pub(super) async fn lost_after_dot(house: &House, tell: &Telling) -> anyhow::Result<()> {
    house.smtp.faults().for_reference("INV-1004", Fault::LoseReply);
    let payload = invoice("INV-1004", "99.00");
    let call = Call {
        destination: "invoices-email",
        reference: "INV-1004",
        payload: &payload,
        run_id: "billing-may",
        step: 4,
    };
    let mut transaction = house.shop.begin().await?;
    book(&mut transaction, "INV-1004", 9900).await?;
    let id = enqueue(&mut transaction, call).await?.intent_id.to_string();
    transaction.commit().await?;
    // The mailbox may have been asked before anybody can look.
    house.until(&id, &["unknown", "sent"], PATIENCE).await?;
    tell.sees("the mail server took the mail and reset the connection: unknown, not failed, and not sent again");
    let sent = house.until(&id, &["sent"], PATIENCE).await?;
    let (mails, attempts) = (house.mailbox.effects().count_by_reference("INV-1004"), attempts(&sent.body));
    ensure!(mails == 1 && attempts == 1, "{mails} mails after {attempts} attempts");
    tell.sees("found in the audit mailbox by its key: sent, with one attempt and one mail");
    show(house, tell, &id).await
}

pub(super) async fn proven_absent(house: &House, tell: &Telling) -> anyhow::Result<()> {
    house.orders.faults().for_reference("ORD-2003", Fault::ResetBeforeActing);
    let id = ask_for_order(house, "ORD-2003", "agent-3").await?;
    house.until(&id, &["unknown"], PATIENCE).await?;
    tell.sees("reset before the answer; in truth nothing happened there, but nobody here can know that: unknown");
    tell.sees("the shop goes on selling; what is sent from now on will be a witness");
    let began = Instant::now();
    let mut others = Vec::new();
    let sent = loop {
        let number = format!("ORD-{}", 2100 + others.len());
        others.push(ask_for_order(house, &number, &format!("shop-sells-{number}")).await?);
        tokio::time::sleep(Duration::from_millis(900)).await;
        let answer = house.intent(&id, 0).await?;
        if answer.text("state") == "sent" {
            break answer;
        }
        let (state, person) = (answer.text("state"), answer.body.get("with_a_person"));
        ensure!(began.elapsed() < PATIENCE, "ORD-2003 is {state} after {PATIENCE:?}, with a person: {person:?}");
    };
    for other in &others {
        house.until(other, &["sent"], PATIENCE).await?;
    }
    let (calls, attempts) = (house.orders.effects().count_by_reference("ORD-2003"), attempts(&sent.body));
    ensure!(calls == 1 && attempts == 2, "{calls} effects after {attempts} attempts");
    let seconds = began.elapsed().as_secs();
    tell.sees(&format!(
        "after {seconds} s it was proven absent between an elder and a younger witness, and sent again"
    ));
    show(house, tell, &id).await
}

pub(super) async fn killed(house: &House, tell: &Telling) -> anyhow::Result<()> {
    let pid = house.daemon.pid().unwrap_or_default();
    house.orders.faults().for_reference("ORD-2004", Fault::KillBeforeAnswer(house.daemon.killer()));
    let id = ask_for_order(house, "ORD-2004", "agent-4").await?;
    let effects = house.orders.effects();
    effects.wait_for(PATIENCE, |all| all.iter().any(|e| e.reference.eq_ignore_ascii_case("ORD-2004"))).await?;
    tell.does(&format!("kill -9 {pid}    # by the receiver, when it had read the request"));
    house.daemon.start(&house.anybody).await?;
    tell.sees(&format!("another daemon starts: process {}", house.daemon.pid().unwrap_or_default()));
    let sent = house.until(&id, &["sent"], PATIENCE).await?;
    let (calls, attempts) = (effects.count_by_reference("ORD-2004"), attempts(&sent.body));
    ensure!(calls == 1 && attempts == 1, "{calls} effects after {attempts} attempts");
    tell.sees("it finds an attempt of a dead worker, asks, finds the event: sent, one attempt, one effect");
    show(house, tell, &id).await
}

pub(super) async fn rotated(house: &House, tell: &Telling) -> anyhow::Result<()> {
    // The receiver's list is late, so that the doubt outlives the old secret.
    house.orders.effects().hold_reference("ORD-2005");
    house.orders.faults().for_reference("ORD-2005", Fault::LoseReply);
    let id = ask_for_order(house, "ORD-2005", "agent-5").await?;
    house.until(&id, &["unknown"], PATIENCE).await?;
    tell.sees("the reply is lost, and the receiver does not list the order yet: unknown");
    tell.does("edit settled.toml: keys.active = \"key-2\"; restart");
    house.restart_with_secrets(2).await?;
    let still = house.intent(&id, 0).await?.text("state");
    ensure!(still == "unknown", "it is {still} after the restart");
    house.orders.effects().release();
    house.until(&id, &["sent"], PATIENCE).await?;
    let body = serde_json::json!({
        "destination": "orders-hook", "reference": "ORD-2005", "payload": order("ORD-2005"), "run_id": "agent-5",
        "step": 1,
    });
    let again = house.agent.post("/v1/intents", &body).await?;
    ensure!(again.status == 200 && again.text("intent_id") == id, "{} {}", again.status, again.body);
    let calls = house.orders.effects().count_by_reference("ORD-2005");
    ensure!(calls == 1, "{calls} effects");
    tell.sees(
        "found under its old key; the same call repeated under the new secret is the same intent, nothing is sent",
    );
    Ok(())
}

fn attempts(receipt: &serde_json::Value) -> i64 {
    receipt.get("attempts").and_then(serde_json::Value::as_i64).unwrap_or(-1)
}

/// The story, as the command line tells it: what happened when, without the details below each line.
async fn show(house: &House, tell: &Telling, id: &str) -> anyhow::Result<()> {
    tell.does(&format!("settled show {id}"));
    let story = house.daemon.ask(&["show", id]).await?;
    let begins_with_a_time =
        |line: &&str| line.trim_start().split(':').next().is_some_and(|hour| hour.parse::<u8>().is_ok());
    for line in story.lines().take(1).chain(story.lines().filter(begins_with_a_time)) {
        tell.sees(line.trim_start());
    }
    Ok(())
}
