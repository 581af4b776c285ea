//! The fakes can be trusted: they act once, and their faults do what they say.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::TryStreamExt;
use hmac::{Hmac, KeyInit, Mac};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use serde_json::Value;
use settled::demo::fakes::{
    desk::{Matching, Paging},
    faults::{Fault, Stage, When},
    imap::{self, Imap, Index},
    latch::Latch,
    ledger_of_effects::Arrived,
    mailbox::Mailbox,
    sms::Sms,
    smtp::{self, Smtp},
    tls::{Certificate, Security},
    webhook::Webhook,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

const SOON: Duration = Duration::from_secs(5);
const KEY: &str = "00112233445566778899aabbccddeeff";

/// One request on a connection of its own: status, head, body; or the error that ended it.
async fn http(url: &str, method: &str, path: &str, head: &str, body: &str) -> std::io::Result<(u16, String, String)> {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n{head}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Ok((status, head.to_owned(), body.to_owned()))
}

async fn post(hook: &Webhook, key: &str, reference: &str) -> std::io::Result<(u16, String, String)> {
    let head = format!("webhook-id: {key}\r\nsettled-reference: {reference}\r\nsettled-attempt: 1\r\n");
    http(&hook.url(), "POST", "/hook", &head, r#"{"a":1}"#).await
}

async fn get(url: &str, path: &str) -> (u16, Value) {
    let (status, _, body) = http(url, "GET", path, "", "").await.unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

fn references(list: &Value) -> Vec<&str> {
    list["events"].as_array().unwrap().iter().map(|event| event["reference"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_webhook_acts_once_and_can_be_asked() {
    let hook = Webhook::start().await.unwrap();
    assert_eq!(post(&hook, KEY, "INV-2291").await.unwrap().0, 200);
    assert_eq!((hook.effects().count_by_key(KEY), hook.effects().count_by_reference("inv-2291")), (1, 1));
    let (status, one) = get(&hook.url(), &format!("/events/{KEY}")).await;
    assert_eq!((status, one["reference"].as_str()), (200, Some("INV-2291")));
    assert_eq!(get(&hook.url(), "/events/other").await.0, 404);
    assert_eq!(get(&hook.url(), "/account").await.1["account"], "demo-webhook");
    let (_, list) = get(&hook.url(), "/events?from=2000-01-01T00:00:00Z&to=4102444800").await;
    assert_eq!(references(&list), ["INV-2291"]);
    assert_eq!(get(&hook.url(), "/events?from=yesterday").await.0, 400);
    assert!(hook.effects().duplicates().is_empty());
    // Without keys a repeat is a second effect.
    post(&hook, KEY, "INV-2291").await.unwrap();
    assert_eq!(hook.effects().duplicates().len(), 1);
}

#[tokio::test]
async fn each_fault_acts_or_does_not_as_it_says() {
    let hook = Webhook::start().await.unwrap();
    let reset = std::io::ErrorKind::ConnectionReset;
    let table: [(Fault, usize, Result<u16, std::io::ErrorKind>); 8] = [
        (Fault::LoseReply, 1, Err(reset)),
        (Fault::CloseWithoutReply, 1, Err(std::io::ErrorKind::UnexpectedEof)),
        (Fault::ResetBeforeActing, 0, Err(reset)),
        (Fault::Status { code: 503, act: true }, 1, Ok(503)),
        (Fault::Status { code: 500, act: false }, 0, Ok(500)),
        (Fault::HtmlPage { act: false }, 0, Ok(200)),
        (Fault::SlowReply(Duration::from_millis(1)), 1, Ok(200)),
        (Fault::KillBeforeAnswer(Arc::new(|| ())), 1, Err(std::io::ErrorKind::UnexpectedEof)),
    ];
    for (at, (fault, acts, ends)) in table.into_iter().enumerate() {
        let reference = format!("INV-{at}");
        hook.faults().for_reference(&reference, fault.clone());
        let answer = post(&hook, &format!("{at:032}"), &reference).await;
        assert_eq!(answer.as_ref().map(|a| a.0).map_err(std::io::Error::kind), ends, "{fault:?}");
        assert_eq!(hook.effects().count_by_reference(&reference), acts, "{fault:?}");
        // Once only.
        assert_eq!(post(&hook, "x", "OTHER").await.unwrap().0, 200);
    }
    assert_eq!(hook.faults().fired().len(), 8);
}

#[tokio::test]
async fn a_silent_fault_keeps_the_connection_open_without_an_answer() {
    let hook = Webhook::start().await.unwrap();
    hook.faults().next(Fault::LoseReplySilent);
    hook.faults().next(Fault::SilentBeforeActing);
    for acts in [1, 1] {
        let answer = tokio::time::timeout(Duration::from_millis(200), post(&hook, KEY, "INV-1")).await;
        assert!(answer.is_err());
        assert_eq!(hook.effects().all().len(), acts);
    }
}

#[tokio::test]
async fn half_an_answer_is_half_an_answer() {
    let hook = Webhook::start().await.unwrap();
    hook.faults().next(Fault::CloseMidBody);
    let (status, head, body) = post(&hook, KEY, "INV-1").await.unwrap();
    let promised: usize = head.lines().find_map(|l| l.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    assert_eq!((status, body.len()), (200, promised / 2));
    assert_eq!(hook.effects().all().len(), 1);
}

#[tokio::test]
async fn a_held_request_waits_for_its_release() {
    let hook = Arc::new(Webhook::start().await.unwrap());
    for (act, before) in [(true, 1), (false, 1)] {
        let latch = Arc::new(Latch::default());
        hook.faults().next(Fault::HoldUntilReleased { act, latch: Arc::clone(&latch) });
        let shared = Arc::clone(&hook);
        let asked = tokio::spawn(async move { post(&shared, KEY, "INV-1").await });
        assert!(latch.arrived(1, SOON).await);
        assert_eq!(hook.effects().all().len(), before);
        latch.release();
        assert_eq!(asked.await.unwrap().unwrap().0, 200);
    }
    hook.effects().wait_for(SOON, |effects| effects.len() == 2).await.unwrap();
}

#[tokio::test]
async fn a_refusing_door_refuses_and_opens_again_on_its_port() {
    let hook = Webhook::start().await.unwrap();
    post(&hook, KEY, "INV-1").await.unwrap();
    hook.door().refuse().await.unwrap();
    let refused = post(&hook, KEY, "INV-2").await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    hook.door().accept().await.unwrap();
    assert_eq!(post(&hook, KEY, "INV-3").await.unwrap().0, 200);
    assert_eq!(hook.effects().count_by_reference("INV-2"), 0);
}

#[tokio::test]
async fn faults_pick_by_number_and_by_seeded_chance() {
    let hook = Webhook::start().await.unwrap();
    let refuse = || Fault::Status { code: 503, act: false };
    hook.faults().add(Stage::Act, When::Nth(2), 1, refuse());
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(post(&hook, KEY, "INV-1").await.unwrap().0);
    }
    assert_eq!(statuses, [200, 503, 200]);
    hook.faults().add(Stage::Act, When::Probability(0.5), u64::MAX, refuse());
    for _ in 0..40 {
        post(&hook, KEY, "INV-1").await.unwrap();
    }
    let fired = hook.faults().fired().len() - 1;
    assert!((8..=32).contains(&fired), "{fired} of 40");
}

#[tokio::test]
async fn a_receiver_that_keeps_keys_replays_its_answer_even_a_failure() {
    let hook = Webhook::start().await.unwrap();
    hook.keep_keys(true);
    hook.faults().next(Fault::LoseReply);
    post(&hook, KEY, "INV-1").await.unwrap_err();
    let (status, head, body) = post(&hook, KEY, "INV-1").await.unwrap();
    assert_eq!((status, body.contains("EV000001")), (200, true));
    assert!(head.contains("idempotent-replayed: true"), "{head}");
    assert_eq!(hook.effects().all().len(), 1);
    let head = format!("webhook-id: {KEY}\r\n");
    assert_eq!(http(&hook.url(), "POST", "/hook", &head, "other").await.unwrap().0, 422);

    hook.keep_failures(true);
    hook.faults().next(Fault::Status { code: 500, act: false });
    assert_eq!(post(&hook, "second", "INV-2").await.unwrap().0, 500);
    let (status, head, _) = post(&hook, "second", "INV-2").await.unwrap();
    assert_eq!((status, head.contains("idempotent-replayed: true")), (500, true));
    hook.keys().forget_all();
    assert_eq!(post(&hook, "second", "INV-2").await.unwrap().0, 200);
}

#[tokio::test]
async fn a_wrong_signature_is_counted_and_does_nothing() {
    let hook = Webhook::start().await.unwrap();
    let (old, new) = (STANDARD.encode([1_u8; 32]), STANDARD.encode([2_u8; 32]));
    hook.set_secrets(&[&format!("whsec_{old}"), &format!("whsec_{new}")]);
    let at = chrono::Utc::now().timestamp();
    for (secret, status) in [([1_u8; 32], 200), ([2; 32], 200), ([3; 32], 401)] {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&secret).unwrap();
        mac.update(format!("{KEY}.{at}.{{}}").as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let head = format!("webhook-id: {KEY}\r\nwebhook-timestamp: {at}\r\nwebhook-signature: v1,{signature}\r\n");
        assert_eq!(http(&hook.url(), "POST", "/hook", &head, "{}").await.unwrap().0, status);
    }
    assert_eq!(post(&hook, KEY, "INV-1").await.unwrap().0, 401);
    assert_eq!((hook.bad_signatures(), hook.effects().all().len()), (2, 2));
}

#[tokio::test]
async fn lists_page_lag_and_match_as_they_are_told() {
    let hook = Webhook::start().await.unwrap();
    for reference in ["INV-229", "INV-2291", "INV-2292"] {
        hook.effects().record(Arrived { reference: reference.into(), ..Arrived::default() });
    }
    let desk = hook.desk();
    let (_, list) = get(&hook.url(), "/events?reference=INV-229").await;
    assert_eq!(references(&list), ["INV-229"]);
    desk.set_matching(Matching::Prefix);
    let (_, list) = get(&hook.url(), "/events?reference=INV-229").await;
    assert_eq!(references(&list), ["INV-229", "INV-2291", "INV-2292"]);

    desk.set_page_size(2);
    let (_, first) = get(&hook.url(), "/events").await;
    let (_, second) = get(&hook.url(), first["next"].as_str().unwrap()).await;
    assert_eq!((references(&first).len(), references(&second), &second["next"]), (2, vec!["INV-2292"], &Value::Null));
    desk.set_paging(Paging::Endless);
    let (_, again) = get(&hook.url(), "/events?cursor=2").await;
    assert_eq!(again["next"], "/events?cursor=2");
    desk.set_paging(Paging::CutOff);
    let (_, cut) = get(&hook.url(), "/events").await;
    assert_eq!((references(&cut).len(), &cut["next"]), (2, &Value::Null));

    desk.set_page_size(100);
    hook.effects().set_lag(Duration::from_secs(3600));
    hook.effects().record(Arrived { reference: "LATE".into(), ..Arrived::default() });
    let (_, before) = get(&hook.url(), "/events?reference=LATE").await;
    hook.effects().release();
    let (_, after) = get(&hook.url(), "/events?reference=LATE").await;
    assert_eq!((references(&before).len(), references(&after).len()), (0, 1));

    desk.faults.next(Fault::HtmlPage { act: false });
    let (status, head, _) = http(&hook.url(), "GET", "/events", "", "").await.unwrap();
    assert_eq!((status, head.contains("text/html")), (200, true));
    desk.set_account("somebody-else");
    assert_eq!(get(&hook.url(), "/account").await.1["account"], "somebody-else");
    assert!(desk.asked().contains(&"/events?reference=LATE".to_owned()));
}

#[tokio::test]
async fn an_sms_provider_takes_json_and_forms_and_shows_the_client_reference() {
    let sms = Sms::start().await.unwrap();
    let body = r#"{"to":"+4915112345678","text":"Your code","client_reference":"INV-7"}"#;
    let (status, _, answer) = http(&sms.url(), "POST", "/messages", "", body).await.unwrap();
    assert_eq!((status, answer.contains("SM000001")), (201, true));
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let body = "to=%2B4915112345678&text=Your+code&client_reference=INV-8";
    assert_eq!(http(&sms.url(), "POST", "/messages", form, body).await.unwrap().0, 201);
    let (_, list) = get(&sms.url(), "/messages?client_reference=INV-8").await;
    assert_eq!((list["messages"][0]["id"].as_str(), list["messages"][1].is_null()), (Some("SM000002"), true));
    let body = r#"{"to":"0151","text":"Your code"}"#;
    assert_eq!(http(&sms.url(), "POST", "/messages", "", body).await.unwrap().0, 422);
    sms.set_authorization(Some("Bearer t"));
    assert_eq!(get(&sms.url(), "/account").await.0, 401);
    assert_eq!(sms.effects().all().len(), 2);
}

fn mail(reference: &str) -> (lettre::address::Envelope, Vec<u8>) {
    let envelope = lettre::address::Envelope::new(
        Some("billing@shop.test".parse().unwrap()),
        vec!["ap@acme.test".parse().unwrap()],
    );
    let text = format!(
        "From: billing@shop.test\r\nTo: ap@acme.test\r\nSubject: Invoice {reference}\r\nMessage-ID: <{KEY}@shop.test>\r\n\
         X-Settled-Key: {KEY}\r\nX-Settled-Reference:\r\n {reference}\r\nX-Settled-Attempt: 1\r\n\r\nHello\r\n.dot\r\n"
    );
    (envelope.unwrap(), text.into_bytes())
}

async fn send(smtp: &Smtp, reference: &str) -> Result<String, lettre::transport::smtp::Error> {
    let transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous("127.0.0.1").port(smtp.port()).build();
    let (envelope, raw) = mail(reference);
    let response = transport.send_raw(&envelope, &raw).await?;
    Ok(response.message().collect::<Vec<_>>().join(" "))
}

#[tokio::test]
async fn a_mail_server_stores_what_it_accepts_with_its_marks() {
    let mailbox = Arc::new(Mailbox::default());
    let smtp = Smtp::start(Arc::clone(&mailbox)).await.unwrap();
    assert!(send(&smtp, "INV-1").await.unwrap().contains("ML000001"));
    let effect = mailbox.effects().all().remove(0);
    assert_eq!((effect.key.as_deref(), effect.reference.as_str(), effect.attempt), (Some(KEY), "INV-1", Some(1)));
    assert_eq!((effect.recipient.as_str(), effect.excerpt.as_str()), ("ap@acme.test", "Invoice INV-1"));
    // lettre ends a message with a CRLF of its own before the dot.
    let given = [mail("INV-1").1, b"\r\n".to_vec()].concat();
    assert_eq!(mailbox.mails().remove(0).raw.as_slice(), given);
}

#[tokio::test]
async fn after_the_final_dot_a_fault_stores_or_does_not_and_before_it_never() {
    let mailbox = Arc::new(Mailbox::default());
    let smtp = Smtp::start(Arc::clone(&mailbox)).await.unwrap();
    for (fault, stored) in [
        (Fault::LoseReply, 1),
        (Fault::ResetBeforeActing, 0),
        (Fault::Status { code: 451, act: true }, 1),
        (Fault::Status { code: 554, act: false }, 0),
        (Fault::CloseMidBody, 1),
    ] {
        let before = mailbox.mails().len();
        smtp.faults().next(fault.clone());
        send(&smtp, "INV-1").await.unwrap_err();
        assert_eq!(mailbox.mails().len() - before, stored, "{fault:?}");
    }
    let before = mailbox.mails().len();
    for stage in [Stage::Connect, Stage::Hello, Stage::From, Stage::To, Stage::Data, Stage::Body] {
        smtp.faults().at(stage, Fault::LoseReply);
        send(&smtp, "INV-1").await.unwrap_err();
        smtp.faults().at(stage, Fault::Status { code: 450, act: false });
        send(&smtp, "INV-1").await.unwrap_err();
    }
    assert_eq!(mailbox.mails().len(), before);
    send(&smtp, "INV-1").await.unwrap();
}

/// Says a line and reads the reply to its last line.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufStream<S>, line: &str) -> String {
    if !line.is_empty() {
        stream.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    }
    let mut reply = String::new();
    loop {
        let start = reply.len();
        stream.read_line(&mut reply).await.unwrap();
        if reply.as_bytes().get(start + 3) == Some(&b' ') {
            return reply;
        }
    }
}

fn connector(authority_pem: &str) -> TlsConnector {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn mail_goes_over_starttls_and_implicit_tls_to_a_user_with_a_password() {
    for security in [Security::StartTls, Security::Implicit] {
        let mailbox = Arc::new(Mailbox::default());
        let certificate = Certificate::new().unwrap();
        let connector = connector(&certificate.authority_pem);
        let options = smtp::Options {
            security,
            certificate: Some(certificate),
            login: Some(("shop".into(), "secret".into())),
            ..smtp::Options::default()
        };
        let smtp = Smtp::start_with(Arc::clone(&mailbox), options).await.unwrap();
        let mut plain = TcpStream::connect(("127.0.0.1", smtp.port())).await.unwrap();
        if security == Security::StartTls {
            let mut talk = BufStream::new(plain);
            assert!(ask(&mut talk, "").await.starts_with("220"));
            let extensions = ask(&mut talk, "EHLO test").await;
            assert!(extensions.contains("STARTTLS") && !extensions.contains("AUTH"), "{extensions}");
            assert!(ask(&mut talk, "MAIL FROM:<a@b.test>").await.starts_with("530"));
            assert!(ask(&mut talk, "STARTTLS").await.starts_with("220"));
            plain = talk.into_inner();
        }
        let tls = connector.connect("localhost".try_into().unwrap(), plain).await.unwrap();
        let mut talk = BufStream::new(tls);
        if security == Security::Implicit {
            assert!(ask(&mut talk, "").await.starts_with("220"));
        }
        assert!(ask(&mut talk, "EHLO test").await.contains("AUTH PLAIN LOGIN"));
        assert!(ask(&mut talk, "MAIL FROM:<a@b.test>").await.starts_with("530"));
        let plain = |password: &str| format!("AUTH PLAIN {}", STANDARD.encode(format!("\0shop\0{password}")));
        assert!(ask(&mut talk, &plain("wrong")).await.starts_with("535"));
        assert!(ask(&mut talk, &plain("secret")).await.starts_with("235"));
        assert!(ask(&mut talk, "AUTH LOGIN").await.starts_with("334"));
        assert!(ask(&mut talk, &STANDARD.encode("shop")).await.starts_with("334"));
        assert!(ask(&mut talk, &STANDARD.encode("secret")).await.starts_with("235"));
        assert!(ask(&mut talk, "MAIL FROM:<a@b.test> RET=HDRS ENVID=a+2Bb").await.starts_with("250"));
        assert!(ask(&mut talk, "RCPT TO:<c@d.test> NOTIFY=FAILURE").await.starts_with("250"));
        assert!(ask(&mut talk, "DATA").await.starts_with("354"));
        assert!(ask(&mut talk, "Subject: one\r\n\r\n..dot\r\n.").await.starts_with("250"));
        let stored = mailbox.mails().remove(0);
        assert_eq!(stored.envelope.envid.as_deref(), Some("a+b"));
        assert_eq!(stored.raw.as_slice(), b"Subject: one\r\n\r\n.dot\r\n");
    }
}

type Session = async_imap::Session<TcpStream>;

async fn examine(imap: &Imap) -> (Session, async_imap::types::Mailbox) {
    let stream = TcpStream::connect(("127.0.0.1", imap.port())).await.unwrap();
    let mut client = async_imap::Client::new(stream);
    client.read_response().await.unwrap().unwrap();
    let mut session = client.login("audit", "audit").await.map_err(|(error, _)| error).unwrap();
    let mailbox = session.examine("INBOX").await.unwrap();
    (session, mailbox)
}

async fn headers(session: &mut Session, set: &str) -> Vec<(u32, String)> {
    let items = "(UID INTERNALDATE FLAGS BODY.PEEK[HEADER.FIELDS (MESSAGE-ID X-SETTLED-REFERENCE)])";
    let fetched: Vec<_> = session.uid_fetch(set, items).await.unwrap().try_collect().await.unwrap();
    fetched
        .iter()
        .map(|mail| {
            assert!(mail.internal_date().is_some());
            (mail.uid.unwrap(), String::from_utf8(mail.header().unwrap().to_vec()).unwrap())
        })
        .collect()
}

#[tokio::test]
async fn async_imap_reads_the_mailbox_and_changes_nothing() {
    let mailbox = Arc::new(Mailbox::default());
    let (smtp, imap) =
        (Smtp::start(Arc::clone(&mailbox)).await.unwrap(), Imap::start(Arc::clone(&mailbox)).await.unwrap());
    send(&smtp, "INV-229").await.unwrap();
    send(&smtp, "INV-2291").await.unwrap();
    let (mut session, opened) = examine(&imap).await;
    assert_eq!((opened.exists, opened.uid_next, opened.uid_validity.is_some()), (2, Some(3), true));
    let seen = headers(&mut session, "1:*").await;
    let wanted = format!("Message-ID: <{KEY}@shop.test>\r\nX-Settled-Reference:\r\n INV-229\r\n\r\n");
    assert_eq!(seen[0], (1, wanted));
    assert_eq!(seen.len(), 2);
    // A set beyond the end names the last one.
    assert_eq!(headers(&mut session, "7:*").await.len(), 1);
    // Substring, as real servers have it.
    let found = session.uid_search("HEADER X-Settled-Reference INV-229").await.unwrap();
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]));
    imap.set_index(Index::UsualHeaders);
    assert!(session.uid_search("HEADER X-Settled-Reference INV-229").await.unwrap().is_empty());
    assert_eq!(session.uid_search(format!("HEADER Message-ID {KEY}")).await.unwrap().len(), 2);
    imap.set_index(Index::Empty);
    assert!(session.uid_search("SINCE 1-Jan-2000").await.unwrap().is_empty());
    session.noop().await.unwrap();
    session.logout().await.unwrap();
    let commands = imap.commands();
    assert_eq!((commands[0].as_str(), commands[1].as_str()), ("LOGIN", "EXAMINE \"INBOX\""));
}

#[tokio::test]
async fn a_mail_gets_its_uid_when_it_shows() {
    let mailbox = Arc::new(Mailbox::default());
    let (smtp, imap) =
        (Smtp::start(Arc::clone(&mailbox)).await.unwrap(), Imap::start(Arc::clone(&mailbox)).await.unwrap());
    mailbox.effects().hold_reference("INV-1");
    send(&smtp, "INV-1").await.unwrap();
    send(&smtp, "INV-2").await.unwrap();
    let (mut session, _) = examine(&imap).await;
    let seen = headers(&mut session, "1:*").await;
    assert_eq!((seen.len(), seen[0].0, seen[0].1.contains("INV-2")), (1, 1, true));
    mailbox.effects().release();
    let seen = headers(&mut session, "1:*").await;
    assert_eq!((seen.len(), seen[1].0, seen[1].1.contains("INV-1")), (2, 2, true));
    mailbox.drop_repeated_message_ids(true);
    send(&smtp, "INV-3").await.unwrap();
    assert_eq!((headers(&mut session, "1:*").await.len(), mailbox.effects().all().len()), (2, 3));
    mailbox.expunge(1);
    assert_eq!(headers(&mut session, "1:*").await.len(), 1);
}

#[tokio::test]
async fn imap_faults_end_in_errors_never_in_an_empty_answer() {
    let mailbox = Arc::new(Mailbox::default());
    let imap = Imap::start(Arc::clone(&mailbox)).await.unwrap();
    for fault in [Fault::Status { code: 1, act: false }, Fault::LoseReply, Fault::CloseMidBody] {
        mailbox.deliver(
            settled::demo::fakes::mailbox::Envelope { to: vec!["a@b.test".into()], ..Default::default() },
            mail("INV-1").1,
        );
        let (mut session, _) = examine(&imap).await;
        imap.faults().for_reference("FETCH", fault.clone());
        let fetched = match session.uid_fetch("1:*", "(UID)").await {
            Ok(rows) => rows.try_collect::<Vec<_>>().await,
            Err(error) => Err(error),
        };
        // async-imap ends a stream at a failed command without an error; the tag's status decides.
        if let Ok(rows) = fetched {
            assert!(rows.len() < mailbox.mails().len(), "{fault:?}");
        }
    }
    assert_eq!(imap.faults().fired().len(), 3);
    let options = imap::Options { folder: "Audit".into(), ..imap::Options::default() };
    let other = Imap::start_with(mailbox, options).await.unwrap();
    let stream = TcpStream::connect(("127.0.0.1", other.port())).await.unwrap();
    let mut client = async_imap::Client::new(stream);
    client.read_response().await.unwrap().unwrap();
    let mut session = client.login("audit", "audit").await.map_err(|(error, _)| error).unwrap();
    assert!(session.examine("INBOX").await.is_err());
}
