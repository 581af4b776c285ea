//! A story as a timeline for people.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::{
    domain::{absence::Case, plain},
    store::story::{Event, Story, What},
};

/// The whole text.
pub(super) fn text(story: &Story) -> String {
    let r = &story.receipt;
    let mut out = format!("{}  {}", r.reference.to_uppercase(), r.state.to_uppercase());
    if r.occurrence > 1 {
        out.push_str(&format!("  (occurrence {})", r.occurrence));
    }
    if r.with_a_person {
        out.push_str("  with a person");
    }
    out.push_str(&format!(
        "\n  intent       {}\n  destination  {}\n  tenant       {}\n",
        r.intent_id, r.destination, r.tenant
    ));
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            out.push_str(&format!("  {name:<11}  {}\n", plain::plain(&value)));
        }
    };
    line("provider id", r.provider_id.clone());
    line("key", story.key.as_ref().map(|key| format!("{key} (secret {})", story.kid.as_deref().unwrap_or("?"))));
    line("deadline", r.deadline.map(full));
    line("next", r.next_at.map(full));
    line("marks", (!r.marks.is_empty()).then(|| r.marks.join(", ")));
    line("detail", story.detail.clone());
    if !story.holds_effect {
        line("effect", Some("free: the same reference may be asked for anew".to_owned()));
    }
    out.push('\n');
    let mut day = None;
    for event in &story.events {
        let date = event.at.date_naive();
        if day != Some(date) {
            out.push_str(&format!("  {date} (UTC)\n"));
            day = Some(date);
        }
        let (who, lines) = describe(event);
        let mut first = true;
        for text in lines {
            let time = if first { event.at.format("%H:%M:%S%.3f").to_string() } else { String::new() };
            let who = if first { who.as_str() } else { "" };
            // One event, one line: what others wrote must not look like another event.
            let (who, text) = (plain::plain(who), plain::plain(&text));
            out.push_str(format!("  {time:<12}  {who:<11}  {text}").trim_end());
            out.push('\n');
            first = false;
        }
    }
    out.push('\n');
    out
}

fn full(at: DateTime<Utc>) -> String {
    at.format("%F %T UTC").to_string()
}

fn describe(event: &Event) -> (String, Vec<String>) {
    match &event.what {
        What::Request {
            principal, surface, run_id, step, slot, revision, reference, verdict, instructed_by, ..
        } => {
            let slot = if slot.is_empty() { String::new() } else { format!(", slot {slot}") };
            let correction = if *revision > 0 { format!(", correction {revision}") } else { String::new() };
            let mut lines = vec![
                format!("{reference} by {principal} over {surface}: {verdict}"),
                format!("run {run_id}, step {step}{slot}{correction}"),
            ];
            if let Some(Value::Object(members)) = instructed_by {
                let words: Vec<String> =
                    members.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
                lines.push(format!("instructed by {}", words.join(", ")));
            }
            ("asked".to_owned(), lines)
        }
        What::AttemptBegan { attempt, kind, generation, worker, lease_until } => {
            let mut lines = vec![format!(
                "{kind} begins; nothing leaves after {}; generation {}",
                lease_until.format("%H:%M:%S"),
                short(generation)
            )];
            // A replay's move is a row of the journal; that of a send is told by its claim alone.
            if kind == "send" {
                lines.push(format!("pending → in_flight, by dispatcher@{worker}"));
            }
            (format!("attempt {attempt}"), lines)
        }
        What::AttemptEnded { attempt, outcome, report, closure_at } => {
            let mut lines = vec![ending(outcome, report)];
            lines.extend(seen(report));
            if outcome == "ambiguous"
                && let Some(at) = closure_at
            {
                lines.push(format!("no byte of it can leave after {}", full(*at)));
            }
            (format!("attempt {attempt}"), lines)
        }
        What::Told { journal_id, kind, attempt, actor, data } => told(*journal_id, kind, *attempt, actor, data),
        What::EscalationOpened { reason, summary, claimed_by, .. } => {
            let mut lines = vec![format!("{reason}: {summary}")];
            if let Some(by) = claimed_by {
                lines.push(format!("claimed by {by}"));
            }
            ("to a person".to_owned(), lines)
        }
        What::EscalationClosed { reason, closed_by, resolution, .. } => (
            "closed".to_owned(),
            vec![format!(
                "{reason}: {} ({})",
                resolution.as_deref().unwrap_or("-"),
                closed_by.as_deref().unwrap_or("-")
            )],
        ),
        What::Decision { act, actor, reason, effective_at, stopped_by, result, .. } => {
            let end = match (stopped_by, result) {
                (Some(by), _) => format!("stopped by {by}"),
                (None, Some(result)) => result.clone(),
                (None, None) => format!("binds from {}", full(*effective_at)),
            };
            ("decision".to_owned(), vec![format!("{act} by {actor}: {reason}"), end])
        }
    }
}

/// `Ended` as stored: `{ "outcome": { "outcome": … }, "report": { … } }`.
fn ending(outcome: &str, ended: &Value) -> String {
    let detail = &ended["outcome"];
    let mut text = outcome.to_uppercase().replace('_', " ");
    for member in ["doubt", "proof", "code", "provider_id"] {
        if !detail[member].is_null() {
            text.push_str(&format!(", {} {}", member.replace('_', " "), plain(&detail[member])));
        }
    }
    text
}

fn seen(ended: &Value) -> Vec<String> {
    let report = &ended["report"];
    if report.is_null() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "stage {}, {} of {} bytes, {} ms",
        plain(&report["stage"]),
        plain(&report["bytes_handed"]),
        plain(&report["bytes_needed"]),
        plain(&report["millis"])
    )];
    let facts: Vec<String> = [("code", "reply"), ("peer", "peer"), ("account", "account"), ("closed", "connection")]
        .into_iter()
        .filter(|(member, _)| !report[*member].is_null())
        .map(|(member, word)| format!("{word} {}", plain(&report[member])))
        .collect();
    if !facts.is_empty() {
        lines.push(facts.join(", "));
    }
    for member in ["cause", "excerpt"] {
        if !report[member].is_null() {
            lines.push(format!("{member}: {}", plain(&report[member])));
        }
    }
    lines
}

fn told(row: i64, kind: &str, attempt: Option<i32>, actor: &str, data: &Value) -> (String, Vec<String>) {
    let about = attempt.filter(|n| *n > 0).map_or_else(String::new, |n| format!(" (attempt {n})"));
    match kind {
        "move" => {
            let from = if data["from"].is_null() { "-".to_owned() } else { plain(&data["from"]) };
            let mut lines = vec![format!("{from} → {}{about}, by {actor}", plain(&data["to"]))];
            lines.extend(rest(data, &["from", "to"]));
            ("state".to_owned(), lines)
        }
        "look_up" | "audit" => {
            let verdict = match &data["verdict"] {
                Value::Object(inner) => inner.get("verdict").map_or_else(|| "-".to_owned(), plain),
                other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                    plain(other)
                }
            };
            let mut lines = vec![format!("{verdict}{about}, asked by {actor}")];
            lines.extend(data["why"].as_str().map(|_| plain(&data["why"])));
            match Case::from_record(&data["record"]) {
                Ok(case) => lines.extend(case.in_words().iter().map(|line| format!("  {}", plain::plain(line)))),
                Err(_) if data["record"].is_null() => {}
                Err(_) => lines.push("  (its controls were written by another version; see --json)".to_owned()),
            }
            let told = ["verdict", "why", "record", "round", "asked_at", "generation", "nothing", "error"];
            lines.extend(rest(data, &told));
            (if kind == "audit" { "audit" } else { "question" }.to_owned(), lines)
        }
        "act" => {
            let act = ["act", "statement", "verb"].iter().find_map(|m| data[*m].as_str()).unwrap_or("act");
            // `retract` names a statement by its row.
            let row = if data["statement"].is_null() { String::new() } else { format!(", journal {row}") };
            let mut lines = vec![format!("{act}{about} by {actor}{row}")];
            lines.extend(rest(data, &["act", "statement", "on", "escalation"]));
            ("person".to_owned(), lines)
        }
        other => {
            let mut lines = vec![format!("{actor}{about}")];
            lines.extend(rest(data, &[]));
            (other.to_owned(), lines)
        }
    }
}

/// Everything else that a row of the journal tells, one member a line.
fn rest(data: &Value, known: &[&str]) -> Vec<String> {
    let Value::Object(members) = data else { return Vec::new() };
    members
        .iter()
        .filter(|(name, value)| !known.contains(&name.as_str()) && !value.is_null())
        .map(|(name, value)| {
            let mut text = plain(value);
            if text.chars().count() > 160 {
                text = text.chars().take(160).collect::<String>() + " …";
            }
            format!("  {}: {text}", name.replace('_', " "))
        })
        .collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => plain::plain(text),
        Value::Null => "-".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn short(generation: &str) -> &str {
    generation.get(..12).unwrap_or(generation)
}
