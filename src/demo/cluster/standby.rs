//! What can happen to a ledger's history: an asynchronous standby that is promoted, a base backup that is put back.
//!
//! Used by the tests of lost history. What must hold: the copies belong to the same user, listen on ports of their own, and
//! go with their values as every private cluster does.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Account, Cluster, ClusterError, SUPERUSER, directory, io_error, run};

/// The files of a cluster at one moment; removed with the value unless it was started.
pub struct Backup {
    directory: PathBuf,
    programs: PathBuf,
    account: Account,
    password: Option<String>,
}

impl Cluster {
    /// A base backup with the WAL that makes it consistent. `port` is where the cluster is reached; with `follow` the copy
    /// goes on asking there for more once it is started.
    ///
    /// # Errors
    /// When `pg_basebackup` fails; nothing is left behind.
    pub fn back_up(&self, port: u16, follow: bool) -> Result<Backup, ClusterError> {
        let backup = Backup {
            directory: directory(&self.account)?,
            programs: self.programs.clone(),
            account: self.account,
            password: self.password.clone(),
        };
        let mut command = backup.command("pg_basebackup");
        command.arg("-D").arg(backup.data()).args(["-X", "stream", "-c", "fast", "--no-sync", "-w"]);
        command.args(["-h", "127.0.0.1", "-U", SUPERUSER, "-p", &port.to_string()]);
        if follow {
            command.arg("-R");
        }
        if let Some(password) = &self.password {
            command.env("PGPASSWORD", password);
        }
        run("copy the cluster", &mut command)?;
        Ok(backup)
    }

    /// A standby that follows as fast as it can and that nobody waits for. It reaches this cluster at `port`.
    ///
    /// # Errors
    /// As [`Cluster::back_up`], or when it does not start.
    pub fn standby(&self, port: u16) -> Result<Self, ClusterError> {
        self.back_up(port, true)?.start()
    }

    /// Makes a primary of a standby, and waits until it is one.
    ///
    /// # Errors
    /// When `pg_ctl` fails.
    pub fn promote(&self) -> Result<(), ClusterError> {
        let mut command = self.account.command(&self.programs.join("pg_ctl"));
        run(
            "promote the standby",
            command.arg("-D").arg(self.directory.join("data")).args(["promote", "-w", "-t", "60"]),
        )
    }

    /// The machine is gone: SIGKILL, without a checkpoint. Its other processes end when they notice.
    ///
    /// # Errors
    /// When the process cannot be killed.
    pub fn kill(&mut self) -> Result<(), ClusterError> {
        self.postmaster.kill().and_then(|()| self.postmaster.wait()).map_err(io_error("kill Postgres"))?;
        Ok(())
    }
}

impl Backup {
    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn command(&self, program: &str) -> Command {
        self.account.command(&self.programs.join(program))
    }

    /// Starts a cluster over it, on a port of its own.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(mut self) -> Result<Cluster, ClusterError> {
        let directory = std::mem::take(&mut self.directory);
        Cluster::start_made(&directory, &self.programs, self.account, self.password.clone(), false).inspect_err(|_| {
            let _ = fs::remove_dir_all(&directory);
        })
    }

    /// Starts it as tools for restoring do: recovery to the end of what is there, then a timeline of its own.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restore(self) -> Result<Cluster, ClusterError> {
        let data = self.data();
        // Nobody may look in before it is whole.
        let settings = "restore_command = 'false'\nrecovery_target_timeline = 'current'\nhot_standby = off\n";
        append(&data.join("postgresql.auto.conf"), settings)
            .and_then(|()| fs::File::create(data.join("recovery.signal")).map(drop))
            .and_then(|()| self.account.own(&data.join("recovery.signal")))
            .map_err(io_error("order the recovery"))?;
        self.start()
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        if !self.directory.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    fs::OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes())
}
