//! An SMTP relay that plays a script: it answers well except where a test tells it otherwise, and keeps what it heard.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// What it does instead of answering well.
#[derive(Debug, Clone)]
pub enum Act {
    /// Says this, CRLF added.
    Say(String),
    /// Says exactly this.
    Raw(Vec<u8>),
    /// Says this and closes.
    SayAndClose(String),
    /// Closes.
    Close,
    /// Says nothing more and keeps the connection open.
    Silent,
    /// In the message: reads so many bytes and closes with a reset.
    ResetAfter(usize),
}

/// What it heard in one conversation.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    /// Lines before and after the message.
    pub commands: Vec<String>,
    /// The message as it came, still dot-stuffed, with what ends it.
    pub data: Vec<u8>,
    /// The message ended.
    pub dot: bool,
    /// The conversation was encrypted when AUTH or MAIL came.
    pub tls: bool,
}

impl Heard {
    /// The line that begins with `verb`.
    pub fn command(&self, verb: &str) -> Option<&str> {
        self.commands.iter().find(|line| line.to_ascii_uppercase().starts_with(verb)).map(String::as_str)
    }

    /// The message without stuffing and end.
    pub fn mail(&self) -> Vec<u8> {
        let body = self.data.strip_suffix(b".\r\n").expect("the message ended");
        let mut out = Vec::new();
        for line in body.split_inclusive(|b| *b == b'\n') {
            out.extend_from_slice(line.strip_prefix(b".").unwrap_or(line));
        }
        out
    }
}

/// A running relay.
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    heard: mpsc::UnboundedReceiver<Heard>,
    task: tokio::task::JoinHandle<()>,
    /// PEM of the certificate it shows.
    pub ca: PathBuf,
    _dir: tempfile::TempDir,
}

/// How it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// Clear text, no STARTTLS.
    Plain,
    /// Clear text until STARTTLS.
    Starttls,
    /// TLS at once.
    Implicit,
}

struct Script {
    speaks: Speaks,
    acts: HashMap<&'static str, Act>,
    tls: tokio_rustls::TlsAcceptor,
}

impl Relay {
    /// `acts` by step: `greeting`, `EHLO`, `STARTTLS`, `AUTH`, `user`, `password`, `MAIL`, `RCPT`, `DATA`, `body`, `dot`.
    pub async fn start<const N: usize>(speaks: Speaks, acts: [(&'static str, Act); N]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, made.cert.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![made.cert.der().clone()],
                rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, heard) = mpsc::unbounded_channel();
        let script = Arc::new(Script { speaks, acts: acts.into_iter().collect(), tls: Arc::new(config).into() });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, tell) = (Arc::clone(&script), tell.clone());
                tokio::spawn(async move {
                    let heard = Arc::new(Mutex::new(Heard::default()));
                    let _ended = script.play(stream, &heard).await;
                    let heard = heard.lock().unwrap().clone();
                    let _test_is_over = tell.send(heard);
                });
            }
        });
        Self { address, heard, task, ca, _dir: dir }
    }

    /// What the next conversation was, once it is over.
    pub async fn heard(&mut self) -> Heard {
        tokio::time::timeout(Duration::from_secs(20), self.heard.recv()).await.expect("a conversation ends").unwrap()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// The conversation is over: lost, closed by the script, or QUIT.
struct Over;

impl From<std::io::Error> for Over {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl Script {
    async fn play(&self, tcp: TcpStream, heard: &Mutex<Heard>) -> Result<(), Over> {
        let mut wire: Box<dyn Wire> = match self.speaks {
            Speaks::Plain | Speaks::Starttls => Box::new(tcp),
            Speaks::Implicit => Box::new(self.tls.accept(tcp).await?),
        };
        let mut encrypted = self.speaks == Speaks::Implicit;
        self.answer(&mut wire, "greeting", "220 relay.test ESMTP").await?;
        loop {
            let line = read_line(&mut wire).await?;
            let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            {
                let mut heard = heard.lock().unwrap();
                heard.commands.push(line.clone());
                if matches!(verb.as_str(), "AUTH" | "MAIL") {
                    heard.tls = encrypted;
                }
            }
            match verb.as_str() {
                "EHLO" => {
                    let offers = if self.speaks == Speaks::Starttls && !encrypted { "STARTTLS" } else { "HELP" };
                    let auth = if encrypted || self.speaks == Speaks::Plain { "AUTH PLAIN LOGIN" } else { "8BITMIME" };
                    let good = format!("250-relay.test\r\n250-{offers}\r\n250-{auth}\r\n250-SIZE 10240000\r\n250 DSN");
                    self.answer(&mut wire, "EHLO", &good).await?;
                }
                "STARTTLS" => {
                    self.answer(&mut wire, "STARTTLS", "220 go ahead").await?;
                    wire = Box::new(self.tls.accept(wire).await?);
                    encrypted = true;
                }
                "AUTH" if line.eq_ignore_ascii_case("AUTH LOGIN") => {
                    self.answer(&mut wire, "AUTH", "334 VXNlcm5hbWU6").await?;
                    for (step, good) in [("user", "334 UGFzc3dvcmQ6"), ("password", "235 welcome")] {
                        let line = read_line(&mut wire).await?;
                        heard.lock().unwrap().commands.push(line);
                        self.answer(&mut wire, step, good).await?;
                    }
                }
                "AUTH" => self.answer(&mut wire, "AUTH", "235 welcome").await?,
                "MAIL" => self.answer(&mut wire, "MAIL", "250 2.1.0 Ok").await?,
                "RCPT" => self.answer(&mut wire, "RCPT", "250 2.1.5 Ok").await?,
                "DATA" => {
                    self.answer(&mut wire, "DATA", "354 go on").await?;
                    if !matches!(self.acts.get("DATA"), Some(Act::Say(_))) {
                        self.message(&mut wire, heard).await?;
                        self.answer(&mut wire, "dot", "250 2.0.0 Ok: queued as 4F2A31C0D2").await?;
                    }
                }
                "QUIT" => {
                    let _gone = wire.write_all(b"221 bye\r\n").await;
                    return Ok(());
                }
                _ => wire.write_all(b"500 what?\r\n").await?,
            }
        }
    }

    async fn message(&self, wire: &mut Box<dyn Wire>, heard: &Mutex<Heard>) -> Result<(), Over> {
        let mut buffer = [0_u8; 4096];
        let stop = match self.acts.get("body") {
            Some(Act::ResetAfter(n)) => *n,
            Some(Act::Silent) => {
                std::future::pending::<()>().await;
                0
            }
            _ => usize::MAX,
        };
        loop {
            let n = wire.read(&mut buffer).await?;
            if n == 0 {
                return Err(Over);
            }
            let mut heard = heard.lock().unwrap();
            heard.data.extend_from_slice(&buffer[..n]);
            if heard.data.ends_with(b"\r\n.\r\n") {
                heard.dot = true;
                return Ok(());
            }
            if heard.data.len() >= stop {
                break;
            }
        }
        Err(Over)
    }

    async fn answer(&self, wire: &mut Box<dyn Wire>, step: &'static str, good: &str) -> Result<(), Over> {
        match self.acts.get(step) {
            None => wire.write_all(format!("{good}\r\n").as_bytes()).await?,
            Some(Act::Say(text)) => wire.write_all(format!("{text}\r\n").as_bytes()).await?,
            Some(Act::Raw(bytes)) => wire.write_all(bytes).await?,
            Some(Act::SayAndClose(text)) => {
                wire.write_all(format!("{text}\r\n").as_bytes()).await?;
                return Err(Over);
            }
            Some(Act::Close) => return Err(Over),
            Some(Act::Silent) => {
                // Until the other side gives up.
                let mut rest = Vec::new();
                let _lost = wire.read_to_end(&mut rest).await;
                return Err(Over);
            }
            Some(Act::ResetAfter(_)) => unreachable!("only in the message"),
        }
        Ok(())
    }
}

async fn read_line(wire: &mut Box<dyn Wire>) -> Result<String, Over> {
    let mut line = Vec::new();
    loop {
        let byte = wire.read_u8().await?;
        if byte == b'\n' {
            assert_eq!(line.pop(), Some(b'\r'), "commands end with CRLF");
            return Ok(String::from_utf8(line).expect("commands are UTF-8"));
        }
        line.push(byte);
    }
}
