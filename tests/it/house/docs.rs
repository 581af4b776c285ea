//! What the papers say is so: commands parse, names exist, links lead somewhere, nothing is left out.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::{CommandFactory, Parser};
use settled::{
    api::problem::Kind,
    cli::Cli,
    domain::{reason::Reason, state::State},
};

use super::papers::{backticked, fenced, links, papers, read, root, slug, words};

/// What the placeholders of the pages stand for.
const PLACEHOLDERS: [(&str, &str); 4] = [
    ("$ESCALATION", "0195f1a2-7c3e-7b11-8d4e-2f6a9c0b1e55"),
    ("$INTENT", "0195f1a2-7c3e-7b11-8d4e-2f6a9c0b1e56"),
    ("$REFERENCE", "INV-2291"),
    ("$DESTINATION", "invoices-email"),
];

const PROMISE: &str = "At-least-once attempts. At most one effect where the downstream refuses repeats. Where it can only be asked, \
    no second attempt without recorded evidence of absence; a copy that shows up later is reported, not prevented.";

/// Every `settled …` line of the fenced shell blocks of a paper.
fn commands(text: &str) -> Vec<Vec<String>> {
    let lines = fenced(text, "sh").into_iter().flat_map(|block| {
        let whole = block.replace("\\\n", " ");
        whole.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let filled = lines.map(|line| PLACEHOLDERS.iter().fold(line, |line, (name, value)| line.replace(name, value)));
    filled.map(|line| words(&line)).filter(|words| words.first().is_some_and(|first| first == "settled")).collect()
}

fn names_in(text: &str, prefix: &str, length: usize) -> BTreeSet<String> {
    let digits = |rest: &str| rest.chars().take(length).filter(char::is_ascii_digit).count() == length;
    text.match_indices(prefix)
        .map(|(at, _)| &text[at + prefix.len()..])
        .filter(|rest| digits(rest))
        .map(|rest| format!("{prefix}{}", &rest[..length]))
        .collect()
}

#[test]
fn every_command_in_the_papers_parses() {
    let mut wrong = Vec::new();
    let mut read_commands = 0;
    for paper in papers() {
        for command in commands(&read(&paper)) {
            read_commands += 1;
            if let Err(error) = Cli::try_parse_from(&command) {
                wrong.push(format!("{}: {}\n{error}", paper.display(), command.join(" ")));
            }
        }
    }
    assert!(read_commands > 100, "only {read_commands} commands were read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_named_in_the_text_exist() {
    let mut wrong = Vec::new();
    for paper in papers() {
        for span in backticked(&read(&paper)) {
            let mut command = Cli::command();
            let mut named = span.split_whitespace();
            // `settled serve` is a command, `settled` and `settled.toml` are names.
            if named.next() != Some("settled") {
                continue;
            }
            let Some(first) = named.next().filter(|word| !word.starts_with(['-', '…'])) else { continue };
            for word in std::iter::once(first).chain(named) {
                if !command.has_subcommands() || word.starts_with(['-', '…']) {
                    break;
                }
                match command.find_subcommand(word) {
                    Some(found) => command = found.clone(),
                    None => {
                        wrong.push(format!("{}: {span}", paper.display()));
                        break;
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_readme_gives_the_promise_word_by_word_and_its_assumptions() {
    let readme = read(&root().join("README.md"));
    assert!(readme.contains(PROMISE));
    for number in 1..=6 {
        assert!(readme.contains(&format!("**A{number}**")), "A{number} is missing");
    }
    assert!(readme.contains("a key stops the same call sent twice; only the effect rule stops a new decision"));
    // It may be denied, never claimed.
    for paper in papers() {
        let text = read(&paper).replace("Nobody can promise exactly-once delivery", "");
        assert!(!text.contains("exactly-once") && !text.contains("exactly once delivery"), "{}", paper.display());
    }
}

#[test]
fn sqlstates_in_the_papers_are_those_of_the_ledger() {
    let mut raised = BTreeSet::new();
    for entry in fs::read_dir(root().join("migrations")).unwrap() {
        let text = read(&entry.unwrap().path());
        raised.extend(names_in(&text, "'ST", 3).into_iter().map(|quoted| quoted.trim_start_matches('\'').to_owned()));
    }
    // Caught inside the function that raises it.
    raised.remove("ST001");
    let told = names_in(&read(&root().join("README.md")), "`ST", 3);
    let told: BTreeSet<_> = told.into_iter().map(|quoted| quoted.trim_start_matches('`').to_owned()).collect();
    assert_eq!(told, raised);
    for paper in papers() {
        let unknown: Vec<_> =
            names_in(&read(&paper), "`ST", 3).into_iter().filter(|name| !raised.contains(&name[1..])).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", paper.display());
    }
}

#[test]
fn exit_codes_in_the_readme_are_those_of_the_program() {
    let code = read(&root().join("src/cli/exit.rs"));
    let body = code.split("pub enum Exit {").nth(1).unwrap().split("\n}").next().unwrap();
    let meant: BTreeSet<u8> = body
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .filter_map(|line| line.split(" = ").nth(1)?.trim_end_matches(',').parse().ok())
        .collect();
    let readme = read(&root().join("README.md"));
    let table = readme.split("| exit code | means |").nth(1).unwrap().split("\n\n").next().unwrap();
    let told: BTreeSet<u8> =
        table.lines().filter_map(|line| line.trim_start_matches("| ").split(' ').next()?.parse().ok()).collect();
    assert!(meant.len() > 5);
    assert_eq!(told, meant);
}

#[test]
fn the_readme_names_every_state_and_status() {
    let readme = read(&root().join("README.md"));
    for state in State::ALL {
        assert!(readme.contains(&format!("| `{}` |", state.as_str())), "{}", state.as_str());
    }
    for kind in Kind::ALL {
        // What went wrong inside needs no explanation.
        if kind.status().as_u16() != 500 {
            assert!(readme.contains(kind.status().as_str()), "{} is {}", kind.name(), kind.status());
        }
    }
}

#[test]
fn every_reason_has_a_runbook_and_every_runbook_a_reason() {
    let folder = root().join("runbooks");
    let index = read(&folder.join("README.md"));
    let files: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "README.md")
        .collect();
    let reasons: BTreeSet<String> = Reason::ALL.iter().map(|reason| format!("{}.md", reason.as_str())).collect();
    assert_eq!(files, reasons);
    for reason in Reason::ALL {
        let name = reason.as_str();
        let page = read(&folder.join(format!("{name}.md")));
        assert!(page.starts_with(&format!("# {name}\n")), "{name}: the title is the reason");
        let parts = ["How you got here", "What to look at", "Decide", "What not to do", "Afterwards"];
        let titles: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(titles, parts, "{name}");
        assert!(commands(&page).len() >= 2, "{name}: shows no commands");
        assert!(index.contains(&format!("[{name}]({name}.md)")), "{name} is not in the index");
    }
}

#[test]
fn links_between_the_papers_lead_somewhere() {
    let mut wrong = Vec::new();
    let mut followed = 0;
    for paper in papers() {
        for link in links(&read(&paper)) {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            followed += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { paper.clone() } else { paper.parent().unwrap().join(file) };
            let there =
                target.exists() && (anchor.is_empty() || read(&target).lines().any(|line| slug(line) == anchor));
            if !there {
                wrong.push(format!("{}: {link}", paper.display()));
            }
        }
    }
    assert!(followed > 30, "only {followed} links were read");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_architecture_is_short_and_names_files_that_exist() {
    let text = read(&root().join("ARCHITECTURE.md"));
    assert!(text.lines().count() <= 150);
    let is_path =
        |span: &String| span.ends_with('/') || Path::new(span).extension().is_some_and(|e| e == "rs" || e == "sql");
    let paths: Vec<String> = backticked(&text).into_iter().filter(is_path).collect();
    assert!(paths.len() > 40);
    let places: [PathBuf; 3] = [root(), root().join("src"), root().join("tests/it")];
    let missing: Vec<_> = paths.iter().filter(|path| !places.iter().any(|place| place.join(path).exists())).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_configuration_of_the_quick_start_is_read() {
    let readme = read(&root().join("README.md"));
    let [text] = &fenced(&readme, "toml")[..] else { panic!("one block of TOML") };
    let settings = settled::config::load::parse_text("README.md", text, std::iter::empty()).unwrap();
    let broken: Vec<String> = settled::config::rules::broken(&settings, "README.md")
        .into_iter()
        .map(|e| format!("{}: {}", e.key, e.rule))
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
    for destination in &settings.destinations {
        settled::channels::registry::build(destination).unwrap();
    }
}
