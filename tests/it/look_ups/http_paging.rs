//! The ways in which a list goes on and ends. Whatever is not read to its end is no absence.

use serde_json::{Value, json};
use settled::{domain::question::Seen, look_up::http::Http};

use super::http::{SUBJECT, ask, ask_subject, cannot_tell, destination, hits, subject};
use crate::support::scripted::{Act, Got, Scripted, json};

fn listing(base: &str, pages: &Value) -> Value {
    json!({
        "per": "window", "url": format!("{base}/messages"), "query": { "from": "{from:epoch}" },
        "answer": { "items": "/items", "key_at": "/key", "id_at": "/id" }, "pages": pages,
    })
}

fn item(n: usize) -> Value {
    json!({ "key": format!("{n:032x}"), "id": format!("m-{n}") })
}

/// Items 1 to 5 by twos, and the one that is looked for last; `page` says which pair a request asks for, `body` writes the
/// answer from the items and whether there is more.
async fn six(
    page: impl Fn(&Got) -> usize + Send + Sync + 'static,
    body: impl Fn(&[Value], usize) -> Act + Send + Sync + 'static,
) -> Scripted {
    let mut all: Vec<Value> = (1..=5).map(item).collect();
    all.push(json!({ "key": SUBJECT, "id": "m-6" }));
    Scripted::new(move |got| {
        let page = page(got);
        let from = (page * 2).min(all.len());
        body(&all[from..(from + 2).min(all.len())], page)
    })
    .await
}

#[tokio::test]
async fn pages_are_counted_until_an_empty_one() {
    let server = six(
        |got| got.query("page").map_or(0, |page| page.parse::<usize>().unwrap() - 1),
        |items, _| json(200, &json!({ "items": items })),
    )
    .await;
    let answer = ask(&listing(&server.base, &json!({ "page": { "query": "page" } })), &subject("inv-229")).await;
    assert_eq!(hits(&answer.seen[0])[0].id.as_deref(), Some("m-6"));
    assert_eq!(answer.pages, 4);
    let asked: Vec<_> = server.got().iter().map(|got| got.query("page").unwrap_or_default()).collect();
    assert_eq!(asked, ["", "2", "3", "4"]);

    let server = six(
        |got| got.query("p").map_or(0, |page| page.parse().unwrap()),
        |items, page| json(200, &json!({ "items": items, "more": page < 2 })),
    )
    .await;
    let pages = json!({ "page": { "query": "p", "first": 0 }, "more_at": "/more" });
    let answer = ask(&listing(&server.base, &pages), &subject("inv-229")).await;
    assert_eq!((hits(&answer.seen[0]).len(), answer.pages), (1, 3), "false says that it was the last");
}

#[tokio::test]
async fn the_name_of_the_last_item_leads_on_while_there_is_more() {
    let after = |got: &Got| got.query("after").map_or(0, |id| id[2..].parse::<usize>().unwrap() / 2);
    let server = six(after, |items, page| json(200, &json!({ "items": items, "has_more": page < 2 }))).await;
    let pages = json!({ "cursor": { "last_at": "/id", "query": "after" }, "more_at": "/has_more" });
    let answer = ask(&listing(&server.base, &pages), &subject("inv-229")).await;
    assert_eq!((hits(&answer.seen[0]).len(), answer.pages), (1, 3));

    // Without a word about the end, or with the promise of more and nothing there, nothing is known.
    for (body, words) in [
        (json!({ "items": [item(1)] }), "neither true nor false"),
        (json!({ "items": [], "has_more": true }), "nothing says where"),
        (json!({ "items": [{ "key": "x" }], "has_more": true }), "last item has nothing"),
    ] {
        let server = Scripted::new(move |_| json(200, &body)).await;
        cannot_tell(&ask_subject(&listing(&server.base, &pages)).await, words);
    }
}

#[tokio::test]
async fn a_link_header_leads_on_inside_its_origin_only() {
    let body = |items: &[Value], page: usize| {
        let mut headers = vec![("content-type", "application/json".to_owned())];
        if page < 2 {
            headers.push((
                "link",
                format!("</messages?page={page}>; rel=\"prev\", </messages?page={}>; rel=\"next\"", page + 1),
            ));
        }
        Act::Reply(200, headers, json!({ "items": items }).to_string().into_bytes())
    };
    let server = six(|got| got.query("page").map_or(0, |page| page.parse().unwrap()), body).await;
    let answer = ask(&listing(&server.base, &json!({ "link_header": true })), &subject("inv-229")).await;
    assert_eq!((hits(&answer.seen[0]).len(), answer.pages), (1, 3));

    for (link, words) in [("<https://elsewhere.test/x>; rel=next", "another origin"), ("nonsense", "cannot be read")] {
        let server = Scripted::new(move |_| {
            let headers = vec![("content-type", "application/json".to_owned()), ("link", link.to_owned())];
            Act::Reply(200, headers, br#"{"items":[]}"#.to_vec())
        })
        .await;
        cannot_tell(&ask_subject(&listing(&server.base, &json!({ "link_header": true }))).await, words);
    }
}

#[tokio::test]
async fn a_count_of_all_items_must_come_out() {
    let skip = |got: &Got| got.query("offset").map_or(0, |skip| skip.parse::<usize>().unwrap() / 2);
    let pages = json!({ "offset": "offset", "total_at": "/total" });
    let server = six(skip, |items, _| json(200, &json!({ "items": items, "total": 6 }))).await;
    let answer = ask(&listing(&server.base, &pages), &subject("inv-229")).await;
    assert_eq!((hits(&answer.seen[0]).len(), answer.pages), (1, 3), "no fourth page is asked for");
    for (total, words) in [(json!(7), "counts 7 items and showed 6"), (json!(null), "no number stands")] {
        let server = six(skip, move |items, _| json(200, &json!({ "items": items, "total": total }))).await;
        let mut settings = listing(&server.base, &pages);
        settings["answer"]["key_at"] = json!("/other");
        cannot_tell(&ask_subject(&settings).await, words);
    }
    let server = six(skip, |items, _| json(200, &json!({ "items": items, "total": 1 }))).await;
    cannot_tell(&ask_subject(&listing(&server.base, &pages)).await, "counts 1 items and showed 2");
}

#[tokio::test]
async fn cursors_and_positions_go_into_a_body() {
    // GraphQL: a cursor in the variables.
    let after = |got: &Got| {
        let body: Value = serde_json::from_slice(&got.body).unwrap();
        body["variables"]["after"].as_str().map_or(0, |cursor| cursor.parse().unwrap())
    };
    let server = six(after, |items, page| {
        let next = (page < 2).then(|| (page + 1).to_string());
        json(200, &json!({ "data": { "messages": { "nodes": items, "pageInfo": { "endCursor": next, "hasNextPage": page < 2 } } } }))
    })
    .await;
    let settings = json!({
        "per": "window", "method": "POST", "url": format!("{}/graphql", server.base),
        "json": { "query": "query($from: String, $after: String) {{ … }}", "variables": { "from": "{from:rfc3339}", "after": null } },
        "answer": { "items": "/data/messages/nodes", "key_at": "/key", "id_at": "/id" },
        "pages": { "cursor": { "at": "/data/messages/pageInfo/endCursor", "body": "/variables/after" },
                   "more_at": "/data/messages/pageInfo/hasNextPage" },
    });
    let answer = ask(&settings, &subject("inv-229")).await;
    assert_eq!((hits(&answer.seen[0]).len(), answer.pages), (1, 3));
    let first: Value = serde_json::from_slice(&server.got()[0].body).unwrap();
    assert_eq!(first["variables"], json!({ "from": "2025-03-04T11:15:00Z", "after": null }));

    // JMAP: a position, which is a number.
    let position = |got: &Got| {
        let body: Value = serde_json::from_slice(&got.body).unwrap();
        usize::try_from(body.pointer("/methodCalls/0/1/position").unwrap().as_u64().unwrap()).unwrap() / 2
    };
    let server = six(position, |items, _| {
        json(200, &json!({ "methodResponses": [["Email/query", { "total": 6 }, "0"], ["Email/get", { "list": items }, "1"]] }))
    })
    .await;
    let settings = json!({
        "per": "window", "method": "POST", "url": format!("{}/jmap", server.base),
        "json": { "using": ["urn:ietf:params:jmap:mail"], "methodCalls": [
            ["Email/query", { "filter": { "after": "{from:rfc3339}" }, "position": 0, "limit": 2, "calculateTotal": true }, "0"],
            ["Email/get", { "#ids": { "resultOf": "0", "name": "Email/query", "path": "/ids" } }, "1"]] },
        "answer": { "assert": { "/methodResponses/0/0": "Email/query", "/methodResponses/1/0": "Email/get" },
                    "items": "/methodResponses/1/1/list", "key_at": "/key" },
        "pages": { "offset": { "body": "/methodCalls/0/1/position" }, "total_at": "/methodResponses/0/1/total" },
    });
    let answer = ask(&settings, &subject("inv-229")).await;
    assert_eq!((hits(&answer.seen[0]).len(), answer.pages), (1, 3));
}

#[test]
fn contradictory_pages_are_refused_with_their_rule() {
    for (pages, field, rule) in [
        (json!({ "page": "p", "link_header": true }), "pages", "one of next_at"),
        (json!({ "page": { "query": "p", "body": "/p" } }), "pages.page", "one of query and body"),
        (json!({ "page": { "body": "/p" } }), "pages.page.body", "point to something in json"),
        (json!({ "page": { "query": "p", "start": 1 } }), "", "wrong kind"),
        (json!({ "cursor": { "query": "p" } }), "pages.cursor", "one of at and last_at"),
        (json!({ "cursor": { "last_at": "/id", "query": "p" } }), "pages.cursor.last_at", "more_at or total_at"),
        (json!({ "more_at": "/m", "total_at": "/t" }), "pages.total_at", "beside more_at"),
        (json!({ "more_at": "m" }), "pages.more_at", "JSON pointer"),
    ] {
        let error =
            Http::build(&destination(&listing("https://h.test", &pages))).err().unwrap_or_else(|| panic!("{pages}"));
        let field = if field.is_empty() { "look_up.http".to_owned() } else { format!("look_up.http.{field}") };
        assert_eq!(error.field, field, "{pages}: {error}");
        assert!(error.rule.contains(rule), "{pages}: {error}");
    }
}

#[tokio::test]
async fn a_page_counter_that_the_server_ignores_is_noticed() {
    let server = Scripted::new(|_| json(200, &json!({ "items": [item(1)] }))).await;
    cannot_tell(&ask_subject(&listing(&server.base, &json!({ "page": "page" }))).await, "same page came twice");
    assert_ne!(ask_subject(&listing(&server.base, &json!({ "page": "page" }))).await, Seen::Nothing);
}
