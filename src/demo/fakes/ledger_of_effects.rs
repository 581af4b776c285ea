//! What a downstream has done, whatever it answered.
//!
//! Written by every fake at the moment it acts; read by tests, by the demonstration's table and, through the visibility
//! lag, by the fakes' own answers to questions. The ledger itself always knows everything at once; only questions lag.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Mutex,
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use tokio::sync::watch;

use super::{locked, now};

/// One effect that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// The downstream's own name for it.
    pub id: String,
    /// Our key, where the channel carried one.
    pub key: Option<String>,
    /// The business reference as it arrived; empty where none was carried.
    pub reference: String,
    /// 1, 2, … for a wanted repeat; 1 where the channel carries none.
    pub occurrence: i32,
    /// To whom; empty for webhooks.
    pub recipient: String,
    /// Number of the attempt, where carried.
    pub attempt: Option<i32>,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// The first 200 characters of the content.
    pub excerpt: String,
}

impl Effect {
    /// Two effects of the same name are one too many: same recipient, reference and occurrence.
    pub fn name(&self) -> (String, String, i32) {
        (self.recipient.to_ascii_lowercase(), self.reference.to_ascii_lowercase(), self.occurrence)
    }
}

/// What a fake knows when it acts; the ledger adds the id and the time.
#[derive(Debug, Clone, Default)]
pub struct Arrived {
    /// Our key, where carried.
    pub key: Option<String>,
    /// The reference, where carried.
    pub reference: String,
    /// 0 is read as 1.
    pub occurrence: i32,
    /// To whom.
    pub recipient: String,
    /// Number of the attempt, where carried.
    pub attempt: Option<i32>,
    /// The content; cut to 200 characters.
    pub content: String,
}

/// From when on questions see an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visible {
    From(DateTime<Utc>),
    WhenReleased,
}

struct Row {
    effect: Effect,
    visible: Visible,
}

struct Inner {
    rows: Vec<Row>,
    lag: Duration,
    hold_all: bool,
    hold_references: HashSet<String>,
}

/// The wait was over before what was waited for had happened.
#[derive(Debug, thiserror::Error)]
#[error("waited {waited:?} for it; there are {} effects: {there:?}", there.len())]
pub struct Waited {
    /// How long.
    pub waited: Duration,
    /// What there was at the end.
    pub there: Vec<Effect>,
}

/// The effects of one downstream; thread-safe.
pub struct Effects {
    prefix: &'static str,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

impl Effects {
    /// An empty ledger whose ids begin with `prefix`.
    pub fn new(prefix: &'static str) -> Self {
        let inner = Inner { rows: Vec::new(), lag: Duration::ZERO, hold_all: false, hold_references: HashSet::new() };
        Self { prefix, inner: Mutex::new(inner), changed: watch::Sender::new(0) }
    }

    /// Writes down that the downstream acted. Tests also plant strangers and near misses with it.
    pub fn record(&self, arrived: Arrived) -> Effect {
        let effect = {
            let mut inner = locked(&self.inner);
            let at = now();
            let effect = Effect {
                id: format!("{}{:06}", self.prefix, inner.rows.len() + 1),
                key: arrived.key.filter(|key| !key.is_empty()),
                reference: arrived.reference,
                occurrence: arrived.occurrence.max(1),
                recipient: arrived.recipient,
                attempt: arrived.attempt,
                at,
                excerpt: arrived.content.chars().take(200).collect(),
            };
            let held = inner.hold_all || inner.hold_references.contains(&effect.reference.to_ascii_lowercase());
            let visible = if held { Visible::WhenReleased } else { Visible::From(later(at, inner.lag)) };
            inner.rows.push(Row { effect: effect.clone(), visible });
            effect
        };
        self.changed.send_modify(|n| *n += 1);
        effect
    }

    /// Everything that happened, in order.
    pub fn all(&self) -> Vec<Effect> {
        locked(&self.inner).rows.iter().map(|row| row.effect.clone()).collect()
    }

    /// What questions see now, in the order in which it became visible, each with that time.
    pub fn visible(&self) -> Vec<(Effect, DateTime<Utc>)> {
        let now = now();
        let inner = locked(&self.inner);
        let mut seen: Vec<_> = inner
            .rows
            .iter()
            .filter_map(|row| match row.visible {
                Visible::From(from) => (from <= now).then(|| (row.effect.clone(), from)),
                Visible::WhenReleased => None,
            })
            .collect();
        seen.sort_by_key(|(_, from)| *from);
        seen
    }

    /// How many effects carry this key.
    pub fn count_by_key(&self, key: &str) -> usize {
        locked(&self.inner).rows.iter().filter(|row| row.effect.key.as_deref() == Some(key)).count()
    }

    /// How many effects carry this reference, in any case.
    pub fn count_by_reference(&self, reference: &str) -> usize {
        locked(&self.inner).rows.iter().filter(|row| row.effect.reference.eq_ignore_ascii_case(reference)).count()
    }

    /// Effects that exist more than once, by recipient, reference and occurrence. Empty is what we want.
    pub fn duplicates(&self) -> Vec<Vec<Effect>> {
        let mut by_name: BTreeMap<_, Vec<Effect>> = BTreeMap::new();
        for effect in self.all() {
            by_name.entry(effect.name()).or_default().push(effect);
        }
        by_name.into_values().filter(|same| same.len() > 1).collect()
    }

    /// Waits until the ledger looks as wanted, at most that long. Woken by every effect; never polls.
    ///
    /// # Errors
    /// [`Waited`] when the time is over, with what there was.
    pub async fn wait_for(
        &self,
        at_most: Duration,
        looks_right: impl Fn(&[Effect]) -> bool,
    ) -> Result<Vec<Effect>, Waited> {
        let mut changed = self.changed.subscribe();
        let deadline = tokio::time::Instant::now() + at_most;
        loop {
            changed.mark_unchanged();
            let there = self.all();
            if looks_right(&there) {
                return Ok(there);
            }
            if !matches!(tokio::time::timeout_at(deadline, changed.changed()).await, Ok(Ok(()))) {
                return Err(Waited { waited: at_most, there: self.all() });
            }
        }
    }

    /// From now on a new effect is visible to questions only after that time.
    pub fn set_lag(&self, lag: Duration) {
        locked(&self.inner).lag = lag;
    }

    /// From now on new effects stay invisible to questions until [`Effects::release`].
    pub fn hold(&self) {
        locked(&self.inner).hold_all = true;
    }

    /// The same for one reference: an index that loses one item while younger ones show.
    pub fn hold_reference(&self, reference: &str) {
        locked(&self.inner).hold_references.insert(reference.to_ascii_lowercase());
    }

    /// Everything becomes visible now, and new effects are visible after the lag again.
    pub fn release(&self) {
        let mut inner = locked(&self.inner);
        let now = now();
        inner.hold_all = false;
        inner.hold_references.clear();
        for row in &mut inner.rows {
            match row.visible {
                Visible::From(from) if from <= now => {}
                Visible::From(_) | Visible::WhenReleased => row.visible = Visible::From(now),
            }
        }
    }
}

fn later(at: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(by).ok().and_then(|by| at.checked_add_signed(by)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}
