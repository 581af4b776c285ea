//! `settings`: see `tests/it/fuzz/outside/`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _word = settled_fuzz::run("settings", bytes);
});
