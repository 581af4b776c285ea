//! The crash points, their list in the README, and the code must be one.

use std::{collections::BTreeSet, fs, path::Path};

use crate::points::POINTS;

fn in_code(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            in_code(&path, found);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let named = text.split("failpoint!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(named.map(str::to_owned));
        }
    }
}

#[test]
fn every_crash_point_is_listed_and_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = BTreeSet::new();
    in_code(&root.join("src/engine"), &mut code);
    let used: BTreeSet<String> = POINTS.iter().map(|&point| point.to_owned()).collect();
    assert_eq!(code, used, "the crash suite knows other points than the code has");
    let readme = fs::read_to_string(root.join("tests/crash/README.md")).unwrap();
    let listed: BTreeSet<String> =
        readme.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect();
    assert_eq!(code, listed, "README.md lists other points than the code has");
}
