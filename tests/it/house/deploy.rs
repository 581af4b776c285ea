//! What is shipped for operators fits the program: commands, files, limits that must hold together.

use std::{collections::BTreeSet, fs, time::Duration};

use clap::Parser;
use settled::{
    cli::{Cli, Command},
    config::{Settings, load},
};

use super::papers::{read, root};

const KUBERNETES: &str = "deploy/kubernetes/base";

fn settings(file: &str) -> Settings {
    let text = read(&root().join(file));
    load::parse_text(file, &text, std::iter::empty()).unwrap_or_else(|error| panic!("{file}: {error:?}"))
}

/// `Key=value` lines of the unit.
fn unit(key: &str) -> Vec<String> {
    let text = read(&root().join("deploy/systemd/settled.service"));
    text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned).collect()
}

/// Words between brackets: `[serve, --config, "/etc/…"]`.
fn bracketed(line: &str) -> Vec<String> {
    let inside = line.split_once('[').unwrap().1.split(']').next().unwrap();
    inside.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect()
}

fn parsed(arguments: &[String]) -> Cli {
    let words = std::iter::once("settled").chain(arguments.iter().map(String::as_str));
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

#[test]
fn the_unit_starts_the_daemon_and_waits_longer_than_the_drain() {
    let [start] = &unit("ExecStart")[..] else { panic!("one ExecStart") };
    let words: Vec<String> = start.split(' ').skip(1).map(str::to_owned).collect();
    assert!(matches!(parsed(&words).command, Command::Serve { migrate: false }));
    assert_eq!(unit("Type"), ["notify"]);
    // Credentials would not be readable (systemd 252), and an unconfigured daemon must not be started for ever.
    assert!(unit("ExecStartPre").is_empty());
    assert_eq!(unit("RestartPreventExitStatus"), [(settled::cli::exit::Exit::Config as u8).to_string()]);
    let stop = humantime::parse_duration(&unit("TimeoutStopSec")[0]).unwrap();
    let drain = settings("deploy/settled.example.toml").dispatcher.drain;
    assert!(drain + Duration::from_secs(15) <= stop);
    assert_eq!(unit("DynamicUser"), ["yes"]);
}

#[test]
fn the_example_names_secrets_where_the_unit_puts_them() {
    let example = read(&root().join("deploy/settled.example.toml"));
    for credential in unit("LoadCredential") {
        let (name, _) = credential.split_once(':').unwrap();
        assert!(example.contains(&format!("\"/run/credentials/settled.service/{name}\"")), "{name}");
    }
}

#[test]
fn the_image_copies_what_exists_and_builds_without_the_demonstration() {
    let text = read(&root().join("deploy/Dockerfile"));
    let ignore = read(&root().join("deploy/Dockerfile.dockerignore"));
    let mut copied = 0;
    for line in text.lines().filter(|line| line.starts_with("COPY") && !line.contains("--from")) {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        for source in words.iter().rev().skip(1) {
            copied += 1;
            assert!(root().join(source).exists(), "{source} is copied and does not exist");
            assert!(ignore.lines().any(|kept| kept == format!("!{source}")), "{source} is ignored");
        }
    }
    assert!(copied >= 8);
    assert!(text.contains("--no-default-features") && text.contains("--locked"));
    assert!(text.lines().any(|line| line == "USER 65532:65532"), "it runs as nobody in particular");
    let command = text.lines().find(|line| line.starts_with("CMD")).unwrap();
    assert!(matches!(parsed(&bracketed(command)).command, Command::Serve { .. }));
}

#[test]
fn the_kustomize_base_is_whole_and_its_limits_hold_together() {
    let folder = root().join(KUBERNETES);
    let list = read(&folder.join("kustomization.yaml"));
    let named: BTreeSet<String> = list
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
        .filter(|n| n.contains('.'))
        .map(str::to_owned)
        .collect();
    let mut there: BTreeSet<String> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert!(there.remove("kustomization.yaml"));
    assert_eq!(named, there);
    for file in there.iter().filter(|file| file.ends_with(".yaml")) {
        let text = read(&folder.join(file));
        assert!(text.contains("\nkind: ") && text.contains("apiVersion: "), "{file}");
        assert!(!text.contains('\t'), "{file}: YAML has no tabs");
    }
    let deployment = read(&folder.join("deployment.yaml"));
    let job = read(&folder.join("migrate-job.yaml"));
    let arguments = |text: &str| bracketed(text.lines().find(|line| line.trim_start().starts_with("args:")).unwrap());
    assert!(matches!(parsed(&arguments(&deployment)).command, Command::Serve { .. }));
    assert!(matches!(parsed(&arguments(&job)).command, Command::Migrate));
    for text in [&deployment, &job] {
        for must in ["runAsNonRoot: true", "readOnlyRootFilesystem: true", "enableServiceLinks: false", "drop: [ALL]"] {
            assert!(text.contains(must), "{must}");
        }
    }
    let settings = settings("deploy/kubernetes/base/settled.toml");
    let grace =
        deployment.lines().find_map(|line| line.trim().strip_prefix("terminationGracePeriodSeconds: ")).unwrap();
    assert!(settings.dispatcher.drain + Duration::from_secs(15) <= Duration::from_secs(grace.parse().unwrap()));
    assert!(deployment.contains(&format!("containerPort: {}", settings.http.listen.port())));
}
