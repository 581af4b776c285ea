//! Gates that a test opens and closes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use settled::domain::gate::{BoxFuture, Gate};

/// A gate with two switches.
#[derive(Debug)]
pub struct TestGate {
    open: AtomicBool,
    last: AtomicBool,
    closes_when_asked: AtomicBool,
    asked: AtomicU32,
}

impl TestGate {
    /// Open, and agreeing to the last bytes.
    pub fn open() -> Arc<Self> {
        Arc::new(Self {
            open: AtomicBool::new(true),
            last: AtomicBool::new(true),
            closes_when_asked: AtomicBool::new(false),
            asked: AtomicU32::new(0),
        })
    }

    /// Open, and saying no to the last bytes.
    pub fn without_last_bytes() -> Arc<Self> {
        let gate = Self::open();
        gate.last.store(false, Ordering::SeqCst);
        gate
    }

    /// Says yes to the last bytes, but is over at that moment.
    pub fn closing_at_the_last() -> Arc<Self> {
        let gate = Self::open();
        gate.closes_when_asked.store(true, Ordering::SeqCst);
        gate
    }

    /// Closed from the start.
    pub fn closed() -> Arc<Self> {
        let gate = Self::open();
        gate.open.store(false, Ordering::SeqCst);
        gate
    }

    /// How often the last bytes were asked for.
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Gate for TestGate {
    fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    fn remaining(&self) -> Duration {
        if self.is_open() { Duration::from_secs(60) } else { Duration::ZERO }
    }

    fn last_bytes(&self) -> BoxFuture<'_, bool> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.closes_when_asked.load(Ordering::SeqCst) {
            self.open.store(false, Ordering::SeqCst);
        }
        Box::pin(std::future::ready(self.last.load(Ordering::SeqCst)))
    }
}
