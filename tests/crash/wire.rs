//! As much of Postgres' wire protocol as it takes to know where a message ends, and which COMMIT ends which transaction.

use std::collections::{HashMap, HashSet};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// Cuts a stream of bytes into whole messages.
#[derive(Default)]
pub struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    /// Takes what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message; `typed` ones begin with a byte that says what they are.
    pub fn next(&mut self, typed: bool) -> Option<Vec<u8>> {
        let before = usize::from(typed);
        let length = self.buffer.get(before..before + 4)?;
        let length = before + u32::from_be_bytes(length.try_into().unwrap()) as usize;
        self.exactly(length)
    }

    /// So many bytes, whatever they are.
    pub fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        (self.buffer.len() >= length).then(|| self.buffer.drain(..length).collect())
    }
}

/// What a client's message means for whoever wants to cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Nothing of interest.
    Else,
    /// One of these statements is run: its parameters, and then its answer, are on their way.
    Statement,
    /// COMMIT of a transaction that ran these statements.
    Commit,
}

/// What one client has said on its connection.
#[derive(Default)]
pub struct Client {
    started: bool,
    named: HashMap<Vec<u8>, Vec<u8>>,
    /// Texts of the statements of the open transaction.
    transaction: HashSet<Vec<u8>>,
    /// Text of the statement that was run last.
    last: Vec<u8>,
    /// Single bytes that the server owes in answer to a request for encryption.
    pub bare_answers: usize,
    /// ReadyForQuery messages that the server owes.
    pub owed: usize,
}

impl Client {
    /// Its messages begin with a type by now.
    pub fn started(&self) -> bool {
        self.started
    }

    /// Takes note of a message.
    pub fn says(&mut self, message: &[u8]) -> Said {
        if !self.started {
            self.starts(message);
            return Said::Else;
        }
        let body = &message[5..];
        match message[0] {
            b'P' => {
                let (name, text) = (text_at(body, 0), text_at(body, 1));
                self.named.insert(name.to_vec(), text.to_vec());
            }
            b'B' => {
                if let Some(text) = self.named.get(text_at(body, 1)) {
                    self.last.clone_from(text);
                    self.transaction.insert(text.clone());
                    return Said::Statement;
                }
            }
            b'S' | b'F' => self.owed += 1,
            b'Q' => {
                self.owed += 1;
                let text = text_at(body, 0).to_ascii_uppercase();
                if text.starts_with(b"BEGIN") {
                    self.transaction.clear();
                } else if text.starts_with(b"COMMIT") {
                    return Said::Commit;
                }
            }
            _ => {}
        }
        Said::Else
    }

    /// True when a statement with this in its text ran in the open transaction.
    pub fn ran(&self, part: &str) -> bool {
        self.transaction.iter().any(|text| contains(text, part))
    }

    /// True when the statement that was run last has this in its text.
    pub fn runs(&self, part: &str) -> bool {
        contains(&self.last, part)
    }

    fn starts(&mut self, message: &[u8]) {
        match u32::from_be_bytes(message[4..8].try_into().unwrap()) {
            SSL_REQUEST | GSS_REQUEST => self.bare_answers += 1,
            CANCEL_REQUEST => {}
            _ => {
                self.started = true;
                // The greeting ends with ReadyForQuery as well.
                self.owed += 1;
            }
        }
    }
}

fn contains(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|window| window == part.as_bytes())
}

/// True for ReadyForQuery.
pub fn is_ready(message: &[u8]) -> bool {
    message[0] == b'Z'
}

/// The n-th text that ends with a zero byte.
fn text_at(body: &[u8], n: usize) -> &[u8] {
    body.split(|byte| *byte == 0).nth(n).unwrap_or_default()
}

#[test]
fn messages_are_found_however_they_are_cut() {
    let typed = |kind: u8, body: &[u8]| {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], body].concat()
    };
    let mut hello = vec![0, 0, 0, 8, 0, 3, 0, 0];
    let messages = [
        typed(b'Q', b"BEGIN\0"),
        typed(b'P', b"s1\0select 1 -- mine\0\0\0"),
        typed(b'B', b"\0s1\0\0\0"),
        typed(b'S', b""),
        typed(b'Q', b"COMMIT\0"),
    ];
    hello.extend(messages.concat());
    for step in 1..hello.len() {
        let (mut frames, mut client, mut seen) = (Frames::default(), Client::default(), Vec::new());
        for chunk in hello.chunks(step) {
            frames.push(chunk);
            while let Some(message) = frames.next(client.started()) {
                seen.push(client.says(&message));
            }
        }
        assert_eq!(seen.len(), 6);
        assert_eq!((seen[3], seen[5]), (Said::Statement, Said::Commit));
        assert!(client.ran("-- mine") && !client.ran("-- another's"));
        assert_eq!(client.owed, 4);
    }
}
