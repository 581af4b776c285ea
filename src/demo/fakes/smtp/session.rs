//! One SMTP conversation.

use std::{io, ops::ControlFlow};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    super::{
        faults::{Ending, Instead, Stage, Subject, play},
        mailbox::{Envelope, Marks},
        tls::Security,
        wire::Wire,
    },
    Server,
};

const SIZE: usize = 30 * 1024 * 1024;

type Flow = io::Result<ControlFlow<()>>;

pub(super) struct Session<'a> {
    server: &'a Server,
    wire: Wire,
    greeted: bool,
    logged_in: bool,
    envelope: Option<Envelope>,
}

impl<'a> Session<'a> {
    pub(super) fn new(server: &'a Server, wire: Wire) -> Self {
        Self { server, wire, greeted: false, logged_in: false, envelope: None }
    }

    pub(super) async fn run(mut self) -> io::Result<()> {
        if self.server.options.security == Security::Implicit {
            self.encrypt().await?;
        }
        if self.say(Stage::Connect, "220 localhost ESMTP settled demo".into()).await?.is_break() {
            return Ok(());
        }
        while let Some(line) = self.wire.line().await? {
            let line = String::from_utf8_lossy(&line).into_owned();
            if self.command(&line).await?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn encrypt(&mut self) -> io::Result<()> {
        let certificate = self.server.options.certificate.as_ref();
        self.wire.encrypt(certificate.ok_or_else(|| io::Error::other("no certificate is configured"))?).await
    }

    async fn command(&mut self, line: &str) -> Flow {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" => {
                self.greeted = true;
                let reply = self.extensions();
                self.say(Stage::Hello, reply).await
            }
            "HELO" => {
                self.greeted = true;
                self.say(Stage::Hello, "250 localhost".into()).await
            }
            "STARTTLS" if self.offers_start_tls() => {
                let flow = self.say(Stage::StartTls, "220 2.0.0 go on".into()).await?;
                if flow.is_continue() {
                    self.encrypt().await?;
                    (self.greeted, self.envelope) = (false, None);
                }
                Ok(flow)
            }
            "AUTH" => self.auth(rest).await,
            "MAIL" => self.mail(rest).await,
            "RCPT" => self.recipient(rest).await,
            "DATA" => self.data().await,
            "RSET" => {
                self.envelope = None;
                self.reply("250 2.0.0 forgotten").await
            }
            "NOOP" => self.reply("250 2.0.0 still here").await,
            "QUIT" => {
                let _ = self.reply("221 2.0.0 bye").await?;
                Ok(ControlFlow::Break(()))
            }
            _ => self.reply("500 5.5.1 not known here").await,
        }
    }

    fn offers_start_tls(&self) -> bool {
        self.server.options.security == Security::StartTls && !self.wire.is_encrypted()
    }

    fn extensions(&self) -> String {
        let mut lines =
            vec!["localhost".to_owned(), format!("SIZE {SIZE}"), "8BITMIME".into(), "ENHANCEDSTATUSCODES".into()];
        if !self.server.options.without_dsn {
            lines.push("DSN".into());
        }
        if self.offers_start_tls() {
            lines.push("STARTTLS".into());
        } else if self.server.options.login.is_some() {
            lines.push("AUTH PLAIN LOGIN".into());
        }
        let last = lines.len() - 1;
        let spelled: Vec<String> =
            lines.iter().enumerate().map(|(at, l)| format!("250{}{l}", if at == last { ' ' } else { '-' })).collect();
        spelled.join("\r\n")
    }

    async fn auth(&mut self, rest: &str) -> Flow {
        let Some((user, password)) = self.server.options.login.clone() else {
            return self.reply("502 5.5.1 no log-in here").await;
        };
        let (mechanism, initial) = rest.split_once(' ').map_or((rest, None), |(m, i)| (m, Some(i.to_owned())));
        let given = match mechanism.to_ascii_uppercase().as_str() {
            "PLAIN" => {
                let text = match initial {
                    Some(text) => text,
                    None => self.challenge("").await?,
                };
                let decoded = decode(&text);
                let mut parts = decoded.split('\0').skip(1);
                (parts.next().unwrap_or_default().to_owned(), parts.next().unwrap_or_default().to_owned())
            }
            "LOGIN" => {
                let name = match initial {
                    Some(text) => text,
                    None => self.challenge("VXNlcm5hbWU6").await?,
                };
                let secret = self.challenge("UGFzc3dvcmQ6").await?;
                (decode(&name), decode(&secret))
            }
            _ => return self.reply("504 5.5.4 mechanism not known here").await,
        };
        self.logged_in = given == (user, password);
        let reply = if self.logged_in { "235 2.7.0 welcome" } else { "535 5.7.8 wrong user or password" };
        self.say(Stage::Auth, reply.into()).await
    }

    async fn challenge(&mut self, text: &str) -> io::Result<String> {
        self.wire.write(format!("334 {text}\r\n").as_bytes()).await?;
        let line = self.wire.line().await?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    async fn mail(&mut self, rest: &str) -> Flow {
        if !self.greeted {
            return self.reply("503 5.5.1 greet first").await;
        }
        if self.offers_start_tls() {
            return self.reply("530 5.7.0 must issue a STARTTLS command first").await;
        }
        if self.server.options.login.is_some() && !self.logged_in {
            return self.reply("530 5.7.0 log in first").await;
        }
        let Some((from, parameters)) = path(rest, "FROM:") else {
            return self.reply("501 5.5.4 MAIL FROM:<address>").await;
        };
        let envid = parameters.split(' ').find_map(|p| p.strip_prefix("ENVID=")).map(xtext);
        let flow = self.say(Stage::From, "250 2.1.0 sender ok".into()).await;
        self.envelope = Some(Envelope { from: from.to_owned(), to: Vec::new(), envid });
        flow
    }

    async fn recipient(&mut self, rest: &str) -> Flow {
        let Some((to, _)) = path(rest, "TO:") else { return self.reply("501 5.5.4 RCPT TO:<address>").await };
        if self.envelope.is_none() {
            return self.reply("503 5.5.1 MAIL first").await;
        }
        let fault = self.server.faults.take(self.subject(Stage::To));
        // Whoever gets another answer than the true one is no recipient.
        let mut added = false;
        let ending = play(
            fault,
            || {
                added = true;
                "250 2.1.5 recipient ok".to_owned()
            },
            spell,
        )
        .await;
        let accepted = matches!(&ending, Ending::Answer(reply) if reply.starts_with("250"));
        if added
            && accepted
            && let Some(envelope) = &mut self.envelope
        {
            envelope.to.push(to.to_owned());
        }
        self.end(ending).await
    }

    async fn data(&mut self) -> Flow {
        let Some(envelope) = self.envelope.clone().filter(|envelope| !envelope.to.is_empty()) else {
            return self.reply("503 5.5.1 RCPT first").await;
        };
        let fault = self.server.faults.take(self.subject(Stage::Data));
        let ending = play(fault, || "354 end with a dot".to_owned(), spell).await;
        let goes_on = matches!(&ending, Ending::Answer(reply) if reply.starts_with("354"));
        let flow = self.end(ending).await?;
        if flow.is_break() || !goes_on {
            return Ok(flow);
        }
        let Some(raw) = self.message().await? else { return Ok(ControlFlow::Break(())) };
        self.envelope = None;
        if raw.len() > SIZE {
            return self.reply("552 5.3.4 too large").await;
        }
        let marks = Marks::read(&raw, envelope.envid.as_deref());
        let subject = Subject {
            stage: Stage::Act,
            reference: marks.reference.as_deref(),
            key: marks.key.as_deref().or(envelope.envid.as_deref()),
        };
        let fault = self.server.faults.take(subject);
        let mailbox = &self.server.mailbox;
        let act = || {
            let mail = mailbox.deliver(envelope, raw);
            format!("250 2.0.0 queued as {}", mail.effects.join(","))
        };
        let ending = play(fault, act, spell).await;
        self.end(ending).await
    }

    /// Reads to the final dot. `None`: the conversation ended before it, and nothing was accepted.
    async fn message(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut raw = Vec::new();
        let mut first = true;
        while let Some(line) = self.wire.line().await? {
            if line == b"." {
                return Ok(Some(raw));
            }
            raw.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
            raw.extend_from_slice(b"\r\n");
            if std::mem::take(&mut first)
                && let Some(fault) = self.server.faults.take(self.subject(Stage::Body))
            {
                let ending = play(Some(fault), || "421 4.3.0 ends here".to_owned(), spell).await;
                let _ = self.end(ending).await?;
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn subject(&self, stage: Stage) -> Subject<'_> {
        let key = self.envelope.as_ref().and_then(|envelope| envelope.envid.as_deref());
        Subject { stage, reference: None, key }
    }

    /// Answers at a stage, unless a fault wants otherwise.
    async fn say(&mut self, stage: Stage, reply: String) -> Flow {
        let fault = self.server.faults.take(self.subject(stage));
        let truth = reply.clone();
        let ending = play(fault, || reply, spell).await;
        let is_truth = matches!(&ending, Ending::Answer(said) if *said == truth);
        let flow = self.end(ending).await?;
        // A false answer to the greeting or to STARTTLS must not be followed by what the true one promises.
        if !is_truth && matches!(stage, Stage::Connect | Stage::StartTls) {
            Ok(ControlFlow::Break(()))
        } else {
            Ok(flow)
        }
    }

    async fn end(&mut self, ending: Ending<String>) -> Flow {
        match ending {
            Ending::Answer(reply) => return self.reply(&reply).await,
            Ending::Half(reply) => self.wire.write(reply.as_bytes().split_at(reply.len() / 2).0).await?,
            Ending::Reset => self.wire.reset(),
            Ending::Close => {}
            Ending::Never => self.wire.stay_silent().await?,
        }
        Ok(ControlFlow::Break(()))
    }

    async fn reply(&mut self, reply: &str) -> Flow {
        self.wire.write(format!("{reply}\r\n").as_bytes()).await?;
        Ok(ControlFlow::Continue(()))
    }
}

fn spell(instead: Instead) -> String {
    match instead {
        Instead::Status(code) => format!("{code} {}.0.0 as ordered", code / 100),
        Instead::Page => "HTTP/1.1 400 Bad Request".to_owned(),
    }
}

/// `FROM:<a@b> P=1` → (`a@b`, `P=1`).
fn path<'t>(rest: &'t str, word: &str) -> Option<(&'t str, &'t str)> {
    let rest = rest.trim_start();
    let (head, tail) = rest.split_at_checked(word.len())?;
    if !head.eq_ignore_ascii_case(word) {
        return None;
    }
    let (address, parameters) = tail.trim_start().strip_prefix('<')?.split_once('>')?;
    Some((address, parameters.trim()))
}

/// RFC 3461 section 4: `+2B` is a plus sign.
fn xtext(text: &str) -> String {
    let mut decoded = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'+' {
            decoded.push(byte);
            continue;
        }
        let digits: Vec<u8> = bytes.by_ref().take(2).collect();
        let value = std::str::from_utf8(&digits).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(value.unwrap_or(b'?'));
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn decode(text: &str) -> String {
    String::from_utf8_lossy(&STANDARD.decode(text.trim()).unwrap_or_default()).into_owned()
}
