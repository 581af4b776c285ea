//! One run of the program: its own process group, a cleared environment, capped output, and nothing left of it afterwards.
//!
//! The run lives in a task of its own, so that a caller who gives up, or is given up, ends it as cleanly as its limit does.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, waitid, waitpgid};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};

/// How long the pipes of a group that is dead may stay open before somebody must have left the group with them.
const GRACE: Duration = Duration::from_secs(1);
/// How long the dead of a group may take to come to us, where we are their reaper.
const REAPS: u32 = 100;
/// Longest pause between two looks whether the program has ended.
const LOOKS: Duration = Duration::from_millis(20);

/// What is run.
pub(super) struct Call {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, OsString)>,
    pub directory: PathBuf,
    /// Given on standard input, then it is closed.
    pub input: Vec<u8>,
    pub within: Duration,
    pub output_bytes: usize,
}

/// How it ended by itself.
#[derive(Debug)]
pub(super) struct Ran {
    /// `None` when a signal ended it.
    pub exit: Option<i32>,
    pub output: Vec<u8>,
}

/// Runs it to its end. What the words of a failure hold is ours, never its output.
pub(super) async fn run(call: Call) -> Result<Ran, String> {
    let (mut tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let ran = work(call, &mut tell).await;
        // Nobody waits any more: then nobody is told.
        let _given_up = tell.send(ran);
    });
    told.await.unwrap_or_else(|_broken| Err("the run broke off".to_owned()))
}

async fn work(call: Call, caller: &mut oneshot::Sender<Result<Ran, String>>) -> Result<Ran, String> {
    let end = Instant::now() + call.within;
    let mut child = Command::new(&call.program)
        .args(&call.arguments)
        .env_clear()
        .envs(call.environment)
        .current_dir(&call.directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("the program was not started: {error}"))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err("the program was started without its pipes".to_owned());
    };
    // Dropped before the child, so that the group is killed while its leader, dead or alive, still holds the number.
    let mut group = Group::of(&child);
    let (input, cap) = (call.input, call.output_bytes);
    let talk = async move {
        let feed = async {
            // It need not read what it is told.
            let _not_wanted = stdin.write_all(&input).await;
            drop(stdin);
            Ok(())
        };
        tokio::try_join!(read(stdout, cap, "output"), read(stderr, cap, "errors"), feed).map(|(output, _, _)| output)
    };
    tokio::pin!(talk);
    let mut said = None;
    let cut = loop {
        tokio::select! {
            heard = &mut talk, if said.is_none() => {
                let too_much = heard.is_err();
                said = Some(heard);
                if too_much {
                    break None;
                }
            }
            () = exited(&group, &mut child) => break None,
            () = sleep_until(end) => break Some(format!("no end within {}", humantime::format_duration(call.within))),
            () = caller.closed() => break Some("nobody waits for it any more".to_owned()),
        }
    };
    group.kill();
    let said = match said {
        Some(said) => said,
        None => timeout(GRACE, &mut talk)
            .await
            .unwrap_or_else(|_open| Err("a process that left its group holds its output open".to_owned())),
    };
    let status = child.wait().await;
    group.bury().await;
    if let Some(why) = cut {
        return Err(why);
    }
    let output = said?;
    let status = status.map_err(|error| format!("its end is not known: {error}"))?;
    Ok(Ran { exit: status.code(), output })
}

/// Everything, or a failure when it is more than `cap`.
async fn read(mut from: impl AsyncRead + Unpin, cap: usize, what: &str) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    let most = u64::try_from(cap).unwrap_or(u64::MAX).saturating_add(1);
    let broken = |error| format!("its {what} cannot be read: {error}");
    (&mut from).take(most).read_to_end(&mut all).await.map_err(broken)?;
    if all.len() > cap {
        return Err(format!("more than {cap} bytes of {what}"));
    }
    Ok(all)
}

/// The program has ended. It is not yet waited for, so that its number, and that of its group, is still its own.
async fn exited(group: &Group, child: &mut Child) {
    let mut pause = Duration::from_millis(1);
    while let Some(id) = group.id {
        match waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG) {
            Ok(Some(_)) => return,
            Ok(None) => sleep(pause).await,
            Err(_) => break,
        }
        pause = (pause * 2).min(LOOKS);
    }
    let _ended = child.wait().await;
}

/// The process group of a run.
struct Group {
    id: Option<Pid>,
}

impl Group {
    fn of(child: &Child) -> Self {
        Self { id: child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) }
    }

    fn kill(&self) {
        if let Some(id) = self.id {
            // Everybody may be gone already.
            let _gone = kill_process_group(id, Signal::KILL);
        }
    }

    /// After the leader was waited for. Orphans come to us where we are process 1 of a container; elsewhere there are none.
    async fn bury(&mut self) {
        let Some(id) = self.id.take() else { return };
        for _ in 0..REAPS {
            match waitpgid(id, WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => sleep(Duration::from_millis(10)).await,
                Err(_none) => return,
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
