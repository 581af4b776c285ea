//! `settled.toml`: what is refused, and how the refusal reads.

use std::{path::Path, time::Duration};

use settled::config::{
    ConfigError, check,
    load::{parse, parse_text},
    retention::Windows,
    rules,
    settings::Settings,
};

const LEAST: &str = r#"
[instance]
name = "test"
region = "eu"
[database]
url = "postgres://localhost/x"
[keys]
active = "k1"
secrets = [{ kid = "k1", env = "SETTLED_TEST_KEY" }]
[retention]
keys_days = 180
callers_replay_horizon = "30d"
longest_retry_horizon = "7d"
"#;

const WEBHOOK: &str = r#"
[[destinations]]
name = "hooks"
channel = "webhook"
webhook = { url = "https://example.test/" }
"#;

const COUNTER: &str = r#"
[destinations.compensate]
destination = "refunds"
reference = "REFUND-{reference}"
payload = { undo = "{reference}" }
reason = "asks for the money back"
"#;

fn read(text: &str, environment: &[(&str, &str)]) -> Result<Settings, Vec<ConfigError>> {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let settings = parse_text("settled.toml", text, environment).map_err(|errors| errors.0)?;
    let broken = rules::broken(&settings, "settled.toml");
    if broken.is_empty() { Ok(settings) } else { Err(broken) }
}

#[test]
fn the_example_file_is_read_and_keeps_every_rule() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/settled.example.toml");
    let settings = parse(&path, std::iter::empty()).unwrap();
    assert_eq!(rules::broken(&settings, "example"), []);
    let channels: Vec<&str> = settings.destinations.iter().map(|d| d.channel.as_str()).collect();
    assert_eq!(channels, ["webhook", "smtp", "webhook", "sms", "webhook", "webhook"]);
}

#[test]
fn a_counter_action_through_another_destination_is_told_in_words() {
    let refunds = WEBHOOK.replace("hooks", "refunds") + "in_doubt = \"person\"\n";
    let text = format!("{LEAST}{WEBHOOK}in_doubt = \"compensate\"\n{COUNTER}{refunds}");
    let settings = read(&text, &[]).unwrap();
    let told = check::doubt_in_words(&settings.destinations[0]);
    assert_eq!(told, "a person decides, and may agree to the counter-action through refunds: asks for the money back");
}

/// Points every reference to a secret, and the file of roots, to files that are there.
fn with_secrets_there(value: &mut serde_json::Value, file: &Path) {
    if let Some(object) = value.as_object_mut()
        && object.len() == 1
        && (object.contains_key("file") || object.contains_key("env"))
    {
        *value = serde_json::json!({ "file": file });
        return;
    }
    match value {
        serde_json::Value::Object(object) => object.values_mut().for_each(|v| with_secrets_there(v, file)),
        serde_json::Value::Array(items) => items.iter_mut().for_each(|v| with_secrets_there(v, file)),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => {}
    }
}

#[test]
fn the_adapters_take_every_section_of_the_example_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/settled.example.toml");
    let settings = parse(&path, std::iter::empty()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "raw:0123456789abcdef0123456789abcdef").unwrap();
    for mut destination in settings.destinations {
        let look_up = destination.look_up.as_mut();
        let asked = look_up.map_or([None, None, None], |l| [l.http.as_mut(), l.imap.as_mut(), l.command.as_mut()]);
        let sent = [destination.webhook.as_mut(), destination.smtp.as_mut(), destination.sms.as_mut()];
        let sections = sent.into_iter().chain(asked);
        for section in sections.flatten() {
            with_secrets_there(section, &secret);
        }
        destination.ca_file = None;
        let name = destination.name.clone();
        settled::channels::registry::build(&destination).unwrap_or_else(|e| panic!("{name}: {e}"));
        settled::look_up::registry::build(&destination).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn every_refusal_names_file_key_and_rule() {
    let with = |destination: &str| format!("{LEAST}{destination}");
    let look_up = "[destinations.look_up]\nkind = \"imap\"\nhorizon = \"72h\"\nimap = {}\n";
    let table: Vec<(String, &str, &str)> = vec![
        (LEAST.replace("region", "regoin"), "instance.regoin", "unknown field `regoin`"),
        (format!("extra = 1\n{LEAST}"), "extra", "unknown field `extra`"),
        (LEAST.replace("\"eu\"", "\"\""), "instance.region", "must be 1 to 63 characters"),
        (LEAST.replace("active = \"k1\"", "active = \"k2\""), "keys.active", "must be the kid of one of keys.secrets"),
        (LEAST.replace(", env = \"SETTLED_TEST_KEY\"", ""), "keys.secrets[0]", "exactly one of file and env"),
        (LEAST.replace("url = ", "url_file = \"/x\"\nurl = "), "database.url", "exactly one of url and url_file"),
        (
            format!("{LEAST}[dispatcher]\npoll_min = \"2s\"\n"),
            "dispatcher.poll_max",
            "must not be shorter than poll_min",
        ),
        (format!("{LEAST}[dispatcher]\npoll_min = \"soon\"\n"), "dispatcher.poll_min", "expected"),
        (with(WEBHOOK), "destinations[0].in_doubt", "is required where there is neither replay nor look_up"),
        (with(&format!("{WEBHOOK}in_doubt = \"ask\"\n")), "destinations[0].in_doubt", "there is nothing to ask"),
        (with(&format!("{WEBHOOK}in_doubt = \"harmless\"\n")), "destinations[0].reason", "harmless needs a reason"),
        (with(&format!("{WEBHOOK}in_doubt = \"compensate\"\n")), "destinations[0].in_doubt", "counter-action"),
        (with(&format!("{WEBHOOK}{look_up}")), "destinations[0].look_up", "lag has no default"),
        (
            with(&format!("{WEBHOOK}{look_up}lag = \"0s\"\n")),
            "destinations[0].look_up.lag",
            "nothing could be sent on it",
        ),
        (
            with(&format!("{WEBHOOK}{look_up}lag = \"71h59m\"\n")),
            "destinations[0].look_up.horizon",
            "must be longer than lease + lag + spacing",
        ),
        (
            with(&format!("{WEBHOOK}in_doubt = \"person\"\nsmtp = {{}}\n")),
            "destinations[0].smtp",
            "does not belong to channel = \"webhook\"",
        ),
        (
            with(&format!("{WEBHOOK}in_doubt = \"person\"\n{WEBHOOK}in_doubt = \"person\"\n")),
            "destinations[1].name",
            "must be unique",
        ),
        (
            with(&format!("{WEBHOOK}in_doubt = \"person\"\n[destinations.limits]\nlease_margin = \"0s\"\n")),
            "destinations[0].limits.lease_margin",
            "the lease must outlast the worst send time",
        ),
        (
            with(&format!("{WEBHOOK}in_doubt = \"person\"\n[destinations.limits]\nconcurency = 3\n")),
            "destinations[0].limits.concurency",
            "unknown field `concurency`",
        ),
    ];
    for (text, key, rule) in table {
        let errors = read(&text, &[]).expect_err(&format!("{key}: {rule}"));
        assert!(
            errors.iter().any(|e| e.file == "settled.toml" && e.key == key && e.rule.contains(rule)),
            "{key}: {rule}\n{errors:#?}"
        );
    }
}

#[test]
fn a_counter_action_that_cannot_be_taken_is_refused() {
    for (text, key, rule) in [
        (
            format!("{WEBHOOK}in_doubt = \"person\"\n{COUNTER}"),
            "destinations[0].compensate",
            "only where in_doubt = \"compensate\"",
        ),
        (
            format!("{WEBHOOK}in_doubt = \"compensate\"\n{COUNTER}"),
            "destinations[0].compensate.destination",
            "must be the name of another destination",
        ),
        (
            format!("{WEBHOOK}in_doubt = \"compensate\"\n{COUNTER}").replace("-{reference}", ""),
            "destinations[0].compensate.reference",
            "must contain {reference}",
        ),
    ] {
        let errors = read(&format!("{LEAST}{text}"), &[]).unwrap_err();
        assert!(errors.iter().any(|e| e.key == key && e.rule.contains(rule)), "{key}: {rule}\n{errors:#?}");
    }
}

#[test]
fn a_syntax_error_names_the_line() {
    let errors = read("[instance\n", &[]).unwrap_err();
    assert!(errors[0].rule.contains("line 1"), "{errors:?}");
}

#[test]
fn all_broken_rules_are_listed_at_once() {
    let text = format!("{LEAST}{WEBHOOK}[dispatcher]\nbatch = 0\n");
    assert_eq!(read(&text, &[]).unwrap_err().len(), 2);
}

#[test]
fn the_environment_overrides_a_key_and_an_element_of_an_array() {
    let text = format!("{LEAST}{WEBHOOK}in_doubt = \"person\"\n");
    let settings = read(
        &text,
        &[
            ("SETTLED__RETENTION__KEYS_DAYS", "365"),
            ("SETTLED__RETENTION__LONGEST_RETRY_HORIZON", "2d"),
            ("SETTLED__DESTINATIONS__0__WEBHOOK__URL", "https://other.test/"),
            ("SETTLED__DESTINATIONS_REVISION", "7"),
            ("SETTLED__INSTANCE__NAME", "\"42\""),
            // Kubernetes makes this one for a service of that name; it is none of ours.
            ("SETTLED_PORT", "tcp://10.0.0.1:80"),
        ],
    )
    .unwrap();
    assert_eq!(settings.retention.keys_days, 365);
    assert_eq!(settings.retention.longest_retry_horizon, Duration::from_secs(2 * 86_400));
    assert_eq!(settings.destinations[0].webhook.as_ref().unwrap()["url"], "https://other.test/");
    assert_eq!(settings.destinations_revision, 7);
    assert_eq!(settings.instance.name, "42");
}

#[test]
fn an_override_that_names_nothing_is_refused() {
    for (name, key) in [
        ("SETTLED__RETENTION__KEY_DAYS", "retention.key_days"),
        ("SETTLED__RETENTION__", "retention."),
        ("SETTLED__INSTANCE__NAME__MORE", "instance.name.more"),
        ("SETTLED__KEYS__SECRETS__7__KID", "keys.secrets.7.kid"),
    ] {
        let errors = read(LEAST, &[(name, "1")]).unwrap_err();
        assert_eq!(errors[0].key, key, "{errors:?}");
    }
}

#[test]
fn keys_of_24_hours_under_a_replay_horizon_of_72_hours_are_refused_with_the_gap_of_48_hours() {
    let text =
        LEAST.replace("keys_days = 180", "keys_days = 1\npayload_days = 1").replace("30d", "72h").replace("7d", "0s");
    let errors = read(&text, &[]).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].key, "retention.keys_days");
    assert!(errors[0].rule.ends_with("the gap is 48 h"), "{}", errors[0].rule);
    assert!(errors[0].rule.contains("keys are kept 24 h; needed 72 h"), "{}", errors[0].rule);
}

#[test]
fn the_look_back_is_the_longest_time_in_which_anything_is_asked() {
    let asked = "[destinations.replay]\nkey_lifetime = \"90d\"\n[destinations.look_up]\nkind = \"imap\"\nlag = \"1m\"\n\
                 horizon = \"72h\"\nimap = {}\n";
    let settings = parse_text("x", &format!("{LEAST}{WEBHOOK}{asked}"), std::iter::empty()).unwrap();
    let windows = Windows::of(&settings);
    assert_eq!(windows.look_back, Duration::from_secs(90 * 86_400));
    assert_eq!(windows.needed(), Duration::from_secs((7 + 90 + 30) * 86_400));
}

#[test]
fn check_prints_lease_attempts_and_who_repeats_for_every_destination() {
    let text = format!("{LEAST}{WEBHOOK}in_doubt = \"at_most_once\"\n");
    let settings = parse_text("x", &text, std::iter::empty()).unwrap();
    let report = check::run(&settings, "x", &|_| Vec::new());
    let lines: Vec<&str> =
        report.lines.iter().filter(|l| l.subject == "destination hooks").map(|l| l.text.as_str()).collect();
    assert!(lines[0].contains("worst send 1m 50s, lease 2m; attempts 5"), "{lines:?}");
    assert!(lines[0].ends_with("client retries: none"), "{lines:?}");
    assert_eq!(lines[1], "in doubt: closed as perhaps sent, counted, never sent again");
}

#[test]
fn check_warns_of_proofs_that_go_stale_before_the_dispatcher_looks() {
    let warned = |lag: &str, poll: &str| {
        let look_up =
            format!("[destinations.look_up]\nkind = \"imap\"\nhorizon = \"72h\"\nimap = {{}}\nlag = \"{lag}\"\n");
        let text = format!("{LEAST}[dispatcher]\npoll_max = \"{poll}\"\n{WEBHOOK}{look_up}");
        let settings = read(&text, &[]).unwrap();
        let report = check::run(&settings, "x", &|_| Vec::new());
        report.lines.iter().any(|l| l.level == check::Level::Warning && l.text.contains("most go stale"))
    };
    assert!(warned("1s", "800ms"), "usable for 750 ms");
    assert!(!warned("1s", "500ms"));
    assert!(!warned("1h", "10s"));
}

#[test]
fn a_missing_active_secret_fails_and_a_missing_old_one_warns() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (new, loose) = (dir.path().join("new"), dir.path().join("loose"));
    for (path, mode) in [(&new, 0o400), (&loose, 0o644)] {
        std::fs::write(path, "0123456789abcdef0123456789abcdef\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let with = |new: &Path, old: &Path| {
        let keys = format!(
            "active = \"new\"\nsecrets = [{{ kid = \"new\", file = {new:?} }}, {{ kid = \"old\", file = {old:?} }}]\n"
        );
        let start = LEAST.find("active").unwrap();
        let end = LEAST.find("[retention]").unwrap();
        let text = format!("{}{keys}{}", &LEAST[..start], &LEAST[end..]);
        let settings = parse_text("x", &text, std::iter::empty()).unwrap();
        (check::run(&settings, "x", &|_| Vec::new()).worst(), settings.keys.load())
    };
    let (worst, loaded) = with(&new, &dir.path().join("gone"));
    assert_eq!(worst, check::Level::Warning);
    assert_eq!(loaded.unwrap().warnings.len(), 1);
    let (worst, loaded) = with(&dir.path().join("gone"), &new);
    assert_eq!(worst, check::Level::Failed);
    assert!(loaded.is_err());
    let (worst, _) = with(&loose, &new);
    assert_eq!(worst, check::Level::Failed, "a secret that everybody may read is no secret");
}

#[test]
fn a_short_secret_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short");
    std::fs::write(&path, "0123456789abcdef0123456789abcde\n").unwrap();
    let text = LEAST.replace("env = \"SETTLED_TEST_KEY\"", &format!("file = {path:?}"));
    let settings = parse_text("x", &text, std::iter::empty()).unwrap();
    let Err(error) = settings.keys.load() else { panic!("31 bytes were taken") };
    assert_eq!(error.to_string(), "keys.secrets `k1`: must be at least 32 bytes, it has 31");
}

#[test]
fn the_url_of_the_database_is_never_printed() {
    let text = LEAST.replace("postgres://localhost/x", "postgres://u:hunter2@localhost/x");
    let settings = parse_text("x", &text, std::iter::empty()).unwrap();
    assert!(!format!("{settings:?}").contains("hunter2"));
}
