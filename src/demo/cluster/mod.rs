//! A private Postgres: made in a temporary directory, on a free loopback port, stopped and removed with its value.
//!
//! Used by the demonstration and, through [`hold::hold_postgres_for`], by `make test`. Works for root, by running Postgres
//! as another user since it refuses root, and for ordinary users. Touches no other cluster of the machine.

mod account;
mod find;
pub mod hold;
mod install;
pub mod standby;

use std::{
    fs,
    io::{self, Write},
    net::{Ipv4Addr, TcpListener},
    os::unix::{
        fs::{DirBuilderExt, OpenOptionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use account::Account;

const SUPERUSER: &str = "postgres";
const READY_WITHIN: Duration = Duration::from_secs(60);

/// No private Postgres could be had.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// None is installed and this user cannot install it. The command line exits with 69 (EX_UNAVAILABLE).
    #[error("find Postgres 14 or newer; install it with: {command}")]
    Missing {
        /// The one command to run.
        command: String,
    },
    /// A program of Postgres or the package manager failed.
    #[error("{what}: {why}")]
    Failed {
        /// What was being done.
        what: &'static str,
        /// What the program said.
        why: String,
    },
    /// The file system or the network refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> ClusterError {
    move |source| ClusterError::Io { what, source }
}

/// Who may connect from this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Whoever has the password in [`Cluster::url`].
    #[default]
    Password,
    /// Everybody, as any role: for tests, which connect as roles of their own making.
    Trust,
}

/// How the cluster is made.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Who may connect.
    pub access: Access,
    /// Leaves the directory behind, stopped.
    pub keep: bool,
}

/// A running private cluster.
pub struct Cluster {
    directory: PathBuf,
    programs: PathBuf,
    account: Account,
    postmaster: Child,
    port: u16,
    password: Option<String>,
    keep: bool,
}

impl Cluster {
    /// Makes and starts one. Blocks for some seconds; installs Postgres where it is missing and we are root.
    ///
    /// # Errors
    /// [`ClusterError`]; nothing is left behind.
    pub fn start(options: &Options) -> Result<Self, ClusterError> {
        let programs = match find::programs() {
            Some(programs) => programs,
            None => {
                install::postgres()?;
                find::programs().ok_or_else(|| ClusterError::Missing { command: install::COMMAND.to_owned() })?
            }
        };
        let account = Account::choose()?;
        let directory = directory(&account)?;
        Self::start_in(&directory, programs, account, options).inspect_err(|_| {
            let _ = fs::remove_dir_all(&directory);
        })
    }

    fn start_in(
        directory: &Path,
        programs: PathBuf,
        account: Account,
        options: &Options,
    ) -> Result<Self, ClusterError> {
        let password = match options.access {
            Access::Password => Some(format!("{:032x}", rand::random::<u128>())),
            Access::Trust => None,
        };
        make(directory, &programs, &account, password.as_deref())?;
        Self::start_made(directory, &programs, account, password, options.keep)
    }

    /// Starts Postgres over files that are there.
    fn start_made(
        directory: &Path,
        programs: &Path,
        account: Account,
        password: Option<String>,
        keep: bool,
    ) -> Result<Self, ClusterError> {
        // The port is free now and could be taken in the next moment: then another one.
        let mut last = None;
        for _ in 0..5 {
            let port = free_port()?;
            let postmaster = launch(directory, programs, &account, port)?;
            let mut cluster = Self {
                directory: directory.to_owned(),
                programs: programs.to_owned(),
                account,
                postmaster,
                port,
                password: password.clone(),
                keep,
            };
            match cluster.wait_ready() {
                Ok(()) => return Ok(cluster),
                Err(error) => {
                    // Only the process; the directory is used again.
                    cluster.keep = true;
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or(ClusterError::Failed { what: "start Postgres", why: "no free port".into() }))
    }

    /// URL of a database, as superuser.
    pub fn url(&self, database: &str) -> String {
        let password = self.password.as_ref().map(|password| format!(":{password}")).unwrap_or_default();
        format!("postgres://{SUPERUSER}{password}@127.0.0.1:{}/{database}", self.port)
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Line 8 of postmaster.pid says `ready` once connections are taken.
    fn wait_ready(&mut self) -> Result<(), ClusterError> {
        let began = Instant::now();
        let pid_file = self.directory.join("data/postmaster.pid");
        loop {
            if fs::read_to_string(&pid_file).is_ok_and(|text| takes_connections(&text)) {
                return Ok(());
            }
            let ended = self.postmaster.try_wait().map_err(io_error("watch Postgres"))?;
            if ended.is_some() || began.elapsed() > READY_WITHIN {
                let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(5).collect();
                let why = tail.into_iter().rev().collect::<Vec<_>>().join("; ");
                return Err(ClusterError::Failed { what: "start Postgres", why });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if matches!(self.postmaster.try_wait(), Ok(None)) {
            // pg_ctl signals the process in this directory's postmaster.pid and no other.
            let stopped = self
                .account
                .command(&self.programs.join("pg_ctl"))
                .arg("-D")
                .arg(self.directory.join("data"))
                .args(["stop", "-m", "fast", "-w", "-t", "30"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if !stopped.is_ok_and(|status| status.success()) {
                let _ = self.postmaster.kill();
            }
        }
        let _ = self.postmaster.wait();
        if !self.keep {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

fn takes_connections(pid_file: &str) -> bool {
    pid_file.lines().nth(7).map(str::trim) == Some("ready")
}

/// An empty directory that only the account can read.
fn directory(account: &Account) -> Result<PathBuf, ClusterError> {
    let name = format!("settled-postgres-{:016x}", rand::random::<u64>());
    let directory = account.temporary_directory().join(name);
    fs::DirBuilder::new().mode(0o700).create(&directory).map_err(io_error("make a directory for Postgres"))?;
    account.own(&directory).map_err(io_error("hand the directory to Postgres' user"))?;
    Ok(directory)
}

fn make(directory: &Path, programs: &Path, account: &Account, password: Option<&str>) -> Result<(), ClusterError> {
    let mut initdb = account.command(&programs.join("initdb"));
    initdb.arg("-D").arg(directory.join("data")).args(["-U", SUPERUSER, "-E", "UTF8", "--locale=C", "--no-sync"]);
    if let Some(password) = password {
        let file = directory.join("password");
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)
            .and_then(|mut open| open.write_all(password.as_bytes()))
            .and_then(|()| account.own(&file))
            .map_err(io_error("write the password file"))?;
        initdb.arg("--pwfile").arg(&file).args(["-A", "scram-sha-256"]);
    } else {
        initdb.args(["-A", "trust"]);
    }
    run("make the cluster", &mut initdb)
}

fn launch(directory: &Path, programs: &Path, account: &Account, port: u16) -> Result<Child, ClusterError> {
    let log = fs::File::create(directory.join("log")).map_err(io_error("open Postgres' log"))?;
    let errors = log.try_clone().map_err(io_error("open Postgres' log"))?;
    let mut postgres = account.command(&programs.join("postgres"));
    postgres.arg("-D").arg(directory.join("data"));
    let sockets = directory.display().to_string();
    // A socket's path has at most 107 bytes; without one TCP is enough.
    let sockets = if sockets.len() < 80 { sockets } else { String::new() };
    for setting in [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".into(),
        format!("unix_socket_directories={sockets}"),
        "max_connections=300".into(),
        // The demonstration kills things: what it shows must be durable.
        "fsync=on".into(),
        "timezone=UTC".into(),
        "log_timezone=UTC".into(),
    ] {
        postgres.arg("-c").arg(setting);
    }
    postgres.stdin(Stdio::null()).stdout(log).stderr(errors);
    // An own group: Ctrl-C must reach the daemon first, and the database only when the daemon is done.
    postgres.process_group(0).spawn().map_err(io_error("start Postgres"))
}

fn free_port() -> Result<u16, ClusterError> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr();
    Ok(free().map_err(io_error("find a free port"))?.port())
}

fn run(what: &'static str, command: &mut Command) -> Result<(), ClusterError> {
    let output = command.stdin(Stdio::null()).output().map_err(io_error(what))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let why = if said.is_empty() { output.status.to_string() } else { said };
    Err(ClusterError::Failed { what, why })
}
