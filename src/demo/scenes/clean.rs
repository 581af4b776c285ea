//! Nothing goes wrong, or nothing is wanted.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use futures_util::future;
use serde_json::{Value, json};

use super::{
    super::{
        application::{Call, book, enqueue},
        house::House,
        telling::Telling,
    },
    PATIENCE,
};

/// The mail of an invoice.
pub(super) fn invoice(number: &str, euros: &str) -> Value {
    json!({"to": "ap@acme.test", "subject": format!("Invoice {number}"), "text": format!("Please pay {euros} EUR.")})
}

/// An order as the receiver gets it.
pub(super) fn order(number: &str) -> Value {
    json!({"type": "order.placed", "order": number, "articles": [{"sku": "chair", "count": 4}]})
}

/// Asks for an order over HTTP; gives the intent's id.
pub(super) async fn ask_for_order(house: &House, number: &str, run: &str) -> anyhow::Result<String> {
    let body = json!({
        "destination": "orders-hook", "reference": number, "payload": order(number), "run_id": run, "step": 1,
    });
    let answer = house.agent.post("/v1/intents", &body).await?;
    ensure!(answer.status == 201, "asking for {number}: {} {}", answer.status, answer.body);
    Ok(answer.text("intent_id"))
}

pub(super) async fn by_sql(house: &House, tell: &Telling) -> anyhow::Result<()> {
    let payload = invoice("INV-1001", "40000.00");
    let call = Call {
        destination: "invoices-email",
        reference: "INV-1001",
        payload: &payload,
        run_id: "billing-may",
        step: 1,
    };
    let mut transaction = house.shop.begin().await?;
    book(&mut transaction, "INV-1001", 4_000_000).await?;
    let receipt = enqueue(&mut transaction, call).await?;
    ensure!(house.mailbox.mails().is_empty(), "a mail was sent before the commit");
    transaction.commit().await?;
    tell.does("begin; insert into shop.invoices …; select settled.enqueue('invoices-email', 'INV-1001', …); commit");
    tell.sees(&format!("{}: intent {}", receipt.verdict, receipt.intent_id));
    let sent = house.until(&receipt.intent_id.to_string(), &["sent"], PATIENCE).await?;
    let mails = house.mailbox.effects().count_by_reference("INV-1001");
    ensure!(mails == 1, "{mails} mails for INV-1001");
    tell.sees(&format!("sent; the mail server calls it {}", sent.text("provider_id")));
    Ok(())
}

pub(super) async fn by_http(house: &House, tell: &Telling) -> anyhow::Result<()> {
    tell.does("curl -X POST …/v1/intents -d '{\"destination\":\"orders-hook\",\"reference\":\"ORD-2001\",…}'");
    let id = ask_for_order(house, "ORD-2001", "agent-1").await?;
    tell.sees(&format!("201: intent {id}"));
    tell.does("curl …/v1/intents/$id?wait=20");
    let sent = house.until(&id, &["sent"], PATIENCE).await?;
    ensure!(house.orders.bad_signatures() == 0, "the receiver did not accept the signature");
    tell.sees(&format!("sent, signed, received as {}", sent.text("provider_id")));
    Ok(())
}

pub(super) async fn by_command(house: &House, tell: &Telling) -> anyhow::Result<()> {
    let payload = r#"{"to":"+4915112345678","text":"Your parcel comes today. CODE-3001"}"#;
    tell.does(&format!("settled enqueue codes-sms CODE-3001 --run-id desk --step 1 --payload '{payload}'"));
    let said = house
        .daemon
        .ask(&[
            "--json",
            "enqueue",
            "codes-sms",
            "CODE-3001",
            "--run-id",
            "desk",
            "--step",
            "1",
            "--tenant",
            super::super::application::TENANT,
            "--payload",
            payload,
        ])
        .await?;
    let said: Value = serde_json::from_str(&said).context("read the receipt")?;
    let id = said.get("intent_id").and_then(Value::as_str).context("read the receipt")?;
    let sent = house.until(id, &["sent"], PATIENCE).await?;
    tell.sees(&format!("sent; the provider calls it {}", sent.text("provider_id")));
    Ok(())
}

pub(super) async fn rolled_back(house: &House, tell: &Telling) -> anyhow::Result<()> {
    let payload = invoice("INV-1002", "10.00");
    let call = Call {
        destination: "invoices-email",
        reference: "INV-1002",
        payload: &payload,
        run_id: "billing-may",
        step: 2,
    };
    let mut transaction = house.shop.begin().await?;
    let receipt = enqueue(&mut transaction, call).await?;
    // The number is taken: what the shop does after asking fails.
    let failed = book(&mut transaction, "INV-1001", 1000).await;
    ensure!(failed.is_err(), "an invoice number was booked twice");
    transaction.rollback().await?;
    tell.does("begin; select settled.enqueue('invoices-email', 'INV-1002', …); insert … -- fails; rollback");
    // What is asked for later and sent shows that the queue has been looked at since.
    let payload = invoice("INV-1003", "20.00");
    let mut transaction = house.shop.begin().await?;
    book(&mut transaction, "INV-1003", 2000).await?;
    let later = enqueue(&mut transaction, Call { reference: "INV-1003", payload: &payload, step: 3, ..call }).await?;
    transaction.commit().await?;
    house.until(&later.intent_id.to_string(), &["sent"], PATIENCE).await?;
    let gone = house.person.get(&format!("/v1/intents/{}", receipt.intent_id)).await?.status;
    let mails = house.mailbox.effects().count_by_reference("INV-1002");
    ensure!(gone == 404 && mails == 0, "a rolled-back invoice left {mails} mails and status {gone}");
    tell.sees("no intent, no mail; INV-1003, asked for afterwards, is sent");
    Ok(())
}

pub(super) async fn at_once(house: &House, tell: &Telling) -> anyhow::Result<()> {
    let payload = order("ORD-2002");
    let body = json!({
        "destination": "orders-hook", "reference": "ORD-2002", "payload": payload, "run_id": "queue-7", "step": 1,
    });
    let call =
        Call { destination: "orders-hook", reference: "ORD-2002", payload: &payload, run_id: "queue-7", step: 1 };
    let by_http = future::try_join_all((0..10).map(|_| async {
        let answer = house.agent.post("/v1/intents", &body).await?;
        ensure!(matches!(answer.status, 200 | 201), "{} {}", answer.status, answer.body);
        Ok(answer.text("intent_id"))
    }));
    let by_sql = future::try_join_all((0..10).map(|_| async {
        let mut transaction = house.shop.begin().await?;
        let receipt = enqueue(&mut transaction, call).await?;
        transaction.commit().await?;
        anyhow::Ok(receipt.intent_id.to_string())
    }));
    tell.does("10 × settled.enqueue(…, 'ORD-2002', …) and 10 × POST /v1/intents, all at once");
    let (http, sql) = future::try_join(by_http, by_sql).await?;
    let ids: BTreeSet<String> = http.into_iter().chain(sql).collect();
    let [id] = ids.iter().collect::<Vec<_>>()[..] else { anyhow::bail!("20 calls got {} intents", ids.len()) };
    house.until(id, &["sent"], PATIENCE).await?;
    let calls = house.orders.effects().count_by_reference("ORD-2002");
    ensure!(calls == 1, "{calls} calls for ORD-2002");
    tell.sees(&format!("20 answers, all naming intent {id}; the receiver was called once"));
    Ok(())
}
