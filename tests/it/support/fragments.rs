//! Destinations in configuration text, for worlds of tests.

use settled::demo::fakes::{imap::Imap, sms::Sms, smtp::Smtp, webhook::Webhook};

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

/// Text messages through a provider that keeps our key and lists by recipient.
pub fn texts(name: &str, provider: &Sms, look_up: &str) -> String {
    let base = provider.url();
    format!(
        r#"
name = "{name}"
channel = "sms"
allow_addresses = ["127.0.0.0/8"]
[limits]
lease_margin = "1s"
[timeouts]
connect = "2s"
tls = "2s"
body = "2s"
reply = "500ms"
[sms]
url = "{base}/messages"
json = {{ to = "{{to}}", text = "{{text}}", client_reference = "{{key}}" }}
reference_in = "/client_reference"
[sms.headers]
"settled-reference" = "{{reference}}"
[sms.reply]
sent_when = {{ status = [201] }}
provider_id = "/id"
[look_up]
kind = "http"
lag = "10s"
horizon = "72h"
need = 2
spacing = "5s"
{look_up}
[look_up.http]
per = "key"
url = "{base}/messages?recipient={{recipient}}&from={{from:%s}}"
widen = "1d"
answer = {{ items = "/messages", key_at = "/client_reference", reference_at = "/reference", recipient_at = "/to", id_at = "/id" }}
pages = {{ next_at = "/next", max = 20 }}
account = {{ url = "{base}/account", expect = {{ "/account" = "demo-sms" }} }}
"#
    )
}

/// Mail through a relay, asked for in an audit mailbox. `password` is a file with the mailbox's.
pub fn mail(name: &str, relay: &Smtp, audit: &Imap, password: &std::path::Path, final_dot: &str) -> String {
    let (port, audit, password) = (relay.port(), audit.port(), password.display());
    format!(
        r#"
name = "{name}"
channel = "smtp"
allow_addresses = ["127.0.0.0/8"]
[limits]
lease_margin = "1s"
[timeouts]
connect = "2s"
tls = "2s"
command = "2s"
body = "2s"
final_dot = "{final_dot}"
[smtp]
host = "127.0.0.1"
port = {port}
tls = "none"
from = "billing@example.test"
[look_up]
kind = "imap"
lag = "10s"
horizon = "72h"
need = 2
spacing = "5s"
visibility = "ordered"
[look_up.imap]
host = "127.0.0.1"
port = {audit}
tls = "none"
username = "audit"
password = {{ file = "{password}" }}
account = "audit@127.0.0.1"
"#
    )
}
