//! As whom Postgres runs: ourselves, or another user where we are root, which Postgres refuses.

use std::{
    fs, io,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use super::ClusterError;

/// The user of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// Whoever we are.
    Ourselves,
    /// Another one; we are root.
    Other {
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
}

impl Account {
    /// Ourselves; for root `postgres` or else `nobody`.
    pub(super) fn choose() -> Result<Self, ClusterError> {
        if !is_root() {
            return Ok(Self::Ourselves);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        ["postgres", "nobody"].iter().find_map(|name| entry(&users, name)).ok_or_else(|| ClusterError::Failed {
            what: "choose a user for Postgres",
            why: "it refuses root, and there is neither a user postgres nor a user nobody".into(),
        })
    }

    /// A program run as that user, in a directory that it can enter.
    pub(super) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/");
        if let Self::Other { uid, gid } = self {
            // The standard library also drops root's further groups.
            command.gid(gid).uid(uid);
        }
        command
    }

    /// Hands a file or directory over.
    pub(super) fn own(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Ourselves => Ok(()),
            Self::Other { uid, gid } => chown(path, Some(uid), Some(gid)),
        }
    }

    /// Our temporary directory, or /tmp where the other user cannot get through to ours.
    pub(super) fn temporary_directory(self) -> PathBuf {
        let ours = std::env::temp_dir();
        let open = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0);
        match self {
            Self::Other { .. } if !ours.ancestors().all(open) => PathBuf::from("/tmp"),
            Self::Ourselves | Self::Other { .. } => ours,
        }
    }
}

/// The owner of our own entry in /proc is the effective user; without /proc nobody is taken for root.
pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// `name:x:uid:gid:…`
fn entry(users: &str, name: &str) -> Option<Account> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(Account::Other { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_read_by_its_whole_name() {
        let users = "postgresql:x:1:2::/:/bin/sh\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(entry(users, "postgres"), Some(Account::Other { uid: 101, gid: 104 }));
        assert_eq!(entry(users, "nobody"), None);
    }
}
