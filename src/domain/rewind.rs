//! History that the database lost: what shows it, and what it puts in doubt.
//!
//! A process remembers the last position that Postgres acknowledged to it. A database that stands behind that position, on
//! another timeline or in another cluster has forgotten attempts: they may have had their effect, and no row knows of them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Number under which lost attempts are asked about; real ones begin at 1.
pub const LOST: i32 = 0;

/// Where the log of a database stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// System identifier of the cluster.
    pub system: String,
    /// WAL timeline.
    pub timeline: i32,
    /// WAL position, bytes.
    pub lsn: i64,
    /// `settled.instance.history`.
    pub history: Uuid,
}

/// What a process finds at a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where the log stands.
    pub position: Position,
    /// System identifier that the ledger has written down.
    pub recorded_system: String,
    /// Timeline that it has written down.
    pub recorded_timeline: i32,
    /// Heartbeats of this process that it knows; `None` where it does not know the process.
    pub beats: Option<i64>,
}

/// The last acknowledged position of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Where the log stood at least.
    pub position: Position,
    /// Number of its last acknowledged heartbeat.
    pub beats: i64,
    /// Histories that this process has left behind.
    pub left: Vec<Uuid>,
}

/// What the difference means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is missing that this process knows of.
    Whole,
    /// A rewind was noticed and written down by another process.
    Noted,
    /// History was lost, and nobody has written that down.
    Lost {
        /// What gave it away, in words.
        why: String,
        /// Another cluster: a restore or a copy. A person must say that this is the one that may send.
        copy: bool,
    },
}

impl Found {
    /// Compares with what was remembered; `None` in a process that has just started.
    pub fn against(&self, memory: Option<&Memory>) -> Standing {
        let here = &self.position;
        let lost = |why: String| Standing::Lost { why, copy: false };
        if here.system != self.recorded_system {
            let why = format!("system identifier {} instead of {}", here.system, self.recorded_system);
            return Standing::Lost { why, copy: true };
        }
        if here.timeline != self.recorded_timeline {
            return lost(format!("timeline {} instead of {}", here.timeline, self.recorded_timeline));
        }
        let Some(memory) = memory else { return Standing::Whole };
        if memory.left.contains(&here.history) {
            return lost("the record of an earlier rewind is gone".to_owned());
        }
        if memory.position.history != here.history {
            return Standing::Noted;
        }
        if let Some(why) = memory.position.ahead_of(here) {
            return lost(why);
        }
        match self.beats {
            None => lost("this process is not known any more".to_owned()),
            Some(beats) if beats < memory.beats => {
                lost(format!("heartbeat {beats} of this process instead of {}", memory.beats))
            }
            Some(_) => Standing::Whole,
        }
    }
}

impl Position {
    /// Why a database that stands at `other` has lost what was acknowledged here; `None` where it has not, by what can be seen.
    pub fn ahead_of(&self, other: &Self) -> Option<String> {
        if self.system != other.system {
            Some(format!("system identifier {} instead of {}", other.system, self.system))
        } else if self.timeline != other.timeline {
            Some(format!("timeline {} instead of {}", other.timeline, self.timeline))
        } else if other.lsn < self.lsn {
            Some(format!("WAL position {} instead of at least {}", lsn(other.lsn), lsn(self.lsn)))
        } else if self.history != other.history {
            Some("another history".to_owned())
        } else {
            None
        }
    }
}

/// As Postgres writes it.
fn lsn(position: i64) -> String {
    format!("{:X}/{:X}", position >> 32, position & 0xffff_ffff)
}

/// What is in doubt about one intent since a rewind: evidence in its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostAttempts {
    /// Number of the rewind.
    pub rewind: i32,
    /// None of them began before: what was written until then is still there.
    pub lost_from: DateTime<Utc>,
    /// No byte of them can leave after that.
    pub lost_until: DateTime<Utc>,
    /// Generation of the destination at that time: it is asked.
    pub generation: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(timeline: i32, lsn: i64, history: u128) -> Position {
        Position { system: "7".to_owned(), timeline, lsn, history: Uuid::from_u128(history) }
    }

    fn memory(lsn: i64, beats: i64, left: &[u128]) -> Memory {
        Memory { position: position(1, lsn, 1), beats, left: left.iter().map(|h| Uuid::from_u128(*h)).collect() }
    }

    fn found(position: Position, beats: Option<i64>) -> Found {
        let (recorded_system, recorded_timeline) = (position.system.clone(), position.timeline);
        Found { position, recorded_system, recorded_timeline, beats }
    }

    fn lost(standing: &Standing) -> bool {
        matches!(standing, Standing::Lost { copy: false, .. })
    }

    #[test]
    fn a_database_that_stands_where_it_was_or_later_has_lost_nothing() {
        for lsn in [500, 501] {
            assert_eq!(found(position(1, lsn, 1), Some(3)).against(Some(&memory(500, 3, &[]))), Standing::Whole);
        }
        assert_eq!(found(position(1, 10, 1), None).against(None), Standing::Whole);
    }

    #[test]
    fn an_earlier_position_a_lower_heartbeat_or_an_unknown_process_is_lost_history() {
        let memory = memory(500, 3, &[]);
        assert!(lost(&found(position(1, 499, 1), Some(3)).against(Some(&memory))));
        assert!(lost(&found(position(1, 900, 1), Some(2)).against(Some(&memory))));
        assert!(lost(&found(position(1, 900, 1), None).against(Some(&memory))));
    }

    #[test]
    fn another_timeline_or_cluster_is_lost_history_also_for_a_process_that_remembers_nothing() {
        let promoted = Found { recorded_timeline: 1, ..found(position(2, 900, 1), None) };
        assert!(lost(&promoted.against(None)));
        let copied = Found { recorded_system: "8".to_owned(), ..found(position(1, 900, 1), None) };
        assert!(matches!(copied.against(None), Standing::Lost { copy: true, .. }));
    }

    #[test]
    fn what_another_process_wrote_down_is_not_written_down_again_and_what_is_gone_from_it_is() {
        let memory = memory(500, 3, &[4]);
        assert_eq!(found(position(2, 100, 2), None).against(Some(&memory)), Standing::Noted);
        assert!(lost(&found(position(1, 900, 4), Some(9)).against(Some(&memory))));
    }
}
