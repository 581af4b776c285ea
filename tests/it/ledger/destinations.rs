//! Publishing: only a higher revision replaces, and no generation is forgotten.

use serde_json::json;
use settled::{
    config::destination::Destination,
    store::destinations::{self, Publication, PublishError, Published},
};

use super::world::{World, call};

fn configured(changes: serde_json::Value) -> Destination {
    let mut entry = json!({"name": "invoices", "channel": "webhook", "webhook": {"url": "https://a.test/"}});
    entry.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    serde_json::from_value(entry).unwrap()
}

async fn publish(
    world: &World,
    destination: &Destination,
    revision: i64,
    generation: &str,
) -> Result<Published, PublishError> {
    let publication = Publication { destination, revision, generation, asked_by_key: false };
    destinations::publish(&mut world.pool().acquire().await.unwrap(), publication).await
}

#[tokio::test]
async fn only_a_higher_revision_replaces() {
    let world = World::new().await;
    let (one, two) = (configured(json!({})), configured(json!({"webhook": {"url": "https://b.test/"}})));
    assert_eq!(publish(&world, &one, 5, "g1").await.unwrap(), Published::New);
    assert_eq!(publish(&world, &one, 5, "g1").await.unwrap(), Published::Unchanged);
    assert_eq!(publish(&world, &two, 4, "g2").await.unwrap(), Published::Older { held: 5 });
    assert!(matches!(publish(&world, &two, 5, "g2").await, Err(PublishError::SameRevision { revision: 5, .. })));
    assert_eq!(publish(&world, &two, 6, "g2").await.unwrap(), Published::Replaced);
    let generations: Vec<String> =
        sqlx::query_scalar("select generation from settled.generations where destination = 'invoices' order by 1")
            .fetch_all(world.pool())
            .await
            .unwrap();
    assert_eq!(generations, ["g1", "g2"], "what attempts in doubt used stays askable");
    assert_eq!(world.count("settled.journal where data ->> 'act' = 'publish'").await, 2);
}

#[tokio::test]
async fn a_withdrawn_destination_comes_back_by_publishing_it() {
    let world = World::new().await;
    let one = configured(json!({"effect_scope": "invoices-anyhow"}));
    publish(&world, &one, 1, "g1").await.unwrap();
    let mut conn = world.owner().await;
    assert!(destinations::withdraw(&mut conn, "invoices").await.unwrap());
    assert!(!destinations::withdraw(&mut conn, "invoices").await.unwrap());
    let rows = destinations::list(&mut conn).await.unwrap();
    let row = rows.iter().find(|r| r.name == "invoices").unwrap();
    assert!(row.withdrawn_at.is_some());
    assert_eq!((row.effect_scope.as_str(), row.revision, row.tenants.len()), ("invoices-anyhow", 1, 0));
    assert_eq!(publish(&world, &one, 1, "g1").await.unwrap(), Published::Replaced);
    assert_eq!(world.count("settled.destinations where name = 'invoices' and withdrawn_at is null").await, 1);
}

#[tokio::test]
async fn a_channel_never_changes_and_a_pattern_must_be_one_of_postgres() {
    let world = World::new().await;
    publish(&world, &configured(json!({})), 1, "g1").await.unwrap();
    let sms = configured(json!({"channel": "sms"}));
    assert!(
        matches!(publish(&world, &sms, 2, "g2").await, Err(PublishError::ChannelChanged(name)) if name == "invoices")
    );
    let pattern = configured(json!({"reference_pattern": "inv-("}));
    assert!(matches!(publish(&world, &pattern, 2, "g1").await, Err(PublishError::Pattern(_))));
}

#[tokio::test]
async fn an_effect_scope_never_changes_since_effects_would_be_forgotten() {
    let world = World::new().await;
    publish(&world, &configured(json!({})), 1, "g1").await.unwrap();
    let other = configured(json!({"effect_scope": "letters"}));
    let refused = publish(&world, &other, 2, "g1").await;
    assert!(matches!(refused, Err(PublishError::ScopeChanged { held, .. }) if held == "invoices"));
    assert_eq!(world.count("settled.destinations where name = 'invoices' and revision = 1").await, 1);
}

#[tokio::test]
async fn what_is_configured_reaches_the_ledger() {
    let world = World::new().await;
    let careful = configured(json!({
        "approval": "always",
        "reference_pattern": "inv-[0-9]+",
        "canonical": {
            "money": [{"at": "/amount", "currency": "/currency"}], "times": ["/at"], "sets": ["/tags"], "volatile": ["/trace"],
            "defaults": {"/currency": "EUR"}
        }
    }));
    publish(&world, &careful, 1, "g1").await.unwrap();
    world.grant("acme", "invoices").await;
    let ask = |payload: &str| call("invoices", "INV-1", payload, "run-1", 1);
    let held = world
        .ask(&ask(r#"{"amount": "40,000.00", "at": "2026-01-01T01:00:00+01:00", "tags": ["b", "a"], "trace": 1}"#))
        .await
        .unwrap();
    assert_eq!(held.state, "held");
    let again = ask(r#"{"amount": 4e4, "at": "2026-01-01T00:00:00Z", "tags": ["a", "b"], "currency": "EUR"}"#);
    assert_eq!(world.ask(&again).await.unwrap().verdict, "replayed");
    let other = world.ask(&call("invoices", "CRN-1", "{}", "run-1", 2)).await.unwrap_err();
    assert_eq!(other.detail["rule"], "pattern");
}

#[tokio::test]
async fn two_that_publish_at_once_leave_the_higher_revision() {
    let world = World::new().await;
    let (one, two) = (configured(json!({})), configured(json!({"webhook": {"url": "https://b.test/"}})));
    let (_, _) = tokio::join!(publish(&world, &one, 1, "g1"), publish(&world, &two, 2, "g2"));
    publish(&world, &two, 2, "g2").await.unwrap();
    assert_eq!(
        world.count("settled.destinations where name = 'invoices' and revision = 2 and generation = 'g2'").await,
        1
    );
}
