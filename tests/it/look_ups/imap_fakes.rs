//! Mail and mailbox of the demonstration: the channel and the look-up agree with the fakes that other tests stand on.

use std::{io::Write, sync::Arc};

use serde_json::json;
use settled::{
    channels::{Channel, smtp::Smtp},
    config::destination::Destination,
    demo::fakes::{
        faults::{Fault, Stage},
        imap::{self, Index},
        mailbox::Mailbox,
        smtp,
    },
    domain::{
        outcome::{DoubtKind, Outcome},
        question::{Probe, Question, Role, Seen},
    },
    look_up::{LookUp, imap::Imap},
};

use crate::support::{
    gates::TestGate,
    mail::{KEY, RECIPIENT, outgoing, payload},
};

#[tokio::test]
async fn a_mail_whose_reply_was_lost_is_found_although_the_index_answers_ok_and_nothing() {
    let mailbox = Arc::new(Mailbox::default());
    let relay = smtp::Smtp::start(Arc::clone(&mailbox)).await.unwrap();
    let audit = imap::Imap::start(Arc::clone(&mailbox)).await.unwrap();
    audit.set_index(Index::Empty);
    let mut password = tempfile::NamedTempFile::new().unwrap();
    writeln!(password, "audit").unwrap();
    let destination: Destination = serde_json::from_value(json!({
        "name": "mail", "channel": "smtp", "allow_addresses": ["127.0.0.0/8"],
        "smtp": {"host": "127.0.0.1", "port": relay.port(), "tls": "none", "from": "billing@example.test"},
        "look_up": {"kind": "imap", "lag": "1m", "horizon": "30days", "imap": {"host": "127.0.0.1", "port": audit.port(),
            "tls": "none", "username": "audit", "password": {"file": password.path()}, "account": "audit@127.0.0.1"}},
    }))
    .unwrap();
    let channel = Smtp::build(&destination).unwrap();
    let now = chrono::Utc::now();
    let question = Question {
        probes: vec![Probe {
            role: Role::Subject,
            key: KEY.to_owned(),
            reference: "inv-2291".to_owned(),
            spelled: None,
            occurrence: 1,
            recipient: RECIPIENT.to_owned(),
            sent_from: now,
            sent_until: now,
        }],
        now,
    };
    let look_up = Imap::build(&destination).unwrap();
    assert_eq!(look_up.ask(&question).await.seen, [Seen::Nothing]);

    relay.faults().at(Stage::Act, Fault::LoseReply);
    let intent = outgoing(&payload());
    let ended = channel.send(channel.prepare(&intent).unwrap(), &intent, TestGate::open()).await;
    assert_eq!(ended.outcome, Outcome::Ambiguous { doubt: DoubtKind::ConnectionLost });
    assert_eq!(mailbox.effects().count_by_key(KEY), 1);
    let answer = look_up.ask(&question).await;
    let [Seen::Hits { hits }] = answer.seen.as_slice() else { panic!("{answer:?}") };
    assert_eq!((hits.len(), hits[0].key.as_deref()), (1, Some(KEY)));
    assert!(audit.commands().iter().all(|command| !command.contains("SEARCH") && !command.contains("SELECT")));
}
