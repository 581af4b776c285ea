//! TLS and AUTH: nothing that matters is said in clear text unless the destination says so.

use std::io::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use settled::domain::outcome::{Outcome, Proof, Stage};

use crate::support::{
    gates::TestGate,
    mail::{channel, outgoing, payload, send},
    relay::{Act, Relay, Speaks},
};

fn password() -> (tempfile::NamedTempFile, serde_json::Value) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "s3cret").unwrap();
    let section = json!({"username": "billing", "password": {"file": file.path()}});
    (file, section)
}

fn not_sent(proof: Proof) -> Outcome {
    Outcome::NotSent { proof, retry_after: None }
}

#[tokio::test]
async fn credentials_and_mail_go_through_tls() {
    let (_file, section) = password();
    for speaks in [Speaks::Starttls, Speaks::Implicit] {
        let mut relay = Relay::start(speaks, []).await;
        let ended = send(&channel(&relay, speaks, section.clone()), &outgoing(&payload()), TestGate::open()).await;
        assert!(matches!(ended.outcome, Outcome::Sent { .. }), "{speaks:?} {ended:?}");
        let heard = relay.heard().await;
        assert!(heard.tls && heard.dot);
        let token = STANDARD.encode("\0billing\0s3cret");
        assert_eq!(heard.command("AUTH"), Some(format!("AUTH PLAIN {token}").as_str()));
        assert_eq!(ended.report.bytes_handed, heard.data.len() as u64);
    }
}

#[tokio::test]
async fn auth_login_is_used_where_plain_is_not_offered() {
    let (_file, section) = password();
    let mut relay =
        Relay::start(Speaks::Plain, [("EHLO", Act::Raw(b"250-relay\r\n250 AUTH LOGIN\r\n".to_vec()))]).await;
    let ended = send(&channel(&relay, Speaks::Plain, section), &outgoing(&payload()), TestGate::open()).await;
    assert!(matches!(ended.outcome, Outcome::Sent { .. }), "{ended:?}");
    let heard = relay.heard().await;
    assert_eq!(
        heard.commands.get(1..4).unwrap(),
        ["AUTH LOGIN", &STANDARD.encode("billing"), &STANDARD.encode("s3cret")]
    );
}

#[tokio::test]
async fn refused_credentials_park_the_destination() {
    let (_file, section) = password();
    for (speaks, acts) in [
        (Speaks::Starttls, [("AUTH", Act::Say("535 5.7.8 no".to_owned()))]),
        (Speaks::Starttls, [("AUTH", Act::Say("534 too weak".to_owned()))]),
        (Speaks::Plain, [("EHLO", Act::Say("250 relay without auth".to_owned()))]),
    ] {
        let mut relay = Relay::start(speaks, acts).await;
        let ended = send(&channel(&relay, speaks, section.clone()), &outgoing(&payload()), TestGate::open()).await;
        assert_eq!(ended.outcome, not_sent(Proof::Parked));
        assert!(relay.heard().await.command("MAIL").is_none());
        let told = serde_json::to_string(&ended.report).unwrap();
        assert!(!told.contains("s3cret") && !told.contains(&STANDARD.encode("\0billing\0s3cret")), "{told}");
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_ends_the_attempt() {
    let mut relay = Relay::start(Speaks::Implicit, []).await;
    let mut destination = crate::support::mail::destination(relay.address, json!({"tls": "implicit"}));
    destination["ca_file"] = serde_json::Value::Null;
    let ended = send(&crate::support::mail::build(destination), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, not_sent(Proof::TlsFailed));
    assert_eq!(ended.report.stage, Stage::Tls);
    assert!(relay.heard().await.commands.is_empty());
}

#[tokio::test]
async fn case_079_without_starttls_nothing_is_said_in_clear_text() {
    let (_file, mut section) = password();
    section["tls"] = "starttls".into();
    // Missing from EHLO.
    let mut relay = Relay::start(Speaks::Plain, []).await;
    let ended = send(&channel(&relay, Speaks::Plain, section.clone()), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, not_sent(Proof::TlsFailed));
    assert_eq!(ended.report.stage, Stage::Tls);
    assert!(ended.report.cause.unwrap().contains("STARTTLS"));
    assert_eq!(relay.heard().await.commands, ["EHLO settled.test"]);
    // Not available just now.
    let acts = [("STARTTLS", Act::SayAndClose("454 TLS not available".to_owned()))];
    let mut relay = Relay::start(Speaks::Starttls, acts).await;
    let ended =
        send(&channel(&relay, Speaks::Starttls, section.clone()), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, not_sent(Proof::TlsFailed));
    assert_eq!(relay.heard().await.commands, ["EHLO settled.test", "STARTTLS"]);
    // Somebody on the way adds a reply for after the handshake.
    let injected = b"220 go ahead\r\n250-relay.test\r\n250 AUTH PLAIN\r\n235 welcome\r\n".to_vec();
    let mut relay = Relay::start(Speaks::Starttls, [("STARTTLS", Act::Raw(injected))]).await;
    let ended = send(&channel(&relay, Speaks::Starttls, section), &outgoing(&payload()), TestGate::open()).await;
    assert!(matches!(ended.outcome, Outcome::Sent { .. }), "what was injected is thrown away: {ended:?}");
    let heard = relay.heard().await;
    assert!(heard.tls && heard.dot);
    assert_eq!(heard.commands.iter().filter(|line| line.starts_with("EHLO")).count(), 2);
}
