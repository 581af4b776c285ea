//! Destinations in configuration text, for worlds of tests.

use settled::demo::fakes::webhook::Webhook;

/// A webhook that can be asked by key; `extra` goes into the entry, `look_up` into its look-up.
pub fn webhook(name: &str, receiver: &Webhook, extra: &str, look_up: &str) -> String {
    let (hook, base) = (receiver.hook_url(), receiver.url());
    format!(
        r#"
name = "{name}"
channel = "webhook"
allow_addresses = ["127.0.0.0/8"]
{extra}
[limits]
lease_margin = "1s"
backoff = "5s"
[timeouts]
connect = "2s"
tls = "2s"
body = "2s"
reply = "2s"
[webhook]
url = "{hook}"
[look_up]
kind = "http"
lag = "10s"
horizon = "72h"
need = 2
spacing = "5s"
visibility = "ordered"
{look_up}
[look_up.http]
per = "window"
url = "{base}/events?from={{from:%s}}&to={{until:%s}}"
widen = "1d"
answer = {{ items = "/events", key_at = "/key", reference_at = "/reference", occurrence_at = "/occurrence", attempt_at = "/attempt", id_at = "/id" }}
pages = {{ next_at = "/next", max = 20, full_page = 100 }}
account = {{ url = "{base}/account", expect = {{ "/account" = "demo-webhook" }} }}
"#
    )
}

/// A webhook that cannot be asked.
pub fn mute_webhook(name: &str, receiver: &Webhook, extra: &str) -> String {
    let hook = receiver.hook_url();
    format!(
        r#"
name = "{name}"
channel = "webhook"
allow_addresses = ["127.0.0.0/8"]
{extra}
[limits]
lease_margin = "1s"
[timeouts]
connect = "2s"
tls = "2s"
body = "2s"
reply = "2s"
[webhook]
url = "{hook}"
"#
    )
}
