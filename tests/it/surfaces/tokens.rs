//! Tokens: what is stored, and what is let in.

use chrono::{TimeDelta, Utc};
use settled::store::tokens::{self, Kind, NewToken, Presented};

use crate::support::db::Database;

fn new(kind: Kind, tenant: Option<&str>) -> NewToken<'_> {
    NewToken { kind, principal: "ada", tenant, expires_at: None, created_by: "operator:test" }
}

#[tokio::test]
async fn only_a_digest_is_stored_and_the_whole_token_is_let_in() {
    let db = Database::new().await;
    let mut conn = db.pool.acquire().await.unwrap();
    let (id, text) = tokens::create(&mut conn, &new(Kind::Producer, Some("acme"))).await.unwrap();
    assert!(text.starts_with(&format!("stl_producer_{id}_")));
    let secret = text.rsplit('_').next().unwrap();
    let row: String = sqlx::query_scalar("select t::text from settled.tokens t").fetch_one(&mut *conn).await.unwrap();
    assert!(!row.contains(secret));
    let principal = tokens::verify(&mut conn, &Presented::parse(&text).unwrap()).await.unwrap().unwrap();
    assert_eq!((principal.kind, principal.tenant.as_deref()), (Kind::Producer, Some("acme")));
    assert_eq!(principal.actor(), "producer:ada");
}

#[tokio::test]
async fn a_wrong_secret_another_kind_a_revoked_and_an_expired_token_are_refused() {
    let db = Database::new().await;
    let mut conn = db.pool.acquire().await.unwrap();
    let (id, text) = tokens::create(&mut conn, &new(Kind::Responder, None)).await.unwrap();
    let last = if text.ends_with('0') { '1' } else { '0' };
    let wrong = format!("{}{last}", &text[..text.len() - 1]);
    let other_kind = text.replace("stl_responder", "stl_admin");
    let nobody = text.replace(&id, "000000000000");
    for text in [&wrong, &other_kind, &nobody] {
        assert_eq!(tokens::verify(&mut conn, &Presented::parse(text).unwrap()).await.unwrap(), None);
    }
    let presented = Presented::parse(&text).unwrap();
    assert!(tokens::verify(&mut conn, &presented).await.unwrap().is_some());
    assert!(tokens::revoke(&mut conn, &id).await.unwrap());
    assert_eq!(tokens::verify(&mut conn, &presented).await.unwrap(), None);
    assert!(!tokens::revoke(&mut conn, &id).await.unwrap(), "revoking twice tells so");

    let past = NewToken { expires_at: Some(Utc::now() - TimeDelta::seconds(1)), ..new(Kind::Admin, None) };
    let (_, text) = tokens::create(&mut conn, &past).await.unwrap();
    assert_eq!(tokens::verify(&mut conn, &Presented::parse(&text).unwrap()).await.unwrap(), None);
}

#[tokio::test]
async fn a_producer_without_a_tenant_is_refused_by_the_table() {
    let db = Database::new().await;
    let mut conn = db.pool.acquire().await.unwrap();
    assert!(tokens::create(&mut conn, &new(Kind::Producer, None)).await.is_err());
}
