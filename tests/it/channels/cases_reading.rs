//! Case 55: what a downstream answers is for people, not for whoever can have a URL called.

use std::sync::Arc;

use axum::{Router, body::Body};
use http::Request;
use http_body_util::BodyExt;
use settled::{
    api::{self, AppState},
    clock::Clock,
    config::retention::Windows,
    lifecycle::Shutdown,
    store::tokens::{self, Kind, NewToken},
    telemetry::progress::Progress,
};
use tokio::sync::Notify;

use super::fake::{Fake, reply};
use crate::support::world::{TENANT, World};

fn surface(world: &World) -> Router {
    let clock: Arc<dyn Clock> = world.clock.clone();
    let day = std::time::Duration::from_secs(86_400);
    let state = AppState::new(
        world.db.pool.clone(),
        Arc::clone(&clock),
        Arc::clone(&world.sending.metrics),
        Progress::new(clock),
        Arc::new(Notify::new()),
        Windows { keys: day * 180, retries: day, look_back: day, callers: day },
        Shutdown::new(),
    );
    api::router(state.with_fleet(Arc::clone(&world.fleet)))
}

async fn token(world: &World, kind: Kind) -> String {
    let new = NewToken { kind, principal: "ada", tenant: Some(TENANT), expires_at: None, created_by: "operator:test" };
    let mut conn = world.db.pool.acquire().await.unwrap();
    tokens::create(&mut conn, &new).await.unwrap().1
}

async fn get(router: &Router, path: &str, token: &str) -> (u16, String) {
    let request = Request::get(path).header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(router.clone(), request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn case_055_an_agent_sees_the_status_and_people_a_capped_excerpt() {
    for status in ["200 OK", "400 Bad Request", "500 Internal Server Error"] {
        let body = format!("secret=abc \u{1b}[31m\u{202e}<script>alert(1)</script> {}THE END", "x".repeat(2000));
        let fake = Fake::answering(reply(status, &body)).await;
        let entry = format!(
            "name = \"erp\"\nchannel = \"webhook\"\nin_doubt = \"person\"\nallow_addresses = [\"127.0.0.0/8\"]\n[webhook]\nurl = \"{}\"\n",
            fake.url("/")
        );
        let mut world = World::new(&[entry]).await;
        let id = world.enqueue("erp", "INV-1", r#"{"n":1}"#).await;
        world.dispatch().await;
        let router = surface(&world);
        let agent = token(&world, Kind::Producer).await;
        for path in [format!("/v1/intents/{id}"), "/v1/intents".to_owned(), "/v1/requests?unserved=true".to_owned()] {
            let (code, text) = get(&router, &path, &agent).await;
            assert_eq!(code, 200, "{text}");
            assert!(!text.contains("secret") && !text.contains("script"), "{path}: {text}");
        }
        for path in [format!("/v1/intents/{id}/story"), "/v1/escalations".to_owned()] {
            assert_eq!(get(&router, &path, &agent).await.0, 403, "{path}");
        }
        let person = token(&world, Kind::Responder).await;
        let (code, text) = get(&router, &format!("/v1/intents/{id}/story"), &person).await;
        assert_eq!(code, 200);
        assert!(text.contains("secret=abc"), "{text}");
        assert!(!text.contains("THE END"), "it is capped");
        assert!(
            !text.contains(['\u{1b}', '\u{202e}']) && !text.contains("\\u001b"),
            "nothing in it commands a terminal"
        );
    }
}
