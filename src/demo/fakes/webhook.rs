//! A webhook receiver that can be asked.
//!
//! `POST /hook` makes an event. `GET /events` lists by `reference`, `key`, `from`, `to`; `GET /events/{key}` shows one;
//! `GET /account` says who we are.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use serde_json::{Value, json};

use super::{
    desk::{Desk, Vocabulary},
    door::Door,
    faults::{Ending, Faults, Stage, Subject, play},
    http::{App, Request, Response, serve},
    keys::Keys,
    ledger_of_effects::{Arrived, Effect, Effects},
    locked, now, signature,
};
use crate::domain::gate::BoxFuture;

/// The receiver behind its door.
pub struct Webhook {
    receiver: Arc<Receiver>,
    door: Door,
}

impl Webhook {
    /// Starts one on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> io::Result<Self> {
        Self::start_at(0).await
    }

    /// Starts one on this port; 0 is any free one.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start_at(port: u16) -> io::Result<Self> {
        let effects = Arc::new(Effects::new("EV"));
        let words =
            Vocabulary { path: "/events", items: "events", reference: "reference", named: |e| &e.reference, item };
        let receiver = Arc::new(Receiver {
            desk: Desk::new(Arc::clone(&effects), "demo-webhook", words),
            effects,
            faults: Faults::default(),
            keys: Keys::default(),
            keeps_keys: AtomicBool::new(false),
            keeps_failures: AtomicBool::new(false),
            secrets: Mutex::new(Vec::new()),
            bad_signatures: AtomicU64::new(0),
        });
        let door = Door::open_at(port, serve(Arc::clone(&receiver) as Arc<dyn App>)).await?;
        Ok(Self { receiver, door })
    }

    /// Base URL, no slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.door.address())
    }

    /// Where to post.
    pub fn hook_url(&self) -> String {
        format!("{}/hook", self.url())
    }

    /// What happened here.
    pub fn effects(&self) -> &Arc<Effects> {
        &self.receiver.effects
    }

    /// Faults of posts.
    pub fn faults(&self) -> &Faults {
        &self.receiver.faults
    }

    /// The side that is asked, with its own faults.
    pub fn desk(&self) -> &Desk {
        &self.receiver.desk
    }

    /// Refuses, accepts, cuts connections.
    pub fn door(&self) -> &Door {
        &self.door
    }

    /// The same key gets the stored answer again, marked `Idempotent-Replayed: true`.
    pub fn keep_keys(&self, keep: bool) {
        self.receiver.keeps_keys.store(keep, Ordering::SeqCst);
    }

    /// Failures that a fault orders are stored under the key as well, and replayed.
    pub fn keep_failures(&self, keep: bool) {
        self.receiver.keeps_failures.store(keep, Ordering::SeqCst);
    }

    /// The stored keys and their answers.
    pub fn keys(&self) -> &Keys {
        &self.receiver.keys
    }

    /// From now on posts must be signed with one of these (`whsec_…`); none: unsigned posts are taken.
    /// A secret that is not base64 fits nothing.
    pub fn set_secrets(&self, secrets: &[&str]) {
        *locked(&self.receiver.secrets) =
            secrets.iter().map(|secret| signature::decode_secret(secret).unwrap_or_default()).collect();
    }

    /// Posts refused for their signature.
    pub fn bad_signatures(&self) -> u64 {
        self.receiver.bad_signatures.load(Ordering::SeqCst)
    }
}

struct Receiver {
    effects: Arc<Effects>,
    faults: Faults,
    desk: Desk,
    keys: Keys,
    keeps_keys: AtomicBool,
    keeps_failures: AtomicBool,
    secrets: Mutex<Vec<Vec<u8>>>,
    bad_signatures: AtomicU64,
}

impl App for Receiver {
    fn handle(&self, request: Request) -> BoxFuture<'_, Ending<Response>> {
        Box::pin(async move {
            if request.method == "POST" && request.path == "/hook" {
                self.post(&request).await
            } else {
                self.desk.handle(&request).await
            }
        })
    }
}

impl Receiver {
    async fn post(&self, request: &Request) -> Ending<Response> {
        let secrets = locked(&self.secrets).clone();
        if !secrets.is_empty()
            && let Err(bad) = signature::check(request, &secrets, now().timestamp())
        {
            self.bad_signatures.fetch_add(1, Ordering::SeqCst);
            return Ending::Answer(Response::json(401, &json!({"error": bad.to_string()})));
        }
        let key = request.header("webhook-id").or_else(|| request.header("idempotency-key"));
        let reference = request.header("settled-reference");
        let fault = self.faults.take(Subject { stage: Stage::Act, reference, key });
        let kept = if self.keeps_keys.load(Ordering::SeqCst) { key } else { None };
        let keeps_failures = self.keeps_failures.load(Ordering::SeqCst);
        let act = || {
            if let Some(stored) = kept.and_then(|key| self.keys.replay(key, &request.body)) {
                return stored;
            }
            let effect = self.effects.record(arrived(request, key));
            let answer = Response::json(200, &json!({"id": effect.id, "status": "received"}));
            if let Some(key) = kept {
                self.keys.store(key, request.body.clone(), &answer);
            }
            answer
        };
        let instead = |what| {
            let answer = Response::instead(what);
            if let Some(key) = kept.filter(|_| keeps_failures) {
                self.keys.store(key, request.body.clone(), &answer);
            }
            answer
        };
        play(fault, act, instead).await
    }
}

fn arrived(request: &Request, key: Option<&str>) -> Arrived {
    Arrived {
        key: key.map(str::to_owned),
        reference: request.header("settled-reference").unwrap_or_default().to_owned(),
        occurrence: request.header("settled-occurrence").and_then(|n| n.parse().ok()).unwrap_or(1),
        recipient: String::new(),
        attempt: request.header("settled-attempt").and_then(|n| n.parse().ok()),
        content: String::from_utf8_lossy(&request.body).into_owned(),
    }
}

fn item(effect: &Effect) -> Value {
    json!({
        "id": effect.id,
        "key": effect.key,
        "reference": effect.reference,
        "occurrence": effect.occurrence,
        "attempt": effect.attempt,
        "received_at": effect.at,
        "status": "received",
    })
}
