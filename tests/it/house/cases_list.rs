//! `tests/CASES.md` against the tests that exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use super::layering::sources;

/// Every case that the list must hold, by kind.
const TOTAL: usize = 129;
/// Kinds whose tests are complete with this version.
const WHOLE: [&str; 16] = [
    "DUP", "LOST", "LEASE", "POISON", "RATE", "REDIR", "SSRF", "BODY", "TRANS", "SIG", "SMTP", "IMAP", "SMS", "PG",
    "IDEM", "JSON",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

struct Row {
    number: u32,
    kind: String,
    answer: String,
}

impl Row {
    /// Names in back-ticks.
    fn tests(&self) -> BTreeSet<String> {
        self.answer.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("tests/CASES.md")).unwrap();
    text.lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
            let [number, kind, _, answer] = cells[..] else { return None };
            let number = number.parse().ok()?;
            Some(Row { number, kind: kind.to_owned(), answer: answer.to_owned() })
        })
        .collect()
}

/// Every function of the sources, and whether it has a test attribute above it.
pub(super) fn tests() -> BTreeSet<String> {
    let mut files = sources(&root().join("src"));
    files.extend(sources(&root().join("tests")));
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")) else { continue };
            let attributes = lines[..at].iter().rev().take_while(|l| l.starts_with("#[") || l.starts_with("//"));
            if attributes.into_iter().any(|l| l.starts_with("#[test") || l.starts_with("#[tokio::test")) {
                names.extend(rest.split_once('(').map(|(name, _)| name.to_owned()));
            }
        }
    }
    names
}

/// `case_053_and_054_…` is a test of both; `case_076_421_…` of one.
fn numbers(name: &str) -> Vec<u32> {
    let three = |word: &str| (word.len() == 3).then(|| word.parse().ok())?;
    let Some(rest) = name.strip_prefix("case_") else { return Vec::new() };
    let mut words = rest.split('_');
    let mut numbers: Vec<u32> = words.next().and_then(three).into_iter().collect();
    while words.next() == Some("and") {
        numbers.extend(words.next().and_then(three));
    }
    numbers
}

#[test]
fn a_name_tells_its_numbers() {
    assert_eq!(numbers("case_053_and_054_a_redirect_and_more"), [53, 54]);
    assert_eq!(numbers("case_076_421_is_not_accepted"), [76]);
    assert!(numbers("a_case_of_its_own").is_empty());
}

#[test]
fn the_list_holds_every_case_once_with_an_answer() {
    let rows = rows();
    let distinct: BTreeSet<u32> = rows.iter().map(|row| row.number).collect();
    assert_eq!((rows.len(), distinct.len()), (TOTAL, TOTAL));
    for row in &rows {
        let known = ["test ", "tests ", "otherwise: ", "planned: "].iter().any(|word| row.answer.starts_with(word));
        assert!(known, "case {}: {}", row.number, row.answer);
        assert_eq!(row.answer.starts_with("test"), !row.tests().is_empty(), "case {}: {}", row.number, row.answer);
        let whole = WHOLE.contains(&row.kind.as_str());
        assert!(!(whole && row.answer.starts_with("planned")), "case {} of kind {} has no test", row.number, row.kind);
    }
}

#[test]
fn every_test_that_the_list_names_exists() {
    let there = tests();
    assert!(there.len() > 100, "the test reads nothing");
    for row in rows() {
        for name in row.tests() {
            assert!(there.contains(&name), "case {} names {name}", row.number);
            let own = numbers(&name);
            assert!(own.is_empty() || own.contains(&row.number), "case {} names {name}", row.number);
        }
    }
}

#[test]
fn every_test_of_a_case_is_named_in_the_list() {
    let rows: BTreeMap<u32, Row> = rows().into_iter().map(|row| (row.number, row)).collect();
    let mut missing = Vec::new();
    for name in tests() {
        for number in numbers(&name) {
            let row = rows.get(&number).unwrap_or_else(|| panic!("{name}: no such case"));
            if WHOLE.contains(&row.kind.as_str()) && !row.tests().contains(&name) {
                missing.push(name.clone());
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
