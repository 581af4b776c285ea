//! The account at the end: what the ledger says was sent, and what the downstreams really have.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{fakes::ledger_of_effects::Effects, house::House};

/// One destination.
struct Row {
    destination: &'static str,
    sent: usize,
    seen: usize,
    lost: usize,
    doubled: usize,
    open: usize,
}

/// All of them.
pub struct Sum {
    rows: Vec<Row>,
    /// Intents that are sent.
    pub sent: usize,
    /// Effects downstream.
    pub seen: usize,
    /// Intents that are called sent and have no effect.
    pub lost: usize,
    /// Effects beyond the first of their name.
    pub doubled: usize,
}

/// Counts, at the downstreams and not at the ledger, what was lost and what was doubled.
///
/// # Errors
/// When the API does not list the intents.
pub async fn sum(house: &House) -> anyhow::Result<Sum> {
    let places: [(&'static str, &Effects); 4] = [
        ("invoices-email", house.mailbox.effects()),
        ("orders-hook", house.orders.effects()),
        ("codes-sms", house.sms.effects()),
        ("partner-hook", house.partner.effects()),
    ];
    let mut rows = Vec::new();
    for (destination, effects) in places {
        rows.push(row(destination, &house.intents(destination).await?, effects));
    }
    let of = |part: fn(&Row) -> usize| rows.iter().map(part).sum();
    Ok(Sum { sent: of(|r| r.sent), seen: of(|r| r.seen), lost: of(|r| r.lost), doubled: of(|r| r.doubled), rows })
}

fn row(destination: &'static str, intents: &[Value], effects: &Effects) -> Row {
    // What the ledger calls sent must exist there, under the name that the downstream gave it or the reference.
    let there: BTreeSet<String> = effects
        .all()
        .into_iter()
        .flat_map(|effect| [effect.id, effect.reference])
        .map(|name| name.to_ascii_lowercase())
        .collect();
    let text =
        |intent: &Value, name: &str| intent.get(name).and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let sent: Vec<&Value> = intents.iter().filter(|intent| text(intent, "state") == "sent").collect();
    let exists =
        |intent: &Value| there.contains(&text(intent, "reference")) || there.contains(&text(intent, "provider_id"));
    Row {
        destination,
        sent: sent.len(),
        seen: effects.all().len(),
        lost: sent.iter().filter(|intent| !exists(intent)).count(),
        doubled: effects.duplicates().iter().map(|same| same.len() - 1).sum(),
        open: intents.iter().filter(|intent| text(intent, "state") == "unknown").count(),
    }
}

impl Sum {
    /// For people.
    pub fn table(&self) -> String {
        let mut lines = vec!["destination       sent   seen   lost   doubled   with you".to_owned()];
        for row in &self.rows {
            let Row { destination, sent, seen, lost, doubled, open } = row;
            lines.push(format!("{destination:<16} {sent:>5}  {seen:>5}  {lost:>5}  {doubled:>8}   {open:>8}"));
        }
        lines.join("\n")
    }

    /// For programs.
    pub fn last_line(&self) -> String {
        format!("sent={} seen={} lost={} doubled={}", self.sent, self.seen, self.lost, self.doubled)
    }
}
