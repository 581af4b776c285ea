//! The built binary: what it prints, and its exit codes.

use std::process::{Command, Output};

use crate::support::db::Database;

pub(super) fn settled(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settled"));
    command.args(arguments).env_remove("SETTLED_CONFIG").env_remove("SETTLED_DATABASE_URL");
    command.envs(environment.iter().copied());
    command.output().unwrap()
}

pub(super) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(super) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn in_database(db: &Database, arguments: &[&str]) -> Output {
    settled(arguments, &[("SETTLED_DATABASE_URL", &db.url)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_made_listed_and_revoked() {
    let db = Database::new().await;
    let made = in_database(&db, &["tokens", "create", "responder", "ada", "--expires-in", "90d"]);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    let token = out(&made).trim().to_owned();
    assert!(token.starts_with("stl_responder_"));
    assert!(err(&made).contains("shown only now"));
    let listed = out(&in_database(&db, &["tokens", "list", "--json"]));
    let row: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!(row["principal"], "ada");
    assert!(!listed.contains(token.rsplit('_').next().unwrap()));
    let id = row["id"].as_str().unwrap();
    assert_eq!(in_database(&db, &["tokens", "revoke", id]).status.code(), Some(0));
    assert_eq!(in_database(&db, &["tokens", "revoke", id]).status.code(), Some(3));
    let lacking = in_database(&db, &["tokens", "create", "producer", "bot"]);
    assert_eq!(lacking.status.code(), Some(65));
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_and_resume_name_one_scope_and_a_reason() {
    let at = Installed::new().await;
    assert_eq!(at.run(&["pause", "--all"]).status.code(), Some(2), "a reason is required");
    assert_eq!(at.run(&["pause", "--reason", "x"]).status.code(), Some(2), "a scope is required");
    let paused = at.run(&["pause", "--destination", "hooks", "--reason", "maintenance"]);
    assert_eq!(out(&paused), "destination hooks paused\n");
    assert_eq!(
        out(&at.run(&["pause", "--destination", "hooks", "--reason", "again"])),
        "destination hooks was paused already; the first reason stays\n"
    );
    assert_eq!(out(&at.run(&["resume", "--destination", "hooks"])), "destination hooks resumed\n");
    assert_eq!(at.run(&["resume", "--destination", "hooks"]).status.code(), Some(3));
    let mistyped = at.run(&["pause", "--destination", "hoks", "--reason", "maintenance"]);
    assert_eq!(mistyped.status.code(), Some(3), "whoever mistypes a name must not believe that it is paused");
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_is_harmless_when_three_run_it_at_once() {
    let db = Database::new().await;
    sqlx::query("drop schema settled cascade").execute(&db.pool).await.unwrap();
    sqlx::query("drop table _sqlx_migrations").execute(&db.pool).await.unwrap();
    let runs: Vec<_> = (0..3)
        .map(|_| {
            let url = db.url.clone();
            std::thread::spawn(move || settled(&["migrate", "--json"], &[("SETTLED_DATABASE_URL", &url)]))
        })
        .collect();
    for run in runs {
        let output = run.join().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(out(&output).starts_with("{\"schema_version\":"));
    }
}

#[test]
fn an_unreachable_database_is_69_and_a_wrong_configuration_78() {
    let away = settled(&["tokens", "list"], &[("SETTLED_DATABASE_URL", "postgres://127.0.0.1:1/x")]);
    assert_eq!(away.status.code(), Some(69), "{}", err(&away));
    assert!(out(&away).is_empty());
    let missing = settled(&["tokens", "list", "--config", "/nonexistent/settled.toml"], &[]);
    assert_eq!(missing.status.code(), Some(78));
    assert!(err(&missing).contains("/nonexistent/settled.toml"), "{}", err(&missing));
}

#[test]
fn check_fails_on_an_unknown_key_and_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("settled.toml");
    std::fs::write(&path, "[instance]\nname = \"a\"\nregoin = \"eu\"\n").unwrap();
    let checked = settled(&["check", "--config", path.to_str().unwrap()], &[]);
    assert_eq!(checked.status.code(), Some(78));
    assert!(out(&checked).contains("instance.regoin"), "{}", out(&checked));
    assert!(out(&checked).contains("unknown field"), "{}", out(&checked));
}

const HOOKS: &str = r#"
destinations_revision = REVISION
[instance]
name = "test"
region = "eu"
[database]
url = "URL"
[keys]
active = "k1"
secrets = [{ kid = "k1", file = "SECRET" }]
[[destinations]]
name = "hooks"
channel = "webhook"
in_doubt = "person"
webhook = { url = "https://TARGET/" }
"#;

/// A database with one published destination that tenant acme may use, and its configuration.
pub(super) struct Installed {
    pub(super) db: Database,
    dir: tempfile::TempDir,
}

impl Installed {
    pub(super) async fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let this = Self { db: Database::new().await, dir: tempfile::tempdir().unwrap() };
        let secret = this.dir.path().join("key");
        std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o400)).unwrap();
        this.write(1, "hooks.test");
        assert!(out(&this.run(&["destinations", "publish"])).contains("new"));
        sqlx::query("insert into settled.grants (tenant, destination) values ('acme', 'hooks')")
            .execute(&this.db.pool)
            .await
            .unwrap();
        this
    }

    fn write(&self, revision: i64, target: &str) {
        let secret = self.dir.path().join("key");
        let text = HOOKS
            .replace("REVISION", &revision.to_string())
            .replace("URL", &self.db.url)
            .replace("SECRET", secret.to_str().unwrap())
            .replace("TARGET", target);
        std::fs::write(self.dir.path().join("settled.toml"), text).unwrap();
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        let config = self.dir.path().join("settled.toml");
        settled(arguments, &[("SETTLED_CONFIG", config.to_str().unwrap())])
    }

    fn enqueue(&self, payload: &str, run: &str, more: &[&str]) -> Output {
        let mut arguments =
            vec!["enqueue", "hooks", "INV-1", "--payload", payload, "--run-id", run, "--step", "1", "--tenant", "acme"];
        arguments.extend(more);
        self.run(&arguments)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_higher_revision_replaces_a_published_destination() {
    let at = Installed::new().await;
    assert!(out(&at.run(&["destinations", "publish"])).contains("unchanged"));
    at.write(1, "other.test");
    let same = at.run(&["destinations", "publish"]);
    assert_eq!(same.status.code(), Some(4), "{}", out(&same));
    assert!(out(&same).contains("raise the revision"), "{}", out(&same));
    at.write(2, "other.test");
    assert!(out(&at.run(&["destinations", "publish"])).contains("replaced"));
    at.write(1, "hooks.test");
    assert_eq!(at.run(&["destinations", "publish"]).status.code(), Some(4));
    let listed = out(&at.run(&["destinations", "list"]));
    for words in ["hooks  (webhook, revision 2", "in doubt: a person decides", "client retries: none"] {
        assert!(listed.contains(words), "{words}\n{listed}");
    }
    assert_eq!(at.run(&["destinations", "test", "hooks"]).status.code(), Some(3), "it cannot be asked");
    assert_eq!(at.run(&["destinations", "release", "hooks"]).status.code(), Some(7), "nothing was learned of it");
    assert_eq!(at.run(&["destinations", "release", "none"]).status.code(), Some(3));
    assert_eq!(at.run(&["check"]).status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_by_database_has_an_exit_code_for_every_verdict() {
    let at = Installed::new().await;
    let first = at.enqueue(r#"{"amount":1}"#, "run-1", &["--json"]);
    assert_eq!(first.status.code(), Some(0), "{}", err(&first));
    let receipt: serde_json::Value = serde_json::from_str(&out(&first)).unwrap();
    assert_eq!(receipt["verdict"], "accepted");
    let id = receipt["intent_id"].as_str().unwrap();
    assert!(out(&at.enqueue(r#"{"amount":1.0}"#, "run-1", &[])).starts_with("replayed"));
    assert!(out(&at.enqueue(r#"{"amount":1}"#, "run-2", &[])).starts_with("already requested"));
    let conflict = at.enqueue(r#"{"amount":2}"#, "run-1", &[]);
    assert_eq!(conflict.status.code(), Some(4));
    assert!(err(&conflict).contains("differs in: /payload/amount"), "{}", err(&conflict));
    assert!(err(&conflict).contains(id), "{}", err(&conflict));
    assert_eq!(at.enqueue("{", "run-1", &[]).status.code(), Some(65));
    let withdrawn = at.run(&["cancel", id, "--reason", "not needed"]);
    assert_eq!(out(&withdrawn), format!("intent {id} is cancelled\n"), "{}", err(&withdrawn));
    let actors: Vec<String> = sqlx::query_scalar(
        "select distinct actor from settled.journal where data ->> 'act' = 'cancel' or data ->> 'to' = 'cancelled'",
    )
    .fetch_all(&at.db.pool)
    .await
    .unwrap();
    assert!(actors.len() == 1 && actors[0].starts_with("operator:"), "a person of the house, no producer: {actors:?}");
    let unserved = out(&at.run(&["list", "--unserved", "--json"]));
    assert_eq!(unserved.lines().count(), 2, "both calls: {unserved}");
    assert_eq!(at.enqueue(r#"{"amount":1}"#, "run-1", &[]).status.code(), Some(5));
    let listed = out(&at.run(&["list", "--reference", "inv-1", "--json"]));
    assert_eq!(serde_json::from_str::<serde_json::Value>(listed.trim()).unwrap()["state"], "cancelled");
    assert_eq!(at.run(&["show", "INV-404"]).status.code(), Some(3));
    let (principal, surface): (String, String) =
        sqlx::query_as("select principal, surface from settled.requests limit 1").fetch_one(&at.db.pool).await.unwrap();
    assert!(principal.starts_with("operator:"), "{principal}");
    assert_eq!(surface, "cli");
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_over_http_says_the_same_as_by_database() {
    use std::sync::Arc;

    use settled::store::tokens::Kind;

    use super::http_support::Api;

    let api = Arc::new(Api::new().await);
    api.destination("hooks", &["acme"]).await;
    let token = api.token(Kind::Producer, Some("acme")).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let shutdown = api.state.shutdown.clone();
    let server = tokio::spawn(settled::api::serve(listener, api.state.clone(), shutdown.clone()));
    let enqueue = move |payload: &str, key: &str| {
        let arguments = [
            "enqueue",
            "hooks",
            "INV-1",
            "--payload",
            payload,
            "--idempotency-key",
            key,
            "--url",
            &url,
            "--token-file",
        ];
        let mut arguments = arguments.to_vec();
        arguments.push(file.to_str().unwrap());
        settled(&arguments, &[])
    };
    let run = move || {
        [
            enqueue(r#"{"amount":1}"#, "order-1"),
            enqueue(r#"{"amount":1}"#, "order-1"),
            enqueue(r#"{"amount":1}"#, "order-2"),
            enqueue(r#"{"amount":2}"#, "order-2"),
        ]
    };
    let [first, again, elsewhere, other] = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(out(&first).starts_with("accepted"), "{}", err(&first));
    assert!(out(&again).starts_with("replayed"), "{}", err(&again));
    assert!(out(&elsewhere).starts_with("already requested"), "{}", err(&elsewhere));
    assert_eq!(other.status.code(), Some(4));
    assert!(err(&other).contains("differs in: /payload/amount"), "{}", err(&other));
    shutdown.begin();
    tokio::time::timeout(std::time::Duration::from_secs(10), server).await.expect("it stops").unwrap().unwrap();
}

const LOOK_UP: &str = r#"
[destinations.look_up]
kind = "http"
lag = "1s"
horizon = "72h"
[destinations.look_up.http]
per = "key"
url = "http://TARGET/orders"
query = { key = "{key}" }
pages = { full_page = 100 }
answer = { items = "/orders", key_at = "/key", id_at = "/id" }
account = { url = "http://TARGET/me", expect = { "/account" = "acme" } }
"#;

/// A downstream that has one order, and answers like one that ignores the query when it is broken.
async fn downstream(broken: bool) -> std::net::SocketAddr {
    use axum::{Json, Router, extract::RawQuery, routing::get};
    use serde_json::json;
    let orders = move |RawQuery(query): RawQuery| async move {
        let known = query.is_some_and(|q| q.contains(&"a".repeat(32)));
        let order = json!({ "id": "o-1", "key": "a".repeat(32) });
        Json(json!({ "orders": if known && !broken { vec![order] } else { vec![] } }))
    };
    let app =
        Router::new().route("/orders", get(orders)).route("/me", get(|| async { Json(json!({ "account": "acme" })) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn destinations_test_asks_a_known_and_an_impossible_question() {
    let at = Installed::new().await;
    assert_eq!(at.enqueue("{}", "run-1", &[]).status.code(), Some(0));
    for (revision, broken, code) in [(2, false, 0), (3, true, 1)] {
        let address = downstream(broken).await.to_string();
        at.write(revision, "hooks.test");
        let path = at.dir.path().join("settled.toml");
        let config = std::fs::read_to_string(&path)
            .unwrap()
            .replace("in_doubt", "allow_addresses = [\"127.0.0.0/8\"]\nin_doubt");
        std::fs::write(&path, config + &LOOK_UP.replace("TARGET", &address)).unwrap();
        let published = at.run(&["destinations", "publish"]);
        assert!(out(&published).contains("replaced"), "{}{}", out(&published), err(&published));
        assert_eq!(
            at.run(&["destinations", "test", "hooks"]).status.code(),
            Some(3),
            "nothing is known to have arrived"
        );
        known_to_have_arrived(&at).await;
        let at_run = || at.run(&["destinations", "test", "hooks"]);
        let tested = tokio::task::block_in_place(at_run);
        assert_eq!(tested.status.code(), Some(code), "{}{}", out(&tested), err(&tested));
        let known = if broken { "FAIL  the known one is found" } else { "ok    the known one is found" };
        assert!(out(&tested).contains(known), "{}", out(&tested));
        assert!(out(&tested).contains("ok    the impossible one is not"), "{}", out(&tested));
        let sql = "select test_failed from settled.generations g join settled.destinations d using (generation)";
        let failed: Option<String> = sqlx::query_scalar(sql).fetch_one(&at.db.pool).await.unwrap();
        assert_eq!(failed.is_some(), broken, "the judge reads it: {failed:?}");
        let listed = out(&at.run(&["destinations", "list"]));
        let words = if broken { "self-test: failed (not so: the known one is found" } else { "self-test: passed" };
        assert!(listed.contains(words), "{listed}");
        assert!(listed.contains("in doubt: a person decides"), "{listed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_destination_is_sent_to_again_after_a_passed_test_only_where_that_was_asked_for() {
    let at = Installed::new().await;
    assert_eq!(at.enqueue("{}", "run-1", &[]).status.code(), Some(0));
    let address = downstream(false).await.to_string();
    at.write(2, "hooks.test");
    let path = at.dir.path().join("settled.toml");
    let config =
        std::fs::read_to_string(&path).unwrap().replace("in_doubt", "allow_addresses = [\"127.0.0.0/8\"]\nin_doubt");
    std::fs::write(&path, config + &LOOK_UP.replace("TARGET", &address)).unwrap();
    assert!(out(&at.run(&["destinations", "publish"])).contains("replaced"));
    known_to_have_arrived(&at).await;
    let mut conn = at.db.pool.acquire().await.unwrap();
    settled::store::generations::park(&mut conn, "hooks", "401 since noon").await.unwrap();
    let reason = settled::domain::reason::Reason::DestinationParked;
    settled::store::escalations::raise_destination(&mut conn, "hooks", reason, "hooks is parked").await.unwrap();
    let open = "select count(*) from settled.escalations where closed_at is null";

    let tested = tokio::task::block_in_place(|| at.run(&["destinations", "test", "hooks"]));
    assert_eq!(tested.status.code(), Some(0), "{}{}", out(&tested), err(&tested));
    assert!(out(&at.run(&["destinations", "list"])).contains("PARKED: 401 since noon"), "a test alone changes nothing");
    assert_eq!(sqlx::query_scalar::<_, i64>(open).fetch_one(&at.db.pool).await.unwrap(), 1);

    let tested = tokio::task::block_in_place(|| at.run(&["destinations", "test", "hooks", "--unpark"]));
    assert!(out(&tested).contains("it is sent to again"), "{}{}", out(&tested), err(&tested));
    assert!(!out(&at.run(&["destinations", "list"])).contains("PARKED"));
    assert_eq!(sqlx::query_scalar::<_, i64>(open).fetch_one(&at.db.pool).await.unwrap(), 0);
    let (actor, act): (String, String) = sqlx::query_as(
        "select actor, data ->> 'act' from settled.journal where kind = 'administration' order by id desc limit 1",
    )
    .fetch_one(&at.db.pool)
    .await
    .unwrap();
    assert!(actor.starts_with("operator:") && act == "unpark", "{actor} {act}");

    at.run(&["pause", "--all", "--reason", "stock-taking"]);
    assert!(out(&at.run(&["destinations", "list"])).contains("PAUSED: everything: stock-taking"));
}

/// A send of the generation in force that arrived an hour ago.
async fn known_to_have_arrived(at: &Installed) {
    sqlx::query(
        "insert into settled.witnesses (destination, generation, intent_id, started_at, ended_at, key, reference, occurrence, recipient)
         select d.name, d.generation, i.id, now() - interval '1 hour', now() - interval '1 hour', repeat('a', 32), 'inv-1', 1, ''
           from settled.destinations d, settled.intents i",
    )
    .execute(&at.db.pool)
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_are_granted_listed_and_revoked() {
    let at = Installed::new().await;
    let role = format!("cli_{}", uuid::Uuid::now_v7().simple());
    let sql = format!("create role {role} login");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&at.db.pool).await.unwrap();
    let grant = at.run(&["producers", "grant", &role, "--tenant", "beta", "--destination", "hooks"]);
    assert_eq!(out(&grant), format!("role {role} acts for tenant beta; granted: hooks\n"), "{}", err(&grant));

    let nobody = at.run(&["producers", "grant", "nobody_of_this_name", "--tenant", "beta", "--destination", "hooks"]);
    assert_eq!(nobody.status.code(), Some(3), "{}", err(&nobody));
    let nothing = at.run(&["producers", "grant", &role, "--tenant", "beta", "--destination", "hoks"]);
    assert_eq!(err(&nothing), "settled: destination hoks is not published\n");
    assert_eq!(nothing.status.code(), Some(3));

    // A producer's own connection: no principal, no surface, its own tenant only.
    let mut url = url::Url::parse(&at.db.url).unwrap();
    url.set_username(&role).unwrap();
    let own = [("SETTLED_DATABASE_URL", url.as_str())];
    let asked = ["enqueue", "hooks", "INV-9", "--payload", "{}", "--run-id", "r", "--step", "1"];
    let accepted = settled(&asked, &own);
    assert!(out(&accepted).starts_with("accepted"), "{}", err(&accepted));
    let mut foreign = asked.to_vec();
    foreign.extend(["--tenant", "acme"]);
    assert_eq!(settled(&foreign, &own).status.code(), Some(77));
    assert_eq!(settled(&["tokens", "list"], &own).status.code(), Some(77), "a producer reads no tokens");
    assert_eq!(settled(&["pause", "--all", "--reason", "x"], &own).status.code(), Some(77));

    assert!(out(&at.run(&["producers", "list"])).contains(&role));
    assert_eq!(at.run(&["producers", "revoke", &role, "--tenant", "beta"]).status.code(), Some(0));
    assert_eq!(at.run(&["producers", "revoke", &role, "--tenant", "beta"]).status.code(), Some(3));
    let sql = format!("drop owned by {role}; drop role {role}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&at.db.pool).await.unwrap();
}

/// Whoever writes into a story must not write on the terminal of whoever reads it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_a_story_commands_the_terminal() {
    let db = Database::new().await;
    for sql in [
        "insert into settled.destinations (name, channel, effect_scope, revision, generation, rules, definition)
         values ('hooks', 'webhook', 'hooks', 1, 'g1', '{}', '{}')",
        "insert into settled.grants (tenant, destination) values ('acme', 'hooks')",
        r#"select settled.enqueue('hooks', 'INV-1', '{}', 'r', 1, '{"tenant": "acme", "slot": "s\u009b31m\u202egpj",
            "instructed_by": {"\u001b[2Jname\nFAKE": "v\u001b[31m\r\nFAKE\u2066x"}}')"#,
        r#"insert into settled.journal (intent_id, kind, actor, data) select id, 'told', E'x\u001b]0;t\u0007\nFAKE',
            '{"\u001b[31mfield\nFAKE": {"deep": "\u009b31m\u202e\u007f"}}' from settled.intents"#,
        r#"insert into settled.escalations (id, subject, intent_id, destination, tenant, reason, cause, summary)
            select gen_random_uuid(), 'intent', id, 'hooks', 'acme', 'refused', 'c', E's\u001b[31m\nFAKE\u009b' from settled.intents"#,
        r"update settled.intents set provider_id = E'p\u001b[31m\nFAKE', detail = E'd\u001b[31m\nFAKE'",
    ] {
        sqlx::query(sql).execute(&db.pool).await.unwrap();
    }
    let odd = |c: char| {
        c != '\n' && c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c)
    };
    for arguments in [&["show", "INV-1"][..], &["show", "INV-1", "--json"], &["list"], &["show", "a\u{1b}[31m\u{9b}b"]]
    {
        let output = in_database(&db, arguments);
        let text = out(&output) + &err(&output);
        assert_eq!(text.chars().find(|c| odd(*c)), None, "{arguments:?}: {text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("FAKE")), "{arguments:?}: {text}");
    }
    // Escaped, not changed: the data is the data.
    let json: serde_json::Value = serde_json::from_str(&out(&in_database(&db, &["show", "INV-1", "--json"]))).unwrap();
    assert!(json.to_string().contains("s\u{9b}31m\u{202e}gpj"), "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_calls_is_enqueued_as_a_whole_or_line_by_line() {
    let at = Installed::new().await;
    let line = |n: i64, payload: &str| {
        format!(r#"{{"destination":"hooks","reference":"INV-{n}","payload":{payload},"run_id":"run","step":{n}}}"#)
    };
    let file = at.dir.path().join("calls.jsonl");
    let bulk = |lines: &[String], more: &[&str]| {
        std::fs::write(&file, lines.join("\n")).unwrap();
        let mut arguments = vec!["enqueue", "--bulk", file.to_str().unwrap(), "--tenant", "acme"];
        arguments.extend(more);
        at.run(&arguments)
    };
    let mut lines: Vec<String> = (0..1200).map(|n| line(n, r#"{"amount":1.0}"#)).collect();
    lines[1100] = line(1100, r#"{"body":"\u0000"}"#);
    let none = bulk(&lines, &[]);
    assert_eq!(none.status.code(), Some(65), "{}", err(&none));
    assert_eq!(err(&none), "settled: nothing was enqueued\nline 1101: /payload/body: must not contain U+0000\n");
    assert_eq!(count(&at).await, 0);
    let each = bulk(&lines, &["--per-item", "--json"]);
    assert_eq!(each.status.code(), Some(65), "the code of the first refused line");
    let told: Vec<serde_json::Value> = out(&each).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((told.len(), &told[1100]["line"]), (1200, &serde_json::json!(1101)));
    assert!(told[1100]["error"].as_str().unwrap().contains("U+0000") && told[1199]["verdict"] == "accepted");
    assert_eq!(count(&at).await, 1199);
    lines[1100] = line(1100, "{}");
    let again = bulk(&lines, &[]);
    assert_eq!(again.status.code(), Some(0), "{}", err(&again));
    assert!(
        out(&again).lines().nth(1).unwrap().contains("replayed") && out(&again).contains("accepted"),
        "{}",
        out(&again)
    );
    let conflict = bulk(&[line(1, r#"{"amount":2}"#)], &["--per-item"]);
    assert_eq!(conflict.status.code(), Some(4), "{}", out(&conflict));
    let wrong = bulk(&["{}".to_owned(), "x".to_owned()], &[]);
    assert_eq!(wrong.status.code(), Some(65));
    assert!(err(&wrong).contains("line 2: "), "{}", err(&wrong));
    assert_eq!(at.run(&["enqueue", "--bulk", "x", "hooks", "INV-1", "--payload", "{}"]).status.code(), Some(2));
    assert_eq!(at.run(&["enqueue", "hooks", "INV-1"]).status.code(), Some(2), "a payload is needed");
}

async fn count(at: &Installed) -> i64 {
    sqlx::query_scalar("select count(*) from settled.intents").fetch_one(&at.db.pool).await.unwrap()
}
