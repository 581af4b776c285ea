//! An SMS provider that keeps the caller's reference and no keys.
//!
//! `POST /messages` (JSON or form: `to`, `text`, `client_reference`) sends one. `GET /messages` lists by
//! `client_reference`, `recipient`, `from`, `to`; `GET /messages/{id}` shows one; `GET /account` says who we are.

use std::{
    io,
    sync::{Arc, Mutex},
};

use serde_json::{Map, Value, json};

use super::{
    desk::{Desk, Vocabulary},
    door::Door,
    faults::{Ending, Faults, Stage, Subject, play},
    http::{App, Request, Response, pairs, serve},
    ledger_of_effects::{Arrived, Effect, Effects},
    locked,
};
use crate::domain::gate::BoxFuture;

/// The provider behind its door.
pub struct Sms {
    provider: Arc<Provider>,
    door: Door,
}

impl Sms {
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
        let effects = Arc::new(Effects::new("SM"));
        let words = Vocabulary {
            path: "/messages",
            items: "messages",
            reference: "client_reference",
            named: |effect| effect.key.as_deref().unwrap_or_default(),
            item,
        };
        let provider = Arc::new(Provider {
            desk: Desk::new(Arc::clone(&effects), "demo-sms", words),
            effects,
            faults: Faults::default(),
            authorization: Mutex::new(None),
        });
        let door = Door::open_at(port, serve(Arc::clone(&provider) as Arc<dyn App>)).await?;
        Ok(Self { provider, door })
    }

    /// Base URL, no slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.door.address())
    }

    /// Where to post.
    pub fn messages_url(&self) -> String {
        format!("{}/messages", self.url())
    }

    /// What happened here.
    pub fn effects(&self) -> &Arc<Effects> {
        &self.provider.effects
    }

    /// Faults of sends.
    pub fn faults(&self) -> &Faults {
        &self.provider.faults
    }

    /// The side that is asked, with its own faults.
    pub fn desk(&self) -> &Desk {
        &self.provider.desk
    }

    /// Refuses, accepts, cuts connections.
    pub fn door(&self) -> &Door {
        &self.door
    }

    /// From now on every request must carry exactly this `Authorization`, or gets 401.
    pub fn set_authorization(&self, value: Option<&str>) {
        *locked(&self.provider.authorization) = value.map(str::to_owned);
    }
}

struct Provider {
    effects: Arc<Effects>,
    faults: Faults,
    desk: Desk,
    authorization: Mutex<Option<String>>,
}

impl App for Provider {
    fn handle(&self, request: Request) -> BoxFuture<'_, Ending<Response>> {
        Box::pin(async move {
            let wanted = locked(&self.authorization).clone();
            if wanted.is_some_and(|wanted| request.header("authorization") != Some(wanted.as_str())) {
                return Ending::Answer(Response::json(401, &json!({"error": "who are you?"})));
            }
            if request.method == "POST" && request.path == "/messages" {
                self.send(&request).await
            } else {
                self.desk.handle(&request).await
            }
        })
    }
}

impl Provider {
    async fn send(&self, request: &Request) -> Ending<Response> {
        let members = match members(request) {
            Ok(members) => members,
            Err(error) => return Ending::Answer(Response::json(400, &json!({"error": error}))),
        };
        let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (to, content) = (text("to"), text("text"));
        if !is_e164(&to) || content.is_empty() {
            let error = json!({"error": "to must be E.164 and text must not be empty"});
            return Ending::Answer(Response::json(422, &error));
        }
        let client_reference = text("client_reference");
        let header = |name| request.header(name).map(str::to_owned);
        let reference = header("settled-reference").unwrap_or_else(|| client_reference.clone());
        // The provider names things by what it was given; it is our key or our reference, as the sender is configured.
        let key = Some(client_reference);
        let fault = self.faults.take(Subject { stage: Stage::Act, reference: Some(&reference), key: key.as_deref() });
        let number = |name| request.header(name).and_then(|n| n.parse().ok());
        let arrived = Arrived {
            key,
            reference: reference.clone(),
            occurrence: number("settled-occurrence").unwrap_or(1),
            recipient: to,
            attempt: number("settled-attempt"),
            content,
        };
        let act = || {
            let effect = self.effects.record(arrived);
            Response::json(201, &json!({"id": effect.id, "status": "queued"}))
        };
        play(fault, act, Response::instead).await
    }
}

fn members(request: &Request) -> Result<Map<String, Value>, String> {
    let content_type = request.header("content-type").unwrap_or_default();
    if content_type.starts_with("application/x-www-form-urlencoded") {
        return Ok(pairs(&request.body).into_iter().map(|(name, value)| (name, Value::String(value))).collect());
    }
    serde_json::from_slice(&request.body).map_err(|error| format!("neither a form nor a JSON object: {error}"))
}

fn is_e164(to: &str) -> bool {
    to.strip_prefix('+').is_some_and(|digits| {
        (2..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0')
    })
}

fn item(effect: &Effect) -> Value {
    json!({
        "id": effect.id,
        "to": effect.recipient,
        "text": effect.excerpt,
        "client_reference": effect.key,
        "reference": effect.reference,
        "status": "delivered",
        "created_at": effect.at,
    })
}
