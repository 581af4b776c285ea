//! One mail, once, over a fresh connection or one whose last mail was taken. Called by [`super::Smtp`]; never tries again.
//!
//! What must hold: nothing is said in clear text before TLS where TLS is asked for; DATA is followed only after 354; the
//! five bytes that end the message are written only after the gate agreed; a connection is never used after an error, and
//! without a definite reply it ends with a reset. A kept connection that does not answer, or has had enough before MAIL was
//! accepted, is replaced by a fresh one within the attempt: nothing of the mail was said.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use lettre::{
    Address,
    transport::smtp::{
        commands::{Ehlo, Mail as MailFrom, Rcpt},
        extension::{MailBodyParameter, MailParameter, RcptParameter},
    },
};
use secrecy::ExposeSecret;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Mail, Smtp,
    classify::{self, Step},
    offers::Offers,
    settings::{Notify, Tls},
    talk::{NoReply, Reply, Talk},
    wire_form::{excerpt, stuffed},
};
use crate::{
    channels::wire::{
        counted::{Counter, Stream},
        dial,
    },
    domain::{
        gate::Gate,
        intent::Outgoing,
        outcome::{DoubtKind, Ended, Outcome, Proof, Report, Stage},
    },
};

/// What ends a message that itself ends with CRLF, less that CRLF: held back until the gate agrees.
const THE_END: &[u8] = b"\r\n.\r\n";
/// Handed over at a time.
const CHUNK: usize = 16 * 1024;

/// Sends `mail` and says what is known afterwards.
pub async fn run(smtp: &Smtp, mail: &Mail, outgoing: &Outgoing, gate: Arc<dyn Gate>) -> Ended {
    let began = Instant::now();
    let body = stuffed(&mail.bytes);
    let needed = (body.len() + THE_END.len()) as u64;
    let counter = Counter::default();
    let mut attempt = Attempt {
        smtp,
        mail,
        outgoing,
        gate,
        counter,
        report: Report { bytes_needed: needed, ..Report::nothing_written("") },
        uses: 0,
        accepted: false,
    };
    attempt.report.cause = None;
    let outcome = attempt.converse(&body).await.unwrap_or_else(|ended| ended);
    attempt.report.millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ended { outcome, report: attempt.report }
}

struct Attempt<'a> {
    smtp: &'a Smtp,
    mail: &'a Mail,
    outgoing: &'a Outgoing,
    gate: Arc<dyn Gate>,
    counter: Counter,
    report: Report,
    /// Mails that went over this connection before.
    uses: u32,
    /// MAIL was accepted on it.
    accepted: bool,
}

/// What a kept connection gets to answer RSET at most.
const STILL_THERE: Duration = Duration::from_secs(5);

/// A step that ends the attempt gives its outcome as the error.
type Went<T> = Result<T, Outcome>;

impl Attempt<'_> {
    async fn converse(&mut self, body: &[u8]) -> Went<Outcome> {
        if !self.gate.is_open() {
            return Err(self.self_stopped());
        }
        // Commands have a limit each, and all of them together one as well: the lease is made from it.
        let all = self.smtp.timeouts.command * 3;
        let began = Instant::now();
        if let Some((talk, offers)) = self.kept().await
            && let Some(talked) = self.over(talk, &offers, began + all, body).await
        {
            return talked;
        }
        let left = all.saturating_sub(began.elapsed());
        let stream = self.connect().await?;
        let talk = Talk::new(stream, Arc::clone(&self.gate), self.counter.clone());
        let end = Instant::now() + left;
        let (talk, offers) = self.greet(talk, end).await?;
        match self.over(talk, &offers, end, body).await {
            Some(talked) => talked,
            None => Err(classify::not_sent(Proof::Incomplete)),
        }
    }

    /// Envelope and message over a greeted connection. `None`: it was a kept one and is gone, and nothing of the mail was said.
    async fn over(&mut self, mut talk: Talk, offers: &Offers, end: Instant, body: &[u8]) -> Option<Went<Outcome>> {
        let talked = match self.envelope(&mut talk, offers, end).await {
            Ok(()) => self.message(&mut talk, body).await,
            Err(_) if self.stale() => {
                self.uses = 0;
                return None;
            }
            Err(ended) => Err(ended),
        };
        if self.report.stage >= Stage::Body {
            self.report.bytes_handed = self.counter.since_mark();
        }
        if matches!(talked, Ok(Outcome::Sent { .. })) && self.smtp.pool.wants(self.uses + 1) && talk.is_quiet().await {
            if let Some(stream) = talk.into_stream() {
                self.smtp.pool.put(stream, *offers, self.uses + 1);
                self.report.closed = Some("kept".to_owned());
            }
        } else if definite(&talked) {
            // A definite reply ends the conversation in order; everything else resets it, which is what dropping does.
            talk.part().await;
            self.report.closed = Some("closed".to_owned());
        }
        Some(talked)
    }

    /// A kept connection ended, or its relay had enough of it, before MAIL was accepted.
    fn stale(&self) -> bool {
        self.uses > 0 && !self.accepted && !self.counter.stopped() && matches!(self.report.code, None | Some(421))
    }

    /// A connection that waits and still answers. One that does not is dropped, and the others with it.
    async fn kept(&mut self) -> Option<(Talk, Offers)> {
        while let Some(kept) = self.smtp.pool.take() {
            let peer = crate::channels::wire::counted::Socket::peer(&kept.stream).ok();
            let mut talk = Talk::new(kept.stream, Arc::clone(&self.gate), self.counter.clone());
            if !talk.is_quiet().await {
                // It said good-bye, or is closed.
                continue;
            }
            let limit = self.smtp.timeouts.command.min(STILL_THERE);
            match talk.ask("RSET\r\n", limit, Instant::now() + limit).await {
                Ok(reply) if reply.code == 250 => {
                    self.report.stage = Stage::Envelope;
                    self.report.peer = peer.map(|peer| peer.to_string());
                    self.report.closed = Some("reset".to_owned());
                    self.uses = kept.uses;
                    return Some((talk, kept.offers));
                }
                Ok(_) => {}
                Err(_) => self.smtp.pool.forget(),
            }
        }
        None
    }

    async fn connect(&mut self) -> Went<Stream> {
        let smtp = self.smtp;
        self.report.stage = Stage::Connect;
        let target = dial::Target {
            host: &smtp.settings.host,
            port: smtp.settings.port(),
            allow: &smtp.allow,
            resolver: smtp.resolver.as_ref(),
        };
        let stream = dial::tcp(&target, smtp.timeouts.connect)
            .await
            .map_err(|error| self.ended(classify::not_sent(Proof::NotConnected), error.to_string()))?;
        self.report.peer = crate::channels::wire::counted::Socket::peer(&stream).ok().map(|peer| peer.to_string());
        self.report.closed = Some("reset".to_owned());
        match smtp.settings.tls {
            Tls::Implicit => self.encrypt(stream).await,
            Tls::Starttls | Tls::None => Ok(stream),
        }
    }

    async fn encrypt(&mut self, stream: Stream) -> Went<Stream> {
        self.report.stage = Stage::Tls;
        let smtp = self.smtp;
        dial::tls(stream, &smtp.settings.host, Arc::clone(&smtp.tls), smtp.timeouts.tls)
            .await
            .map_err(|error| self.ended(classify::not_sent(Proof::TlsFailed), error.to_string()))
    }

    /// Greeting, EHLO, STARTTLS, EHLO, AUTH.
    async fn greet(&mut self, mut talk: Talk, end: Instant) -> Went<(Talk, Offers)> {
        let limit = self.smtp.timeouts.command;
        self.report.stage = Stage::Envelope;
        let greeting = talk.hear(limit, end).await;
        self.wanted(Step::Greeting, greeting, |code| code == 220)?;
        let mut offers = self.hello(&mut talk, end).await?;
        let mut end = end;
        if self.smtp.settings.tls == Tls::Starttls {
            self.report.stage = Stage::Tls;
            if !offers.starttls {
                return Err(self.decided(
                    classify::not_sent(Proof::TlsFailed),
                    "the relay does not offer STARTTLS, which this destination requires",
                ));
            }
            let ready = talk.ask("STARTTLS\r\n", limit, end).await;
            self.wanted(Step::StartTls, ready, |code| code == 220)?;
            let stream = talk.into_stream().ok_or_else(|| {
                self.ended(classify::not_sent(Proof::TlsFailed), "the stream was given away".to_owned())
            })?;
            let handshake = Instant::now();
            let stream = self.encrypt(stream).await?;
            // The handshake has a limit of its own.
            end += handshake.elapsed();
            talk = Talk::new(stream, Arc::clone(&self.gate), self.counter.clone());
            self.report.stage = Stage::Envelope;
            offers = self.hello(&mut talk, end).await?;
        }
        self.authenticate(&mut talk, &offers, end).await?;
        Ok((talk, offers))
    }

    async fn hello(&mut self, talk: &mut Talk, end: Instant) -> Went<Offers> {
        let said = talk.ask(Ehlo::new(self.smtp.hello.clone()), self.smtp.timeouts.command, end).await;
        let reply = self.wanted(Step::Hello, said, |code| code == 250)?;
        Ok(Offers::read(&reply))
    }

    async fn authenticate(&mut self, talk: &mut Talk, offers: &Offers, end: Instant) -> Went<()> {
        let Some((name, password)) = &self.smtp.credentials else {
            return Ok(());
        };
        let limit = self.smtp.timeouts.command;
        let last = if offers.auth_plain {
            let token = STANDARD.encode(format!("\0{name}\0{}", password.expose_secret()));
            talk.ask(format!("AUTH PLAIN {token}\r\n"), limit, end).await
        } else if offers.auth_login {
            let asked = talk.ask("AUTH LOGIN\r\n", limit, end).await;
            self.wanted(Step::Auth, asked, |code| code == 334)?;
            let asked = talk.ask(format!("{}\r\n", STANDARD.encode(name)), limit, end).await;
            self.wanted(Step::Auth, asked, |code| code == 334)?;
            talk.ask(format!("{}\r\n", STANDARD.encode(password.expose_secret())), limit, end).await
        } else {
            return Err(
                self.decided(classify::not_sent(Proof::Parked), "the relay offers neither AUTH PLAIN nor AUTH LOGIN")
            );
        };
        self.wanted(Step::Auth, last, |code| code == 235)?;
        Ok(())
    }

    /// MAIL, RCPT, DATA.
    async fn envelope(&mut self, talk: &mut Talk, offers: &Offers, end: Instant) -> Went<()> {
        let (from, to) = self.addresses()?;
        let international = !self.mail.bytes.is_ascii() || !self.mail.from.is_ascii() || !self.mail.to.is_ascii();
        if international && !offers.smtputf8 {
            // 553 is what RFC 6531 section 3.5 has the relay say to one who asks all the same; nothing was asked here.
            return Err(self.decided(
                Outcome::Refused { code: 553 },
                "the relay does not offer SMTPUTF8, which an address outside ASCII needs",
            ));
        }
        let size = self.mail.bytes.len() as u64;
        if let Some(largest) = offers.largest.filter(|largest| size > *largest) {
            let why = format!("the relay takes mails of at most {largest} octets, and this one has {size}");
            return Err(self.decided(Outcome::Refused { code: 552 }, &why));
        }
        let limit = self.smtp.timeouts.command;
        let mail = MailFrom::new(Some(from), self.mail_parameters(offers, international));
        let said = talk.ask(mail, limit, end).await;
        self.wanted(Step::Mail, said, |code| code == 250)?;
        self.accepted = true;
        let rcpt = Rcpt::new(to, self.rcpt_parameters(offers));
        let said = talk.ask(rcpt, limit, end).await;
        self.wanted(Step::Recipient, said, |code| matches!(code, 250 | 251))?;
        let said = talk.ask("DATA\r\n", limit, end).await;
        self.wanted(Step::Data, said, |code| code == 354)?;
        self.report.code = None;
        self.report.excerpt = None;
        Ok(())
    }

    fn addresses(&mut self) -> Went<(Address, Address)> {
        match (self.mail.from.parse(), self.mail.to.parse()) {
            (Ok(from), Ok(to)) => Ok((from, to)),
            (Err(_), _) | (_, Err(_)) => {
                Err(self.decided(Outcome::Refused { code: 553 }, "sender or recipient is no mail address"))
            }
        }
    }

    fn mail_parameters(&self, offers: &Offers, international: bool) -> Vec<MailParameter> {
        let mut parameters = Vec::new();
        if offers.size {
            parameters.push(MailParameter::Size(self.mail.bytes.len()));
        }
        if international {
            if offers.eight_bit {
                parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        // RFC 3461 section 4.4: an ENVID has at most 100 characters.
        if offers.dsn && self.outgoing.key.len() <= 100 {
            parameters.push(other_mail("RET", "HDRS"));
            parameters.push(other_mail("ENVID", &self.outgoing.key));
        }
        parameters
    }

    fn rcpt_parameters(&self, offers: &Offers) -> Vec<RcptParameter> {
        let notify = &self.smtp.settings.notify;
        if !offers.dsn || notify.is_empty() {
            return Vec::new();
        }
        let words: Vec<&str> = notify.iter().copied().map(Notify::word).collect();
        let mut parameters = vec![other_rcpt("NOTIFY", &words.join(","))];
        if self.mail.to.is_ascii() {
            parameters.push(other_rcpt("ORCPT", &format!("rfc822;{}", self.mail.to)));
        }
        parameters
    }

    /// The message, the gate, the end, and the reply that settles it.
    async fn message(&mut self, talk: &mut Talk, body: &[u8]) -> Went<Outcome> {
        self.report.stage = Stage::Body;
        self.counter.mark();
        let limit = self.smtp.timeouts.body;
        let end = Instant::now() + limit;
        for chunk in body.chunks(CHUNK) {
            match timeout_at(end, talk.hand_over(chunk)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(self.broken_body(talk, &error).await),
                Err(_elapsed) => {
                    let why = format!("the message was not taken within {}", humantime::format_duration(limit));
                    return Err(self.ended(classify::not_sent(Proof::Incomplete), why));
                }
            }
        }
        self.report.stage = Stage::AtGate;
        let agreed = timeout(self.gate.remaining(), self.gate.last_bytes()).await.unwrap_or(false);
        // A reply before the end is never the reply to the end, and must not be taken for it.
        if let Some(early) = talk.interruption(Duration::from_secs(1)).await {
            return Err(self.without_end(early));
        }
        if !agreed || !self.gate.is_open() {
            return Err(self.self_stopped());
        }
        let written = timeout_at(end, talk.hand_over(THE_END)).await;
        if self.counter.since_mark() < self.report.bytes_needed {
            return Err(match written {
                Ok(Err(error)) => self.broken_body(talk, &error).await,
                Ok(Ok(())) | Err(_) => {
                    self.ended(classify::not_sent(Proof::Incomplete), "the final dot was not taken in time".to_owned())
                }
            });
        }
        // From here on it may have happened, whatever the write said.
        self.report.stage = Stage::Handed;
        let limit = self.smtp.timeouts.final_dot;
        let reply = talk.hear(limit, Instant::now() + limit).await;
        let reply = self.wanted(Step::Dot, reply, |code| (200..300).contains(&code))?;
        Ok(Outcome::Sent { provider_id: classify::provider_id(&reply.lines) })
    }

    /// A write failed before the end was handed over; the relay may have said why.
    async fn broken_body(&mut self, talk: &mut Talk, error: &std::io::Error) -> Outcome {
        if self.counter.stopped() {
            return self.self_stopped();
        }
        match talk.last_words().await {
            Some(reply) => self.without_end(Ok(reply)),
            None => self.without_end(Err(talk.broken(error))),
        }
    }

    fn without_end(&mut self, early: Result<Reply, NoReply>) -> Outcome {
        match self.wanted(Step::Body, early, |_| false) {
            Ok(_) => classify::not_sent(Proof::Incomplete),
            Err(outcome) => outcome,
        }
    }

    /// Notes the reply, and ends the attempt unless it is the one that is wanted.
    fn wanted(&mut self, step: Step, reply: Result<Reply, NoReply>, good: impl Fn(u16) -> bool) -> Went<Reply> {
        match reply {
            Ok(reply) => {
                if step == Step::Dot {
                    self.report.stage = Stage::Replied;
                }
                self.report.code = Some(reply.code);
                self.report.excerpt = Some(excerpt(&reply, &self.mail.to));
                if good(reply.code) {
                    return Ok(reply);
                }
                let cause = format!("the relay answered {} to {}", reply.code, step.as_str());
                Err(self.ended(classify::unwanted(step, reply.code), cause))
            }
            Err(no_reply) => {
                let outcome = match &no_reply {
                    NoReply::Stopped => classify::not_sent(Proof::SelfStopped),
                    NoReply::Silence(_) => classify::no_reply(step, DoubtKind::NoReply),
                    NoReply::Lost(_) => classify::no_reply(step, DoubtKind::ConnectionLost),
                    NoReply::Unreadable(_) => classify::no_reply(step, DoubtKind::UnclearReply),
                };
                self.report.code = None;
                self.report.excerpt = None;
                Err(self.ended(outcome, format!("after {}: {no_reply}", step.as_str())))
            }
        }
    }

    fn ended(&mut self, outcome: Outcome, cause: String) -> Outcome {
        self.report.cause = Some(cause);
        outcome
    }

    /// Ends the attempt by what we know ourselves: the last reply has nothing to do with it.
    fn decided(&mut self, outcome: Outcome, cause: &str) -> Outcome {
        self.report.code = None;
        self.report.excerpt = None;
        self.ended(outcome, cause.to_owned())
    }

    fn self_stopped(&mut self) -> Outcome {
        self.decided(classify::not_sent(Proof::SelfStopped), "the time of this attempt was over")
    }
}

/// The relay said what it did with the mail.
fn definite(talked: &Went<Outcome>) -> bool {
    match talked {
        Ok(outcome) | Err(outcome) => match outcome {
            Outcome::Sent { .. } | Outcome::Refused { .. } => true,
            Outcome::NotSent { proof, .. } => match proof {
                Proof::Deferred | Proof::Throttled | Proof::Parked => true,
                Proof::NotConnected | Proof::TlsFailed | Proof::Incomplete | Proof::SelfStopped | Proof::NotStarted => {
                    false
                }
            },
            Outcome::Ambiguous { .. } => false,
        },
    }
}

fn other_mail(keyword: &str, value: &str) -> MailParameter {
    MailParameter::Other { keyword: keyword.to_owned(), value: Some(value.to_owned()) }
}

fn other_rcpt(keyword: &str, value: &str) -> RcptParameter {
    RcptParameter::Other { keyword: keyword.to_owned(), value: Some(value.to_owned()) }
}
