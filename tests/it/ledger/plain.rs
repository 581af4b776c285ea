//! The short way through the checks and the whole one never differ.

use serde_json::json;

use super::{
    chance::Chance,
    world::{World, call},
};

/// Both ways of one call: which was taken, and how they differ if they do.
const BOTH: &str = "
create function pg_temp.both(destination text, reference text, payload text, run_id text, step bigint, options jsonb) returns text
language plpgsql as $$
declare
  short settled.call;
  whole settled.call;
  given json;
begin
  begin
    given := payload::json;
  exception when others then
    return 'no json';
  end;
  select * into short from settled.plain_call(destination, reference, given, run_id, step, options);
  begin
    whole := settled.whole_call(destination, reference, given, run_id, step, options);
  exception when others then
    return case when short.destination is null then 'refused' else 'differs: taken, but ' || sqlstate || ' ' || sqlerrm end;
  end;
  if short.destination is null then
    return 'left';
  end if;
  if not options ? 'due_at' then
    whole.due_at := short.due_at; -- two readings of the clock
  end if;
  return case when short::text = whole::text then 'taken' else 'differs: ' || short::text || ' and ' || whole::text end;
end $$";

async fn world() -> World {
    let world = World::new().await;
    let declared = json!({ "canonical": { "money": [], "times": ["/when"], "sets": ["/tags"], "volatile": ["/note"], "defaults": {} } });
    world.destination("ruled", "webhook", "ruled", declared).await;
    world
        .destination("narrow", "webhook", "narrow", json!({ "reference_pattern": "inv-[0-9]+", "approval": "always" }))
        .await;
    let nothing = json!({ "money": [], "times": [], "sets": [], "volatile": [], "defaults": {} });
    let asked = json!({ "asked_by_key": true, "approval": "always", "canonical": nothing });
    world.destination("asked", "webhook", "hook", asked).await;
    world.destination("gone", "webhook", "gone", json!({})).await;
    world.run("update settled.destinations set withdrawn_at = now() where name = 'gone'").await;
    world.destination("others", "webhook", "others", json!({})).await;
    world.run("delete from settled.grants where destination = 'others'").await;
    world
}

#[tokio::test]
async fn the_short_way_and_the_whole_way_never_differ() {
    let world = world().await;
    let mut conn = world.owner().await;
    sqlx::raw_sql(BOTH).execute(&mut conn).await.unwrap();
    let (mut taken, mut left, mut refused) = (0, 0, 0);
    for seed in 0..3000 {
        let made = Chance::new(seed).call();
        let told: String = sqlx::query_scalar("select pg_temp.both($1, $2, $3, $4, $5, $6)")
            .bind(&made.destination)
            .bind(&made.reference)
            .bind(&made.payload)
            .bind(&made.run_id)
            .bind(made.step)
            .bind(&made.options)
            .fetch_one(&mut conn)
            .await
            .unwrap_or_else(|e| panic!("seed {seed}: {made:?}: {e}"));
        match told.as_str() {
            "taken" => taken += 1,
            "left" => left += 1,
            "refused" => refused += 1,
            "no json" => {}
            other => panic!("seed {seed}: {made:?}: {other}"),
        }
    }
    assert!(taken > 300 && left > 100 && refused > 300, "{taken} taken, {left} left, {refused} refused");
}

#[tokio::test]
async fn what_most_callers_send_takes_the_short_way() {
    let world = world().await;
    let mut conn = world.owner().await;
    sqlx::raw_sql(BOTH).execute(&mut conn).await.unwrap();
    let mail = r#"{"to":"ap@acme.test","subject":"Invoice INV-1","text":"Hello,\nyour \"invoice\" is \\ there."}"#;
    let order =
        r#"{"type":"order.paid","data":{"total":840.00,"lines":[{"sku":"a-1","n":2},{"sku":"b","n":1}],"gift":null}}"#;
    let by_http = json!({ "tenant": "acme", "principal": "shop", "surface": "http", "slot": "a@b.test", "deadline": "2031-01-02T03:04:05.5Z" });
    for (destination, payload, options) in [
        ("hook", order, json!({ "tenant": "acme" })),
        ("mail", mail, json!({ "tenant": "acme" })),
        ("text", r#"{"to":"+491701234567","text":"Code 123456"}"#, json!({ "tenant": "acme" })),
        ("asked", "{}", json!({ "tenant": "acme" })),
        ("hook", order, by_http),
    ] {
        let mut made = call(destination, "INV-1", payload, "run-1", 1);
        made.options = options;
        let told: String = sqlx::query_scalar("select pg_temp.both($1, $2, $3, $4, $5, $6)")
            .bind(&made.destination)
            .bind(&made.reference)
            .bind(&made.payload)
            .bind(&made.run_id)
            .bind(made.step)
            .bind(&made.options)
            .fetch_one(&mut conn)
            .await
            .unwrap();
        assert_eq!(told, "taken", "{made:?}");
    }
}
