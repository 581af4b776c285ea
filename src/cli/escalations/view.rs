//! What a person can decide from at three in the morning.

use serde_json::Value;

use super::super::story as timeline;
use crate::{domain::plain::plain, store::story::Story};

pub(super) const ROWS: [&str; 7] = ["ESCALATION", "OPENED", "REASON", "TENANT", "CLAIMED BY", "STATE", "WHAT"];
pub(super) const CAUSES: [&str; 4] = ["OPEN", "UNCLAIMED", "SINCE", "CAUSE"];

/// Text of a member; `-` for none. Control characters of a downstream must not reach the terminal.
fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => plain(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn time(value: &Value) -> String {
    value
        .as_str()
        .and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok())
        .map_or_else(|| word(value), |at| at.to_utc().format("%F %T UTC").to_string())
}

pub(super) fn row(e: &Value) -> Vec<String> {
    vec![
        word(&e["id"]),
        time(&e["opened_at"]),
        word(&e["reason"]),
        word(&e["tenant"]),
        word(&e["claimed_by"]),
        word(&e["state"]),
        word(&e["summary"]),
    ]
}

pub(super) fn cause(c: &Value) -> Vec<String> {
    vec![word(&c["open"]), word(&c["unclaimed"]), time(&c["oldest"]), word(&c["cause"])]
}

/// After an act.
pub(super) fn done(done: &Value) -> String {
    let mut text = format!("{}: {}", word(&done["act"]).replace('_', "-"), word(&done["words"]));
    if done["repeated"] == true {
        text.push_str(" (you had done so already)");
    }
    if !done["binds_at"].is_null() {
        let on = match done["escalation_id"].as_str() {
            Some(id) => id.to_owned(),
            None => format!("{} --intent", word(&done["intent_id"])),
        };
        text.push_str(&format!("\nit binds at {}; until then: settled escalations stop {on}", time(&done["binds_at"])));
    }
    if !done["journal_id"].is_null() {
        text.push_str(&format!("\njournal {}", word(&done["journal_id"])));
    }
    text
}

/// The whole page.
pub(super) fn page(seen: &Value) -> String {
    let e = &seen["escalation"];
    let mut out = format!("{}  {}\n", word(&e["reason"]).to_uppercase(), word(&e["summary"]));
    let mut line = |name: &str, value: String| {
        if value != "-" {
            out.push_str(&format!("  {name:<12}  {value}\n"));
        }
    };
    line("escalation", word(&e["id"]));
    line("open since", time(&e["opened_at"]));
    line("claimed by", claimed(e));
    line("assigned to", word(&e["assigned_to"]));
    line("snoozed", time(&e["snoozed_until"]));
    line("closed", closed(e));
    if let Value::Object(_) = &seen["intent"] {
        out.push_str(&intent(seen));
    }
    out.push_str("\nWHAT EACH MISTAKE COSTS\n");
    out.push_str(&format!("  happens twice  {}\n", word(&seen["costs"]["if_twice"])));
    out.push_str(&format!("  never happens  {}\n", word(&seen["costs"]["if_never"])));
    if let Value::Object(counter) = &seen["counter_action"] {
        out.push_str(&format!(
            "  can be undone  through {}: {} (settled escalations compensate ID)\n",
            word(&counter["destination"]),
            word(&counter["reason"])
        ));
    }
    if let Value::Object(_) = &seen["suggestion"] {
        out.push_str(&what_to_do(seen));
    }
    out
}

fn claimed(e: &Value) -> String {
    match e["claimed_by"].as_str() {
        Some(by) => format!("{by} until {}", time(&e["claimed_until"])),
        None if e["closed_at"].is_null() => "nobody".to_owned(),
        None => "-".to_owned(),
    }
}

fn closed(e: &Value) -> String {
    if e["closed_at"].is_null() {
        return "-".to_owned();
    }
    format!("{} by {}: {}", time(&e["closed_at"]), word(&e["closed_by"]), word(&e["resolution"]))
}

fn intent(seen: &Value) -> String {
    let (i, stakes) = (&seen["intent"], &seen["stakes"]);
    let mut out = "\nWHAT WAS TO HAPPEN\n".to_owned();
    out.push_str(&format!(
        "  {} to {} by {}, occurrence {}\n",
        word(&i["reference"]).to_uppercase(),
        word(&i["destination"]),
        word(&stakes["channel"]),
        word(&i["occurrence"])
    ));
    if word(&stakes["recipient"]) != "-" {
        out.push_str(&format!("  for {}\n", word(&stakes["recipient"])));
    }
    out.push_str("\nWHERE IT STANDS\n");
    let held = if i["holds_effect"] == true { "nobody else may ask for it" } else { "its effect is free" };
    out.push_str(&format!(
        "  {} after {} attempt(s); {held}\n",
        word(&i["state"]).to_uppercase(),
        word(&i["attempts"])
    ));
    for (name, member) in [("deadline", "deadline"), ("provider id", "provider_id")] {
        if !i[member].is_null() {
            out.push_str(&format!("  {name} {}\n", time(&i[member])));
        }
    }
    for (name, member) in [("parked", "parked_reason"), ("paused", "paused_reason")] {
        if !stakes[member].is_null() {
            out.push_str(&format!("  {name}: {}\n", word(&stakes[member])));
        }
    }
    if stakes["payload_kept"] == false {
        out.push_str("  its payload has been purged; it cannot be sent again\n");
    }
    out.push_str("\nWHAT HAPPENED\n");
    match serde_json::from_value::<Story>(i.clone()) {
        Ok(story) => out.push_str(&timeline::text(&story)),
        Err(_) => out.push_str("  (this version cannot read the story; see --json)\n"),
    }
    out.push_str(&asking(seen));
    out
}

/// What asking said with its controls, and from when an absence may be believed.
fn asking(seen: &Value) -> String {
    let (doubts, questions) = (seen["doubts"].as_array(), seen["questions"].as_array());
    if doubts.is_none_or(Vec::is_empty) && questions.is_none_or(Vec::is_empty) {
        return String::new();
    }
    let mut out = "WHAT ASKING SAYS\n".to_owned();
    for q in questions.into_iter().flatten() {
        out.push_str(&format!(
            "  {}  attempt {}: {}{}\n",
            time(&q["at"]),
            word(&q["attempt"]),
            word(&q["verdict"]),
            if q["why"].is_null() { String::new() } else { format!(", {}", word(&q["why"])) }
        ));
        for control in q["controls"].as_array().into_iter().flatten() {
            out.push_str(&format!("      {}\n", word(control)));
        }
    }
    for d in doubts.into_iter().flatten() {
        out.push_str(&format!("  attempt {}: {}\n", word(&d["attempt"]), word(&d["words"])));
        if !d["absence_from"].is_null() {
            out.push_str(&format!(
                "      an absence may be believed from {} until {}\n",
                time(&d["absence_from"]),
                time(&d["until"])
            ));
        }
    }
    out
}

fn what_to_do(seen: &Value) -> String {
    let s = &seen["suggestion"];
    let mut out = format!("\nWHAT TO DO\n  {}\n  the rule: {}\n\n", word(&s["words"]), word(&s["rule"]));
    let verbs = std::iter::once(&s["act"]).chain(s["also"].as_array().into_iter().flatten());
    for verb in verbs.filter_map(Value::as_str) {
        out.push_str(&format!("  {}\n", command(verb, seen)));
    }
    out
}

/// A command line with the version that this page shows.
fn command(verb: &str, seen: &Value) -> String {
    let id = word(&seen["escalation"]["id"]);
    let (of_intent, of_escalation) = (&seen["versions"]["intent"], &seen["versions"]["escalation"]);
    let spelled = verb.replace('_', "-");
    let (version, more) = match verb {
        "sent" | "absent" => (of_intent, " --evidence 'what you saw, and where'".to_owned()),
        "send_again" => {
            let late = seen["escalation"]["reason"] == "deadline_passed";
            let deadline = if late { " --deadline RFC3339" } else { "" };
            (of_intent, format!(" --reference REFERENCE --reason WHY{deadline}"))
        }
        "close" | "cancel" | "reject" => (of_intent, " --reason WHY".to_owned()),
        "approve" => (of_intent, String::new()),
        "acknowledge" | "unpark" => (of_escalation, " --reason WHY".to_owned()),
        "comment" => return format!("settled escalations comment {id} 'TEXT'"),
        _ => return format!("settled escalations {spelled} {id}"),
    };
    format!("settled escalations {spelled} {id} --version {}{more}", word(version))
}
