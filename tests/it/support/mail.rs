//! Destinations and intents of mail for tests.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use settled::{
    channels::{Channel, Prepared, Wire, smtp::Smtp},
    config::destination::Destination,
    domain::{gate::Gate, intent::Outgoing, outcome::Ended},
};
use std::sync::Arc;

use super::relay::{Relay, Speaks};

/// A key as the daemon derives them.
pub const KEY: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
/// The recipient of [`outgoing`].
pub const RECIPIENT: &str = "ap@acme.test";

/// A small mail.
pub fn payload() -> Value {
    json!({"to": RECIPIENT, "subject": "Invoice INV-2291", "text": "Please find the invoice.\n"})
}

/// An intent with this payload.
pub fn outgoing(payload: &Value) -> Outgoing {
    Outgoing {
        intent_id: uuid::Uuid::nil(),
        tenant: "t".to_owned(),
        destination: "mail".to_owned(),
        key: KEY.to_owned(),
        reference: "INV-2291".to_owned(),
        occurrence: 1,
        recipient: RECIPIENT.to_owned(),
        attempt: 1,
        earlier_bytes: false,
        created_at: "2026-03-04T05:06:07.891Z".parse::<DateTime<Utc>>().unwrap(),
        payload: payload.to_string(),
    }
}

/// A destination; `more` is merged into its `smtp` section.
pub fn destination(address: std::net::SocketAddr, more: Value) -> Value {
    let mut smtp = json!({"host": "127.0.0.1", "port": address.port(), "tls": "none", "from": "billing@example.test",
        "hello_name": "settled.test", "keep_for": "0s"});
    smtp.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"name": "mail", "channel": "smtp", "smtp": smtp, "allow_addresses": ["127.0.0.0/8"],
        "timeouts": {"connect": "5s", "tls": "5s", "command": "5s", "body": "5s", "final_dot": "5s"}})
}

/// The channel for `relay`, as it speaks.
pub fn channel(relay: &Relay, speaks: Speaks, more: Value) -> Smtp {
    let mut destination = destination(relay.address, more);
    destination["ca_file"] = relay.ca.to_str().unwrap().into();
    if destination["smtp"]["tls"] == "none" && speaks != Speaks::Plain {
        destination["smtp"]["tls"] = if speaks == Speaks::Starttls { "starttls" } else { "implicit" }.into();
    }
    build(destination)
}

/// The channel of a destination.
pub fn build(destination: Value) -> Smtp {
    Smtp::build(&serde_json::from_value::<Destination>(destination).unwrap()).unwrap()
}

/// Prepares and sends.
pub async fn send(channel: &Smtp, outgoing: &Outgoing, gate: Arc<dyn Gate>) -> Ended {
    let prepared = channel.prepare(outgoing).expect("the payload can be sent");
    channel.send(prepared, outgoing, gate).await
}

/// The bytes of what was prepared.
pub fn bytes(prepared: &Prepared) -> &[u8] {
    match &prepared.wire {
        Wire::Mail(mail) => &mail.bytes,
        Wire::Http(_) => panic!("no mail"),
    }
}
