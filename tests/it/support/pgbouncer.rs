//! A private PgBouncer in transaction mode, ended with the value.
//!
//! `SETTLED_TEST_PGBOUNCER` names a program of version 1.21 or newer, which `.ci/run` builds where the distribution has an
//! older one; the distribution's own is `/usr/sbin/pgbouncer`.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// Keeps prepared statements.
    Keeps,
    /// Does not: older than 1.21.
    Older,
}

pub struct PgBouncer {
    address: SocketAddr,
    child: Child,
    _dir: tempfile::TempDir,
}

fn version(program: &Path) -> Option<(u32, u32)> {
    let told = Command::new(program).arg("--version").output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let mut parts = told.lines().next()?.strip_prefix("PgBouncer ")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn program(age: Age) -> Option<PathBuf> {
    let named = std::env::var_os("SETTLED_TEST_PGBOUNCER").map(PathBuf::from);
    let all = named.into_iter().chain([PathBuf::from("/usr/sbin/pgbouncer")]);
    all.into_iter().find(|program| version(program).is_some_and(|v| (v >= (1, 21)) == (age == Age::Keeps)))
}

impl PgBouncer {
    /// Starts one in front of the server of the tests. `None` where there is no such program; it says so.
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    pub fn start(age: Age, more: &str) -> Option<Self> {
        let Some(program) = program(age) else {
            println!("skipped: no PgBouncer that is {age:?}");
            return None;
        };
        let server = url::Url::parse(&std::env::var("SETTLED_TEST_POSTGRES").unwrap()).unwrap();
        let (host, port) = (server.host_str().unwrap(), server.port().unwrap_or(5432));
        let dir = tempfile::Builder::new().prefix("settled-pgbouncer-").tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // `any` believes whoever connects, so the user of the server stands in the connection string.
        let text = format!(
            "[databases]\n* = host={host} port={port} user={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\nmax_client_conn = 200\ndefault_pool_size = 8\n{more}\n",
            server.username(),
            address.port()
        );
        let file = dir.path().join("pgbouncer.ini");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let mut command = Command::new(program);
        command.arg("-q").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if rustix::process::geteuid().is_root() {
            // It refuses to run as root.
            command.uid(65534).gid(65534);
        }
        let child = command.spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "PgBouncer does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { address, child, _dir: dir })
    }

    /// The URL of a database through it.
    pub fn through(&self, url: &str) -> String {
        let mut url = url::Url::parse(url).unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(self.address.port())).unwrap();
        url.to_string()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
