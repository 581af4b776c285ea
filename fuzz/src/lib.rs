//! The functions of the property tests, for libFuzzer.

#[expect(dead_code, reason = "the property tests use more of it")]
#[path = "../../tests/it/fuzz/outside/mod.rs"]
mod outside;

/// Runs one of them by its name.
pub fn run(name: &str, bytes: &[u8]) -> &'static str {
    let (_, target) = outside::TARGETS.iter().find(|(known, _)| *known == name).expect("a target of that name");
    target(bytes)
}
