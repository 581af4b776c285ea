//! Vectors were computed outside of this program, with HMAC written out over a plain SHA-256.

use std::collections::HashSet;

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Vector {
    name: String,
    secret_hex: String,
    region: String,
    tenant: String,
    effect_scope: String,
    run_id: String,
    step: i64,
    slot: String,
    revision: i32,
    hex32: String,
    uuid: String,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../../../tests/data/key_vectors.json")).expect("the vectors parse")
}

fn secret(hex: &str) -> SecretSlice<u8> {
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect();
    bytes.into()
}

fn ring(secrets: &[(&str, &str)]) -> Keyring {
    let all = secrets.iter().map(|(kid, hex)| ((*kid).to_owned(), secret(hex)));
    Keyring::new(secrets[0].0, all).expect("a good ring")
}

fn identity(run_id: &str, step: i64, slot: &str) -> Identity {
    Identity { tenant: "t".to_owned(), run_id: run_id.to_owned(), step, slot: slot.to_owned(), revision: 0 }
}

fn derive(ring: &Keyring, identity: &Identity) -> String {
    ring.derive(None, "eu-1", identity, "s", Spelling::Hex32).expect("derives").text
}

#[test]
fn keys_equal_the_vectors_in_every_spelling() {
    let vectors = vectors();
    assert!(vectors.len() >= 15);
    for vector in &vectors {
        let ring = ring(&[("k1", &vector.secret_hex)]);
        let identity = Identity {
            tenant: vector.tenant.clone(),
            run_id: vector.run_id.clone(),
            step: vector.step,
            slot: vector.slot.clone(),
            revision: vector.revision,
        };
        for (spelling, want) in [(Spelling::Hex32, &vector.hex32), (Spelling::Uuid, &vector.uuid)] {
            let key = ring.derive(None, &vector.region, &identity, &vector.effect_scope, spelling).expect("derives");
            assert_eq!(&key.text, want, "{}", vector.name);
            assert_eq!(key.kid, "k1");
            assert!(spelling.fits(&key.text));
        }
    }
    let texts: HashSet<&str> = vectors.iter().map(|vector| vector.hex32.as_str()).collect();
    assert_eq!(texts.len(), vectors.len(), "each vector differs in one field");
}

#[test]
fn bytes_shifted_from_one_field_to_the_next_make_another_key() {
    let ring = ring(&[("k1", &"0b".repeat(32))]);
    // Joined with a colon, both of a pair would read the same.
    let pairs = [
        (identity("run:1", 2, ""), identity("run", 1, "2")),
        (identity("run", 12, ""), identity("run", 1, "2")),
        (identity("run:1", 2, "x"), identity("run", 1, "2:x")),
        (identity("run", 1, "a"), identity("run1", 1, "")),
    ];
    for (one, other) in pairs {
        assert_ne!(derive(&ring, &one), derive(&ring, &other), "{one:?} {other:?}");
    }
}

#[test]
fn an_old_secret_derives_what_it_once_derived_after_a_rotation() {
    let before = ring(&[("k1", &"0b".repeat(32))]);
    let after = ring(&[("k2", &"0c".repeat(32)), ("k1", &"0b".repeat(32))]);
    let call = identity("run", 1, "");
    let old = after.derive(Some("k1"), "eu-1", &call, "s", Spelling::Hex32).expect("derives");
    assert_eq!(old.text, derive(&before, &call));
    assert_ne!(derive(&after, &call), old.text);
    assert_eq!(after.kids().collect::<Vec<_>>(), ["k1", "k2"]);
    let lost = after.derive(Some("k0"), "eu-1", &call, "s", Spelling::Hex32);
    assert_eq!(lost, Err(KeyError::UnknownKid { kid: "k0".to_owned() }));
}

#[test]
fn a_ring_without_an_active_secret_or_with_a_short_one_is_refused() {
    let build = |active: &str, kid: &str, len: usize| {
        Keyring::new(active, [(kid.to_owned(), SecretSlice::from(vec![7u8; len]))]).map(|_| ())
    };
    assert_eq!(build("k1", "k1", 32), Ok(()));
    assert_eq!(build("k1", "k1", 31), Err(KeyError::ShortSecret { kid: "k1".to_owned(), len: 31 }));
    assert_eq!(build("k2", "k1", 32), Err(KeyError::UnknownKid { kid: "k2".to_owned() }));
    assert_eq!(build("a b", "a b", 32), Err(KeyError::BadKid { kid: "a b".to_owned() }));
}

#[test]
fn a_ring_shows_its_ids_and_never_its_secrets() {
    let shown = format!("{:?}", ring(&[("k1", &"41".repeat(32))]));
    assert!(shown.contains("k1"), "{shown}");
    assert!(!shown.contains("AAAA") && !shown.contains("65, 65"), "{shown}");
}

#[test]
fn only_the_exact_shape_fits_a_spelling() {
    let hex = "4e4a7b33c25311d43431d2079a3418a3";
    assert!(Spelling::Hex32.fits(hex));
    assert!(!Spelling::Hex32.fits(&hex[1..]));
    assert!(!Spelling::Hex32.fits(&hex.to_uppercase()));
    assert!(!Spelling::Uuid.fits(hex));
    assert!(Spelling::Uuid.fits("4e4a7b33-c253-11d4-3431-d2079a3418a3"));
    assert!(!Spelling::Uuid.fits("4e4a7b33-c253-11d4-3431d-2079a3418a3"));
}
