//! Reads the project's Markdown as far as its tests need it.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// All Markdown files of the project.
pub(super) fn papers() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 20, "the test reads nothing");
    found
}

/// The fenced blocks of one language.
pub(super) fn fenced(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in text.lines() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(named)) => open = Some((named.trim() == language, String::new())),
            (Some(_), Some(_)) => {
                blocks.extend(open.take().filter(|(wanted, _)| *wanted).map(|(_, block)| block));
            }
            (Some((_, block)), None) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Text without its fenced blocks.
fn prose(text: &str) -> String {
    let mut inside = false;
    text.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            inside ^= fence;
            !inside && !fence
        })
        .fold(String::new(), |whole, line| whole + line + "\n")
}

/// What stands between backticks, outside of blocks.
pub(super) fn backticked(text: &str) -> Vec<String> {
    prose(text).split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Targets of links, outside of blocks.
pub(super) fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    text.split("](").skip(1).filter_map(|after| after.split(')').next()).map(str::to_owned).collect()
}

/// The anchor of a heading.
pub(super) fn slug(line: &str) -> String {
    let Some(title) = line.strip_prefix('#') else { return String::new() };
    let kept = title.trim_start_matches('#').trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The words of a shell line up to a comment or the end of the first command; quotes are taken off.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | ';' | '&' | '>') => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn a_shell_line_is_split_as_a_shell_would() {
    let line = r#"settled show "INV 1" --json '{"a": 1}' # why | not"#;
    assert_eq!(words(line), ["settled", "show", "INV 1", "--json", r#"{"a": 1}"#]);
    assert_eq!(words("settled list | head"), ["settled", "list"]);
    assert_eq!(slug("## What the acts mean"), "what-the-acts-mean");
    assert_eq!(fenced("a\n```sh\nx\n```\n```toml\ny\n```\n", "toml"), ["y\n"]);
    assert_eq!(backticked("`a` b `c`\n```\n`d`\n```\n"), ["a", "c"]);
    assert_eq!(links("[a](b.md) [c](d#e)"), ["b.md", "d#e"]);
}
