//! The crash points.

/// Every crash point of `engine/`.
pub const POINTS: [&str; 10] = [
    "claim-before-commit",
    "claim-after-commit",
    "send-before-result",
    "result-before-write",
    "result-after-write",
    "reap-before-commit",
    "reconcile-after-look-up",
    "reconcile-before-commit",
    "decide-before-commit",
    "quarantine-before-commit",
];
