//! Crash points at statement boundaries of `engine/`. Empty unless the feature `failpoints` is on.
//!
//! `SETTLED_FAILPOINTS=name:3,other:1` kills the process with SIGKILL-like abruptness the n-th time it comes by.

/// Dies here, if this point is armed.
#[cfg(feature = "failpoints")]
pub fn hit(name: &str) {
    use std::{
        collections::HashMap,
        sync::{Mutex, OnceLock},
    };
    static ARMED: OnceLock<Mutex<HashMap<String, u32>>> = OnceLock::new();
    let armed = ARMED.get_or_init(|| {
        let text = std::env::var("SETTLED_FAILPOINTS").unwrap_or_default();
        let points = text
            .split(',')
            .filter_map(|p| p.split_once(':'))
            .filter_map(|(n, c)| Some((n.to_owned(), c.parse().ok()?)));
        Mutex::new(points.collect())
    });
    let mut armed = armed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(left) = armed.get_mut(name) {
        *left = left.saturating_sub(1);
        if *left == 0 {
            std::process::abort();
        }
    }
}

/// Marks a crash point.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::hit($name);
    };
}
pub(crate) use failpoint;
