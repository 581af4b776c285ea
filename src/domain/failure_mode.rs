//! How doing a thing once goes wrong, by name. A closed list: each mode has a metric label, a paragraph in
//! `docs/failure-modes.md` and tests that are named there.
//!
//! A mode is counted where it is recognised and contained. Most of them are no fault of this program: the count says how
//! often the world would have made a second effect, or lost one, had nobody looked.

/// A way in which an effect happens twice, or is lost, or is told wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureMode {
    /// A new attempt would have carried a key of its own.
    KeyRegenerated,
    /// The downstream replays a stored failure under our key.
    PoisonedKey,
    /// A later "no" would have been taken for the answer to an earlier attempt in doubt.
    UnknownAsFailed,
    /// A reply that proves nothing, which a default rule would have taken for "failed, try again".
    UnrecognisedError,
    /// Another layer repeated what was sent once.
    RetriedRetry,
    /// One more attempt of one intent reached the downstream, which may bill it.
    MeteredAttempt,
    /// An agent decided again what had been decided.
    ModelRedecided,
    /// The same step came back with another destination or other content.
    StepRetargeted,
    /// A worker that had lost its claim came back with a result.
    StaleWorker,
    /// A lease ended without a result.
    LeaseExpired,
    /// A worker died with an attempt open.
    WorkerDead,
    /// A stop could not wait for a send.
    DrainDeadline,
    /// The downstream has forgotten our key, so a repeat would be a new effect.
    KeyLifetimeOver,
    /// The destination is no longer the downstream that the attempt was sent to.
    ProviderChanged,
    /// The database lost history.
    LedgerRewound,
    /// More than one effect was seen.
    DuplicateFound,
    /// Somebody had been told that it was not sent, and it was.
    LateResult,
}

impl FailureMode {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::KeyRegenerated,
        Self::PoisonedKey,
        Self::UnknownAsFailed,
        Self::UnrecognisedError,
        Self::RetriedRetry,
        Self::MeteredAttempt,
        Self::ModelRedecided,
        Self::StepRetargeted,
        Self::StaleWorker,
        Self::LeaseExpired,
        Self::WorkerDead,
        Self::DrainDeadline,
        Self::KeyLifetimeOver,
        Self::ProviderChanged,
        Self::LedgerRewound,
        Self::DuplicateFound,
        Self::LateResult,
    ];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeyRegenerated => "key_regenerated",
            Self::PoisonedKey => "poisoned_key",
            Self::UnknownAsFailed => "unknown_as_failed",
            Self::UnrecognisedError => "unrecognised_error",
            Self::RetriedRetry => "retried_retry",
            Self::MeteredAttempt => "metered_attempt",
            Self::ModelRedecided => "model_redecided",
            Self::StepRetargeted => "step_retargeted",
            Self::StaleWorker => "stale_worker",
            Self::LeaseExpired => "lease_expired",
            Self::WorkerDead => "worker_dead",
            Self::DrainDeadline => "drain_deadline",
            Self::KeyLifetimeOver => "key_lifetime_over",
            Self::ProviderChanged => "provider_changed",
            Self::LedgerRewound => "ledger_rewound",
            Self::DuplicateFound => "duplicate_found",
            Self::LateResult => "late_result",
        }
    }
}
