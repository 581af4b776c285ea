//! (being written)

/// Counts an ended attempt.
pub fn attempt(_destination: &str, _outcome: &str) {}

/// An unsettled intent without a queue row was found.
pub fn orphan() {}

/// Counts an answered question.
pub fn look_up(_destination: &str, _verdict: &str) {}
