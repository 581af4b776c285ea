//! What is told of an intent: by `settled show`, by the log, by the numbers. A lost reply, two questions, a person's word.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use settled::{
    engine::resolution::{self, Act, Person, Target, Words},
    store::tokens::Kind,
};
use tracing_subscriber::{fmt::MakeWriter, util::SubscriberInitExt};

use super::doubt::{Doubt, Setting};

/// The log of one test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Log {
    fn lines(&self, of: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(of)).map(str::to_owned).collect()
    }
}

/// INV-2 went out and the reply was lost; it was asked for twice, without a younger witness; a person said that it is absent.
async fn story() -> Doubt {
    let mut doubt = Doubt::new(Setting { younger: false, ..Setting::default() }).await;
    doubt.world.ask().await;
    doubt.world.turn(6);
    doubt.world.ask().await;
    assert_eq!(doubt.world.reasons(doubt.id).await, ["inconclusive"]);
    let ada = Person { principal: "ada".to_owned(), kind: Kind::Responder, tenant: None };
    let words = Words { evidence: Some("their order book has no INV-2".to_owned()), ..Words::default() };
    let act = Act::read("absent", &words).unwrap();
    let (world, target) = (&doubt.world, Target::Intent(doubt.id));
    resolution::act(&world.db.pool, &world.fleet, &*world.clock, &ada, target, &act, None).await.unwrap();
    assert_eq!(world.state(doubt.id).await, "failed");
    doubt
}

fn show(url: &str, what: &str) -> String {
    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_settled"))
        .args(["show", what, "--database-url", url])
        .output()
        .unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    String::from_utf8(shown.stdout).unwrap()
}

/// Times, ids, addresses and hashes as words, so that the rest can be compared.
fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, word) in [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d UTC)?", "DAY"),
        (r"\d\d:\d\d:\d\d\.\d{3} ", "TIME         "),
        (r"\d\d:\d\d:\d\d", "TIME"),
        (r"127\.0\.0\.1:\d+", "PEER"),
        (r"\b[0-9a-f]{32}\b", "HASH"),
        (r"generation [0-9a-f]{12}", "generation HASH"),
        (r"\d+ of \d+ bytes, \d+ ms", "N of N bytes, N ms"),
        (r"journal \d+", "journal N"),
        (r"by (\w+) over sql", "by OWNER over sql"),
        (r"producer:\w+", "producer:OWNER"),
    ] {
        text = regex::Regex::new(pattern).unwrap().replace_all(&text, word).into_owned();
    }
    text
}

const STORY: &str = r#"INV-2  FAILED
  intent       ID
  destination  erp
  tenant       acme
  key          HASH (secret k1)
  detail       a person said that it is absent
  effect       free: the same reference may be asked for anew

  DAY (UTC)
  TIME          asked        INV-2 by OWNER over sql: accepted
                             run run-INV-2, step 1
  TIME          state        - → pending, by producer:OWNER
                               request: ID
                               revision: 0
                               surface: sql
                               verdict: accepted
  TIME          attempt 1    send begins; nothing leaves after TIME; generation HASH
                             pending → in_flight, by dispatcher@ID
  TIME          attempt 1    AMBIGUOUS, doubt connection_lost
                             stage handed, N of N bytes, N ms
                             peer PEER, connection reset
                             cause: connection reset: Connection reset by peer (os error 104)
                             no byte of it can leave after DAY
  TIME          state        in_flight → unknown (attempt 1), by dispatcher@ID
                               detail: connection reset: Connection reset by peer (os error 104)
                               doubtful: [1]
  TIME          question     inconclusive (attempt 1), asked by reconciler@ID
                             not seen; equal answer 1 of 2
                               this one: nothing found
                               an elder send known to have arrived: 1 found
                               a name that cannot exist: nothing found
                               the account that answered: /account="demo-webhook"
  TIME          question     absent_by_lag (attempt 1), asked by reconciler@ID
                               this one: nothing found
                               an elder send known to have arrived: 1 found
                               a name that cannot exist: nothing found
                               the account that answered: /account="demo-webhook"
                               resend: false
                               valid until: TIME
  TIME          person       absent (attempt 1) by responder:ada, journal N
                               evidence: their order book has no INV-2
  TIME          state        unknown → failed (attempt 1), by responder:ada
                               detail: a person said that it is absent
                               doubtful: []
                               end: said_absent
  TIME          to a person  inconclusive: INV-2 to erp may have been sent; asking has not settled it: absent by lag alone; a person decides
  TIME          closed       inconclusive: the intent is failed (responder:ada)

"#;

#[tokio::test]
async fn show_tells_who_asked_every_attempt_question_and_act_and_no_payload() {
    let doubt = story().await;
    let text = show(&doubt.world.db.url, "INV-2");
    line_by_line(&plain(&text), STORY);
    for secret in ["invoice.created", "whsec", "k1k1"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

fn line_by_line(got: &str, wanted: &str) {
    for (got, wanted) in got.lines().zip(wanted.lines()) {
        assert_eq!(got, wanted);
    }
    assert_eq!(got.lines().count(), wanted.lines().count(), "{got}");
}

#[tokio::test]
async fn show_by_reference_tells_every_intent_that_carries_it() {
    let doubt = story().await;
    // The effect is free: the same reference may be asked for anew.
    let again = crate::support::world::new_request("erp", "INV-2", super::doubt::PAYLOAD, "run-again", 1);
    let second = doubt.world.request(&again).await.unwrap().intent_id;
    assert_ne!(second, doubt.id);
    let text = show(&doubt.world.db.url, "inv-2");
    let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("INV-2")).collect();
    assert_eq!(heads, ["INV-2  FAILED", "INV-2  PENDING"], "oldest first");
}

#[tokio::test]
async fn the_log_has_one_line_for_each_attempt_question_and_act_and_never_what_was_sent() {
    let log = Log::default();
    // With a single subscriber the other threads' (none) would decide for all what is of interest; with two, all are asked.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::DEBUG);
    let _quiet = subscriber.with_writer(log.clone()).finish().set_default();
    let doubt = story().await;
    let attempts = log.lines(" attempt ended");
    assert_eq!(attempts.len(), 2, "INV-1 and INV-2: {attempts:#?}");
    for words in
        ["intent.reference=inv-2", "destination=erp", "attempt=1", "outcome=\"ambiguous\"", "state=\"unknown\""]
    {
        assert!(attempts[1].contains(words), "{words}: {}", attempts[1]);
    }
    let questions = log.lines(" asked");
    assert_eq!(questions.len(), 2, "{questions:#?}");
    assert!(questions[1].contains("verdict=\"absent_by_lag\""), "{}", questions[1]);
    let acts = log.lines(" act ");
    assert_eq!(acts.len(), 1, "{acts:#?}");
    assert!(acts[0].contains("act=\"absent\"") && acts[0].contains("actor=responder:ada"), "{}", acts[0]);
    let key: String = doubt.world.text("select key from settled.intents where id = $1", doubt.id).await.unwrap();
    for secret in ["invoice.created", "their order book", key.as_str()] {
        assert_eq!(log.lines(secret), Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_numbers_count_moves_by_who_made_them_and_show_every_breaker() {
    let doubt = story().await;
    let text = doubt.world.sending.metrics.text().unwrap();
    for line in [
        "settled_moves_total{to=\"in_flight\",by=\"dispatcher\"} 2",
        "settled_moves_total{to=\"sent\",by=\"dispatcher\"} 1",
        "settled_moves_total{to=\"unknown\",by=\"dispatcher\"} 1",
        "settled_look_ups_total{destination=\"erp\",verdict=\"inconclusive\"} 1",
        "settled_look_ups_total{destination=\"erp\",verdict=\"absent_by_lag\"} 1",
        "settled_breaker_open{destination=\"erp\"} 0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a_breaker_that_opens_is_shown() {
    let prepare = |receiver: &settled::demo::fakes::webhook::Webhook| {
        crate::support::fragments::webhook("erp", receiver, "", "").replace("backoff =", "breaker_after = 1\nbackoff =")
    };
    let setting = Setting { destination: Box::new(prepare), younger: false, ..Setting::default() };
    let doubt = Doubt::new(setting).await;
    let text = doubt.world.sending.metrics.text().unwrap();
    assert!(text.contains("settled_breaker_open{destination=\"erp\"} 1"), "{text}");
}
