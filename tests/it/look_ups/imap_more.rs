//! The audit mailbox beyond one plain conversation: TLS, ways to log in, names, a mailbox that was made anew, many questions.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use settled::{
    config::destination::Destination,
    domain::question::{Role, Seen},
    look_up::{LookUp, imap::Imap},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use super::imap::{ELDER, KEY, destination, hits, imap, ours, probe, question, subject};
use crate::support::imap_script::{Fault, ImapServer};

/// How the front of the server goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Front {
    /// TLS from the first byte.
    Implicit,
    /// STARTTLS, as it should be.
    Starttls,
    /// It does not do it.
    Refuses,
    /// It says goodbye instead.
    Bye,
    /// It logs us in before we have said who we are.
    PreAuth,
    /// Somebody between sends on in clear text behind the reply.
    Injects,
    /// It never answers.
    Silent,
}

/// What was said to a front in clear text.
type Clear = Arc<Mutex<Vec<u8>>>;

/// A front with TLS before a server in clear text, and the CA file of its certificate for `localhost`.
async fn front(server: SocketAddr, front: Front) -> (SocketAddr, tempfile::NamedTempFile, Clear) {
    let pair = rcgen::KeyPair::generate().unwrap();
    let cert = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&pair).unwrap();
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&ca, cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(pair.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let clear = Clear::default();
    let kept = Arc::clone(&clear);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (acceptor, kept) = (acceptor.clone(), Arc::clone(&kept));
            tokio::spawn(async move { pass(near, server, front, acceptor, kept).await });
        }
    });
    (address, ca, clear)
}

async fn pass(
    near: TcpStream,
    server: SocketAddr,
    front: Front,
    acceptor: tokio_rustls::TlsAcceptor,
    clear: Clear,
) -> std::io::Result<()> {
    let mut near = BufReader::new(near);
    let mut far = BufReader::new(TcpStream::connect(server).await?);
    if front != Front::Implicit {
        let greeting: &[u8] = if front == Front::PreAuth { b"* PREAUTH hello\r\n" } else { b"* OK hello\r\n" };
        near.write_all(greeting).await?;
        let mut asked = Vec::new();
        near.read_until(b'\n', &mut asked).await?;
        clear.lock().unwrap().extend(asked);
        let reply: &[u8] = match front {
            Front::Refuses => b"t1 BAD what\r\n",
            Front::Bye => b"* BYE\r\n",
            Front::Injects => b"t1 OK go on\r\nA0001 OK you are logged in\r\n",
            Front::Silent => b"",
            Front::Implicit | Front::Starttls | Front::PreAuth => b"* CAPABILITY IMAP4rev1\r\nt1 OK go on\r\n",
        };
        near.write_all(reply).await?;
        if reply.is_empty() || matches!(front, Front::Refuses | Front::Bye) {
            let mut byte = [0];
            while near.read(&mut byte).await? > 0 {
                clear.lock().unwrap().extend(byte);
            }
            return Ok(());
        }
        let mut greeting = String::new();
        far.read_line(&mut greeting).await?;
    }
    let mut near = acceptor.accept(near.into_inner()).await?;
    tokio::io::copy_bidirectional(&mut near, &mut far).await?;
    Ok(())
}

fn through(
    front: SocketAddr,
    ca: &tempfile::NamedTempFile,
    server: &ImapServer,
    more: Value,
) -> (Destination, tempfile::NamedTempFile) {
    let mut section = json!({"host": "localhost", "port": front.port(), "account": "audit@localhost"});
    section.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (mut destination, file) = destination(server, section);
    destination.ca_file = Some(ca.path().to_owned());
    (destination, file)
}

#[tokio::test]
async fn a_mailbox_is_read_through_tls_from_the_first_byte_and_through_starttls() {
    for (how, tls) in [(Front::Implicit, "implicit"), (Front::Starttls, "starttls")] {
        let mut server = ImapServer::start(vec![ours(8, KEY, "INV-2291")], Fault::Nothing).await;
        let (address, ca, clear) = front(server.address, how).await;
        let (destination, _file) = through(address, &ca, &server, json!({"tls": tls}));
        let answer = Imap::build(&destination).unwrap().ask(&subject()).await;
        assert_eq!(hits(&answer.seen[0]).len(), 1, "{tls}");
        let commands = server.commands().await;
        assert_eq!(commands[0], "LOGIN \"audit\" \"s3cret\"", "{tls}");
        let said: &[u8] = if how == Front::Starttls { b"t1 STARTTLS\r\n" } else { b"" };
        assert_eq!(*clear.lock().unwrap(), said);
    }
}

#[tokio::test]
async fn a_server_that_does_not_start_tls_is_told_nothing() {
    for (how, words) in [
        (Front::Refuses, "refused"),
        (Front::Bye, "BYE"),
        (Front::PreAuth, "greeting"),
        (Front::Injects, "TLS"),
        (Front::Silent, "no answer within"),
    ] {
        let server = ImapServer::start(vec![ours(8, KEY, "INV-2291")], Fault::Nothing).await;
        let (address, ca, clear) = front(server.address, how).await;
        let (destination, _file) = through(address, &ca, &server, json!({"tls": "starttls"}));
        let answer = Imap::build(&destination).unwrap().ask(&subject()).await;
        let [Seen::CannotTell { why }] = answer.seen.as_slice() else { panic!("{answer:?}") };
        assert!(why.contains(words), "{why}");
        let said = clear.lock().unwrap().clone();
        assert!(
            said == b"t1 STARTTLS\r\n" || how == Front::PreAuth && said.is_empty(),
            "{}",
            String::from_utf8_lossy(&said)
        );
    }
    // A certificate for another name.
    let server = ImapServer::start(Vec::new(), Fault::Nothing).await;
    let (address, ca, _clear) = front(server.address, Front::Starttls).await;
    let (destination, _file) = through(address, &ca, &server, json!({"tls": "starttls", "host": "127.0.0.1"}));
    let answer = Imap::build(&destination).unwrap().ask(&subject()).await;
    assert!(matches!(answer.seen.as_slice(), [Seen::CannotTell { why }] if why.contains("TLS")), "{answer:?}");
}

#[tokio::test]
async fn sasl_plain_gives_name_and_password_once() {
    let mut server = ImapServer::start(vec![ours(8, KEY, "INV-2291")], Fault::PlainOnly).await;
    let (imap, _file) = imap(&server, json!({"auth": "plain", "username": "prüfung", "account": "prüfung@127.0.0.1"}));
    assert_eq!(hits(&imap.ask(&subject()).await.seen[0]).len(), 1);
    drop(imap);
    let commands = server.commands().await;
    // base64 of NUL prüfung NUL s3cret
    assert_eq!(commands[..2], ["AUTHENTICATE PLAIN", "AHByw7xmdW5nAHMzY3JldA=="]);
}

#[tokio::test]
async fn a_server_that_goes_on_asking_for_the_password_gets_it_once() {
    let mut server = ImapServer::start(Vec::new(), Fault::AsksOn).await;
    let (imap, _file) = imap(&server, json!({"auth": "plain"}));
    let answer = imap.ask(&subject()).await;
    assert!(matches!(answer.seen.as_slice(), [Seen::CannotTell { .. }]), "{answer:?}");
    drop(imap);
    let commands = server.commands().await;
    assert!(commands[2..].iter().all(String::is_empty), "{:?}", &commands[..commands.len().min(5)]);
}

#[tokio::test]
async fn a_mailbox_is_opened_by_its_name_on_the_wire() {
    for (name, wire) in
        [("Prüfung/Rechnungen", "Pr&APw-fung/Rechnungen"), ("Pr&APw-fung", "Pr&APw-fung"), ("a \"b\"", "a \\\"b\\\"")]
    {
        let mut server = ImapServer::start(Vec::new(), Fault::Nothing).await;
        let (imap, _file) = imap(&server, json!({"mailbox": name}));
        assert_eq!(imap.ask(&subject()).await.seen, [Seen::Nothing]);
        drop(imap);
        assert_eq!(server.commands().await[1], format!("EXAMINE \"{wire}\""));
    }
}

#[tokio::test]
async fn a_mailbox_that_was_made_anew_proves_no_absence_but_what_is_in_it_counts() {
    let server = ImapServer::start(vec![ours(3, ELDER, "INV-1")], Fault::Recreated).await;
    let (made_anew, _file) = imap(&server, json!({}));
    assert_eq!(made_anew.ask(&subject()).await.seen, [Seen::Nothing], "the first reading has nothing to compare with");
    let both = question(vec![probe(Role::Subject, KEY, "inv-2291"), probe(Role::Elder, ELDER, "inv-1")]);
    let answer = made_anew.ask(&both).await;
    let [Seen::CannotTell { why }, Seen::Hits { hits }] = answer.seen.as_slice() else { panic!("{answer:?}") };
    assert!(why.contains("made anew") && hits.len() == 1, "{why}");

    let server = ImapServer::start(Vec::new(), Fault::Nothing).await;
    let (pinned, _file) = imap(&server, json!({"uid_validity": 77}));
    assert_eq!(pinned.ask(&subject()).await.seen, [Seen::Nothing]);
    assert_eq!(pinned.ask(&subject()).await.seen, [Seen::Nothing]);
    let (other, _file) = imap(&server, json!({"uid_validity": 76}));
    for _ in 0..2 {
        assert!(
            matches!(other.ask(&subject()).await.seen.as_slice(), [Seen::CannotTell { why }] if why.contains("was 76"))
        );
    }
}

#[tokio::test]
async fn one_conversation_answers_for_many_questions() {
    let mut server = ImapServer::start(vec![ours(3, ELDER, "INV-1"), ours(8, KEY, "INV-2291")], Fault::Nothing).await;
    let (imap, _file) = imap(&server, json!({}));
    let elder = question(vec![probe(Role::Subject, ELDER, "inv-1"), probe(Role::Impossible, "0", "inv-none")]);
    let answers = imap.ask_many(&[subject(), elder]).await;
    assert_eq!(hits(&answers[0].seen[0])[0].id.as_deref(), Some("77/8"));
    assert_eq!(hits(&answers[1].seen[0])[0].id.as_deref(), Some("77/3"));
    assert_eq!(answers[1].seen[1], Seen::Nothing);
    assert!(answers.iter().all(|answer| answer.same_answer && answer.pages == 1));
    drop(imap);
    assert_eq!(server.commands().await.len(), 4);
}

#[test]
fn a_bad_setting_is_named_with_its_rule() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(ImapServer::start(Vec::new(), Fault::Nothing));
    for (more, field, rule) in [
        (json!({"mailbox": "R&D"}), "mailbox", "&-"),
        (json!({"mailbox": ""}), "mailbox", "name"),
        (json!({"username": "prüfung"}), "username", "plain"),
        (json!({"uid_validity": 0}), "uid_validity", "at least 1"),
        (json!({"max_messages": 0}), "max_messages", "between 1"),
        (json!({"host": "a b"}), "host", "host"),
    ] {
        let (destination, _file) = destination(&server, more.clone());
        let error = Imap::build(&destination).err().unwrap();
        assert_eq!(error.field, format!("look_up.imap.{field}"), "{more}: {error}");
        assert!(error.rule.contains(rule), "{more}: {error}");
    }
}
