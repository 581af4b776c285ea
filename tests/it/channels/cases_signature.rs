//! Public bug reports of kind SIG, as cases. The rest (69-71) stand beside the code that reads secrets.

use std::io::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use serde_json::json;
use settled::channels::webhook::Webhook;
use sha2::Sha256;

use super::{
    fake::{Fake, Seen, reply},
    webhook::{destination, outgoing, send},
};

const OLD: &str = "settled-demo-secret-0001";
const NEW: &str = "settled-demo-secret-0002-longer";

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{text}").unwrap();
    file
}

/// What a receiver does: over the raw bytes it got.
fn verifies(seen: &Seen, secret: &str) -> bool {
    let (id, stamp) = (seen.header("webhook-id").unwrap(), seen.header("webhook-timestamp").unwrap());
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{id}.{stamp}.").as_bytes());
    mac.update(seen.body());
    let wanted = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    seen.header("webhook-signature").unwrap().split(' ').any(|one| one == wanted)
}

#[tokio::test]
async fn case_073_old_and_new_receiver_both_verify_while_a_secret_is_rotated() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    let (old, new) = (file(&format!("whsec_{}", STANDARD.encode(OLD))), file(&format!("raw:{NEW}")));
    for (secrets, old_verifies, new_verifies) in [
        (json!([{"file": old.path()}]), true, false),
        (json!([{"file": old.path()}, {"file": new.path()}]), true, true),
        (json!([{"file": new.path()}]), false, true),
    ] {
        let before = fake.seen().len();
        let settings = json!({"url": fake.url("/"), "signing_secrets": secrets});
        let channel = Webhook::build(&destination(settings, json!({}))).unwrap();
        send(&channel, &outgoing(r#"{"a":1}"#)).await;
        let seen = &fake.wait_for(|all| all.get(before).is_some_and(|s| s.over)).await[before];
        assert_eq!((verifies(seen, OLD), verifies(seen, NEW)), (old_verifies, new_verifies));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn case_072_the_signature_is_over_the_bytes_that_arrive(
        text in "[ -~\u{e9}\u{1f600}]{0,60}",
        odd in prop::sample::select(vec!["1.0", "1e2", "\"\\u00e9\"", "\"\\/\"", "{}", "[[], {}]", "{\"b\":1, \"a\":2}"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fake = Fake::answering(reply("200 OK", "{}")).await;
            let secret = file(&format!("raw:{OLD}"));
            let settings = json!({"url": fake.url("/"), "signing_secrets": [{"file": secret.path()}]});
            let channel = Webhook::build(&destination(settings, json!({}))).unwrap();
            let payload = format!("{{\"odd\":{odd} , \"text\":{}}}", serde_json::to_string(&text).unwrap());
            send(&channel, &outgoing(payload.clone())).await;
            let seen = fake.first().await;
            assert_eq!(seen.body(), payload.as_bytes());
            assert!(verifies(&seen, OLD));
        });
    }
}
