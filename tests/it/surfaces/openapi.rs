//! The description of the API, and the API: neither says anything that the other does not.
//!
//! `conforms` is asked about every answer that the tests of this folder get.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

use http::{HeaderMap, StatusCode};
use jsonschema::Validator;
use serde_json::{Value, json};
use settled::{api::openapi, store::tokens::Kind};

use super::{
    asking::{World, call, with},
    cli::{out, settled},
    http_support::{Api, request},
};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(openapi::document().unwrap()).unwrap());

/// A schema of the document, with what it refers to.
fn validator(schema: &Value) -> Validator {
    let whole = json!({ "allOf": [schema], "components": DOCUMENT["components"] });
    jsonschema::options().should_validate_formats(true).build(&whole).unwrap()
}

fn wrong(schema: &Value, value: &Value) -> Vec<String> {
    validator(schema).iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn component(name: &str) -> &Value {
    let found = &DOCUMENT["components"]["schemas"][name];
    assert!(found.is_object(), "{name}");
    found
}

/// Method, path and operation of everything that is described.
fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        METHODS.into_iter().filter_map(move |method| Some((method, path.as_str(), item.get(method)?)))
    })
}

/// The operation that a call meant.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap();
    let fits = |template: &str| {
        let (given, wanted): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), template.split('/').collect());
        given.len() == wanted.len() && wanted.iter().zip(&given).all(|(w, g)| w.starts_with('{') || w == g)
    };
    // As the router does: words before names in braces, and only then the method.
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let item =
        paths.iter().filter(|(template, _)| fits(template)).min_by_key(|(template, _)| template.matches('{').count());
    item?.1.get(method.to_lowercase())
}

/// Asserts that an answer is one of those that are described for its call.
#[track_caller]
pub(crate) fn conforms(method: &str, path: &str, status: StatusCode, headers: &HeaderMap, text: &str) {
    let Some(operation) = operation(method, path) else {
        assert!([404, 405].contains(&status.as_u16()), "{method} {path} is not described and answers {status}");
        return;
    };
    let described = &operation["responses"][status.as_str()];
    assert!(described.is_object(), "{method} {path}: {status} is not described: {text}");
    let media = headers.get("content-type").map_or("", |value| value.to_str().unwrap().split(';').next().unwrap());
    let content = &described["content"][media];
    assert!(content.is_object(), "{method} {path} {status}: {media} is not described");
    if media.ends_with("json") {
        let wrong = wrong(&content["schema"], &serde_json::from_str(text).unwrap());
        assert!(wrong.is_empty(), "{method} {path} {status}: {wrong:#?}\n{text}");
    }
    let known = described["headers"].as_object().unwrap();
    let common = ["content-type", "content-length", "allow"];
    for name in headers.keys().filter(|name| !common.contains(&name.as_str())) {
        assert!(known.keys().any(|k| k.eq_ignore_ascii_case(name.as_str())), "{method} {path} {status}: header {name}");
    }
}

/// Methods by path, as `router.rs` registers them.
fn routes() -> BTreeMap<String, BTreeSet<String>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/router.rs");
    let text = fs::read_to_string(file).unwrap();
    let mut found = BTreeMap::new();
    for route in text.split(".route(").skip(1) {
        let mut quoted = route.splitn(3, '"');
        let path = quoted.nth(1).unwrap().to_owned();
        let handlers = quoted.next().unwrap().split("\n        .").next().unwrap();
        let registers = |method: &&str| handlers.contains(&format!("{method}("));
        found.insert(path, METHODS.into_iter().filter(registers).map(str::to_owned).collect());
    }
    assert!(found.len() > 10);
    found
}

#[test]
fn every_route_is_described_and_every_described_one_is_there() {
    let mut described: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (method, path, _) in operations() {
        described.entry(path.to_owned()).or_default().insert(method.to_owned());
    }
    assert_eq!(described, routes());
}

#[tokio::test]
async fn what_is_described_is_served_and_any_other_method_is_405_with_those_that_are() {
    let api = Api::new().await;
    let admin = api.token(Kind::Admin, None).await;
    for (path, methods) in routes() {
        let real = path
            .replace("{id}", "0195f1a2-7c3e-7b11-8d4e-2f6a9c0b1e56")
            .replace("{act}", "claim")
            .replace("{destination}", "hooks");
        for method in METHODS {
            let answer = api.call(&method.to_uppercase(), &real, &admin, None).await;
            if methods.contains(method) {
                assert_ne!(answer.status, 405, "{method} {path}");
                assert!(!answer.text.contains("there is no such path"), "{method} {path}");
            } else {
                answer.problem(405, "method_not_allowed");
                let allowed = answer.header("allow").unwrap().to_lowercase();
                let allowed: BTreeSet<String> = allowed.split(',').map(|m| m.trim().to_owned()).collect();
                let more = methods.contains("get").then(|| "head".to_owned());
                assert_eq!(allowed, methods.iter().cloned().chain(more).collect(), "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn it_is_served_without_a_token_and_printed_by_the_program() {
    let api = Api::new().await;
    let served = api.get("/openapi.json", "").await;
    assert_eq!((served.status.as_u16(), served.header("content-type")), (200, Some("application/json")));
    let printed = settled(&["openapi"], &[]);
    assert_eq!(printed.status.code(), Some(0));
    assert_eq!(out(&printed).trim_end(), served.text);
    let document = served.json();
    assert_eq!(
        (&document["openapi"], &document["info"]["version"]),
        (&json!("3.1.0"), &json!(env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn everything_has_words_a_name_of_its_own_a_tag_and_says_who_may() {
    let tags: BTreeSet<&str> =
        DOCUMENT["tags"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    let schemes = DOCUMENT["components"]["securitySchemes"].as_object().unwrap();
    let mut names = BTreeSet::new();
    for (method, path, operation) in operations() {
        let at = format!("{method} {path}");
        assert!(names.insert(operation["operationId"].as_str().unwrap()), "{at}: its name is there twice");
        assert!(operation["summary"].is_string() && operation["description"].is_string(), "{at}: no words");
        assert!(operation["tags"].as_array().unwrap().iter().all(|tag| tags.contains(tag.as_str().unwrap())), "{at}");
        let open = ["/livez", "/readyz", "/openapi.json"].contains(&path);
        let who: Vec<&String> =
            operation["security"].as_array().unwrap().iter().flat_map(|one| one.as_object().unwrap().keys()).collect();
        assert_eq!(who.is_empty(), open, "{at}");
        assert!(who.iter().all(|name| schemes.contains_key(*name)), "{at}: {who:?}");
        assert_eq!(operation["responses"]["401"].is_object(), !open, "{at}");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(parameter["description"].is_string(), "{at}: {}", parameter["name"]);
        }
    }
}

#[test]
fn examples_fit_what_they_are_examples_of() {
    let mut checked = 0;
    let mut check = |at: String, schema: &Value, holder: &Value| {
        let several = holder["examples"].as_array().into_iter().flatten();
        for example in several.chain(holder.get("example")) {
            checked += 1;
            let wrong = wrong(schema, example);
            assert!(wrong.is_empty(), "{at}: {wrong:#?}");
        }
    };
    for (name, schema) in DOCUMENT["components"]["schemas"].as_object().unwrap() {
        check(name.clone(), schema, schema);
    }
    for (method, path, operation) in operations() {
        let bodies = operation["responses"].as_object().unwrap().values().chain(operation.get("requestBody"));
        for (media, content) in bodies.filter_map(|body| body["content"].as_object()).flatten() {
            check(format!("{method} {path} {media}"), &content["schema"], content);
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            check(format!("{method} {path} {}", parameter["name"]), &parameter["schema"], parameter);
        }
    }
    assert!(checked > 15, "only {checked} examples");
}

/// A member of a call with as many characters, or as much, as is described; and one more or less.
fn at_the_limits(name: &str, schema: &Value) -> (Vec<Value>, Vec<Value>) {
    let text = |length: u64| json!("1".repeat(usize::try_from(length).unwrap()));
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    if let Some(longest) = schema["maxLength"].as_u64() {
        good.push(text(longest));
        bad.push(text(longest + 1));
    }
    if schema["minLength"] == 1 {
        good.push(text(1));
        bad.push(text(0));
    }
    for (limit, beyond) in [("minimum", -1), ("maximum", 1)] {
        if let Some(limit) = schema[limit].as_i64() {
            good.push(json!(limit));
            bad.push(json!(limit + beyond));
        }
    }
    if schema["pattern"].is_string() {
        bad.push(json!("\u{7f}"));
    }
    assert!(name == "destination" || !bad.is_empty(), "{name} has no limits");
    (good, bad)
}

#[tokio::test]
async fn the_limits_that_are_described_are_those_of_the_ledger() {
    let world = World::new().await;
    let mut step = 0;
    for name in ["reference", "run_id", "step", "slot", "occurrence", "traceparent"] {
        let (good, bad) = at_the_limits(name, &component("Call")["properties"][name]);
        for (values, status) in [(good, 201), (bad, 400)] {
            for value in values {
                step += 1;
                let body = with(call(&format!("INV-{step}"), "run-1", step), name, value.clone());
                let answer = world.ask(&body).await;
                assert_eq!(answer.status, status, "{name} {value}: {}", answer.text);
                let fits = wrong(component("Call"), &body).is_empty();
                assert_eq!(fits, status == 201, "{name} {value}");
            }
        }
    }
    let key = &operation("POST", "/v1/intents").unwrap()["parameters"][0];
    let (good, bad) = at_the_limits("Idempotency-Key", &key["schema"]);
    for (values, status) in [(good, 201), (bad, 400)] {
        for value in values {
            step += 1;
            let body = json!({ "destination": "hooks", "reference": format!("INV-{step}"), "payload": {} }).to_string();
            let mut asked = request("POST", "/v1/intents", &world.token, Some(&body));
            let Ok(header) = value.as_str().unwrap().parse() else { continue };
            asked.headers_mut().insert("idempotency-key", header);
            assert_eq!(world.api.send(asked).await.status, status, "{value}");
        }
    }
}

#[tokio::test]
async fn reasons_have_the_length_that_is_described() {
    let world = World::new().await;
    let id = world.ask(&call("INV-1", "run-1", 1)).await.json()["intent_id"].as_str().unwrap().to_owned();
    let (good, bad) = at_the_limits("reason", &component("Cancellation")["properties"]["reason"]);
    let cancel = format!("/v1/intents/{id}/cancel");
    for value in bad {
        world.api.post(&cancel, &world.token, &json!({ "reason": value })).await.problem(400, "invalid");
    }
    assert_eq!(world.api.post(&cancel, &world.token, &json!({ "reason": good[0] })).await.status, 200);
    let admin = world.api.token(Kind::Admin, None).await;
    let (good, bad) = at_the_limits("reason", &component("PauseCall")["properties"]["reason"]);
    let pause = |reason: &Value| json!({ "scope": "all", "reason": reason });
    world.api.post("/v1/pauses", &admin, &pause(&bad[0])).await.problem(400, "invalid");
    assert_eq!(world.api.post("/v1/pauses", &admin, &pause(&good[0])).await.status, 201);
}

#[tokio::test]
async fn a_segment_of_a_path_that_is_not_utf_8_is_a_problem_like_any_other() {
    let api = Api::new().await;
    let admin = api.token(Kind::Admin, None).await;
    for (method, path) in [
        ("GET", "/v1/intents/%ff"),
        ("GET", "/v1/intents/%ff/story"),
        ("POST", "/v1/intents/%ff/cancel"),
        ("POST", "/v1/intents/x/acts/%ff"),
        ("GET", "/v1/escalations/%ff"),
        ("POST", "/v1/escalations/%ff/claim"),
        ("POST", "/v1/sightings/%ff"),
    ] {
        api.call(method, path, &admin, None).await.problem(400, "invalid");
    }
}
