//! The daemon as a child process: it must be possible to kill it as a crash would.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::{
    client::Client,
    fakes::{faults::Callback, locked},
};

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// `settled serve`, and the other commands of the same program.
pub struct Daemon {
    program: PathBuf,
    configuration: PathBuf,
    log: PathBuf,
    child: Arc<Mutex<Option<Child>>>,
}

impl Daemon {
    /// Not started yet. `directory` holds settled.toml and gets the log.
    ///
    /// # Errors
    /// When our own program cannot be found.
    pub fn new(directory: &Path) -> anyhow::Result<Self> {
        Ok(Self::of(std::env::current_exe().context("find our own program")?, directory))
    }

    /// The same with another build of the program, for tests.
    pub fn of(program: PathBuf, directory: &Path) -> Self {
        Self {
            program,
            configuration: directory.join("settled.toml"),
            log: directory.join("daemon.log"),
            child: Arc::default(),
        }
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// With the end of its log, when it ends or is not ready in time.
    pub async fn start(&self, client: &Client) -> anyhow::Result<()> {
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log).context("open the daemon's log")?;
        let child = self
            .command(&["serve", "--migrate"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start the daemon")?;
        *locked(&self.child) = Some(child);
        let began = Instant::now();
        loop {
            if client.get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                bail!("the daemon ended with {status}: {}", self.end_of_log());
            }
            if began.elapsed() > READY_WITHIN {
                bail!("the daemon is not ready after {} s: {}", READY_WITHIN.as_secs(), self.end_of_log());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Process number, while it runs.
    pub fn pid(&self) -> Option<u32> {
        locked(&self.child).as_ref().map(Child::id)
    }

    /// For a fake: SIGKILL, and only then the fake goes on.
    pub fn killer(&self) -> Callback {
        let child = Arc::clone(&self.child);
        Arc::new(move || {
            if let Some(mut child) = locked(&child).take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        })
    }

    /// SIGTERM, then waits for its orderly end.
    ///
    /// # Errors
    /// When it does not end in time; then it is killed.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.terminate();
        let began = Instant::now();
        while self.ended()?.is_none() {
            if began.elapsed() > STOPPED_WITHIN {
                (self.killer())();
                bail!("the daemon did not stop within {} s", STOPPED_WITHIN.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn terminate(&self) {
        if let Some(pid) = self.pid() {
            // The standard library can only kill; the shell's own `kill` sends what is wanted.
            let _ = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &pid.to_string()]).status();
        }
    }

    /// Its end, once; true silence when there is none.
    fn ended(&self) -> anyhow::Result<Option<String>> {
        let mut child = locked(&self.child);
        let Some(running) = child.as_mut() else { return Ok(Some("SIGKILL".to_owned())) };
        let status = running.try_wait().context("watch the daemon")?;
        if status.is_some() {
            *child = None;
        }
        Ok(status.map(|status| status.to_string()))
    }

    /// Runs another command of the program to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = tokio::process::Command::from(self.command(arguments));
        command.stdin(Stdio::null()).output().await.with_context(|| format!("run settled {}", arguments.join(" ")))
    }

    /// The same, and its standard output; its words are the error where it fails.
    ///
    /// # Errors
    /// When it cannot be started or does not end well.
    pub async fn ask(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.run(arguments).await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("settled {}: {}: {}", arguments.join(" "), output.status, said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.program);
        // An own group: Ctrl-C ends the demonstration, which then ends the daemon.
        command.arg("--config").arg(&self.configuration).args(arguments).env("NO_COLOR", "1").process_group(0);
        command
    }

    /// What a person types to run the same program with the same configuration.
    pub fn spelled(&self, arguments: &str) -> String {
        format!("{} --config {} {arguments}", self.program.display(), self.configuration.display())
    }

    fn end_of_log(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(8).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.terminate();
        let began = Instant::now();
        while matches!(self.ended(), Ok(None)) {
            if began.elapsed() > Duration::from_secs(10) {
                (self.killer())();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
