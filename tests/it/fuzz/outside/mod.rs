//! What the outside says, put through the public ways in: channels, look-ups, settings, payloads. Each function takes any bytes,
//! plays them as a relay, a server, a mailbox or a person would, and stops loudly where something is claimed that the bytes do not
//! say; it returns what was made of them, in a word. The property tests beside this folder and the targets in `fuzz/` run the same functions.

pub mod http;
pub mod imap;
pub mod smtp;
pub mod texts;
pub mod wire;

/// A target: its name, which is also that of its folder of inputs, and its function.
pub type Target = (&'static str, fn(&[u8]) -> &'static str);

/// All of them.
pub const TARGETS: [Target; 9] = [
    ("smtp", smtp::relay),
    ("http_reply", http::reply),
    ("http_answer", http::answer),
    ("http_listing", http::listing),
    ("imap", imap::mailbox),
    ("settings", texts::settings),
    ("payload", texts::payload),
    ("templates", texts::templates),
    ("headers", texts::headers),
];

/// The key that is asked for.
pub const KEY: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
/// Its reference.
pub const REFERENCE: &str = "inv-2291";

/// Whether the bytes hold a name, whatever stands between its characters by folding, and in any case.
pub fn holds(bytes: &[u8], name: &str) -> bool {
    let bare: Vec<u8> = bytes.iter().filter(|b| !b.is_ascii_whitespace()).map(u8::to_ascii_lowercase).collect();
    bare.windows(name.len()).any(|part| part == name.as_bytes())
}
