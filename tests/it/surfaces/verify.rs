//! `settled verify`: what it proves of a good installation, what it finds in bad ones, and what it leaves behind: nothing.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, process::Output, sync::Arc, time::Duration};

use settled::{
    clock::SystemClock,
    config::destination::Destination,
    daemon::{self, Daemon},
    demo::fakes::webhook::Webhook,
    lifecycle::Shutdown,
    store::{self, destinations::Publication},
};

use super::cli::{err, out, settled};
use crate::support::{
    db::Database,
    doubling::Doubling,
    fragments::{mute_webhook, webhook},
};

const CANARY: &str = "[canary]\npayload = { note = \"{reference}\" }";

/// A database that belongs to this installation, and a configuration with published destinations.
struct Site {
    db: Database,
    dir: tempfile::TempDir,
}

impl Site {
    /// Destinations as fragments; each gets a canary.
    async fn new(fragments: &[String]) -> Self {
        let this = Self { db: Database::new().await, dir: tempfile::tempdir().unwrap() };
        let secret = this.dir.path().join("key");
        std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o400)).unwrap();
        let destinations: Vec<toml::Table> =
            fragments.iter().map(|text| format!("{text}\n{CANARY}").parse().unwrap()).collect();
        let rest = format!(
            r#"
destinations_revision = 1
instance = {{ name = "test", region = "eu" }}
database = {{ url = "{}", allow_fsync_off = true }}
http = {{ listen = "127.0.0.1:0" }}
keys = {{ active = "k1", secrets = [{{ kid = "k1", file = "{}" }}] }}
"#,
            this.db.url,
            secret.display()
        );
        let mut whole: toml::Table = rest.parse().unwrap();
        whole.insert("destinations".to_owned(), destinations.to_vec().into());
        std::fs::write(this.config(), toml::to_string(&whole).unwrap()).unwrap();
        let mut conn = this.db.pool.acquire().await.unwrap();
        store::instance::belongs(&mut conn, "test", "eu").await.unwrap();
        for one in destinations {
            let config: Destination = one.try_into().unwrap();
            let ready = daemon::build(&config).unwrap();
            let publication = Publication {
                destination: &config,
                revision: 1,
                generation: &ready.generation,
                asked_by_key: ready.look_up.as_ref().is_some_and(|l| l.abilities().shows_key),
            };
            store::destinations::publish(&mut conn, publication).await.unwrap();
        }
        drop(conn);
        this
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("settled.toml")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        settled(arguments, &[("SETTLED_CONFIG", self.config().to_str().unwrap())])
    }

    /// `verify` with these, for at most 20 s a canary.
    fn verify(&self, arguments: &[&str]) -> Told {
        let whole: Vec<&str> = ["verify", "--yes", "--wait", "20s"].iter().chain(arguments).copied().collect();
        let output = self.run(&whole);
        Told { code: output.status.code(), text: out(&output), words: err(&output) }
    }

    async fn serve(&self) -> Daemon {
        let settings = settled::config::load(&self.config()).unwrap();
        daemon::start(settings, false, Arc::new(SystemClock), Shutdown::new()).await.unwrap()
    }

    async fn count(&self, what: &str) -> i64 {
        let sql = format!("select count(*) from settled.{what}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&self.db.pool).await.unwrap()
    }

    async fn change(&self, sql: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&self.db.pool).await.unwrap();
    }

    /// Whether the server of the tests has what it acknowledges on disk.
    async fn keeps(&self) -> bool {
        sqlx::query_scalar("select current_setting('fsync')::boolean").fetch_one(&self.db.pool).await.unwrap()
    }

    /// No grant, no open intent, no open question to people, no attempt, no worker.
    async fn nothing_is_left(&self) {
        for what in [
            "grants",
            "queue",
            "escalations where closed_at is null",
            "attempts where closed_at is null",
            "workers where stopped_at is null",
            "intents where tenant <> 'settled-canary' or reference not like 'canary-%' or state not in ('sent', 'cancelled')",
        ] {
            assert_eq!(self.count(what).await, 0, "{what}");
        }
    }
}

struct Told {
    code: Option<i32>,
    text: String,
    words: String,
}

impl Told {
    fn has(&self, mark: &str, words: &str) {
        let found = self.text.lines().any(|line| line.starts_with(mark) && line.contains(words));
        assert!(found, "no line {mark} with {words:?} in\n{}\n{}", self.text, self.words);
    }

    fn ends(&self, code: i32, sum: &str) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.text, self.words);
        assert!(self.text.lines().last().unwrap_or_default().contains(sum), "{sum}\n{}", self.text);
    }
}

/// A webhook that shows at once what it has, and says so.
fn quick(receiver: &Webhook, extra: &str) -> String {
    webhook("erp", receiver, extra, "")
        .replace("lag = \"10s\"", "lag = \"2s\"")
        .replace("[look_up]\n", "[webhook.reply]\nprovider_id = \"/id\"\n[look_up]\n")
}

/// Its look-up is this program instead.
fn asked_by(receiver: &Webhook, dir: &tempfile::TempDir, script: &str) -> String {
    let program = dir.path().join("look-up");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!(
        r#"{}
[look_up]
kind = "command"
lag = "1s"
horizon = "72h"
[look_up.command]
program = "{}"
arguments = ["{{nonce}}", "{{key}}"]
account = "acme"
shows_key = true
within = "10s"
"#,
        mute_webhook("erp", receiver, ""),
        program.display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_installation_without_a_daemon_is_proven_and_nothing_is_left_behind() {
    let receiver = Webhook::start().await.unwrap();
    let site = Site::new(&[quick(&receiver, "")]).await;
    let told = site.verify(&["--all"]);
    for words in [
        "the same call twice is one row: replayed, 1 row",
        "other content under the same call is a conflict: differs in /payload/settled_verify",
        "another call for the same effect makes no second one: already_requested",
        "a caller's rollback leaves nothing",
        "an intent is there with its caller's commit",
        "20 calls at once are one row: 1 accepted, 19 replayed",
        "history and states refuse",
        "a clean send: CANARY-",
        "by verify itself, as no daemon took it; its name there: EV",
        "one attempt for one send",
        "the look-up finds it: under its key",
        "a made-up name is not found",
        "the account that is asked is ours",
        "is sent, by asking",
        "exactly one effect: 1 of CANARY-",
        "no attempt that is not ours: attempt 1 was seen there, and 1 were made",
        "client retries: none",
    ] {
        told.has("ok", words);
    }
    let (mark, words) = if site.keeps().await { ("ok", "on disk") } else { ("warn", "on disk: not here") };
    told.has(mark, words);
    told.ends(0, &format!("failed=0 not_verified={}", 2 + usize::from(!site.keeps().await)));
    assert!(told.words.contains("2 canaries, one of them with its reply thrown away"), "{}", told.words);
    let effects = receiver.effects().all();
    assert_eq!(effects.len(), 2);
    assert_ne!(effects[0].key, effects[1].key);
    assert!(effects.iter().all(|e| e.attempt == Some(1) && e.reference.starts_with("CANARY-")));
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_daemon_sends_the_clean_one_and_the_api_refuses_a_producer_that_decides() {
    let receiver = Webhook::start().await.unwrap();
    let site = Site::new(&[quick(&receiver, "")]).await;
    let daemon = site.serve().await;
    let made = site.run(&["tokens", "create", "producer", "bot", "--tenant", "acme"]);
    let token = site.dir.path().join("token");
    std::fs::write(&token, out(&made).trim()).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o400)).unwrap();
    let url = format!("http://{}", daemon.address);
    let told = site.verify(&["--destination", "erp", "--url", &url, "--token-file", token.to_str().unwrap()]);
    told.has("ok", "was sent by a running daemon");
    told.has("ok", "is sent, by asking");
    told.has("ok", "a producer's token cannot decide: the API answered its try with 403");
    told.ends(0, &format!("failed=0 not_verified={}", 1 + usize::from(!site.keeps().await)));
    assert_eq!(receiver.effects().all().len(), 2);
    daemon.stop().await;
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downstream_that_keeps_keys_refuses_the_repeat_and_one_that_does_not_is_named() {
    let receiver = Webhook::start().await.unwrap();
    let replay = "replay = { key_lifetime = \"24h\" }";
    let site = Site::new(&[quick(&receiver, replay)]).await;
    receiver.keep_keys(true);
    let told = site.verify(&["--all"]);
    told.has("ok", "is sent, by repeating it under its key");
    told.has("ok", "the same bytes under the same key were answered 200, marked as a replay");
    told.ends(0, "failed=0");
    site.nothing_is_left().await;
    receiver.keep_keys(false);
    let told = site.verify(&["--all"]);
    told.has("FAIL", "exactly one effect: 2 of CANARY-");
    told.ends(1, "failed=1");
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_makes_two_effects_of_one_call_is_found() {
    let receiver = Webhook::start().await.unwrap();
    let proxy = Doubling::before(receiver.door().address()).await;
    let hook = format!("http://{}/hook", proxy.address);
    let site = Site::new(&[quick(&receiver, "").replace(&receiver.hook_url(), &hook)]).await;
    let told = site.verify(&["--all"]);
    told.has("FAIL", "exactly one effect: 2 of CANARY-");
    told.has("FAIL", "is marked duplicate_found");
    assert_eq!(told.code, Some(1), "{}", told.text);
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_that_finds_everything_proves_nothing() {
    let (receiver, dir) = (Webhook::start().await.unwrap(), tempfile::tempdir().unwrap());
    let yes = "#!/bin/sh\nread q\necho \"settled-look-up $1 $2 account name=acme\"\necho \"settled-look-up $1 $2 found id=m-1 key=$2\"\n";
    let site = Site::new(&[asked_by(&receiver, &dir, yes)]).await;
    let told = site.verify(&["--all"]);
    told.has("FAIL", "a made-up name is not found: it found m-1");
    told.has("warn", "a lost reply: not tried, since the look-up cannot tell");
    told.ends(1, "failed=1");
    assert_eq!(receiver.effects().all().len(), 1);
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_that_finds_nothing_is_named_and_no_doubt_is_made_on_top() {
    let (receiver, dir) = (Webhook::start().await.unwrap(), tempfile::tempdir().unwrap());
    let no = "#!/bin/sh\nread q\necho \"settled-look-up $1 $2 account name=acme\"\necho \"settled-look-up $1 $2 absent\"\nexit 44\n";
    let site = Site::new(&[asked_by(&receiver, &dir, no)]).await;
    let told = site.run(&["verify", "--yes", "--wait", "3s", "--all"]);
    assert!(out(&told).contains("the look-up finds it: not within"), "{}", out(&told));
    assert_eq!(told.status.code(), Some(1), "{}", out(&told));
    assert_eq!(receiver.effects().all().len(), 1);
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lag_that_is_declared_too_short_is_named_and_the_doubt_is_ended_all_the_same() {
    let receiver = Webhook::start().await.unwrap();
    receiver.effects().set_lag(Duration::from_secs(4));
    let site = Site::new(&[quick(&receiver, "")]).await;
    let told = site.verify(&["--all"]);
    told.has("FAIL", "and the declared lag is 2s: absence would be believed too early");
    told.has("ok", "is sent, by asking");
    told.ends(1, "failed=1");
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_seen_is_said() {
    let receiver = Webhook::start().await.unwrap();
    let site = Site::new(&[mute_webhook("erp", &receiver, "in_doubt = \"person\"")]).await;
    let told = site.verify(&["--all"]);
    told.has("ok", "a clean send: CANARY-");
    told.has(
        "warn",
        "whether it arrives twice cannot be seen: it keeps no keys and cannot be asked; in doubt: a person decides",
    );
    told.ends(0, "failed=0");
    assert_eq!(receiver.effects().all().len(), 1);
    site.change("insert into settled.pauses (scope, name, reason, paused_by) values ('destination', 'erp', 'x', 'y')")
        .await;
    site.verify(&["--all"]).has("warn", "not verified: it is parked or paused");
    assert_eq!(receiver.effects().all().len(), 1);
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_whose_guards_are_gone_is_named() {
    let receiver = Webhook::start().await.unwrap();
    let site = Site::new(&[mute_webhook("erp", &receiver, "in_doubt = \"person\"")]).await;
    site.change(
        "drop trigger append_only on settled.requests; drop trigger legal_moves on settled.intents; \
         drop trigger evidence_is_kept on settled.attempts",
    )
    .await;
    let told = site.verify(&["--ledger-only"]);
    for words in [
        "update of a request changed 1 rows",
        "delete of a request changed 1 rows",
        "update of an attempt that has ended changed 1 rows",
        "delete of an attempt that has ended changed 1 rows",
        "a move from cancelled to in flight changed 1 rows",
    ] {
        told.has("FAIL", words);
    }
    told.ends(1, "failed=5");
    assert!(receiver.effects().all().is_empty(), "the ledger alone sends nothing");
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_that_may_more_than_ask_are_named() {
    let receiver = Webhook::start().await.unwrap();
    let site = Site::new(&[mute_webhook("erp", &receiver, "in_doubt = \"person\"")]).await;
    let role = format!("verify_{}", uuid::Uuid::new_v4().simple());
    site.change(&format!("create role {role} login; select settled.grant_producer('{role}', 'acme')")).await;
    site.verify(&["--ledger-only"]).has("ok", "none of 1 roles can read or write a table, or decide, in Postgres");
    site.change(&format!("grant update on settled.intents to {role}")).await;
    site.verify(&["--ledger-only"])
        .has("FAIL", &format!("role {role} may do more than ask: update on settled.intents"));
    site.change("insert into settled.producers (role, tenant) values (session_user, 'acme')").await;
    let told = site.verify(&["--ledger-only"]);
    told.has("FAIL", "is the owner of the ledger or a member of it");
    told.ends(1, "failed=2");
    site.change(&format!(
        "revoke all on settled.intents from {role}; select settled.revoke_producer('{role}', 'acme'); drop role {role}"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_without_the_operators_word() {
    let receiver = Webhook::start().await.unwrap();
    let extra = "if_twice = \"A second order.\"";
    let site = Site::new(&[quick(&receiver, extra)]).await;
    let asked = site.run(&["verify", "--all"]);
    assert_eq!(asked.status.code(), Some(2), "{}", err(&asked));
    let words = err(&asked);
    assert!(words.contains("erp (webhook): 2 canaries") && words.contains("if twice: A second order."), "{words}");
    assert!(words.contains("--yes agrees"), "{words}");
    assert!(out(&asked).is_empty() && receiver.effects().all().is_empty());
    assert_eq!((site.count("intents").await, site.count("workers").await), (0, 0));
    assert_eq!(site.run(&["verify"]).status.code(), Some(2), "what is sent is named");
    assert_eq!(site.run(&["verify", "--yes", "--destination", "epr"]).status.code(), Some(3));
    let reserved = site.run(&["producers", "grant", "postgres", "--tenant", "settled-canary", "--destination", "erp"]);
    assert_ne!(reserved.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_another_installation_gets_no_canary() {
    let receiver = Webhook::start().await.unwrap();
    let site = Site::new(&[quick(&receiver, "")]).await;
    site.change("update settled.instance set name = 'another'").await;
    let told = site.verify(&["--all"]);
    assert_eq!(told.code, Some(1), "{}", told.text);
    assert!(told.words.contains("belongs to instance another"), "{}", told.words);
    assert_eq!(site.count("intents").await, 0);
    assert!(receiver.effects().all().is_empty());
}
