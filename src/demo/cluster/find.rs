//! Where Postgres' programs are: Debian keeps the server's out of PATH.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const OLDEST: u32 = 14;

/// The directory with initdb, pg_ctl and postgres of version 14 or newer; the newest of several.
pub(super) fn programs() -> Option<PathBuf> {
    candidates().into_iter().filter_map(|at| Some((version(&at)?, at))).max_by_key(|(version, _)| *version).map(|b| b.1)
}

fn candidates() -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(path) = std::env::var_os("PATH") {
        found.extend(std::env::split_paths(&path));
    }
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        found.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    for parent in ["/usr/lib/postgresql", "/usr/local/opt", "/opt/homebrew/opt", "/usr"] {
        let Ok(entries) = fs::read_dir(parent) else { continue };
        let inside = entries.filter_map(Result::ok).map(|entry| entry.path());
        found.extend(inside.filter(|path| is_postgres(path)).map(|path| path.join("bin")));
    }
    found.push(PathBuf::from("/usr/local/pgsql/bin"));
    found
}

/// `15`, `postgresql@16`, `pgsql-17`.
fn is_postgres(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.parse::<u32>().is_ok() || name.starts_with("postgresql") || name.starts_with("pgsql-")
}

/// The major version, where all three programs are there and it is not too old.
fn version(programs: &Path) -> Option<u32> {
    if !["initdb", "pg_ctl", "postgres"].iter().all(|name| programs.join(name).is_file()) {
        return None;
    }
    let output = Command::new(programs.join("postgres")).arg("--version").output().ok()?;
    // "postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)"
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let digits: String = said.split(") ").nth(1)?.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|version| *version >= OLDEST)
}
