//! Somebody decides: an agent, which is told what has happened, and a person, who is asked.

use anyhow::ensure;
use serde_json::json;

use super::{
    super::{fakes::faults::Fault, house::House, telling::Telling},
    PATIENCE,
    clean::invoice,
};

pub(super) async fn again(house: &House, tell: &Telling) -> anyhow::Result<()> {
    let body = json!({
        "destination": "invoices-email", "reference": "INV-1001", "payload": invoice("INV-1001", "40000.00"),
        "run_id": "agent-after-its-restart", "step": 1,
    });
    tell.does("curl -X POST …/v1/intents -d '{\"reference\":\"INV-1001\",\"run_id\":\"agent-after-its-restart\",…}'");
    let answer = house.agent.post("/v1/intents", &body).await?;
    ensure!(answer.status == 200 && answer.text("verdict") == "already_requested", "{} {}", answer.status, answer.body);
    let mails = house.mailbox.effects().count_by_reference("INV-1001");
    ensure!(mails == 1, "{mails} mails for INV-1001");
    tell.sees(&format!("200 already_requested: already sent, message id {}", answer.text("provider_id")));
    Ok(())
}

pub(super) async fn corrected(house: &House, tell: &Telling) -> anyhow::Result<()> {
    let body = json!({
        "destination": "invoices-email", "reference": "INV-1001", "payload": invoice("INV-1001", "38000.00"),
        "run_id": "agent-that-corrects", "step": 1,
    });
    tell.does("curl -X POST …/v1/intents -d '{\"reference\":\"INV-1001\",…,\"text\":\"Please pay 38000.00 EUR.\"}'");
    let answer = house.agent.post("/v1/intents", &body).await?;
    ensure!(answer.status == 409, "{} {}", answer.status, answer.body);
    let mails = house.mailbox.effects().count_by_reference("INV-1001");
    ensure!(mails == 1, "{mails} mails for INV-1001");
    let pointers = answer.body.get("pointers").cloned().unwrap_or_default();
    ensure!(pointers == json!(["/payload/text"]), "it named {pointers}");
    tell.sees(&format!("409 {}", answer.text("detail")));
    tell.sees(&format!("what differs: {pointers}"));
    tell.sees("nothing is sent; a correction needs a number of its own");
    Ok(())
}

pub(super) async fn for_you(house: &House, tell: &Telling) -> anyhow::Result<()> {
    house.partner.faults().for_reference("TRF-4001", Fault::ResetBeforeActing);
    let body = json!({
        "destination": "partner-hook", "reference": "TRF-4001", "run_id": "treasury", "step": 1,
        "payload": {"type": "transfer.ordered", "transfer": "TRF-4001", "euros": 40000},
    });
    let answer = house.agent.post("/v1/intents", &body).await?;
    ensure!(answer.status == 201, "{} {}", answer.status, answer.body);
    let id = answer.text("intent_id");
    let unknown = house.until(&id, &["unknown"], PATIENCE).await?;
    ensure!(unknown.body.get("with_a_person") == Some(&json!(true)), "nobody was asked: {}", unknown.body);
    tell.sees("unknown; there is nobody to ask, so nothing more happens until a person decides");
    Ok(())
}
