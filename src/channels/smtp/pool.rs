//! Connections whose last mail was taken, kept for the next one. Used by `dialogue` alone.
//!
//! What must hold: only a connection whose last word was the relay's 250 to a final dot comes in here, never one that saw an error,
//! an odd reply or a cancel; and it is not believed to be alive when it comes out: the relay must be silent until it is
//! asked, and answer RSET.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{offers::Offers, talk::Talk};
use crate::channels::wire::{
    AlwaysOpen,
    counted::{Counter, Stream},
};

/// A connection that waits.
pub(super) struct Kept {
    /// Greeted, encrypted and authenticated as the destination asks for.
    pub stream: Stream,
    /// What the relay said that it can do.
    pub offers: Offers,
    /// Mails that went over it.
    pub uses: u32,
    since: Instant,
}

/// All of one destination.
pub(super) struct Pool {
    waiting: Mutex<Vec<Kept>>,
    closing: AtomicBool,
    keep_for: Duration,
    keep_uses: u32,
    most: usize,
}

impl Pool {
    pub(super) fn new(keep_for: Duration, keep_uses: u32, most: usize) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), closing: AtomicBool::new(false), keep_for, keep_uses, most })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was used last: the others may grow old.
    pub(super) fn take(&self) -> Option<Kept> {
        let kept = self.lock().pop()?;
        (kept.since.elapsed() < self.keep_for).then_some(kept)
    }

    /// One of them was dead without a word, so the others are not waited for either.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    /// Whether a connection with so many mails behind it may wait for another.
    pub(super) fn wants(&self, uses: u32) -> bool {
        !self.keep_for.is_zero() && uses < self.keep_uses && self.lock().len() < self.most
    }

    pub(super) fn put(self: &Arc<Self>, stream: Stream, offers: Offers, uses: u32) {
        self.lock().push(Kept { stream, offers, uses, since: Instant::now() });
        if !self.closing.swap(true, Ordering::AcqRel) {
            tokio::spawn(close_old(Arc::downgrade(self), self.keep_for));
        }
    }

    /// Takes out what has waited too long; `None` where nothing waits any more.
    fn old(&self) -> Option<Vec<Kept>> {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            self.closing.store(false, Ordering::Release);
            return None;
        }
        let (old, young) = std::mem::take(&mut *waiting).into_iter().partition(|k| k.since.elapsed() >= self.keep_for);
        *waiting = young;
        Some(old)
    }
}

/// Says QUIT to connections that nobody needed, so that no relay has to cut them off.
async fn close_old(pool: Weak<Pool>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(old) = pool.upgrade().and_then(|pool| pool.old()) else { return };
        for kept in old {
            Talk::new(kept.stream, Arc::new(AlwaysOpen), Counter::default()).part().await;
        }
    }
}
