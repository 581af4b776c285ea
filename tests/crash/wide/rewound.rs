//! The ledger loses history: an asynchronous standby is promoted, or a base backup is put back. Callers make their calls again;
//! nothing may be sent until what the lost history sent can be seen, and nothing twice.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use rustix::process::Signal;
use settled::demo::{
    cluster::Cluster,
    fakes::{
        faults::{Fault, Stage, When},
        latch::Latch,
    },
};
use sqlx::postgres::PgPoolOptions;

use super::{
    caller::{Caller, Calls},
    cuts::proxied,
    kills::{QUARANTINE, asked_until_settled, proven},
    stage::{Telling, Totals, cluster, database},
};
use crate::{
    count::{AT_REST, Count},
    db::Database,
    house::{CHANNELS, House, destination, put},
    process::{PATIENCE, Process},
    proxy::{How, Proxy},
};

/// Before the loss, in what is lost, and after it.
const BEFORE: usize = 60;
const LOST: usize = 45;
const AFTER: usize = 45;
/// Known to the copy and due only when it learns nothing any more: its claim is lost, not its admission.
const LATER: usize = 12;
const DUE_IN: Duration = Duration::from_secs(6);
/// Nothing that began less than this before the last sign of life is sure to be older than the loss: clocks of two hosts may differ
/// by so much. The elder witnesses must be older.
const AGED: Duration = Duration::from_secs(70);
/// How long callers of this business may repeat a call.
const REPLAY_HORIZON: Duration = Duration::from_secs(30);
/// The longest lease of the three destinations: see `house::hurry`.
const LEASE: TimeDelta = TimeDelta::milliseconds(5_500);
/// Their lag. A proof holds for as long, also on a machine that is busy with other things.
const LAG: TimeDelta = TimeDelta::seconds(12);

/// A primary, its standby, and what stands between everybody.
struct Scene {
    house: House,
    proxy: Proxy,
    url: String,
    calls: Calls,
    telling: Telling,
}

/// The failover.
pub async fn failover() -> Totals {
    let telling = Telling::begin("failover");
    let primary = cluster().await;
    let db = database(&primary).await;
    let link = Proxy::start(address(&primary)).await;
    let port = link.port();
    let copied = move || (primary.standby(port).unwrap(), primary);
    let (standby, mut primary) = tokio::task::spawn_blocking(copied).await.unwrap();
    let scene = Scene::build(telling, &primary, db).await;
    let dies = format!("{QUARANTINE}:1");
    let dies = [("SETTLED_FAILPOINTS", dies.as_str())];
    let daemons = [scene.house.serve(&dies), scene.house.serve(&dies)];
    for daemon in &daemons {
        daemon.up().await;
    }
    scene.business(BEFORE).await;
    scene.grow_old().await;
    scene.later(LATER).await;
    scene.caught_up().await;

    // From here on the standby learns nothing.
    link.point_to(nobody().await);
    link.cut(How::Reset);
    scene.business(LOST).await;
    let due = format!(
        "select count(*) >= {LATER} from settled.intents where due_at > created_at + interval '1 s' and state = 'sent'"
    );
    scene.house.until("what was due later is sent as well", PATIENCE, &due).await;
    // And three have arrived whose replies are held when the primary goes.
    let latch = Arc::new(Latch::default());
    let hold = Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) };
    scene.house.orders.faults().add(Stage::Act, When::Any, 3, hold);
    let mut caller = scene.caller();
    while !latch.arrived(3, Duration::from_millis(50)).await {
        caller.next("R").await;
    }
    primary.kill().unwrap();
    let before_promotion = Utc::now();
    let standby = tokio::task::spawn_blocking(move || standby.promote().map(|()| standby)).await.unwrap().unwrap();
    scene.proxy.point_to(address(&standby));
    scene.proxy.cut(How::Reset);
    latch.release();
    scene.telling.says("the standby is promoted");
    let mut kills = 0;
    for daemon in &daemons {
        // Each walks once over what may be lost, until it dies; then somebody else begins anew.
        daemon.killed().await;
        kills += 1;
    }
    let heirs = [scene.house.serve(&[]), scene.house.serve(&[])];
    for daemon in &heirs {
        daemon.up().await;
    }
    Totals { kills, cuts: 0, count: scene.recover(before_promotion, &heirs).await }
}

/// The restore of yesterday's base backup.
pub async fn restore() -> Totals {
    let telling = Telling::begin("restore");
    let cluster = cluster().await;
    let db = database(&cluster).await;
    let scene = Scene::build(telling, &cluster, db).await;
    let daemon = scene.house.serve(&[]);
    daemon.up().await;
    scene.business(BEFORE).await;
    scene.grow_old().await;
    scene.later(LATER).await;
    let copied = move || (cluster.back_up(cluster.port(), false).unwrap(), cluster);
    let (backup, cluster) = tokio::task::spawn_blocking(copied).await.unwrap();
    scene.telling.says("the backup of yesterday is made");
    scene.business(LOST).await;
    let due = format!(
        "select count(*) >= {LATER} from settled.intents where due_at > created_at + interval '1 s' and state = 'sent'"
    );
    scene.house.until("what was due later is sent as well", PATIENCE, &due).await;
    daemon.signal(Signal::TERM);
    assert!(daemon.end(PATIENCE).await.success(), "{}", daemon.last_words());
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
    let before_restore = Utc::now();
    let restored = tokio::task::spawn_blocking(move || backup.restore()).await.unwrap().unwrap();
    scene.proxy.point_to(address(&restored));
    scene.telling.says("and put back");
    let daemons = [scene.house.serve(&[]), scene.house.serve(&[])];
    for daemon in &daemons {
        daemon.up().await;
    }
    Totals { count: scene.recover(before_restore, &daemons).await, ..Totals::default() }
}

fn address(cluster: &Cluster) -> std::net::SocketAddr {
    ([127, 0, 0, 1], cluster.port()).into()
}

/// An address at which nobody listens.
async fn nobody() -> std::net::SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// The ledger as everybody reaches it.
async fn through(url: &str, cluster: &Cluster) -> Database {
    let pool = PgPoolOptions::new().max_connections(12).connect(url).await.unwrap();
    Database { pool, url: url.to_owned(), name: "crash".to_owned(), server: cluster.url("postgres"), owns: false }
}

impl Scene {
    async fn build(telling: Telling, cluster: &Cluster, db: Database) -> Self {
        let (proxy, url) = proxied(cluster, &db.url).await;
        db.pool.close().await;
        let db = through(&url, cluster).await;
        let change = |settings: &mut toml::Table| {
            for name in CHANNELS {
                put(destination(settings, name), "look_up", &[("lag", &format!("{}s", LAG.num_seconds()))]);
            }
            let mut set = |section: &str, key: &str, value: toml::Value| {
                let section = settings.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
                section.as_table_mut().unwrap().insert(key.to_owned(), value);
            };
            set("instance", "accept_lossy_failover", true.into());
            set("retention", "callers_replay_horizon", format!("{}s", REPLAY_HORIZON.as_secs()).into());
        };
        let house = House::over(db, change, Some(&url)).await;
        Self { house, proxy, url, calls: Calls::default(), telling }
    }

    fn caller(&self) -> Caller<'_> {
        Caller::new(&self.url, &self.calls)
    }

    /// So many calls, all of them sent.
    async fn business(&self, many: usize) {
        let mut caller = self.caller();
        let mut last = [None; CHANNELS.len()];
        for number in 0..many {
            last[number % CHANNELS.len()] = Some(caller.next("R").await);
        }
        for id in last.into_iter().flatten() {
            self.house.until_state(id, "sent").await;
        }
        let open = "select not exists (select from settled.intents where state <> 'sent' and due_at < created_at + interval '1 s')";
        self.house.until("all of it is sent", PATIENCE, open).await;
    }

    /// Waits until the first sends are old.
    async fn grow_old(&self) {
        let old =
            format!("select min(sent_at) < clock_timestamp() - interval '{} s' from settled.intents", AGED.as_secs());
        self.house.until("the business is old enough", AGED * 2, &old).await;
    }

    /// Calls that are due later.
    async fn later(&self, many: usize) {
        let mut caller = self.caller();
        for _ in 0..many {
            caller.later("R", DUE_IN).await;
        }
    }

    /// Waits until the standby has everything so far.
    async fn caught_up(&self) {
        let now: String =
            sqlx::query_scalar("select pg_current_wal_lsn()::text").fetch_one(&self.house.db.pool).await.unwrap();
        let sql = format!("select coalesce(bool_and(replay_lsn >= '{now}'::pg_lsn), false) from pg_stat_replication");
        self.house.until("the standby has caught up", PATIENCE, &sql).await;
    }

    /// After the loss: callers repeat everything, the business goes on, and all of it ends well.
    async fn recover(&self, lost_at: DateTime<Utc>, daemons: &[Process]) -> Count {
        let (calls, house) = (&self.calls, &self.house);
        let there: i64 =
            sqlx::query_scalar("select count(*) from settled.intents").fetch_one(&house.db.pool).await.unwrap();
        self.telling.says(&format!("{there} of {} intents are left", calls.asked()));
        assert!(usize::try_from(there).unwrap() < calls.asked(), "nothing was lost");
        let mut caller = self.caller();
        for (destination, reference) in calls.accepted() {
            caller.ask(&destination, &reference).await;
        }
        for _ in 0..AFTER {
            caller.next("R").await;
        }
        self.telling.says("every call was made again");
        self.quarantine(lost_at, daemons).await;
        // Until now even new calls were asked about first: an earlier call for the same effect may be among what was lost. From
        // now on they are sent, and are the younger witnesses of what is in doubt.
        let over = "select bool_and(ask_first_until < clock_timestamp()) from settled.rewinds";
        house.until("no caller repeats any more", PATIENCE * 2, over).await;
        for _ in 0..AFTER {
            caller.next("R").await;
        }
        asked_until_settled(house, AT_REST).await;
        asked_until_settled(house, &proven()).await;
        let early = "select count(*) = 0 from settled.attempts a, settled.rewinds w
                      where a.claimed_at between w.noticed_at and w.quiet_until";
        house.until("nothing was claimed in the quarantine", Duration::ZERO, early).await;
        let count = Count::of_all(house, &calls.accepted()).await;
        self.telling.says(&format!("{count}"));
        count.assert_clean();
        count
    }

    /// Nothing is claimed, and nothing happens downstream, until lease and lag have gone by since the loss.
    async fn quarantine(&self, lost_at: DateTime<Utc>, daemons: &[Process]) {
        let over = lost_at + LEASE + LAG;
        let sql = format!("select clock_timestamp() > '{over}'");
        self.house.until("the quarantine is over", PATIENCE, &sql).await;
        let noticed = "select count(*) = 1 from settled.rewinds";
        self.house.until("the loss was noticed, once", PATIENCE, noticed).await;
        let claimed: Vec<(DateTime<Utc>, String)> = sqlx::query_as(
            "select a.claimed_at, i.reference from settled.attempts a join settled.intents i on i.id = a.intent_id
              where a.claimed_at between $1 and $2 order by 1",
        )
        .bind(lost_at)
        .bind(over)
        .fetch_all(&self.house.db.pool)
        .await
        .unwrap();
        assert!(claimed.is_empty(), "claimed in the quarantine that began at {lost_at}: {claimed:?}");
        let slack = lost_at + TimeDelta::milliseconds(500);
        for destination in CHANNELS {
            let early = self.house.effects(destination).all();
            let early: Vec<_> = early.into_iter().filter(|effect| effect.at > slack && effect.at < over).collect();
            assert!(early.is_empty(), "sent to {destination} in the quarantine: {early:?}");
        }
        for daemon in daemons {
            assert!(daemon.ended().is_none(), "{} ended:\n{}", daemon.name, daemon.last_words());
        }
        self.telling.says("the quarantine was obeyed");
    }
}
