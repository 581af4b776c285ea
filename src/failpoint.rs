//! Crash points at statement boundaries of `engine/`. In debug builds and with the feature `failpoints`; else they are empty.
//!
//! `SETTLED_FAILPOINTS=name:3,other:1` makes the process kill itself with SIGKILL the third time it comes by `name`, or the
//! first time by `other`. Called by the loops, armed by the crash suite (`tests/crash/README.md` lists the points). What
//! must hold: an unarmed point costs one relaxed load; an armed one ends the process without any destructor.

/// Dies here, if this point is armed and its turn has come.
#[cfg(any(feature = "failpoints", debug_assertions))]
pub fn hit(name: &str) {
    use std::sync::atomic::{AtomicU8, Ordering};
    /// 0: the environment was not read yet.
    const QUIET: u8 = 1;
    const ARMED: u8 = 2;
    static MODE: AtomicU8 = AtomicU8::new(0);
    let mode = MODE.load(Ordering::Relaxed);
    if mode == QUIET {
        return;
    }
    let points = armed();
    if mode != ARMED {
        MODE.store(if points.is_empty() { QUIET } else { ARMED }, Ordering::Relaxed);
    }
    if points.iter().any(|point| point.name == name && point.left.fetch_sub(1, Ordering::Relaxed) == 1) {
        die();
    }
}

#[cfg(any(feature = "failpoints", debug_assertions))]
struct Point {
    name: String,
    left: std::sync::atomic::AtomicI64,
}

#[cfg(any(feature = "failpoints", debug_assertions))]
fn armed() -> &'static [Point] {
    static POINTS: std::sync::OnceLock<Vec<Point>> = std::sync::OnceLock::new();
    POINTS.get_or_init(|| {
        let text = std::env::var("SETTLED_FAILPOINTS").unwrap_or_default();
        text.split(',')
            .filter_map(|point| point.split_once(':'))
            .filter_map(|(name, count)| Some(Point { name: name.to_owned(), left: count.parse::<i64>().ok()?.into() }))
            .collect()
    })
}

/// As the kernel would end it: no destructor runs, nothing is flushed, no socket is closed in order.
#[cfg(any(feature = "failpoints", debug_assertions))]
fn die() -> ! {
    // A process may always signal itself; were it refused, an abort is the next best thing.
    let _refused = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

/// Marks a crash point.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(any(feature = "failpoints", debug_assertions))]
        $crate::failpoint::hit($name);
    };
}
pub(crate) use failpoint;
