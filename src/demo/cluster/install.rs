//! Installs Postgres where it is missing, we are root and there is apt-get: the packages, and no running service.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{ClusterError, account::is_root, io_error, run};

/// What an ordinary user is told to run.
pub(super) const COMMAND: &str = "sudo apt-get install -y --no-install-recommends postgresql";
const OTHER_SYSTEM: &str = "your system's package manager, package postgresql (14 or newer)";

const POLICY: &str = "/usr/sbin/policy-rc.d";
const CREATE_CLUSTER: &str = "/etc/postgresql-common/createcluster.conf";

/// Installs it, or names the command that would.
///
/// # Errors
/// [`ClusterError::Missing`] for an ordinary user or another system; otherwise what apt-get said.
pub(super) fn postgres() -> Result<(), ClusterError> {
    let has_apt = Path::new("/usr/bin/apt-get").exists();
    if !has_apt || !is_root() {
        let command = if has_apt { COMMAND } else { OTHER_SYSTEM };
        return Err(ClusterError::Missing { command: command.to_owned() });
    }
    // Debian starts services on installation and makes a cluster of its own; we want neither.
    let _policy = Temporary::create(POLICY, "#!/bin/sh\nexit 101\n", 0o755)?;
    let written = "# Written before the package came, so that it makes no cluster. May be changed.\ncreate_main_cluster = false\n";
    let directory = Path::new(CREATE_CLUSTER).parent().unwrap_or(Path::new("/etc"));
    fs::create_dir_all(directory).map_err(io_error("prepare the installation of Postgres"))?;
    if let Some(kept) = Temporary::create(CREATE_CLUSTER, written, 0o644)? {
        // It is the administrator's file from now on; the package would take its absence for a deletion.
        kept.keep();
    }
    run("read the package lists", apt().args(["update", "-q"]))?;
    let install = ["install", "-y", "-q", "--no-install-recommends", "postgresql"];
    run("install the package postgresql", apt().args(install))
}

fn apt() -> Command {
    let mut apt = Command::new("/usr/bin/apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").env("UCF_FORCE_CONFFOLD", "1").stdout(Stdio::null());
    apt
}

/// A file that is removed again; one that is there already is left alone.
struct Temporary {
    path: Option<PathBuf>,
}

impl Temporary {
    fn create(path: &str, text: &str, mode: u32) -> Result<Option<Self>, ClusterError> {
        let opened = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(source) => return Err(ClusterError::Io { what: "prepare the installation of Postgres", source }),
        };
        file.write_all(text.as_bytes()).map_err(io_error("prepare the installation of Postgres"))?;
        Ok(Some(Self { path: Some(PathBuf::from(path)) }))
    }

    fn keep(mut self) {
        self.path = None;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}
