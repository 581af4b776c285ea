//! The engine with its loops as values that a test steps, a clock that it turns, a real ledger and fake downstreams.

use std::{sync::Arc, time::Duration};

use secrecy::SecretSlice;
use settled::{
    clock::{Clock, TestClock},
    config::destination::Destination,
    domain::key::Keyring,
    engine::{
        auditor::Auditor,
        decider::Decider,
        dispatcher::{Dispatcher, Sending},
        fleet::Fleet,
        quarantine::Quarantine,
        reaper::Reaper,
        reconciler::Reconciler,
        results::{Finished, Recorder},
        runner::Step,
        sweeper::Sweeper,
        watch::{Beaten, Times, Watch},
    },
    look_up,
    store::{
        self,
        destinations::Publication,
        requests::{NewRequest, Receipt},
    },
    telemetry::metrics::Metrics,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::db::Database;

/// Whose intents tests make.
pub const TENANT: &str = "acme";
/// After so long no caller repeats a call.
pub const CALLERS: Duration = Duration::from_secs(86_400);

/// See the module.
pub struct World {
    pub db: Arc<Database>,
    pub clock: Arc<TestClock>,
    pub fleet: Arc<Fleet>,
    pub worker: Uuid,
    pub sending: Sending,
    pub dispatcher: Dispatcher,
    pub reconciler: Reconciler,
    pub auditor: Auditor,
    pub reaper: Reaper,
    pub sweeper: Sweeper,
    recorder: Recorder,
    inbox: mpsc::Receiver<Finished>,
}

/// A destination from a fragment of configuration.
pub fn destination(toml: &str) -> Destination {
    toml::from_str(toml).unwrap_or_else(|e| panic!("{e}\n{toml}"))
}

impl World {
    /// A world with these destinations, published and granted to [`TENANT`].
    pub async fn new(destinations: &[String]) -> Self {
        Self::over(Database::new().await, destinations, 1, "k1").await
    }

    /// The same daemon after a restart, over a ledger that is already there.
    pub async fn over(db: impl Into<Arc<Database>>, destinations: &[String], revision: i64, kid: &str) -> Self {
        let clock = Arc::new(TestClock::at(chrono::Utc::now()));
        // Ahead of the clock of the ledger, so that what is admitted now is due.
        clock.advance(Duration::from_secs(60));
        Self::at(db.into(), clock, destinations, revision, kid).await
    }

    /// A second daemon beside this one: the same ledger, the same time, a memory and a configuration of its own.
    pub async fn beside(&self, destinations: &[String], revision: i64, kid: &str) -> Self {
        Self::at(Arc::clone(&self.db), Arc::clone(&self.clock), destinations, revision, kid).await
    }

    async fn at(db: Arc<Database>, clock: Arc<TestClock>, destinations: &[String], revision: i64, kid: &str) -> Self {
        let mut served = Vec::new();
        let mut conn = db.pool.acquire().await.unwrap();
        for text in destinations {
            let config = destination(text);
            let ready = settled::daemon::build(&config).unwrap_or_else(|e| panic!("{e:#}"));
            let publication =
                Publication { destination: &config, revision, generation: &ready.generation, asked_by_key: false };
            store::destinations::publish(&mut conn, publication).await.unwrap();
            store::producers::grant_destination(&mut conn, TENANT, &config.name).await.unwrap();
            served.push(ready);
        }
        store::instance::belongs(&mut conn, "test", "test").await.unwrap();
        let worker = Uuid::now_v7();
        store::workers::register(&mut conn, worker, "test").await.unwrap();
        drop(conn);
        let build = |config: &Destination| look_up::registry::build(config).map_err(|e| e.to_string());
        Self::assemble(db, clock, Arc::new(Fleet::new(served, Box::new(build))), worker, kid)
    }

    fn assemble(db: Arc<Database>, clock: Arc<TestClock>, fleet: Arc<Fleet>, worker: Uuid, kid: &str) -> Self {
        let secrets =
            ["k1", "k2"].map(|kid| (kid.to_owned(), SecretSlice::from(format!("{kid}{kid:-<40}").into_bytes())));
        let keyring = Arc::new(Keyring::new(kid, secrets).unwrap());
        let (results, inbox) = mpsc::channel(4096);
        let metrics = Metrics::new();
        let any_clock: Arc<dyn Clock> = clock.clone();
        let times = Times::of(fleet.iter().map(|served| &served.config), CALLERS);
        let watch = Watch::new(worker, "test", Arc::clone(&any_clock), Arc::clone(&metrics), times);
        let sending = Sending {
            pool: db.pool.clone(),
            fleet: Arc::clone(&fleet),
            clock: Arc::clone(&any_clock),
            watch: Arc::clone(&watch),
            keyring,
            region: "test".to_owned(),
            worker,
            results,
            stopping: CancellationToken::new(),
            hard_stop: CancellationToken::new(),
            tracker: TaskTracker::new(),
            metrics: Arc::clone(&metrics),
            batch: 64,
        };
        let wake = Arc::new(Notify::new());
        Self {
            dispatcher: Dispatcher::new(sending.clone()),
            reconciler: Reconciler::new(sending.clone()),
            auditor: Auditor::new(sending.clone()),
            reaper: Reaper {
                pool: db.pool.clone(),
                fleet: Arc::clone(&fleet),
                clock: Arc::clone(&any_clock),
                worker,
                watch,
                heartbeat_limit: Duration::from_secs(86_400),
                metrics: Arc::clone(&metrics),
            },
            sweeper: Sweeper::new(
                db.pool.clone(),
                Arc::clone(&fleet),
                Arc::clone(&any_clock),
                worker,
                Duration::from_secs(900),
                Arc::clone(&metrics),
            ),
            recorder: Recorder::new(
                db.pool.clone(),
                Arc::clone(&fleet),
                any_clock,
                worker,
                wake,
                Arc::default(),
                metrics,
            ),
            sending,
            inbox,
            db,
            clock,
            fleet,
            worker,
        }
    }

    /// A heartbeat.
    pub async fn beat(&self) -> Beaten {
        self.sending.watch.beat(&self.db.pool).await.unwrap()
    }

    /// The loop that follows a rewind.
    pub fn quarantine(&self) -> Quarantine {
        let sending = &self.sending;
        Quarantine {
            pool: sending.pool.clone(),
            fleet: Arc::clone(&sending.fleet),
            clock: Arc::clone(&sending.clock),
            worker: self.worker,
            metrics: Arc::clone(&sending.metrics),
        }
    }

    /// The loop that carries out what people decided.
    pub fn decider(&self) -> Decider {
        let sending = &self.sending;
        Decider {
            pool: sending.pool.clone(),
            fleet: Arc::clone(&sending.fleet),
            clock: Arc::clone(&sending.clock),
            metrics: Arc::clone(&sending.metrics),
        }
    }

    /// Asks the ledger for an effect, as a program would.
    pub async fn request(&self, request: &NewRequest) -> Result<Receipt, store::requests::EnqueueError> {
        let mut conn = self.db.pool.acquire().await.unwrap();
        store::requests::enqueue(&mut conn, request).await
    }

    /// Asks for an effect that must be accepted.
    pub async fn enqueue(&self, destination: &str, reference: &str, payload: &str) -> Uuid {
        let run = format!("run-{reference}");
        self.request(&new_request(destination, reference, payload, &run, 1)).await.expect("accepted").intent_id
    }

    /// One step of the dispatcher, and everything it started is over and recorded.
    pub async fn dispatch(&mut self) {
        self.dispatcher.step().await.unwrap();
        self.finish().await;
    }

    /// One step of the reconciler, replays included.
    pub async fn ask(&mut self) {
        self.reconciler.step().await.unwrap();
        self.reconciler.finish().await;
        self.finish().await;
    }

    /// One step of the auditor.
    pub async fn audit(&mut self) {
        self.auditor.step().await.unwrap();
        self.auditor.finish().await;
    }

    /// Waits for running sends and records their results.
    pub async fn finish(&mut self) {
        self.sending.tracker.close();
        self.sending.tracker.wait().await;
        self.sending.tracker.reopen();
        self.record().await;
    }

    /// One step of the dispatcher; what it sent has ended, and nobody has written that down yet.
    pub async fn send_only(&mut self) -> Vec<Finished> {
        self.dispatcher.step().await.unwrap();
        self.ended().await
    }

    /// Waits for running sends and takes their results out of the hands of the recorder.
    pub async fn ended(&mut self) -> Vec<Finished> {
        self.sending.tracker.close();
        self.sending.tracker.wait().await;
        self.sending.tracker.reopen();
        let mut batch = Vec::new();
        while let Ok(finished) = self.inbox.try_recv() {
            batch.push(finished);
        }
        batch
    }

    /// Records the results that are there.
    pub async fn record(&mut self) {
        let mut batch = Vec::new();
        while let Ok(finished) = self.inbox.try_recv() {
            batch.push(finished);
        }
        self.write(batch).await;
    }

    /// Records these results.
    pub async fn write(&mut self, batch: Vec<Finished>) {
        let left = self.recorder.write(batch).await;
        assert!(left.is_empty(), "{} results were not written", left.len());
    }

    /// Records these results as far as it goes, and returns the rest.
    pub async fn try_write(&mut self, batch: Vec<Finished>) -> Vec<Finished> {
        self.recorder.write(batch).await
    }

    /// Turns the clock.
    pub fn turn(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// State of an intent.
    pub async fn state(&self, id: Uuid) -> String {
        sqlx::query_scalar("select state from settled.intents where id = $1")
            .bind(id)
            .fetch_one(&self.db.pool)
            .await
            .unwrap()
    }

    /// A value of the ledger, as text.
    pub async fn text(&self, sql: &str, id: Uuid) -> Option<String> {
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).bind(id).fetch_one(&self.db.pool).await.unwrap()
    }

    /// Open escalations of an intent.
    pub async fn reasons(&self, id: Uuid) -> Vec<String> {
        sqlx::query_scalar(
            "select reason from settled.escalations where intent_id = $1 and closed_at is null order by reason",
        )
        .bind(id)
        .fetch_all(&self.db.pool)
        .await
        .unwrap()
    }

    /// Words of the look-ups about an intent, oldest first.
    pub async fn verdicts(&self, id: Uuid) -> Vec<String> {
        sqlx::query_scalar(
            "select data->>'verdict' || coalesce(': ' || (data->>'why'), '') from settled.journal
              where intent_id = $1 and kind = 'look_up' order by id",
        )
        .bind(id)
        .fetch_all(&self.db.pool)
        .await
        .unwrap()
    }
}

/// A request of [`TENANT`].
pub fn new_request(destination: &str, reference: &str, payload: &str, run_id: &str, step: i64) -> NewRequest {
    NewRequest {
        destination: destination.to_owned(),
        reference: reference.to_owned(),
        payload: payload.to_owned(),
        run_id: Some(run_id.to_owned()),
        step: Some(step),
        options: store::requests::Options { tenant: Some(TENANT.to_owned()), ..Default::default() },
    }
}
