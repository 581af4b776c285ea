//! Mail through a relay. (being written)

/// One rendered mail.
pub struct Mail {
    /// Envelope sender.
    pub from: String,
    /// The one envelope recipient.
    pub to: String,
    /// RFC 5322 bytes with CRLF line ends, not yet dot-stuffed.
    pub bytes: Vec<u8>,
}
