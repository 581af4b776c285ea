//! The look-up that runs a program: real scripts, honest and broken.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use settled::{
    config::destination::Destination,
    domain::question::{AccountSeen, Answer, Seen},
    look_up::{LookUp, command::Command},
};
use tempfile::TempDir;

use super::http::{ELDER, NOBODY, SUBJECT, YOUNGER, cannot_tell, full, hits, subject};

/// Looks into the file `ledger` beside it: key, reference, and id in every line.
const HONEST: &str = r#"#!/bin/sh
read question
nonce=$1 key=$2 reference=$3
echo "settled-look-up $nonce $key account name=$ACCOUNT"
seen=44
while read k r id; do
  if [ "$k" = "$key" ] || [ "$r" = "$reference" ]; then
    echo "settled-look-up $nonce $key found key=$k reference=$r id=$id"
    seen=0
  fi
done < "${0%/*}/ledger"
[ $seen = 44 ] && echo "settled-look-up $nonce $key absent"
exit $seen
"#;

struct Script {
    dir: TempDir,
    name: &'static str,
}

impl Script {
    fn new(name: &'static str, text: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir, name }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn destination(&self, more: Value) -> Destination {
        let mut section = json!({
            "program": self.at(self.name), "arguments": ["{nonce}", "{key}", "{reference}"],
            "environment": {"ACCOUNT": "acme"}, "account": "acme", "shows_key": true, "within": "20s",
        });
        section.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "name": "partner", "channel": "webhook", "webhook": {},
            "look_up": { "kind": "command", "lag": "10s", "horizon": "1d", "command": section },
        }))
        .unwrap()
    }

    fn look_up(&self, more: Value) -> Command {
        Command::build(&self.destination(more)).unwrap()
    }

    async fn ask(&self, more: Value) -> Answer {
        self.look_up(more).ask(&subject("inv-229")).await
    }

    /// What the script wrote down, as soon as it has.
    async fn written(&self, name: &str) -> String {
        let whole = async {
            loop {
                match fs::read_to_string(self.at(name)) {
                    Ok(text) if text.ends_with('\n') => return text,
                    Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), whole).await.expect("the script runs")
    }
}

/// Living processes of a group. What is dead but not yet buried by its parent counts as dead.
fn living(group: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // pid (name) state parent group …
        let Some((_, after)) = stat.rsplit_once(") ") else { continue };
        let words: Vec<&str> = after.split(' ').collect();
        if words[2] == group && words[0] != "Z" && words[0] != "X" {
            found.push(stat.clone());
        }
    }
    found
}

async fn all_dead(group: &str) {
    let dead = async {
        while !living(group).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), dead).await.unwrap_or_else(|_| panic!("{:?}", living(group)));
}

#[tokio::test]
async fn an_honest_program_answers_for_the_subject_and_its_controls() {
    let script = Script::new("honest", HONEST);
    fs::write(
        script.at("ledger"),
        format!("{ELDER} inv-100 m-1\n{YOUNGER} inv-300 m-3\n{NOBODY}0 inv-2291 m-4\n{NOBODY}1 inv-22 m-5\n"),
    )
    .unwrap();
    let look_up = script.look_up(json!({}));
    let answer = look_up.ask(&full()).await;
    assert_eq!(answer.seen[0], Seen::Nothing, "inv-2291 and inv-22 are not inv-229");
    assert_eq!(hits(&answer.seen[1])[0].id.as_deref(), Some("m-1"));
    assert_eq!(hits(&answer.seen[2])[0].key.as_deref(), Some(YOUNGER));
    assert_eq!(answer.seen[3], Seen::Nothing);
    assert_eq!(answer.account, AccountSeen::Matches { identity: "acme".to_owned() });
    assert_eq!((answer.pages, answer.digest.len(), answer.same_answer), (4, 64, false));
    assert!(answer.query.contains("\"NONCE\"") && answer.query.contains(SUBJECT), "{}", answer.query);

    fs::write(script.at("ledger"), format!("{SUBJECT} inv-229 m-1\n{NOBODY} inv-229 m-2\n")).unwrap();
    let answer = script.ask(json!({})).await;
    let keys: Vec<_> = hits(&answer.seen[0]).iter().map(|hit| hit.key.as_deref().unwrap()).collect();
    assert_eq!(keys, [SUBJECT, NOBODY], "also the same reference under another key");
    let answer = script.ask(json!({"account": "other"})).await;
    assert_eq!(answer.account, AccountSeen::Differs { seen: "acme".to_owned() });
    assert_eq!(script.ask(json!({"account": null})).await.account, AccountSeen::NotChecked);
}

#[tokio::test]
async fn the_spelling_that_travelled_is_what_a_program_is_asked_by() {
    let script = Script::new("spelled", "#!/bin/sh\nread question\necho \"$question $*\" > \"${0%/*}/said\"\n");
    let mut question = subject("inv-229");
    question.probes[0].spelled = Some("INV-229".to_owned());
    let answer = script.look_up(json!({})).ask(&question).await;
    cannot_tell(&answer.seen[0], "status 0 without a line");
    let said = script.written("said").await;
    let (question, arguments) = said.split_once("} ").unwrap();
    let question: Value = serde_json::from_str(&format!("{question}}}")).unwrap();
    assert_eq!((&question["reference"], &question["key"]), (&json!("INV-229"), &json!(SUBJECT)));
    assert_eq!(
        (&question["recipient"], &question["from"]),
        (&json!("+4915112345678"), &json!("2025-03-04T11:20:00+00:00"))
    );
    assert!(arguments.ends_with(&format!(" {SUBJECT} INV-229\n")), "{arguments}");
    assert_eq!(question["nonce"].as_str().unwrap(), arguments.split(' ').next().unwrap());
}

#[tokio::test]
async fn h12_what_every_broken_script_returns_proves_nothing() {
    for (name, text, words) in [
        ("false", "#!/bin/sh\nexit 1\n", "status 1 without a line"),
        ("rare", "#!/bin/sh\nexit 44\n", "status 44 without a line"),
        ("missing-tool", "#!/bin/sh\nset -e\n/nonexistent/tool\n", "status 127 without a line"),
        ("no-interpreter", "#!/nonexistent/python\n", "not started"),
        ("crash", "#!/bin/sh\necho \"settled-look-up $1 $2 absent\"\nkill -SEGV $$\n", "signal"),
        ("crash-after", "#!/bin/sh\necho \"settled-look-up $1 $2 absent\"\nexit 1\n", "must be 44"),
        ("no-nonce", "#!/bin/sh\necho \"settled-look-up $2 absent\"\nexit 44\n", "nonce"),
        (
            "old-nonce",
            "#!/bin/sh\necho \"settled-look-up 00000000000000000000000000000000 $2 absent\"\nexit 44\n",
            "nonce",
        ),
        (
            "other-key",
            "#!/bin/sh\necho \"settled-look-up $1 00000000000000000000000000000000 absent\"\nexit 44\n",
            "another key",
        ),
        ("echo", "#!/bin/sh\ncat 2>/dev/null\necho \"$@\"\nexit 44\n", "without a line"),
        ("near-miss", "#!/bin/sh\necho \"settled-look-up $1 $2 found key=x reference=inv-2291\"\n", "neither our key"),
        (
            "control",
            "#!/bin/sh\nprintf 'settled-look-up %s %s absent\\007\\n' \"$1\" \"$2\"\nexit 44\n",
            "control character",
        ),
        ("bytes", "#!/bin/sh\nprintf 'settled-look-up %s %s \\377\\376\\n' \"$1\" \"$2\"\nexit 44\n", "UTF-8"),
    ] {
        let script = Script::new(name, text);
        let answer = script.ask(json!({})).await;
        cannot_tell(&answer.seen[0], words);
    }
}

#[tokio::test]
async fn a_python_program_that_raises_is_no_answer_and_one_that_speaks_is() {
    let text = r#"#!/usr/bin/python3
import json, sys
question = json.loads(sys.stdin.readline())
if question["reference"] == "inv-229":
    raise RuntimeError("a bug")
print("settled-look-up", question["nonce"], question["key"], "absent")
sys.exit(44)
"#;
    let script = Script::new("ask.py", text);
    let look_up = script.look_up(json!({"arguments": []}));
    cannot_tell(&look_up.ask(&subject("inv-229")).await.seen[0], "status 1 without a line");
    assert_eq!(look_up.ask(&subject("inv-300")).await.seen, [Seen::Nothing]);
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_with_all_its_children() {
    let text = "#!/bin/sh\ntrap '' TERM HUP INT\nfor i in 1 2 3 4 5 6 7 8 9 10; do (trap '' TERM HUP; /bin/sleep 1000) & done\n\
                echo $$ > \"${0%/*}/group\"\nwait\n";
    let script = Script::new("hang", text);
    let answer = script.ask(json!({"within": "1s"})).await;
    cannot_tell(&answer.seen[0], "no end within 1s");
    all_dead(script.written("group").await.trim()).await;
}

#[tokio::test]
async fn a_child_that_keeps_the_output_open_holds_nobody_up() {
    let text = "#!/bin/sh\n/bin/sleep 1000 &\necho $$ > \"${0%/*}/group\"\necho \"settled-look-up $1 $2 found id=1\"\n";
    let script = Script::new("left-behind", text);
    let answer = script.ask(json!({})).await;
    assert_eq!(hits(&answer.seen[0])[0].id.as_deref(), Some("1"));
    all_dead(script.written("group").await.trim()).await;
}

#[tokio::test]
async fn what_leaves_the_group_with_the_output_makes_the_answer_none() {
    let text = r#"#!/usr/bin/python3
import os, sys, time
if os.fork() == 0:
    os.setsid()
    with open(os.path.join(os.path.dirname(sys.argv[0]), "group"), "w") as file:
        print(os.getpid(), file=file)
    time.sleep(1000)
while not os.path.exists(os.path.join(os.path.dirname(sys.argv[0]), "group")):
    time.sleep(0.01)
print("settled-look-up", sys.argv[1], sys.argv[2], "absent")
sys.exit(44)
"#;
    let script = Script::new("daemon.py", text);
    let answer = script.ask(json!({})).await;
    cannot_tell(&answer.seen[0], "holds its output open");
    // It is nobody's but ours to end.
    let pid: i32 = script.written("group").await.trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn output_without_end_is_cut_off_and_is_no_answer() {
    for (name, to) in [("loud", "1"), ("loud-errors", "2")] {
        let text = format!(
            "#!/bin/sh\necho $$ > \"${{0%/*}}/group\"\necho \"settled-look-up $1 $2 found id=1\"\nwhile :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy >&{to}; done\n"
        );
        let script = Script::new(name, &text);
        let answer = script.ask(json!({"output_bytes": 65536})).await;
        cannot_tell(&answer.seen[0], "more than 65536 bytes");
        all_dead(script.written("group").await.trim()).await;
    }
}

#[tokio::test]
async fn nothing_is_inherited_but_what_is_declared() {
    let text = "#!/bin/sh\nhere=${0%/*}\n/usr/bin/env > \"$here/environment\"\n\
                /usr/bin/tr '\\0' ' ' < /proc/$$/cmdline > \"$here/arguments\"\necho >> \"$here/arguments\"\npwd > \"$here/where\"\n";
    let script = Script::new("look", text);
    fs::write(script.at("secret"), "s3cret\n").unwrap();
    let answer = script.ask(json!({"environment": {"LEDGER": "main", "TOKEN": {"file": script.at("secret")}}})).await;
    cannot_tell(&answer.seen[0], "status 0");
    let environment = script.written("environment").await;
    let own =
        environment.lines().filter(|line| !["PWD=", "SHLVL=", "_=", "OLDPWD="].iter().any(|s| line.starts_with(s)));
    let mut own: Vec<_> = own.collect();
    own.sort_unstable();
    assert_eq!(own, ["LEDGER=main", "TOKEN=s3cret"]);
    let arguments = script.written("arguments").await;
    assert!(!arguments.contains("s3cret") && !answer.query.contains("s3cret"), "{arguments}");
    assert_eq!(script.written("where").await, "/\n");
}

#[tokio::test]
async fn no_file_of_the_daemon_is_open_in_the_program() {
    let text = r#"#!/usr/bin/python3
import os, sys
def to(fd):
    try:
        return os.readlink("/proc/self/fd/" + fd)
    except OSError:
        return None
opened = [(fd, to(fd)) for fd in os.listdir("/proc/self/fd")]
with open(os.path.join(os.path.dirname(sys.argv[0]), "open"), "w") as file:
    for fd, target in opened:
        if target:
            print(fd, target, file=file)
"#;
    let script = Script::new("open.py", text);
    let secret = script.at("kept-open");
    fs::write(&secret, "s3cret").unwrap();
    let _open = fs::File::open(&secret).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    cannot_tell(&script.ask(json!({})).await.seen[0], "status 0");
    let open = script.written("open").await;
    drop(listener);
    for fd in ["0 pipe:", "1 pipe:", "2 pipe:"] {
        assert!(open.lines().any(|line| line.starts_with(fd)), "{open}");
    }
    // What this process was itself started with is not its own to give or keep; nothing that it opened is there.
    assert!(!open.contains("kept-open") && !open.contains("socket:"), "{open}");
}

#[tokio::test]
async fn a_value_is_one_argument_and_never_an_option_or_a_command() {
    let script = Script::new("words", "#!/bin/sh\nfor word; do echo \"[$word]\"; done > \"${0%/*}/said\"\n");
    let look_up = script.look_up(json!({"arguments": ["--to={recipient}", "{reference}", "$HOME; `id`"]}));
    let mut question = subject("inv-229");
    question.probes[0].recipient = "a b;c@acme.test".to_owned();
    let answer = look_up.ask(&question).await;
    assert_eq!(script.written("said").await, "[--to=a b;c@acme.test]\n[inv-229]\n[$HOME; `id`]\n");
    assert!(!answer.query.contains("acme.test"), "{}", answer.query);
    let answer = look_up.ask(&subject("-rf")).await;
    cannot_tell(&answer.seen[0], "dash");
}

#[tokio::test]
async fn many_questions_run_only_so_many_programs_at_once() {
    let text = "#!/bin/sh\nhere=${0%/*}\n/bin/mkdir \"$here/run.$$\"\n/bin/ls -d \"$here\"/run.* | /usr/bin/wc -l >> \"$here/counts\"\n\
                /bin/sleep 0.05\n/bin/rmdir \"$here/run.$$\"\necho \"settled-look-up $1 $2 absent\"\nexit 44\n";
    let script = Script::new("many", text);
    let look_up = Arc::new(script.look_up(json!({"at_once": 2})));
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let look_up = Arc::clone(&look_up);
        asked.spawn(async move { look_up.ask(&subject("inv-229")).await });
    }
    for answer in asked.join_all().await {
        assert_eq!(answer.seen, [Seen::Nothing]);
    }
    let counts = script.written("counts").await;
    let most = counts.lines().map(|line| line.trim().parse::<u32>().unwrap()).max();
    assert!(most.is_some_and(|most| most <= 2), "{counts}");
    assert_eq!(counts.lines().count(), 8);
}

#[tokio::test]
async fn a_caller_who_gives_up_leaves_nothing_running() {
    let script = Script::new("given-up", "#!/bin/sh\n/bin/sleep 1000 &\necho $$ > \"${0%/*}/group\"\nwait\n");
    let look_up = script.look_up(json!({}));
    let question = subject("inv-229");
    let group = tokio::select! {
        answer = look_up.ask(&question) => panic!("{answer:?}"),
        group = script.written("group") => group,
    };
    all_dead(group.trim()).await;
}

#[tokio::test]
async fn no_run_is_left_unburied() {
    let script = Script::new(
        "unburied",
        "#!/bin/sh\n(exit 3) &\n(exit 4) &\necho $$ >> \"${0%/*}/group\"\nexec /bin/sleep 0.05\n",
    );
    for _ in 0..5 {
        cannot_tell(&script.ask(json!({})).await.seen[0], "status 0");
    }
    let own = std::process::id().to_string();
    for group in script.written("group").await.lines() {
        let stat = fs::read_to_string(format!("/proc/{group}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, after)| after.split(' ').nth(1)).unwrap_or_default();
        assert_ne!(parent, own, "{stat}");
    }
}

#[test]
fn a_bad_setting_is_named_with_its_rule() {
    let script = Script::new("fine", HONEST);
    fs::write(script.at("text"), "not executable").unwrap();
    fs::write(script.at("open"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(script.at("open"), fs::Permissions::from_mode(0o777)).unwrap();
    for (more, field, rule) in [
        (json!({"program": "ask.sh"}), "look_up.command.program", "absolute"),
        (json!({"program": "/nonexistent/ask"}), "look_up.command.program", "file that is there"),
        (json!({"program": script.at("text")}), "look_up.command.program", "executable"),
        (json!({"program": "/"}), "look_up.command.program", "executable"),
        (json!({"program": script.at("open")}), "look_up.command.program", "writable by everybody"),
        (json!({"arguments": ["{nonce}", "{token}"]}), "look_up.command.arguments[1]", "unknown variable {token}"),
        (json!({"environment": {"A=B": "x"}}), "look_up.command.environment.A=B", "name without ="),
        (json!({"environment": {"T": {"file": "/nonexistent"}}}), "look_up.command.environment.T", "readable secret"),
        (json!({"directory": "tmp"}), "look_up.command.directory", "absolute"),
        (json!({"absent_exit": 1}), "look_up.command.absent_exit", "between 3 and 125"),
        (json!({"within": "0s"}), "look_up.command.within", "longer"),
        (json!({"at_once": 0}), "look_up.command.at_once", "between 1 and 64"),
        (json!({"output_bytes": 10}), "look_up.command.output_bytes", "between 1024"),
        (json!({"account": ""}), "look_up.command.account", "empty"),
        (json!({"shell": true}), "look_up.command", "unknown field `shell`"),
    ] {
        let error = Command::build(&script.destination(more.clone())).err().unwrap();
        assert_eq!(error.field, field, "{more}: {error}");
        assert!(error.rule.contains(rule), "{more}: {error}");
    }
}
