//! A private Postfix and Dovecot under a temporary directory, on free loopback ports, ended with the value.
//!
//! Postfix starts only as root. Where it cannot run, or a package is missing, [`MailServers::start`] gives `None` and says
//! so; with `SETTLED_REQUIRE_REAL=1` that is a failure.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const POSTFIX: &str = "/usr/sbin/postfix";
const DOVECOT: &str = "/usr/sbin/dovecot";
/// The user that owns the mailboxes; every Debian has it.
const OWNER: &str = "mail";

/// The two servers.
pub struct MailServers {
    /// Postfix, without TLS.
    pub smtp: SocketAddr,
    /// Dovecot, without TLS. Any password is right.
    pub imap: SocketAddr,
    /// A full-text index that does not know our headers is in force.
    pub full_text_index: bool,
    dovecot: Child,
    dir: tempfile::TempDir,
}

impl MailServers {
    /// Starts both; every mail is copied to the mailbox `audit`.
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    pub fn start() -> Option<Self> {
        if let Some(why) = missing() {
            assert!(
                std::env::var_os("SETTLED_REQUIRE_REAL").is_none_or(|v| v != "1"),
                "real servers are required: {why}"
            );
            println!("skipped: {why}");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("settled-mail-").tempdir().unwrap();
        // Postfix and Dovecot give up root and must still get in.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let [smtp, imap, lmtp] = free_ports();
        let full_text_index = Path::new("/usr/lib/dovecot/modules/lib21_fts_xapian_plugin.so").exists();
        let dovecot = start_dovecot(dir.path(), imap, lmtp, full_text_index);
        let servers = Self { smtp, imap, full_text_index, dovecot, dir };
        servers.start_postfix(lmtp);
        for (what, address) in [("Postfix", smtp), ("Dovecot", imap)] {
            let until = Instant::now() + Duration::from_secs(30);
            while TcpStream::connect(address).is_err() {
                assert!(Instant::now() < until, "{what} does not listen: {}", servers.logs());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Some(servers)
    }

    /// What both wrote to their logs.
    pub fn logs(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        format!("--- postfix\n{}\n--- dovecot\n{}", read("postfix/maillog"), read("dovecot/log"))
    }

    fn start_postfix(&self, lmtp: SocketAddr) {
        let root = self.dir.path().join("postfix");
        for part in ["conf", "spool", "data"] {
            std::fs::create_dir_all(root.join(part)).unwrap();
        }
        let done = Command::new("chown").arg("postfix").arg(root.join("data")).status().unwrap();
        assert!(done.success());
        let at = root.display();
        let main = format!(
            "compatibility_level = 3.6\nconfig_directory = {at}/conf\nqueue_directory = {at}/spool\ndata_directory = {at}/data\n\
             command_directory = /usr/sbin\ndaemon_directory = /usr/lib/postfix/sbin\nmulti_instance_enable = no\n\
             maillog_file = {at}/maillog\nmaillog_file_prefixes = {at}\ninet_interfaces = 127.0.0.1\ninet_protocols = ipv4\n\
             myhostname = mx.example.test\nmydestination = example.test, acme.test\nlocal_recipient_maps =\n\
             mynetworks = 127.0.0.0/8\nsmtpd_recipient_restrictions = permit_mynetworks, reject\n\
             mailbox_transport = lmtp:inet:{lmtp}\nalias_maps =\nalias_database =\nalways_bcc = audit@example.test\n\
             default_transport = error:no way out\nsmtputf8_enable = no\nin_flow_delay = 0\n"
        );
        std::fs::write(root.join("conf/main.cf"), main).unwrap();
        let mut master = format!("{} inet n - n - - smtpd\n", self.smtp);
        for (name, line) in [
            ("pickup", "unix n - n 60 1 pickup"),
            ("cleanup", "unix n - n - 0 cleanup"),
            ("qmgr", "unix n - n 300 1 qmgr"),
            ("rewrite", "unix - - n - - trivial-rewrite"),
            ("bounce", "unix - - n - 0 bounce"),
            ("defer", "unix - - n - 0 bounce"),
            ("trace", "unix - - n - 0 bounce"),
            ("verify", "unix - - n - 1 verify"),
            ("flush", "unix n - n 1000? 0 flush"),
            ("proxymap", "unix - - n - - proxymap"),
            ("showq", "unix n - n - - showq"),
            ("error", "unix - - n - - error"),
            ("retry", "unix - - n - - error"),
            ("local", "unix - n n - - local"),
            ("lmtp", "unix - - n - - lmtp"),
            ("anvil", "unix - - n - 1 anvil"),
            ("scache", "unix - - n - 1 scache"),
            ("postlog", "unix-dgram n - n - 1 postlogd"),
        ] {
            master.push_str(&format!("{name} {line}\n"));
        }
        std::fs::write(root.join("conf/master.cf"), master).unwrap();
        assert!(self.postfix("start"), "Postfix does not start: {}", self.logs());
    }

    fn postfix(&self, verb: &str) -> bool {
        Command::new(POSTFIX)
            .arg("-c")
            .arg(self.dir.path().join("postfix/conf"))
            .arg(verb)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Drop for MailServers {
    fn drop(&mut self) {
        self.postfix("stop");
        // The master ends its own processes.
        let _asked = Command::new("kill").arg(self.dovecot.id().to_string()).status();
        let _ended = self.dovecot.wait();
    }
}

fn missing() -> Option<String> {
    for program in [POSTFIX, DOVECOT, "/usr/lib/dovecot/lmtp", "/usr/lib/dovecot/imap"] {
        if !Path::new(program).exists() {
            return Some(format!("{program} is not installed (packages postfix, dovecot-imapd, dovecot-lmtpd)"));
        }
    }
    let id = Command::new("id").arg("-u").output().ok()?;
    (id.stdout.trim_ascii() != b"0").then(|| "Postfix starts only as root".to_owned())
}

fn free_ports<const N: usize>() -> [SocketAddr; N] {
    let listeners: [TcpListener; N] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.each_ref().map(|listener| listener.local_addr().unwrap())
}

fn start_dovecot(dir: &Path, imap: SocketAddr, lmtp: SocketAddr, full_text_index: bool) -> Child {
    let root = dir.join("dovecot");
    let mail = dir.join("mail");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::create_dir_all(&mail).unwrap();
    let done = Command::new("chown").arg(OWNER).arg(&mail).status().unwrap();
    assert!(done.success());
    let index = if full_text_index {
        "mail_plugins = fts fts_xapian\nplugin {\n  fts = xapian\n  fts_xapian = partial=3 full=20\n  fts_autoindex = yes\n  fts_enforced = yes\n}\n"
    } else {
        ""
    };
    let (root, mail) = (root.display(), mail.display());
    let config = format!(
        "base_dir = {root}/run\nstate_dir = {root}/state\nlog_path = {root}/log\nprotocols = imap lmtp\nlisten = 127.0.0.1\n\
         ssl = no\ndisable_plaintext_auth = no\nmail_location = maildir:{mail}/%n\nmail_uid = {OWNER}\nmail_gid = {OWNER}\n\
         first_valid_uid = 1\nfirst_valid_gid = 1\ndefault_internal_user = dovecot\ndefault_login_user = dovenull\n\
         passdb {{\n  driver = static\n  args = nopassword=y\n}}\n\
         userdb {{\n  driver = static\n  args = uid={OWNER} gid={OWNER} home={mail}/%n\n}}\n\
         service imap-login {{\n  inet_listener imap {{\n    address = 127.0.0.1\n    port = {}\n  }}\n  inet_listener imaps {{\n    port = 0\n  }}\n}}\n\
         service lmtp {{\n  inet_listener lmtp {{\n    address = 127.0.0.1\n    port = {}\n  }}\n}}\n\
         protocol lmtp {{\n  auth_username_format = %n\n  postmaster_address = postmaster@example.test\n}}\nauth_username_format = %n\n{index}",
        imap.port(),
        lmtp.port()
    );
    let file = dir.join("dovecot.conf");
    std::fs::write(&file, config).unwrap();
    // Its output must not be a pipe: its processes would keep that open.
    Command::new(DOVECOT)
        .arg("-F")
        .arg("-c")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
