//! Everything that reads the outside, given what nobody should say: nothing panics, nothing takes for ever, and nothing is
//! claimed that was not said. `fuzz/` runs the same functions for as long as wanted; what it found is kept in `corpus/`.

pub mod outside;

use std::{fs, path::Path};

use proptest::prelude::*;

use outside::{KEY, TARGETS, http, imap, smtp, texts, wire};

/// Inputs are spoilt in some places; most of what they say stays readable, or nothing would come far.
fn spoilt(seeds: &'static [&'static str], words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => prop::sample::select(words).prop_map(|word| word.replace("KEY", KEY).into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    let change = (any::<prop::sample::Index>(), 0usize..12, word);
    (prop::sample::select(seeds), prop::collection::vec(change, 0..4)).prop_map(|(seed, changes)| {
        let mut bytes = seed.replace("KEY", KEY).into_bytes();
        for (at, cut, word) in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, word);
        }
        bytes
    })
}

const RELAY: [&str; 3] = [
    "220 relay\r\n\u{1e}250-relay\r\n250 DSN\r\n\u{1e}250 ok\r\n\u{1e}250 ok\r\n\u{1e}354 go\r\n\u{1e}250 queued as 4F2A\r\n",
    "220 relay\r\n\u{1e}250 relay\r\n\u{1e}250 ok\r\n\u{1e}250 ok\r\n\u{1e}354 go\r\n\u{1e}451 later\r\n",
    "554 no\r\n",
];
const REPLIES: [&str; 4] = [
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"ok\":true}",
    "HTTP/1.1 429 Too Many\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"o\r\n0\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 302 Found\r\nLocation: https://x.test/\r\n\r\n",
];
const PAGES: [&str; 4] = [
    "{\"messages\":[{\"key\":\"KEY\",\"reference\":\"INV-2291\",\"to\":\"ap@acme.test\",\"id\":\"m-1\",\"at\":1772600001}]}",
    "{\"messages\":[],\"next\":\"/messages?page=2\"}\u{1e}{\"messages\":[{\"reference\":\"inv-2291\"}]}",
    "{\"messages\":[]}",
    "RHTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"messages\":[]}",
];
const MAILBOXES: [&str; 2] = [
    "* OK ready\r\n\u{1e}%T OK in\r\n\u{1e}* 1 EXISTS\r\n* OK [UIDVALIDITY 7] v\r\n* OK [UIDNEXT 2] n\r\n%T OK read\r\n\u{1e}* 1 FETCH (UID 1 INTERNALDATE \" 4-Mar-2026 05:06:09 +0000\" BODY[HEADER.FIELDS (X)] {51}\r\nX-Settled-Key: KEY\r\n\r\n)\r\n%T OK done\r\n\u{1e}%T OK bye\r\n",
    "* OK ready\r\n\u{1e}%T OK in\r\n\u{1e}* 0 EXISTS\r\n* OK [UIDVALIDITY 7] v\r\n%T OK read\r\n\u{1e}%T OK bye\r\n",
];
const WORDS: &[&str] = &[
    "KEY",
    "inv-2291",
    "250 ok\r\n",
    "354 ",
    "\r\n",
    "\u{1e}",
    "-",
    "2",
    "4",
    "5",
    "HTTP/1.1 200 OK\r\n\r\n",
    "{",
    "}",
    "\"",
    "null",
    "[]",
    "%T OK\r\n",
    "%T NO\r\n",
    "* 1 EXISTS\r\n",
    "{9999999}\r\n",
    "Content-Length: 9\r\n",
    "Retry-After: -1\r\n",
    "/messages",
    "1e999",
    "\\u0000",
    "=?utf-8?b?aW52?=",
    "* BYE\r\n",
];
const TEMPLATES: [&str; 2] = [
    "https://api.test/m/{key}/x?ref={reference}\u{1e}{\"a\":[\"{x}\",1]}\u{1e}a/../b?c&d#e",
    "http://[::1]:8080/{a}\u{1e}\"{x}\"\u{1e}%2e%2e",
];
const PAYLOADS: [&str; 3] = [
    "{\"to\":\"ap@acme.test\",\"subject\":\"Invoice INV-2291\",\"text\":\"inv-2291 due\"}",
    "{\"to\":\"+4915112345678\",\"text\":\"INV-2291 due\"}",
    "{\"a\":{\"b\":[1,2.5e3,null]}}",
];
const DATES: [&str; 4] =
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "120"];

proptest! {
    // More of them by PROPTEST_CASES.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_relay_that_says_anything_is_never_believed_further_than_it_spoke(said in spoilt(&RELAY, WORDS)) {
        smtp::relay(&said);
    }

    #[test]
    fn a_server_that_replies_anything_is_never_believed_further_than_it_spoke(said in spoilt(&REPLIES, WORDS)) {
        http::reply(&said);
        http::answer(&said);
    }

    #[test]
    fn a_listing_that_holds_anything_finds_and_misses_only_what_it_names(said in spoilt(&PAGES, WORDS)) {
        http::listing(&said);
    }

    #[test]
    fn a_mailbox_that_says_anything_finds_and_misses_only_what_it_names(said in spoilt(&MAILBOXES, WORDS)) {
        imap::mailbox(&said);
    }

    #[test]
    fn a_payload_of_anything_is_refused_or_rendered_the_same_twice(said in spoilt(&PAYLOADS, WORDS)) {
        texts::payload(&said);
    }

    #[test]
    fn a_value_never_leaves_its_place_in_a_template(said in spoilt(&TEMPLATES, WORDS)) {
        texts::templates(&said);
    }

    #[test]
    fn a_date_of_any_form_is_a_bounded_wait_or_none(said in spoilt(&DATES, WORDS)) {
        texts::headers(&said);
    }

    #[test]
    fn settings_of_any_form_are_refused_or_mean_the_same_twice(
        lines in prop::sample::subsequence((0..EXAMPLE.lines().count()).collect::<Vec<_>>(), 0..=8),
        word in prop::sample::select(WORDS),
    ) {
        // The example with some lines left out, and one spoilt.
        let kept = EXAMPLE.lines().enumerate().filter(|(n, _)| !lines.contains(n));
        let text: String = kept.map(|(n, line)| {
            if lines.iter().any(|l| l + 1 == n) && n % 3 == 0 { format!("{line}{word}\n") } else { format!("{line}\n") }
        }).collect();
        texts::settings(text.as_bytes());
    }
}

const EXAMPLE: &str = include_str!("../../../deploy/settled.example.toml");

/// Or the tests above would only show that nothing is understood.
#[test]
fn what_is_not_spoilt_is_believed() {
    wire::wait_for_slow_machines();
    let bytes = |seed: &str| seed.replace("KEY", KEY).into_bytes();
    assert_eq!(RELAY.map(|said| smtp::relay(&bytes(said))), ["sent", "not_sent", "not_sent"]);
    assert_eq!(REPLIES.map(|said| http::reply(&bytes(said))), ["sent", "not_sent", "sent", "ambiguous"]);
    assert_eq!(PAGES.map(|said| http::listing(&bytes(said))), ["hits", "hits", "nothing", "nothing"]);
    assert_eq!(MAILBOXES.map(|said| imap::mailbox(&bytes(said))), ["hits", "nothing"]);
    assert_eq!(PAYLOADS.map(|said| texts::payload(&bytes(said))), ["rendered"; 3]);
    assert_eq!(TEMPLATES.map(|said| texts::templates(&bytes(said))), ["filled"; 2]);
    assert_eq!(DATES.map(|said| texts::headers(&bytes(said))), ["wait"; 4]);
    assert_eq!(texts::settings(EXAMPLE.as_bytes()), "taken");
}

#[test]
fn what_fuzzing_has_found_stays_found() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fuzz/corpus");
    for (name, target) in TARGETS {
        let folder = corpus.join(name);
        let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no inputs");
        for file in files {
            target(&fs::read(&file).unwrap());
        }
    }
}
