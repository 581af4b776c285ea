//! One daemon as a child process.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use settled::demo::fakes::faults::Callback;

/// Until a daemon is up, and until something that must happen has happened. Long, for slow machines.
pub const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAM: &str = env!("CARGO_BIN_EXE_settled");
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Killed when dropped.
pub struct Process {
    child: Arc<Mutex<Child>>,
    log: PathBuf,
    /// What is it called in messages and in the name of its log.
    pub name: String,
}

impl Process {
    /// Runs the program with these arguments over `settled.toml` in `directory`.
    pub fn start(directory: &Path, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_by(Command::new(PROGRAM), directory, name, arguments, environment)
    }

    /// The same as process number one of a namespace of its own, as in a container.
    pub fn start_as_first(directory: &Path, name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--fork", "--pid", "--kill-child=KILL", PROGRAM]);
        Self::start_by(command, directory, name, arguments, &[])
    }

    fn start_by(
        mut command: Command,
        directory: &Path,
        name: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let log = directory.join(format!("{name}.log"));
        let file = fs::File::create(&log).unwrap();
        command.arg("--config").arg(directory.join("settled.toml")).args(arguments);
        command.env("NO_COLOR", "1").env_remove("SETTLED_FAILPOINTS").envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().expect("the program starts");
        Self { child: Arc::new(Mutex::new(child)), log, name: name.to_owned() }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its end, once it has come.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().unwrap()
    }

    /// Waits until its log contains these words; false when it ended before.
    pub async fn says(&self, words: &str) -> bool {
        let began = Instant::now();
        loop {
            let ended = self.ended().is_some();
            if self.log().contains(words) {
                return true;
            }
            if ended {
                return false;
            }
            assert!(began.elapsed() < PATIENCE, "{} never said {words:?}:\n{}", self.name, self.last_words());
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Waits until it serves.
    pub async fn up(&self) {
        assert!(self.says("settled is up").await, "{} ended:\n{}", self.name, self.last_words());
    }

    /// Waits for its end; false when the time is over first.
    pub async fn is_over(&self, at_most: Duration) -> bool {
        let began = Instant::now();
        while self.ended().is_none() {
            if began.elapsed() > at_most {
                return false;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        true
    }

    /// Waits for its end.
    pub async fn end(&self, at_most: Duration) -> ExitStatus {
        assert!(self.is_over(at_most).await, "{} runs on:\n{}", self.name, self.last_words());
        self.ended().unwrap()
    }

    /// Waits until it was killed.
    pub async fn killed(&self) {
        let status = self.end(PATIENCE).await;
        assert_eq!(status.signal(), Some(9), "{} was not killed: {status}\n{}", self.name, self.last_words());
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        send(i32::try_from(self.child().id()).unwrap(), signal);
    }

    /// Sends a signal to its only child.
    pub fn signal_child(&self, signal: Signal) {
        let pid = self.child().id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        send(children.trim().parse().expect("one child"), signal);
    }

    /// For a fake: SIGKILL, and only when the process is gone the fake goes on.
    pub fn killer(&self) -> Callback {
        let child = Arc::clone(&self.child);
        Arc::new(move || {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            child.kill().unwrap();
            child.wait().unwrap();
        })
    }

    /// Its name in the ledger, once it is up.
    pub fn worker(&self) -> Option<uuid::Uuid> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("settled is up"))?;
        line.split("worker=").nth(1)?.get(..36)?.parse().ok()
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = self.child();
        // Already gone, most of the time.
        let _ = child.kill();
        let _ = child.wait();
    }
}
