//! What can be counted of the house's style.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::layering::sources;

const LONGEST_FILE: usize = 600;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn code() -> Vec<PathBuf> {
    let mut files = sources(&root().join("src"));
    files.extend(sources(&root().join("tests")));
    files
}

/// Files of the project that people read: code, SQL, papers, examples.
fn texts(folder: &Path) -> Vec<PathBuf> {
    const KINDS: [&str; 10] = ["rs", "sql", "md", "toml", "yaml", "yml", "json", "sh", "service", "cf"];
    const NAMES: [&str; 4] = ["Makefile", "Dockerfile", "run", "LICENSE-MIT"];
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || matches!(name.as_str(), ".git" | "target" | "node_modules") {
            continue;
        }
        let kind = path.extension().map(|end| end.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            files.extend(texts(&path));
        } else if KINDS.contains(&kind.as_str()) || NAMES.contains(&name.as_str()) {
            files.push(path);
        }
    }
    files
}

fn offenders(files: Vec<PathBuf>, offends: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    assert!(files.len() > 10, "the test reads nothing");
    files.into_iter().filter(|file| fs::read_to_string(file).is_ok_and(|text| offends(&text))).collect()
}

#[test]
fn no_file_is_too_long_to_read() {
    let long = offenders(code(), |text| text.lines().count() > LONGEST_FILE);
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn nothing_is_left_undone_under_a_macro() {
    // Spelled in two parts, or this file would be its own offender.
    let words = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];
    let undone = offenders(code(), |text| words.iter().any(|word| text.contains(word)));
    assert!(undone.is_empty(), "{undone:#?}");
}

#[test]
fn project_files_name_no_machine() {
    let homes = [concat!("/ho", "me/"), concat!("/Use", "rs/"), concat!("/ro", "ot/"), concat!("C:", "\\Users")];
    let own = root().to_string_lossy().into_owned();
    // A checkout directly below the root of the file system would name half the world.
    let own = own.matches('/').count().ge(&2).then_some(own);
    let named = offenders(texts(&root()), |text| {
        homes.iter().any(|home| text.contains(home)) || own.as_ref().is_some_and(|own| text.contains(own.as_str()))
    });
    assert!(named.is_empty(), "{named:#?}");
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let mute = offenders(sources(&root().join("src")), |text| !text.starts_with("//!"));
    let mute: Vec<_> = mute.into_iter().filter(|file| !file.ends_with("main.rs") && !is_part(file)).collect();
    assert!(mute.is_empty(), "{mute:#?}");
}

/// Tests beside the code may begin with their imports.
fn is_part(file: &Path) -> bool {
    file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests")
}
