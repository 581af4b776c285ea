//! Public bug reports of kind SSRF, as cases.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use settled::{
    channels::{
        webhook::Webhook,
        wire::{
            dial::{DialError, Resolve},
            http1::{Cause, Options, get},
        },
    },
    domain::gate::BoxFuture,
};

use super::{
    fake::{Fake, reply},
    wire_exchange::options,
};

fn guarded() -> Options {
    Options { allow_addresses: vec![], ..options() }
}

async fn refused(url: &str, options: &Options) -> Option<String> {
    match get(url.parse().unwrap(), vec![], options).await.cause {
        Some(Cause::Dial(DialError::Blocked(blocked))) => Some(blocked.to_string()),
        _ => None,
    }
}

/// Gives the addresses of a list, one list a question.
struct Fixed {
    answers: Vec<Vec<SocketAddr>>,
    asked: AtomicUsize,
}

impl Resolve for Fixed {
    fn resolve<'a>(&'a self, _host: &'a str, _port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let n = self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers.get(n).cloned().unwrap_or_default();
        Box::pin(std::future::ready(Ok(answer)))
    }
}

#[tokio::test]
async fn case_049_v4_mapped_addresses_are_blocked_by_number() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    let port = fake.address.port();
    for url in [
        format!("http://[::ffff:7f00:1]:{port}/"),
        "http://[::ffff:169.254.169.254]/".to_owned(),
        "http://[0:0:0:0:0:ffff:a9fe:a9fe]/".to_owned(),
    ] {
        let text = refused(&url, &guarded()).await.unwrap_or_else(|| panic!("{url} was not blocked"));
        assert!(text.starts_with("blocked address"), "{text}");
    }
    assert!(fake.seen().is_empty());
}

#[tokio::test]
async fn case_050_carriers_of_private_targets_are_blocked_by_number() {
    for url in [
        "http://[2002:7f00:1::]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[::7f00:1]/",
        "http://[fe81::1]/",
        "http://[fd00::1]/",
    ] {
        assert!(refused(url, &guarded()).await.is_some(), "{url}");
    }
    let control = "2002:808:808::1".parse().unwrap();
    assert!(settled::channels::wire::guard::check(control, &[]).is_ok());
}

#[tokio::test]
async fn case_051_unspecified_and_odd_spellings_of_loopback_reach_nothing() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    let p = fake.address.port();
    for host in ["0.0.0.0", "[::]", "127.1", "2130706433", "0177.0.0.1", "0x7f000001", "localhost", "127.0.0.1"] {
        let url = format!("http://{host}:{p}/");
        assert!(refused(&url, &guarded()).await.is_some(), "{url}");
    }
    for name in ["127.0.0.1.nip.test", "localhost."] {
        let mut lying = guarded();
        lying.resolver = Arc::new(Fixed { answers: vec![vec![fake.address]], asked: AtomicUsize::new(0) });
        assert!(refused(&format!("http://{name}:{p}/"), &lying).await.is_some(), "{name}");
    }
    assert!(fake.seen().is_empty());
}

#[tokio::test]
async fn no_spelling_of_a_url_leads_past_the_number() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    let p = fake.address.port();
    for host in [
        "127.0.0.1.",
        "127.0.1",
        "0x7f.1",
        "017700000001",
        "%31%32%37.0.0.1",
        "127%2e0%2e0%2e1",
        "１２７.０.０.１",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "user:secret@127.0.0.1",
        "8.8.8.8@127.0.0.1",
        "[::ffff:127.0.0.1]",
        "[0:0:0:0:0:ffff:7f00:0001]",
        "[::FFFF:7F00:1]",
    ] {
        let url = format!("http://{host}:{p}/");
        assert!(refused(&url, &guarded()).await.is_some(), "{url}");
        let refused = Webhook::build(&destination_to(&url)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("webhook.url"), "{url}: the same verdict when it is configured: {refused}");
    }
    assert!(fake.seen().is_empty());
    // What no parser takes for a host goes nowhere either.
    for url in [
        "http://[::1%25lo]/",
        "http://[::1]./",
        "http://127.0.0.1%00.example/",
        "http://exa mple/",
        "http://[fe80::1%eth0]/",
    ] {
        assert!(url.parse::<url::Url>().is_err(), "{url}");
    }
}

/// A webhook to this URL, with no address allowed.
fn destination_to(url: &str) -> settled::config::destination::Destination {
    let value = serde_json::json!({"name": "erp", "channel": "webhook", "in_doubt": "person", "webhook": {"url": url}});
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn a_name_in_other_letters_is_resolved_as_its_a_label_and_its_address_is_judged() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    // The first o is Cyrillic.
    for (name, label) in [("l\u{43e}calhost", "xn--lcalhost-nbh"), ("ex\u{e4}mple.test", "xn--exmple-cua.test")] {
        let url: url::Url = format!("http://{name}:{}/", fake.address.port()).parse().unwrap();
        assert_eq!(url.host_str(), Some(label));
        let mut lying = guarded();
        lying.resolver = Arc::new(Fixed { answers: vec![vec![fake.address]], asked: AtomicUsize::new(0) });
        assert!(refused(url.as_str(), &lying).await.is_some(), "{name}");
    }
    assert!(fake.seen().is_empty());
}

/// The environment of this process cannot be changed here, so the test runs itself once more in another one.
#[tokio::test]
async fn proxies_of_the_environment_are_ignored() {
    const NAME: &str = "channels::cases_ssrf::proxies_of_the_environment_are_ignored";
    if std::env::var_os("HTTP_PROXY").is_some_and(|value| value == "http://127.0.0.1:1") {
        let fake = Fake::answering(reply("200 OK", "{}")).await;
        let seen = get(fake.url("/").parse().unwrap(), vec![], &options()).await;
        assert_eq!(seen.reply.map(|reply| reply.status), Some(200));
        assert_eq!(seen.peer, Some(fake.address));
        return;
    }
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, "http://127.0.0.1:1");
    }
    let ended = child.args([NAME, "--exact"]).kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_dialled() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    let other = Fake::answering(reply("200 OK", "{}")).await;
    let resolver =
        Arc::new(Fixed { answers: vec![vec![fake.address], vec![other.address]], asked: AtomicUsize::new(0) });
    let options = Options { resolver: resolver.clone(), ..options() };
    let seen = get("http://rebind.test/".parse().unwrap(), vec![], &options).await;
    assert_eq!(seen.peer, Some(fake.address));
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1);
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn a_blocked_address_beside_a_good_one_is_never_dialled() {
    let inner = Fake::answering(reply("200 OK", "{}")).await;
    let good = Fake::answering(reply("200 OK", "{}")).await;
    let resolver = Fixed { answers: vec![vec![inner.address, good.address]], asked: AtomicUsize::new(0) };
    // Both are loopback here, so the allow-list names the one port's address only by way of a second loopback address.
    let blocked = SocketAddr::from(([127, 0, 0, 2], inner.address.port()));
    let resolver = Fixed { answers: vec![vec![blocked, good.address]], ..resolver };
    let options =
        Options { resolver: Arc::new(resolver), allow_addresses: vec!["127.0.0.1/32".parse().unwrap()], ..options() };
    let seen = get("http://two.test/".parse().unwrap(), vec![], &options).await;
    assert_eq!(seen.peer, Some(good.address));
    assert!(inner.seen().is_empty());
}
