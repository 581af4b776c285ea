//! Imports point one way. Reads `src/` and compares each module's imports with what its layer may know.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Known to everything above the domain, and knowing only the domain.
const BASE: &[&str] = &["domain", "config", "clock", "telemetry", "failpoint", "lifecycle"];

/// Stand beside `store` and never use it.
const ADAPTERS: &[&str] = &["channels", "look_up", "alerts"];

/// What a top module may import.
fn may_know(module: &str) -> Option<BTreeSet<&'static str>> {
    let with = |more: &[&'static str]| BASE.iter().chain(more).copied().collect();
    let below_surfaces = || with(&[ADAPTERS, &["store", "engine"]].concat());
    Some(match module {
        "domain" => BTreeSet::new(),
        "config" | "clock" | "failpoint" | "lifecycle" => BTreeSet::from(["domain"]),
        // It is told its settings and measures by the clock; neither knows it.
        "telemetry" => BTreeSet::from(["domain", "config", "clock"]),
        "store" | "channels" => with(&[]),
        // The wire (counted stream, guard, one exchange) lives with the channels and serves whoever asks and calls as well.
        "look_up" | "alerts" => with(&["channels"]),
        "engine" => with(&[ADAPTERS, &["store"]].concat()),
        "api" | "mcp" | "cli" | "console" => below_surfaces(),
        // What the commands of that name do; they drive the house from outside.
        "demo" | "verify" | "doctor" => below_surfaces(),
        // It measures with the private Postgres and the sinks of the demonstration.
        "bench" => &below_surfaces() | &BTreeSet::from(["demo"]),
        "daemon" => &below_surfaces() | &BTreeSet::from(["api", "mcp", "console"]),
        _ => return None,
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All Rust files below a folder.
pub(super) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The top module of a file: `engine` of `src/engine/reaper.rs`, `clock` of `src/clock.rs`.
fn module_of(file: &Path) -> String {
    let inside = file.strip_prefix(root()).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Top modules that a text names after `crate::`, groups included. Comments name things without using them.
fn imports(text: &str, from: &str) -> BTreeSet<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for after in code.split(from).skip(1) {
        if let Some(group) = after.strip_prefix('{') {
            let (mut depth, mut start) = (0, true);
            for (at, c) in group.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => start = true,
                    c if start && !c.is_whitespace() => {
                        found.insert(word(&group[at..]));
                        start = false;
                    }
                    _ => {}
                }
            }
        } else {
            found.insert(word(after));
        }
    }
    found
}

#[test]
fn imports_point_one_way() {
    let mut wrong = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for file in sources(&root()) {
        let module = module_of(&file);
        if module == "lib" || module == "main" {
            continue;
        }
        let Some(allowed) = may_know(&module) else {
            wrong.push(format!("{module} has no layer; give it one in this test"));
            continue;
        };
        for used in imports(&fs::read_to_string(&file).unwrap(), "crate::") {
            *seen.entry(module.clone()).or_default() += 1;
            if used != module && !allowed.contains(used.as_str()) {
                wrong.push(format!("{} uses {used}", file.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(seen.contains_key("store") && seen.contains_key("channels"), "the test reads nothing: {seen:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_the_store_speaks_sql() {
    let speaks =
        |text: &str| ["query!(", "query_as!(", "query_scalar!(", "sqlx::query"].iter().any(|word| text.contains(word));
    let mut wrong = Vec::new();
    let mut right = 0;
    for file in sources(&root()).into_iter().filter(|file| speaks(&fs::read_to_string(file).unwrap())) {
        // The demonstration plays a foreign application that enqueues by SQL.
        match module_of(&file).as_str() {
            "store" => right += 1,
            "demo" | "bench" | "verify" => {}
            _ => wrong.push(file),
        }
    }
    assert!(right > 0 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_reader_of_imports_sees_single_ones_groups_and_no_comments() {
    let text = "use crate::domain::key;\nuse crate::{\n    clock::{Clock, Turned},\n    store,\n};\n// crate::engine\nlet x = crate::config::read();";
    let found: Vec<String> = imports(text, "crate::").into_iter().collect();
    assert_eq!(found, ["clock", "config", "domain", "store"]);
}
