//! One IMAP conversation.

use std::{io, ops::ControlFlow};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    super::{
        faults::{Ending, Instead, Stage, Subject, play},
        locked,
        mailbox::Stored,
        tls::Security,
        wire::Wire,
    },
    Server, fetch,
    search::{Candidate, fits},
    token::{Piece, Token, literal, set, tokens},
};

type Flow = io::Result<ControlFlow<()>>;

pub(super) struct Session<'a> {
    server: &'a Server,
    wire: Wire,
    logged_in: bool,
    /// The folder as this client knows it, once it is open.
    view: Option<Vec<Stored>>,
}

impl<'a> Session<'a> {
    pub(super) fn new(server: &'a Server, wire: Wire) -> Self {
        Self { server, wire, logged_in: false, view: None }
    }

    pub(super) async fn run(mut self) -> io::Result<()> {
        if self.server.options.security == Security::Implicit {
            self.encrypt().await?;
        }
        let greeting = format!("* OK [CAPABILITY {}] settled demo\r\n", self.capabilities());
        if self.say(Stage::Connect, "", "*", greeting.into_bytes()).await?.is_break() {
            return Ok(());
        }
        while let Some(pieces) = self.read().await? {
            if self.command(&pieces).await?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn encrypt(&mut self) -> io::Result<()> {
        let certificate = self.server.options.certificate.as_ref();
        self.wire.encrypt(certificate.ok_or_else(|| io::Error::other("no certificate is configured"))?).await
    }

    fn capabilities(&self) -> &'static str {
        if self.server.options.security == Security::StartTls && !self.wire.is_encrypted() {
            "IMAP4rev1 LITERAL+ STARTTLS LOGINDISABLED"
        } else {
            "IMAP4rev1 LITERAL+ AUTH=PLAIN"
        }
    }

    /// A whole command with its literals.
    async fn read(&mut self) -> io::Result<Option<Vec<Piece>>> {
        let mut pieces = Vec::new();
        loop {
            let Some(line) = self.wire.line().await? else { return Ok(None) };
            let line = String::from_utf8_lossy(&line).into_owned();
            let Some((text, length, waits)) = literal(&line) else {
                pieces.push(Piece::Line(line));
                return Ok(Some(pieces));
            };
            pieces.push(Piece::Line(text.to_owned()));
            if waits {
                self.wire.write(b"+ go on\r\n").await?;
            }
            pieces.push(Piece::Literal(self.wire.block(length).await?));
        }
    }

    async fn command(&mut self, pieces: &[Piece]) -> Flow {
        let Some(tokens) = tokens(pieces) else { return self.write("* BAD not IMAP\r\n").await };
        let [Token::Word(tag), Token::Word(verb), arguments @ ..] = tokens.as_slice() else {
            return self.write("* BAD tag and command\r\n").await;
        };
        let (mut verb, mut arguments) = (verb.to_ascii_uppercase(), arguments);
        let mut by_uid = false;
        if verb == "UID"
            && let [Token::Word(second), rest @ ..] = arguments
        {
            (verb, arguments, by_uid) = (second.to_ascii_uppercase(), rest, true);
        }
        self.record(pieces, &verb);
        match verb.as_str() {
            "CAPABILITY" => {
                let reply = format!("* CAPABILITY {}\r\n{tag} OK done\r\n", self.capabilities());
                self.write(&reply).await
            }
            "NOOP" | "CHECK" => {
                let mut reply = self.refresh();
                reply.extend(format!("{tag} OK done\r\n").bytes());
                self.wire.write(&reply).await?;
                Ok(ControlFlow::Continue(()))
            }
            "ID" => self.write(&format!("* ID NIL\r\n{tag} OK done\r\n")).await,
            "LOGOUT" => {
                let _ = self.write(&format!("* BYE bye\r\n{tag} OK done\r\n")).await?;
                Ok(ControlFlow::Break(()))
            }
            "STARTTLS" if self.server.options.security == Security::StartTls && !self.wire.is_encrypted() => {
                let flow = self.write(&format!("{tag} OK go on\r\n")).await?;
                self.encrypt().await?;
                Ok(flow)
            }
            "LOGIN" | "AUTHENTICATE" => self.log_in(tag, &verb, arguments).await,
            _ if !self.logged_in => self.write(&format!("{tag} NO log in first\r\n")).await,
            "LIST" | "LSUB" => {
                let folder = &self.server.options.folder;
                self.write(&format!("* {verb} () \"/\" \"{folder}\"\r\n{tag} OK done\r\n")).await
            }
            "STATUS" => self.status(tag, arguments).await,
            "SELECT" | "EXAMINE" => self.open(tag, arguments).await,
            "CLOSE" | "UNSELECT" => {
                self.view = None;
                self.write(&format!("{tag} OK done\r\n")).await
            }
            "FETCH" | "SEARCH" if self.view.is_none() => {
                self.write(&format!("{tag} BAD open a folder first\r\n")).await
            }
            "FETCH" => {
                let reply = self.fetch(tag, arguments, by_uid);
                self.say(Stage::Act, &verb, tag, reply).await
            }
            "SEARCH" => {
                let reply = self.search(tag, arguments, by_uid);
                self.say(Stage::Act, &verb, tag, reply).await
            }
            _ => self.write(&format!("{tag} BAD not known here, or it would change something\r\n")).await,
        }
    }

    fn record(&self, pieces: &[Piece], verb: &str) {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Line(line) => text.push_str(line),
                Piece::Literal(bytes) => text.push_str(&String::from_utf8_lossy(bytes)),
            }
        }
        let text = text.split_once(' ').map_or(text.as_str(), |(_, command)| command);
        let secret = verb == "LOGIN" || verb == "AUTHENTICATE";
        locked(&self.server.commands).push(if secret { verb.to_owned() } else { text.to_owned() });
    }

    async fn log_in(&mut self, tag: &str, verb: &str, arguments: &[Token]) -> Flow {
        let given = if verb == "LOGIN" {
            let mut texts = arguments.iter().filter_map(Token::text);
            (texts.next().unwrap_or_default().to_owned(), texts.next().unwrap_or_default().to_owned())
        } else {
            let text = match arguments.get(1).and_then(Token::text) {
                Some(text) => text.to_owned(),
                None => {
                    self.wire.write(b"+ \r\n").await?;
                    String::from_utf8_lossy(&self.wire.line().await?.unwrap_or_default()).into_owned()
                }
            };
            let decoded = STANDARD.decode(text.trim()).unwrap_or_default();
            let decoded = String::from_utf8_lossy(&decoded).into_owned();
            let mut parts = decoded.split('\0').skip(1);
            (parts.next().unwrap_or_default().to_owned(), parts.next().unwrap_or_default().to_owned())
        };
        let in_clear = self.server.options.security == Security::StartTls && !self.wire.is_encrypted();
        self.logged_in = given == self.server.options.login && !in_clear;
        let reply = if self.logged_in { "OK welcome" } else { "NO [AUTHENTICATIONFAILED] wrong user or password" };
        self.say(Stage::Auth, verb, tag, format!("{tag} {reply}\r\n").into_bytes()).await
    }

    async fn status(&mut self, tag: &str, arguments: &[Token]) -> Flow {
        let stored = self.server.mailbox.stored();
        let (folder, count) = (&self.server.options.folder, stored.len());
        let (next, validity) = (self.server.mailbox.next_uid(), self.server.mailbox.uid_validity());
        let Some(Token::List(items)) = arguments.get(1) else {
            return self.write(&format!("{tag} BAD items\r\n")).await;
        };
        let values: Vec<String> = items
            .iter()
            .filter_map(Token::text)
            .map(|item| match item.to_ascii_uppercase().as_str() {
                "UIDNEXT" => format!("UIDNEXT {next}"),
                "UIDVALIDITY" => format!("UIDVALIDITY {validity}"),
                "RECENT" => "RECENT 0".to_owned(),
                other => format!("{other} {count}"),
            })
            .collect();
        self.write(&format!("* STATUS \"{folder}\" ({})\r\n{tag} OK done\r\n", values.join(" "))).await
    }

    async fn open(&mut self, tag: &str, arguments: &[Token]) -> Flow {
        let folder = &self.server.options.folder;
        if !arguments.first().and_then(Token::text).is_some_and(|name| name.eq_ignore_ascii_case(folder)) {
            self.view = None;
            return self.write(&format!("{tag} NO [NONEXISTENT] no such folder\r\n")).await;
        }
        let stored = self.server.mailbox.stored();
        let reply = format!(
            "* FLAGS (\\Seen)\r\n* OK [PERMANENTFLAGS ()] read-only\r\n* {} EXISTS\r\n* 0 RECENT\r\n\
             * OK [UIDVALIDITY {}] valid\r\n* OK [UIDNEXT {}] next\r\n{tag} OK [READ-ONLY] done\r\n",
            stored.len(),
            self.server.mailbox.uid_validity(),
            self.server.mailbox.next_uid(),
        );
        self.view = Some(stored);
        self.say(Stage::Act, "EXAMINE", tag, reply.into_bytes()).await
    }

    /// Brings the view up to date and tells the client what has changed.
    fn refresh(&mut self) -> Vec<u8> {
        let Some(view) = &mut self.view else { return Vec::new() };
        let stored = self.server.mailbox.stored();
        let mut told = String::new();
        let mut kept = view.len();
        for (at, mail) in view.iter().enumerate().rev() {
            if !stored.iter().any(|there| there.uid == mail.uid) {
                told.push_str(&format!("* {} EXPUNGE\r\n", at + 1));
                kept -= 1;
            }
        }
        if stored.len() > kept {
            told.push_str(&format!("* {} EXISTS\r\n", stored.len()));
        }
        *view = stored;
        told.into_bytes()
    }

    fn fetch(&mut self, tag: &str, arguments: &[Token], by_uid: bool) -> Vec<u8> {
        // Sequence numbers must not move under a FETCH by number (RFC 3501 7.4.1).
        let mut reply = if by_uid { self.refresh() } else { Vec::new() };
        let bad = || format!("{tag} BAD set and items\r\n").into_bytes();
        let view = self.view.as_deref().unwrap_or_default();
        let largest = if by_uid { view.iter().map(|mail| mail.uid).max().unwrap_or(0) } else { count(view) };
        let [Token::Word(numbers), wanted] = arguments else { return bad() };
        let (Some(ranges), Some(items)) = (set(numbers, largest), fetch::items(wanted, by_uid)) else { return bad() };
        for (sequence, mail) in (1_u32..).zip(view) {
            let number = if by_uid { mail.uid } else { sequence };
            if ranges.iter().any(|range| range.contains(&number)) {
                let Some(row) = fetch::row(sequence as usize, mail, &items) else { return bad() };
                reply.extend(row);
            }
        }
        reply.extend(format!("{tag} OK done\r\n").bytes());
        reply
    }

    fn search(&mut self, tag: &str, arguments: &[Token], by_uid: bool) -> Vec<u8> {
        let mut reply = if by_uid { self.refresh() } else { Vec::new() };
        let index = *locked(&self.server.index);
        let view = self.view.as_deref().unwrap_or_default();
        let keys = match arguments {
            [Token::Word(word), _, rest @ ..] if word.eq_ignore_ascii_case("CHARSET") => rest,
            all => all,
        };
        let largest_uid = view.iter().map(|mail| mail.uid).max().unwrap_or(0);
        let mut found = String::new();
        for (sequence, mail) in (1_u32..).zip(view) {
            let candidate = Candidate { mail, sequence, largest_uid, largest_sequence: count(view), index };
            match fits(&candidate, keys) {
                Some(true) => found.push_str(&format!(" {}", if by_uid { mail.uid } else { sequence })),
                Some(false) => {}
                None => return format!("{tag} BAD key not known here\r\n").into_bytes(),
            }
        }
        reply.extend(format!("* SEARCH{found}\r\n{tag} OK done\r\n").bytes());
        reply
    }

    /// Answers at a stage, unless a fault wants otherwise. Rules by reference see the command's word instead.
    async fn say(&mut self, stage: Stage, verb: &str, tag: &str, reply: Vec<u8>) -> Flow {
        let fault = self.server.faults.take(Subject { stage, reference: Some(verb), key: None });
        let instead = |instead| match instead {
            Instead::Status(code) => format!("{tag} NO [UNAVAILABLE] {code} as ordered\r\n").into_bytes(),
            Instead::Page => b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
        };
        match play(fault, || reply, instead).await {
            Ending::Answer(reply) => {
                self.wire.write(&reply).await?;
                return Ok(ControlFlow::Continue(()));
            }
            Ending::Half(reply) => self.wire.write(reply.split_at(reply.len() / 2).0).await?,
            Ending::Reset => self.wire.reset(),
            Ending::Close => {}
            Ending::Never => self.wire.stay_silent().await?,
        }
        Ok(ControlFlow::Break(()))
    }

    async fn write(&mut self, reply: &str) -> Flow {
        self.wire.write(reply.as_bytes()).await?;
        Ok(ControlFlow::Continue(()))
    }
}

fn count(view: &[Stored]) -> u32 {
    u32::try_from(view.len()).unwrap_or(u32::MAX)
}
