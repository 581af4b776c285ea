//! What a server must keep before anything is sent for it. Asked once, when a daemon starts.

use crate::store::instance::Safety;

/// What the configuration permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permits {
    /// `database.allow_fsync_off`: a database to throw away.
    pub fsync_off: bool,
    /// `instance.accept_lossy_failover`.
    pub lossy_failover: bool,
}

/// The server must not be sent for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsafe {
    /// A crash loses what was acknowledged.
    #[error(
        "the server runs with fsync = off: after a crash it forgets sends that happened, and they would happen again; \
         set fsync = on, or database.allow_fsync_off = true for a database to throw away"
    )]
    FsyncOff,
    /// A failover loses what was acknowledged.
    #[error(
        "failover may double effects: {standbys} standby(s) attached and synchronous_standby_names is empty; \
         set it, or instance.accept_lossy_failover = true to accept that settled asks first after every failover"
    )]
    LossyFailover {
        /// How many.
        standbys: i64,
    },
}

/// Refuses what is not permitted, and returns what must be said about the rest.
///
/// # Errors
/// When nothing may be sent for this server.
pub fn check(safety: &Safety, permits: Permits) -> Result<Vec<String>, Unsafe> {
    let mut notes = Vec::new();
    if !safety.fsync {
        if !permits.fsync_off {
            return Err(Unsafe::FsyncOff);
        }
        notes.push("fsync is off: a crash of the server loses what it acknowledged".to_owned());
    }
    if safety.standbys > 0 && safety.synchronous_standbys.is_empty() {
        if !permits.lossy_failover {
            return Err(Unsafe::LossyFailover { standbys: safety.standbys });
        }
        notes.push(format!("failover may double effects: {} standby(s), none synchronous; accepted", safety.standbys));
    }
    if !safety.full_page_writes {
        notes.push("full_page_writes is off: a crash may leave pages that cannot be read".to_owned());
    }
    if matches!(safety.synchronous_commit.as_str(), "off" | "local" | "remote_write") {
        notes.push(format!(
            "synchronous_commit is {} by default; claims, admissions and results are written with on",
            safety.synchronous_commit
        ));
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Permits = Permits { fsync_off: false, lossy_failover: false };

    fn safe() -> Safety {
        Safety {
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "on".to_owned(),
            synchronous_standbys: String::new(),
            standbys: 0,
        }
    }

    #[test]
    fn a_server_that_keeps_what_it_acknowledged_is_served_without_a_word() {
        assert_eq!(check(&safe(), NOTHING), Ok(Vec::new()));
        let synchronous = Safety { standbys: 2, synchronous_standbys: "ANY 1 (a, b)".to_owned(), ..safe() };
        assert_eq!(check(&synchronous, NOTHING), Ok(Vec::new()));
    }

    #[test]
    fn a_server_that_may_forget_is_refused_unless_somebody_signed() {
        let careless = Safety { fsync: false, ..safe() };
        assert_eq!(check(&careless, NOTHING), Err(Unsafe::FsyncOff));
        assert_eq!(check(&careless, Permits { fsync_off: true, ..NOTHING }).map(|notes| notes.len()), Ok(1));
        let lossy = Safety { standbys: 1, ..safe() };
        let refused = check(&lossy, NOTHING).map_err(|refused| refused.to_string());
        assert!(refused.is_err_and(|words| words.starts_with("failover may double effects")));
        assert_eq!(check(&lossy, Permits { lossy_failover: true, ..NOTHING }).map(|notes| notes.len()), Ok(1));
    }

    #[test]
    fn what_is_weaker_than_it_could_be_is_said() {
        let weak = Safety { full_page_writes: false, synchronous_commit: "off".to_owned(), ..safe() };
        assert_eq!(check(&weak, NOTHING).map(|notes| notes.len()), Ok(2));
    }
}
