//! `settled enqueue --bulk FILE`: one call a line, by database or over HTTP.

use std::io::Read;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use sqlx::{Connection, PgConnection};

use super::{
    arguments::Enqueue,
    client::Client,
    context::Context,
    enqueue::{ok, problem, refused},
    exit::{Exit, Failure},
};
use crate::store::{
    bulk::{self, BulkError, MAX_BYTES, MAX_ITEMS, Mode},
    listing,
    requests::{self, EnqueueError, NewRequest, Options, Receipt},
};

/// Longest file, bytes.
const MOST: u64 = 256 * 1024 * 1024;
/// What an envelope and the options of each item may take beside the lines themselves.
const ROOM: usize = MAX_BYTES / 2;

/// One line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Line<'a> {
    destination: String,
    reference: String,
    #[serde(borrow)]
    payload: &'a RawValue,
    run_id: Option<String>,
    step: Option<i64>,
    slot: Option<String>,
    occurrence: Option<i32>,
    due_at: Option<DateTime<Utc>>,
    deadline: Option<DateTime<Utc>>,
    instructed_by: Option<Value>,
    traceparent: Option<String>,
    idempotency_key: Option<String>,
}

/// What became of one line.
#[derive(Serialize)]
struct Told {
    line: usize,
    reference: String,
    #[serde(flatten)]
    receipt: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip)]
    exit: Exit,
}

/// A line as it was given, with its number in the file.
struct Given<'a> {
    number: usize,
    text: &'a str,
    call: Line<'a>,
}

pub(super) async fn run(context: &Context, asked: &Enqueue, file: &str) -> Result<Exit, Failure> {
    let text = read(file)?;
    let lines = lines(&text)?;
    let mode = if asked.per_item { Mode::PerItem } else { Mode::AllOrNothing };
    let told = match Client::of(&asked.api)? {
        Some(client) => over_http(&client, asked, &lines, mode).await?,
        None => by_database(context, asked, &lines, mode).await?,
    };
    context.out.rows(&told, &["line", "reference", "verdict", "intent", "state or refusal"], |row| {
        let of = |name: &str| row.receipt.as_ref().and_then(|r| r[name].as_str()).unwrap_or("-").to_owned();
        let state = row.error.as_ref().map_or_else(|| of("state"), |words| words.replace('\n', "; "));
        let verdict = if row.error.is_some() { "refused".to_owned() } else { of("verdict") };
        vec![row.line.to_string(), row.reference.clone(), verdict, of("intent_id"), state]
    })?;
    Ok(told.iter().map(|row| row.exit).find(|exit| *exit != Exit::Ok).unwrap_or(Exit::Ok))
}

fn read(file: &str) -> Result<String, Failure> {
    let wrong = |error: std::io::Error| Failure::new(Exit::Invalid, format!("--bulk: {file}: {error}"));
    let mut text = String::new();
    let from: &mut dyn Read = match file {
        "-" => &mut std::io::stdin().lock(),
        path => &mut std::fs::File::open(path).map_err(wrong)?,
    };
    from.take(MOST + 1).read_to_string(&mut text).map_err(wrong)?;
    if text.len() as u64 > MOST {
        return Err(Failure::new(Exit::Invalid, format!("--bulk: {file}: must not be longer than {MOST} bytes")));
    }
    Ok(text)
}

/// Every line as a call. What is no call at all is refused before anything is asked.
fn lines(text: &str) -> Result<Vec<Given<'_>>, Failure> {
    let mut given = Vec::new();
    let mut wrong = Vec::new();
    for (at, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        match serde_json::from_str(text) {
            Ok(call) => given.push(Given { number: at + 1, text, call }),
            Err(error) => {
                wrong.push(format!("line {}: {}", at + 1, error.to_string().replace(" at line 1 column ", ", column ")))
            }
        }
    }
    if !wrong.is_empty() {
        let more = if wrong.len() > 20 { format!("\nand {} more", wrong.len() - 20) } else { String::new() };
        wrong.truncate(20);
        return Err(Failure::new(Exit::Invalid, format!("--bulk: nothing was asked\n{}{more}", wrong.join("\n"))));
    }
    if given.is_empty() {
        return Err(Failure::new(Exit::Invalid, "--bulk: there is no line with a call"));
    }
    Ok(given)
}

/// As many lines as one call may hold, and so on.
fn batches<'a, 'b>(lines: &'b [Given<'a>]) -> Vec<&'b [Given<'a>]> {
    let mut batches = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, line) in lines.iter().enumerate() {
        if at - from == MAX_ITEMS || at > from && bytes + line.text.len() > ROOM {
            batches.push(&lines[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += line.text.len();
    }
    batches.push(&lines[from..]);
    batches
}

async fn by_database(
    context: &Context,
    asked: &Enqueue,
    lines: &[Given<'_>],
    mode: Mode,
) -> Result<Vec<Told>, Failure> {
    let mut conn = context.connect().await?;
    let principal = listing::is_owner(&mut conn).await?.then(Context::actor);
    let mut told = Vec::with_capacity(lines.len());
    // All or nothing holds for the whole file; each for itself, every batch is kept as soon as it is answered.
    let mut tx = conn.begin().await?;
    for batch in batches(lines) {
        let requests: Vec<NewRequest> =
            batch.iter().map(|line| request(&line.call, asked, principal.as_deref())).collect();
        match bulk::enqueue_many(&mut tx, &requests, mode).await {
            Ok(answers) => {
                if mode == Mode::PerItem {
                    tx.commit().await?;
                    let known = requests.iter().zip(&answers).filter_map(|(r, a)| Some((r, a.as_ref().err()?)));
                    write_down(&mut conn, known).await?;
                    tx = conn.begin().await?;
                }
                told.extend(batch.iter().zip(answers).map(|(line, answer)| answered(line, answer)));
            }
            Err(BulkError::Call(error)) => return Err(refused(error)),
            Err(BulkError::Refused(items)) => {
                tx.rollback().await?;
                let known = items.iter().filter_map(|one| Some((requests.get(one.index)?, &one.error)));
                write_down(&mut conn, known).await?;
                let items = items.into_iter().filter_map(|one| Some((batch.get(one.index)?, refused(one.error))));
                return Err(nothing(items.map(|(line, failure)| (line, failure.exit, failure.error.to_string()))));
            }
        }
    }
    tx.commit().await?;
    Ok(told)
}

/// A conflict is written down afterwards, as every surface does that speaks for others.
async fn write_down(
    conn: &mut PgConnection,
    refused: impl Iterator<Item = (&NewRequest, &EnqueueError)>,
) -> Result<(), Failure> {
    for (request, error) in refused.filter(|(request, _)| request.options.surface.is_some()) {
        if let EnqueueError::Conflict { conflict, .. } = error {
            requests::record_conflict(conn, request, conflict).await?;
        }
    }
    Ok(())
}

fn request(call: &Line<'_>, asked: &Enqueue, principal: Option<&str>) -> NewRequest {
    NewRequest {
        destination: call.destination.clone(),
        reference: call.reference.clone(),
        payload: call.payload.get().to_owned(),
        run_id: call.run_id.clone(),
        step: call.step,
        options: Options {
            slot: call.slot.clone(),
            occurrence: call.occurrence,
            due_at: call.due_at,
            deadline: call.deadline,
            instructed_by: call.instructed_by.clone(),
            traceparent: call.traceparent.clone(),
            tenant: asked.tenant.clone(),
            caller_key: call.idempotency_key.clone(),
            principal: principal.map(str::to_owned),
            surface: principal.map(|_| "cli".to_owned()),
        },
    }
}

fn answered(line: &Given<'_>, answer: Result<Receipt, EnqueueError>) -> Told {
    let (receipt, error, exit) = match answer.map(serde_json::to_value) {
        Ok(receipt) => (receipt.ok(), None, Exit::Ok),
        Err(error) => {
            let failure = refused(error);
            (None, Some(failure.error.to_string()), failure.exit)
        }
    };
    Told { line: line.number, reference: line.call.reference.clone(), receipt, error, exit }
}

async fn over_http(client: &Client, asked: &Enqueue, lines: &[Given<'_>], mode: Mode) -> Result<Vec<Told>, Failure> {
    if asked.tenant.is_some() {
        return Err(Failure::new(Exit::Usage, "--tenant: over HTTP the token names the tenant"));
    }
    let batches = batches(lines);
    if mode == Mode::AllOrNothing && batches.len() > 1 {
        return Err(Failure::new(
            Exit::Invalid,
            format!(
                "--bulk: over HTTP one call holds {MAX_ITEMS} lines and {ROOM} bytes; split the file, or give --per-item"
            ),
        ));
    }
    let mut told = Vec::with_capacity(lines.len());
    for batch in batches {
        let items: Vec<&RawValue> =
            batch.iter().map(|line| serde_json::from_str(line.text)).collect::<Result<_, _>>()?;
        let body = serde_json::to_string(&json!({ "mode": mode }))?;
        // Beside the mode; a `Value` would lose digits of the payloads.
        let body = format!("{},\"items\":{}}}", body.trim_end_matches('}'), serde_json::to_string(&items)?);
        let reply = client.call("POST", "/v1/intents/bulk", &[], Some(body)).await?;
        let document: Value = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
        let items = document["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of = |item: &Value| batch.get(usize::try_from(item["index"].as_u64()?).ok()?);
        if reply.status == 422 && !items.is_empty() {
            let items = items.iter().filter_map(|item| Some((of(item)?, problem(item))));
            return Err(nothing(items.map(|(line, (exit, words))| (line, exit, words))));
        }
        ok(&reply)?;
        told.extend(items.iter().filter_map(|item| Some(told_of(of(item)?, item))));
    }
    Ok(told)
}

fn told_of(line: &Given<'_>, item: &Value) -> Told {
    let (number, reference) = (line.number, line.call.reference.clone());
    if item["verdict"].is_string() {
        return Told { line: number, reference, receipt: Some(item.clone()), error: None, exit: Exit::Ok };
    }
    let (exit, words) = problem(item);
    Told { line: number, reference, receipt: None, error: Some(words), exit }
}

/// All or nothing, and it is nothing. The exit code is that of the first.
fn nothing<'a>(refused: impl Iterator<Item = (&'a Given<'a>, Exit, String)>) -> Failure {
    let mut exit = Exit::Failed;
    let mut words = String::from("nothing was enqueued");
    for (n, (line, code, why)) in refused.enumerate() {
        if n == 0 {
            exit = code;
        }
        if n < 20 {
            words.push_str(&format!("\nline {}: {why}", line.number));
        }
    }
    Failure::new(exit, words)
}
