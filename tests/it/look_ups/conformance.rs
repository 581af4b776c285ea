//! The suite that every look-up passes: one list of situations, arranged for each adapter by its own downstream.

use std::{any::Any, fs, os::unix::fs::PermissionsExt, sync::Arc};

use serde_json::{Value, json};
use settled::{
    domain::question::{AccountSeen, Answer, Question, Role, Seen},
    look_up::{self, LookUp},
};

use super::http::{ELDER, NOBODY, SUBJECT, YOUNGER, full};
use crate::support::{
    imap_script::{Fault, ImapServer, Stored},
    scripted::{Act, Got, Scripted, json},
};

/// What the downstream has, or how it goes wrong.
#[derive(Debug, Clone)]
enum Situation {
    /// Key and reference of each item, oldest first.
    Has(Vec<(String, &'static str)>),
    /// The list of what it has is not shown to its end.
    Cut,
    /// Somebody else's account answers.
    OtherAccount,
    /// It does not let us in.
    Refuses,
    /// It says nothing.
    Silent,
    /// It answers with something that is no answer.
    Garbage,
    /// It answers with bytes that are meant to break readers.
    Hostile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Adapter {
    HttpByKey,
    HttpByWindow,
    Imap,
    Command,
}

const ADAPTERS: [Adapter; 4] = [Adapter::HttpByKey, Adapter::HttpByWindow, Adapter::Imap, Adapter::Command];
const PASSWORD: &str = "s3cret-of-the-suite";

/// A look-up, and what must live as long as it is asked.
struct Arranged {
    look_up: Arc<dyn LookUp>,
    _kept: Vec<Box<dyn Any>>,
}

async fn arrange(adapter: Adapter, situation: &Situation) -> Arranged {
    match adapter {
        Adapter::HttpByKey | Adapter::HttpByWindow => http(adapter, situation.clone()).await,
        Adapter::Imap => imap(situation).await,
        Adapter::Command => command(situation),
    }
}

fn built(section: &Value, kept: Vec<Box<dyn Any>>) -> Arranged {
    let destination = serde_json::from_value(json!({
        "name": "partner", "channel": "webhook", "webhook": {}, "allow_addresses": ["127.0.0.0/8"],
        "timeouts": { "connect": "5s", "command": "1s", "body": "5s", "reply": "1s" },
        "look_up": section,
    }))
    .unwrap();
    Arranged { look_up: look_up::registry::build(&destination).unwrap().unwrap(), _kept: kept }
}

fn password() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), PASSWORD).unwrap();
    file
}

async fn http(adapter: Adapter, situation: Situation) -> Arranged {
    let server = Scripted::new(move |got: &Got| {
        let items = |of: &[(String, &str)]| {
            let items: Vec<_> = of.iter().map(|(key, reference)| json!({ "key": key, "ref": reference })).collect();
            json!({ "items": items })
        };
        match (&situation, got.path()) {
            (Situation::OtherAccount, "/me") => json(200, &json!({ "id": "other" })),
            (Situation::Refuses, _) => json(401, &json!({ "error": "who are you" })),
            (Situation::Silent, _) => Act::Silence,
            (_, "/me") => json(200, &json!({ "id": "acme" })),
            (Situation::Has(of), _) => json(200, &items(of)),
            // Full pages without a next one.
            (Situation::Cut, _) => json(200, &items(&vec![(NOBODY[1..].to_owned(), "X"); 10])),
            (Situation::OtherAccount, _) => json(200, &items(&[])),
            (Situation::Garbage, _) => {
                Act::Reply(200, vec![("content-type", "text/html".to_owned())], b"<h1>log in".to_vec())
            }
            (Situation::Hostile, _) => Act::Reply(200, vec![], b"{\"items\":[{\"key\":\"\xff\xfe\0\"}]}".to_vec()),
        }
    })
    .await;
    let secret = password();
    let (per, query) = match adapter {
        Adapter::HttpByKey => ("key", json!({ "key": "{key}" })),
        Adapter::HttpByWindow | Adapter::Imap | Adapter::Command => ("window", json!({ "since": "{from:rfc3339}" })),
    };
    let section = json!({ "kind": "http", "lag": "10s", "horizon": "1d", "http": {
        "per": per, "url": format!("{}/messages", server.base), "query": query,
        "auth": { "bearer": { "file": secret.path() } },
        "answer": { "items": "/items", "key_at": "/key", "reference_at": "/ref" }, "pages": { "full_page": 10 },
        "account": { "url": format!("{}/me", server.base), "expect": { "/id": "acme" } },
    }});
    built(&section, vec![Box::new(server), Box::new(secret)])
}

async fn imap(situation: &Situation) -> Arranged {
    let stored = |uid: usize, fields: String| Stored {
        uid: u32::try_from(uid + 1).unwrap(),
        date: " 4-Mar-2025 11:30:00 +0000".to_owned(),
        fields,
    };
    let mail = |key: &str, reference: &str| format!("X-Settled-Key: {key}\r\nX-Settled-Reference: {reference}\r\n");
    let has = match situation {
        Situation::Has(of) => {
            of.iter().enumerate().map(|(at, (key, reference))| stored(at, mail(key, reference))).collect()
        }
        Situation::Hostile => {
            vec![stored(0, format!("X-Settled-Key: =?utf-8?B?AAAA?= \u{0}\u{7}\r\n: \r\n\u{202e}{SUBJECT}\r\n"))]
        }
        Situation::Cut => (0..3).map(|at| stored(at, mail("x", "X"))).collect(),
        Situation::OtherAccount | Situation::Refuses | Situation::Silent | Situation::Garbage => Vec::new(),
    };
    let fault = match situation {
        Situation::Cut => Fault::LeavesOut(2),
        Situation::Refuses => Fault::NoLogin,
        Situation::Silent => Fault::Silent,
        Situation::Garbage => Fault::Html,
        Situation::Has(_) | Situation::OtherAccount | Situation::Hostile => Fault::Nothing,
    };
    let server = ImapServer::start(has, fault).await;
    let account = if matches!(situation, Situation::OtherAccount) { "other@127.0.0.1" } else { "audit@127.0.0.1" };
    let secret = password();
    let section = json!({ "kind": "imap", "lag": "10s", "horizon": "1d", "imap": {
        "host": "127.0.0.1", "port": server.address.port(), "tls": "none", "username": "audit",
        "password": { "file": secret.path() }, "account": account,
    }});
    built(&section, vec![Box::new(server), Box::new(secret)])
}

fn command(situation: &Situation) -> Arranged {
    let has: String = match situation {
        Situation::Has(of) => {
            of.iter().map(|(key, reference)| format!("{key} {}\n", reference.to_lowercase())).collect()
        }
        Situation::Cut
        | Situation::OtherAccount
        | Situation::Refuses
        | Situation::Silent
        | Situation::Garbage
        | Situation::Hostile => String::new(),
    };
    let account = if matches!(situation, Situation::OtherAccount) { "other" } else { "acme" };
    let spoilt = match situation {
        // It breaks off before it has come to an end.
        Situation::Cut => "exit 1",
        Situation::Refuses => "echo 'access denied' >&2; exit 77",
        Situation::Silent => "exec /bin/sleep 1000",
        Situation::Garbage => "echo '<h1>log in'; exit 44",
        Situation::Hostile => "printf 'settled-look-up %s %s found id=\\377\\033[2J\\000\\n' \"$1\" \"$2\"; exit 0",
        Situation::Has(_) | Situation::OtherAccount => "",
    };
    let text = format!(
        "#!/bin/sh\necho \"settled-look-up $1 $2 account name={account}\"\n{spoilt}\nseen=44\nwhile read k r; do\n\
         if [ \"$k\" = \"$2\" ] || [ \"$r\" = \"$3\" ]; then echo \"settled-look-up $1 $2 found key=$k reference=$r\"; seen=0; fi\n\
         done <<END\n{has}END\n[ $seen = 44 ] && echo \"settled-look-up $1 $2 absent\"\nexit $seen\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("ask");
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let secret = password();
    let section = json!({ "kind": "command", "lag": "10s", "horizon": "1d", "command": {
        "program": program, "arguments": ["{nonce}", "{key}", "{reference}"], "shows_key": true, "account": "acme",
        "environment": { "TOKEN": { "file": secret.path() } }, "within": if matches!(situation, Situation::Silent) { "500ms" } else { "30s" },
    }});
    built(&section, vec![Box::new(dir), Box::new(secret)])
}

/// Asks in the situation, and checks what holds of every answer.
async fn ask(adapter: Adapter, situation: &Situation) -> Answer {
    let arranged = arrange(adapter, situation).await;
    let mut question: Question = full();
    for probe in &mut question.probes {
        probe.recipient.clear();
    }
    let answer = arranged.look_up.ask(&question).await.printable();
    assert_eq!(answer.seen.len(), question.probes.len(), "{adapter:?} {situation:?}");
    assert_eq!(question.probes[0].role, Role::Subject);
    let told = serde_json::to_string(&answer).unwrap();
    assert!(!told.contains(PASSWORD), "{adapter:?} {situation:?}: {told}");
    assert!(!told.contains("\\u0000") && !told.contains("\\u001b"), "{adapter:?} {situation:?}: {told}");
    answer
}

fn has(items: &[(&str, &'static str)]) -> Situation {
    Situation::Has(items.iter().map(|(key, reference)| ((*key).to_owned(), *reference)).collect())
}

fn keys(seen: &Seen) -> Vec<String> {
    match seen {
        Seen::Hits { hits } => hits.iter().map(|hit| hit.key.clone().unwrap_or_default()).collect(),
        Seen::Nothing | Seen::CannotTell { .. } => panic!("not found: {seen:?}"),
    }
}

#[tokio::test]
async fn what_is_there_is_found_by_its_key_and_controls_answer_by_the_same_path() {
    let situation = has(&[(ELDER, "INV-100"), (SUBJECT, "INV-229"), (YOUNGER, "INV-300")]);
    for adapter in ADAPTERS {
        let answer = ask(adapter, &situation).await;
        assert_eq!(keys(&answer.seen[0]), [SUBJECT], "{adapter:?}");
        assert_eq!(keys(&answer.seen[1]), [ELDER], "{adapter:?}");
        assert_eq!(keys(&answer.seen[2]), [YOUNGER], "{adapter:?}");
        assert_eq!(answer.seen[3], Seen::Nothing, "{adapter:?}");
        assert!(matches!(answer.account, AccountSeen::Matches { .. }), "{adapter:?}");
        assert!(answer.pages > 0 && answer.digest.len() == 64 && !answer.query.is_empty(), "{adapter:?}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_found_however_near_the_miss() {
    let longer = format!("{SUBJECT}0");
    let near = has(&[
        (ELDER, "INV-100"),
        (&longer, "INV-2291"),
        (&SUBJECT[1..], "INV-22"),
        ("y", "XINV-229"),
        (YOUNGER, "INV-300"),
    ]);
    for adapter in ADAPTERS {
        let answer = ask(adapter, &near).await;
        assert_eq!(answer.seen[0], Seen::Nothing, "{adapter:?}");
        assert_eq!(keys(&answer.seen[1]), [ELDER], "{adapter:?}");
        assert_eq!(keys(&answer.seen[2]), [YOUNGER], "{adapter:?}");
        assert_eq!(answer.seen[3], Seen::Nothing, "{adapter:?}");
    }
}

#[tokio::test]
async fn two_are_two_and_another_identity_with_our_reference_is_shown_with_its_key() {
    for adapter in ADAPTERS {
        let answer = ask(adapter, &has(&[(SUBJECT, "INV-229"), (SUBJECT, "INV-229")])).await;
        // Two pages that are the same would be one page twice; two items in one are two.
        assert_eq!(keys(&answer.seen[0]), [SUBJECT, SUBJECT], "{adapter:?}");
        let answer = ask(adapter, &has(&[(NOBODY, "inv-229")])).await;
        assert_eq!(keys(&answer.seen[0]), [NOBODY], "{adapter:?}");
    }
}

#[tokio::test]
async fn whatever_is_no_whole_answer_is_no_absence() {
    let situations = [Situation::Cut, Situation::Refuses, Situation::Silent, Situation::Garbage];
    for adapter in ADAPTERS {
        for situation in &situations {
            let answer = ask(adapter, situation).await;
            for seen in &answer.seen {
                assert!(
                    matches!(seen, Seen::CannotTell { why } if !why.is_empty()),
                    "{adapter:?} {situation:?}: {seen:?}"
                );
            }
        }
        // Bytes that are meant to break readers are read as nothing of ours, or not at all, and never found.
        let answer = ask(adapter, &Situation::Hostile).await;
        assert!(answer.seen.iter().all(|seen| !matches!(seen, Seen::Hits { .. })), "{adapter:?}: {:?}", answer.seen);
    }
}

#[tokio::test]
async fn another_account_is_told() {
    for adapter in ADAPTERS {
        let answer = ask(adapter, &Situation::OtherAccount).await;
        assert!(matches!(answer.account, AccountSeen::Differs { .. }), "{adapter:?}: {:?}", answer.account);
    }
}

#[tokio::test]
async fn many_questions_have_their_answers_in_order() {
    let situation = has(&[(ELDER, "INV-100"), (SUBJECT, "INV-229"), (YOUNGER, "INV-300")]);
    for adapter in ADAPTERS {
        let arranged = arrange(adapter, &situation).await;
        let one = |at: usize| Question { probes: vec![full().probes.remove(at)], ..full() };
        let answers = arranged.look_up.ask_many(&[one(2), one(3), one(0)]).await;
        assert_eq!(answers.len(), 3);
        assert_eq!(keys(&answers[0].seen[0]), [YOUNGER], "{adapter:?}");
        assert_eq!(answers[1].seen, [Seen::Nothing], "{adapter:?}");
        assert_eq!(keys(&answers[2].seen[0]), [SUBJECT], "{adapter:?}");
    }
}
