//! CPU and memory of processes, from the kernel's own accounting.

use std::fs;

use anyhow::Context;

use crate::demo::cluster::Cluster;

/// Clock ticks a second; fixed on Linux since 2.6.
const TICKS: f64 = 100.0;

/// What a process has used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) cpu_seconds: f64,
    pub(super) peak_mb: f64,
}

impl Usage {
    /// One process, its ended children included.
    pub(super) fn of_process(pid: u32) -> anyhow::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the process has ended")?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
        let peak: f64 = peak.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
        Ok(Self { cpu_seconds: ticks(pid)?, peak_mb: peak / 1024.0 })
    }

    /// The postmaster and everything it started.
    pub(super) fn of_postgres(cluster: &Cluster) -> anyhow::Result<Self> {
        let path = cluster.directory().join("data/postmaster.pid");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let postmaster: u32 = text.lines().next().unwrap_or_default().trim().parse().context("postmaster.pid")?;
        let mut cpu_seconds = ticks(postmaster)?;
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if parent(pid) == Some(postmaster) {
                cpu_seconds += ticks(pid).unwrap_or(0.0);
            }
        }
        Ok(Self { cpu_seconds, peak_mb: 0.0 })
    }
}

/// Fields of `/proc/<pid>/stat` after the name, which may hold blanks.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// User and system time, of ended children too, in seconds.
fn ticks(pid: u32) -> anyhow::Result<f64> {
    let fields = stat(pid).context("the process has ended")?;
    let sum: f64 = (11..=14).filter_map(|i| fields.get(i)?.parse::<f64>().ok()).sum();
    Ok(sum / TICKS)
}
