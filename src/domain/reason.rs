//! Why a person is asked. A closed list: each reason has a metric label, a runbook of the same name and a test.

use serde::{Deserialize, Serialize};

/// An escalation's reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A policy asks before the first send.
    ApprovalRequired,
    /// It looks like a repeat that nobody declared.
    RepeatFlagged,
    /// In doubt, and the downstream can neither refuse a repeat nor be asked.
    NoLookUp,
    /// In doubt, and asking has not settled it.
    Inconclusive,
    /// The downstream replays a stored failure under our key.
    PoisonedKey,
    /// A hit that no row explains, or other content under a known name.
    Conflict,
    /// No attempts left.
    AttemptsExhausted,
    /// The downstream said no.
    Refused,
    /// The channel cannot send this payload.
    Unsupported,
    /// The deadline is near and the intent is not settled.
    DeadlineNear,
    /// The deadline passed before it was sent.
    DeadlinePassed,
    /// More than one effect was seen.
    DuplicateFound,
    /// Answered as sent, and not visible downstream.
    SentNotVisible,
    /// Accepted, then returned.
    Bounced,
    /// Somebody had been told that it was not sent, and it was.
    LateResult,
    /// A destination must not be sent to until somebody looks.
    DestinationParked,
    /// Evidence with a key of ours that no row explains.
    OrphanSighting,
    /// The database lost history.
    LedgerRewound,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 18] = [
        Self::ApprovalRequired,
        Self::RepeatFlagged,
        Self::NoLookUp,
        Self::Inconclusive,
        Self::PoisonedKey,
        Self::Conflict,
        Self::AttemptsExhausted,
        Self::Refused,
        Self::Unsupported,
        Self::DeadlineNear,
        Self::DeadlinePassed,
        Self::DuplicateFound,
        Self::SentNotVisible,
        Self::Bounced,
        Self::LateResult,
        Self::DestinationParked,
        Self::OrphanSighting,
        Self::LedgerRewound,
    ];

    /// The word used in SQL, metrics, file names and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalRequired => "approval_required",
            Self::RepeatFlagged => "repeat_flagged",
            Self::NoLookUp => "no_look_up",
            Self::Inconclusive => "inconclusive",
            Self::PoisonedKey => "poisoned_key",
            Self::Conflict => "conflict",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
            Self::DeadlineNear => "deadline_near",
            Self::DeadlinePassed => "deadline_passed",
            Self::DuplicateFound => "duplicate_found",
            Self::SentNotVisible => "sent_not_visible",
            Self::Bounced => "bounced",
            Self::LateResult => "late_result",
            Self::DestinationParked => "destination_parked",
            Self::OrphanSighting => "orphan_sighting",
            Self::LedgerRewound => "ledger_rewound",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// Reports something that has happened; it stays open when the intent moves on.
    pub fn outlives_a_move(self) -> bool {
        match self {
            Self::DuplicateFound
            | Self::SentNotVisible
            | Self::Bounced
            | Self::LateResult
            | Self::DestinationParked
            | Self::OrphanSighting
            | Self::LedgerRewound => true,
            Self::ApprovalRequired
            | Self::RepeatFlagged
            | Self::NoLookUp
            | Self::Inconclusive
            | Self::PoisonedKey
            | Self::Conflict
            | Self::AttemptsExhausted
            | Self::Refused
            | Self::Unsupported
            | Self::DeadlineNear
            | Self::DeadlinePassed => false,
        }
    }
}
