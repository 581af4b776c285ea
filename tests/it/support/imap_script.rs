//! An IMAP server that serves a list of messages and goes wrong where a test says so. It keeps every command.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// One message as the server shows it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its UID.
    pub uid: u32,
    /// INTERNALDATE.
    pub date: String,
    /// Header fields, CRLF line ends, without the empty line.
    pub fields: String,
}

/// Where it goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nowhere.
    Nothing,
    /// LOGIN is refused.
    NoLogin,
    /// EXAMINE is refused.
    NoMailbox,
    /// EXAMINE is never answered to its end: the connection closes after EXISTS.
    ClosedInExamine,
    /// FETCH shows this many messages and closes.
    ClosedInFetch(usize),
    /// FETCH shows nothing and ends with this status.
    FetchEnds(&'static str),
    /// FETCH leaves out the message with this UID.
    LeavesOut(u32),
    /// FETCH reports that a message is gone.
    Expunges,
    /// Every conversation finds a mailbox that was made anew.
    Recreated,
    /// FETCH tells that the mailbox was made anew.
    RecreatedInFetch,
    /// LOGIN is switched off; AUTHENTICATE PLAIN is not.
    PlainOnly,
    /// AUTHENTICATE asks for the password again and again.
    AsksOn,
    /// A web page instead of IMAP.
    Html,
    /// PREAUTH instead of OK.
    PreAuth,
    /// Says nothing at all.
    Silent,
}

/// A running server.
pub struct ImapServer {
    /// Where it listens.
    pub address: SocketAddr,
    commands: mpsc::UnboundedReceiver<Vec<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl ImapServer {
    /// Serves `messages`.
    pub async fn start(messages: Vec<Stored>, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, commands) = mpsc::unbounded_channel();
        let script = Arc::new((messages, fault));
        let task = tokio::spawn(async move {
            let mut validity = 77;
            while let Ok((stream, _)) = listener.accept().await {
                if script.1 == Fault::Recreated {
                    validity += 1;
                }
                let (script, tell) = (Arc::clone(&script), tell.clone());
                tokio::spawn(async move {
                    let mut commands = Vec::new();
                    let _lost = serve(stream, &script.0, &script.1, validity, &mut commands).await;
                    let _test_is_over = tell.send(commands);
                });
            }
        });
        Self { address, commands, task }
    }

    /// The commands of the next finished conversation, without tags.
    pub async fn commands(&mut self) -> Vec<String> {
        tokio::time::timeout(Duration::from_secs(20), self.commands.recv()).await.expect("a conversation ends").unwrap()
    }
}

impl Drop for ImapServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    stream: TcpStream,
    messages: &[Stored],
    fault: &Fault,
    validity: u32,
    commands: &mut Vec<String>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let greeting = if *fault == Fault::Html {
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>\r\n"
    } else if *fault == Fault::PreAuth {
        "* PREAUTH welcome\r\n"
    } else if *fault == Fault::Silent {
        ""
    } else {
        "* OK [CAPABILITY IMAP4rev1] ready\r\n"
    };
    stream.write_all(greeting.as_bytes()).await?;
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let (tag, command) = line.trim_end().split_once(' ').unwrap();
        commands.push(command.to_owned());
        let verb = command.split(' ').next().unwrap().to_ascii_uppercase();
        let (mut said, mut status, mut close) = (Vec::new(), "OK", false);
        match verb.as_str() {
            "LOGIN" if matches!(fault, Fault::NoLogin | Fault::PlainOnly) => status = "NO",
            "AUTHENTICATE" => {
                let mut rounds = if *fault == Fault::AsksOn { u32::MAX } else { 1 };
                while rounds > 0 {
                    stream.write_all(b"+ \r\n").await?;
                    let mut answer = String::new();
                    if stream.read_line(&mut answer).await? == 0 {
                        return Ok(());
                    }
                    commands.push(answer.trim_end().to_owned());
                    rounds -= 1;
                }
            }
            "LOGIN" => {}
            "EXAMINE" if *fault == Fault::NoMailbox => status = "NO",
            "EXAMINE" => {
                let next = messages.iter().map(|m| m.uid).max().unwrap_or(0) + 1;
                said.extend_from_slice(
                    format!(
                        "* FLAGS (\\Seen)\r\n* {} EXISTS\r\n* 0 RECENT\r\n* OK [UIDVALIDITY {validity}] ok\r\n* OK [UIDNEXT {next}] ok\r\n",
                        messages.len()
                    )
                    .as_bytes(),
                );
                close = *fault == Fault::ClosedInExamine;
            }
            "UID" => (status, close) = fetch(command, messages, fault, &mut said),
            "LOGOUT" => said.extend_from_slice(b"* BYE\r\n"),
            _ => status = "BAD",
        }
        if !close {
            said.extend_from_slice(format!("{tag} {status} done\r\n").as_bytes());
        }
        stream.write_all(&said).await?;
        if close || verb == "LOGOUT" {
            return Ok(());
        }
        line.clear();
    }
    Ok(())
}

fn fetch(command: &str, messages: &[Stored], fault: &Fault, said: &mut Vec<u8>) -> (&'static str, bool) {
    let set = command.split(' ').nth(2).unwrap();
    let (low, high) = set.split_once(':').unwrap();
    let low: u32 = low.parse().unwrap();
    let high = if high == "*" { u32::MAX } else { high.parse().unwrap() };
    if let Fault::FetchEnds(status) = fault {
        return (status, false);
    }
    if *fault == Fault::RecreatedInFetch {
        said.extend_from_slice(b"* OK [UIDVALIDITY 78] made anew\r\n");
    }
    if *fault == Fault::Expunges {
        said.extend_from_slice(b"* 1 EXPUNGE\r\n");
    }
    // Somebody else reads a message meanwhile: a report that answers no question.
    said.extend_from_slice(b"* 1 FETCH (FLAGS (\\Seen))\r\n");
    let mut shown = 0;
    for (at, message) in messages.iter().enumerate().filter(|(_, m)| (low..=high).contains(&m.uid)) {
        if *fault == Fault::LeavesOut(message.uid) {
            continue;
        }
        if *fault == Fault::ClosedInFetch(shown) {
            return ("OK", true);
        }
        let fields = format!("{}\r\n", message.fields);
        said.extend_from_slice(
            format!(
                "* {} FETCH (UID {} INTERNALDATE \"{}\" BODY[HEADER.FIELDS (MESSAGE-ID X-SETTLED-KEY X-SETTLED-REFERENCE X-SETTLED-ATTEMPT TO)] {{{}}}\r\n{fields})\r\n",
                at + 1,
                message.uid,
                message.date,
                fields.len()
            )
            .as_bytes(),
        );
        shown += 1;
    }
    ("OK", *fault == Fault::ClosedInFetch(shown))
}
