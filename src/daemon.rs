//! Wires the house: configuration → ledger → channels → loops → servers. Knows everybody; nobody knows it but `main`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretSlice};
use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::{
    net::TcpListener,
    sync::{Notify, mpsc},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use crate::{
    api, channels,
    clock::Clock,
    config::{Settings, check, destination::Destination, retention::Windows},
    domain::key::Keyring,
    engine::{
        auditor::Auditor,
        decider::Decider,
        dispatcher::{Dispatcher, Sending},
        fleet::{Fleet, Served},
        quarantine::Quarantine,
        reaper::Reaper,
        reconciler::Reconciler,
        results::Recorder,
        runner::{Pace, drive},
        start_checks::{self, Permits},
        sweeper::Sweeper,
        watch::{Times, Watch},
    },
    lifecycle::{self, Shutdown},
    look_up,
    store::{
        self,
        destinations::{Publication, Published},
        error::StoreError,
        instance::Belongs,
        session,
    },
    telemetry::{metrics::Metrics, progress::Progress},
};

/// Results that may wait to be written before claiming stops.
const UNWRITTEN: usize = 1024;
/// What the end waits for each of its last steps.
const PARTING: Duration = Duration::from_secs(5);
/// How long before a deadline people are told.
const DEADLINE_NEAR: Duration = Duration::from_secs(15 * 60);

/// Everything a running daemon consists of.
pub struct Daemon {
    /// Where the API answers.
    pub address: SocketAddr,
    /// The ledger.
    pub pool: PgPool,
    shutdown: Shutdown,
    hard_stop: CancellationToken,
    loops: Vec<JoinHandle<()>>,
    recorder: JoinHandle<()>,
    heartbeat: JoinHandle<()>,
    api: JoinHandle<()>,
    sends: TaskTracker,
    drain: Duration,
    worker: Uuid,
}

/// Runs until the shutdown is over. `migrate` brings the database to this version first.
///
/// # Errors
/// When it cannot start: configuration, database, secrets, an instance that is not ours.
pub async fn run(settings: Settings, migrate: bool, clock: Arc<dyn Clock>, shutdown: Shutdown) -> anyhow::Result<()> {
    let daemon = start(settings, migrate, clock, shutdown.clone()).await?;
    lifecycle::ready(&format!("serving on {}", daemon.address));
    shutdown.stopping().await;
    daemon.stop().await;
    Ok(())
}

/// Starts a daemon.
///
/// # Errors
/// As [`run`].
pub async fn start(
    settings: Settings,
    migrate: bool,
    clock: Arc<dyn Clock>,
    shutdown: Shutdown,
) -> anyhow::Result<Daemon> {
    let keyring = Arc::new(keyring(&settings)?);
    let listener = TcpListener::bind(settings.http.listen)
        .await
        .with_context(|| format!("http.listen {}", settings.http.listen))?;
    let starting = api::Starting::on(listener).context("http.listen")?;
    if migrate {
        let url = settings.database.migrate_url().context("database.migrate_url")?;
        let mut conn = PgConnection::connect(url.expose_secret()).await.context("connect to migrate")?;
        store::migrations::run(&mut conn).await?;
        conn.close().await?;
    }
    let url = settings.database.url().context("database.url")?;
    let options = session::options(url.expose_secret(), settings.database.pooler).context("database.url")?;
    session::check(&options, settings.database.pooler).await.context("connect to the database")?;
    let retirement = session::Retirement::default();
    let pool = PgPoolOptions::new()
        .max_connections(settings.database.max_connections)
        .min_connections(settings.database.min_connections)
        .acquire_timeout(settings.database.acquire_timeout);
    let pool = retirement.over(pool).connect_with(options).await.context("connect to the database")?;
    let mut conn = pool.acquire().await?;
    own(&mut conn, &settings).await?;
    let fleet = Arc::new(fleet(&mut conn, &settings).await?);
    drop(conn);
    let (worker, metrics) = (Uuid::now_v7(), Metrics::new());
    let times = Times::of(&settings.destinations, settings.retention.callers_replay_horizon);
    let watch = Watch::new(worker, &settings.instance.name, Arc::clone(&clock), Arc::clone(&metrics), times);
    // The first heartbeat registers this process and compares the database with what the ledger has written down.
    beat(&watch, &pool).await?;
    let listener = starting.listener().await;
    let house = House { settings, pool, retirement, fleet, clock, keyring, worker, metrics, watch, shutdown };
    house.open(listener)
}

/// What the loops are built from.
struct House {
    settings: Settings,
    pool: PgPool,
    retirement: session::Retirement,
    fleet: Arc<Fleet>,
    clock: Arc<dyn Clock>,
    keyring: Arc<Keyring>,
    worker: Uuid,
    metrics: Arc<Metrics>,
    watch: Arc<Watch>,
    shutdown: Shutdown,
}

impl House {
    fn open(self, listener: TcpListener) -> anyhow::Result<Daemon> {
        let address = listener.local_addr()?;
        let metrics = Arc::clone(&self.metrics);
        let progress = Progress::new(Arc::clone(&self.clock));
        let watched = progress.clone();
        tokio::spawn(lifecycle::watchdog(self.shutdown.clone(), move || watched.is_alive()));
        let (wake, doubt) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (stop, hard_stop) = (self.stop(), CancellationToken::new());
        let sends = TaskTracker::new();
        let (results, inbox) = mpsc::channel(UNWRITTEN);
        let recorder = tokio::spawn(self.recorder(&wake, &doubt, &metrics).run(inbox));
        let sending = Sending {
            pool: self.pool.clone(),
            fleet: Arc::clone(&self.fleet),
            clock: Arc::clone(&self.clock),
            watch: Arc::clone(&self.watch),
            keyring: Arc::clone(&self.keyring),
            region: self.settings.instance.region.clone(),
            worker: self.worker,
            results,
            stopping: stop.clone(),
            hard_stop: hard_stop.clone(),
            tracker: sends.clone(),
            metrics: Arc::clone(&metrics),
            batch: self.settings.dispatcher.batch as usize,
        };
        let loops = self.loops(sending, (&wake, &doubt), &progress, &metrics, &stop);
        let state = api::AppState::new(
            self.pool.clone(),
            Arc::clone(&self.clock),
            metrics,
            progress,
            wake,
            Windows::of(&self.settings),
            self.shutdown.clone(),
        )
        .with_fleet(Arc::clone(&self.fleet));
        let served = api::serve(listener, state, self.shutdown.clone());
        let api = tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::error!(%error, "the API ended");
            }
        });
        let heartbeat = tokio::spawn(heartbeat(
            self.pool.clone(),
            self.retirement.clone(),
            Arc::clone(&self.watch),
            self.settings.dispatcher.heartbeat,
        ));
        tracing::info!(%address, worker = %self.worker, destinations = self.settings.destinations.len(), "settled is up");
        Ok(Daemon {
            address,
            pool: self.pool,
            shutdown: self.shutdown,
            hard_stop,
            loops,
            recorder,
            heartbeat,
            api,
            sends,
            drain: self.settings.dispatcher.drain,
            worker: self.worker,
        })
    }

    /// Cancelled when the shutdown begins.
    fn stop(&self) -> CancellationToken {
        let stop = CancellationToken::new();
        let (child, stopping) = (stop.clone(), self.shutdown.stopping());
        tokio::spawn(async move {
            stopping.await;
            child.cancel();
        });
        stop
    }

    fn recorder(&self, wake: &Arc<Notify>, doubt: &Arc<Notify>, metrics: &Arc<Metrics>) -> Recorder {
        Recorder::new(
            self.pool.clone(),
            Arc::clone(&self.fleet),
            Arc::clone(&self.clock),
            self.worker,
            Arc::clone(wake),
            Arc::clone(doubt),
            Arc::clone(metrics),
        )
    }

    fn loops(
        &self,
        sending: Sending,
        (wake, doubt): (&Arc<Notify>, &Arc<Notify>),
        progress: &Progress,
        metrics: &Arc<Metrics>,
        stop: &CancellationToken,
    ) -> Vec<JoinHandle<()>> {
        let timing = &self.settings.dispatcher;
        // The dispatcher waits by itself until a claim is worth its commit.
        let quick = Pace { busy: Duration::ZERO, idle_min: timing.poll_min, idle_max: timing.poll_max };
        let calm = Pace {
            busy: Duration::from_millis(20),
            idle_min: Duration::from_millis(100),
            idle_max: Duration::from_secs(1),
        };
        let slow = Pace {
            busy: Duration::from_millis(200),
            idle_min: Duration::from_secs(1),
            idle_max: Duration::from_secs(5),
        };
        let (pool, fleet, clock) = (&self.pool, &self.fleet, &self.clock);
        let reaper = Reaper {
            pool: pool.clone(),
            fleet: Arc::clone(fleet),
            clock: Arc::clone(clock),
            worker: self.worker,
            watch: Arc::clone(&self.watch),
            heartbeat_limit: timing.worker_dead_after,
            metrics: Arc::clone(metrics),
        };
        let decider = Decider {
            pool: pool.clone(),
            fleet: Arc::clone(fleet),
            clock: Arc::clone(clock),
            metrics: Arc::clone(metrics),
        };
        let quarantine = Quarantine {
            pool: pool.clone(),
            fleet: Arc::clone(fleet),
            clock: Arc::clone(clock),
            worker: self.worker,
            metrics: Arc::clone(metrics),
        };
        let sweeper = Sweeper::new(
            pool.clone(),
            Arc::clone(fleet),
            Arc::clone(clock),
            self.worker,
            DEADLINE_NEAR,
            Arc::clone(metrics),
        );
        // Work wakes the dispatcher and a new doubt the reconciler; what the others find has no hurry.
        let (progress, idle) = (|| progress.clone(), || Arc::new(Notify::new()));
        let dispatcher = Dispatcher::new(sending.clone());
        let auditor = Auditor::new(sending.clone());
        vec![
            tokio::spawn(drive(dispatcher, quick, Arc::clone(wake), progress(), stop.clone())),
            tokio::spawn(drive(Reconciler::new(sending), calm, Arc::clone(doubt), progress(), stop.clone())),
            tokio::spawn(drive(auditor, slow, idle(), progress(), stop.clone())),
            tokio::spawn(drive(decider, calm, idle(), progress(), stop.clone())),
            tokio::spawn(drive(reaper, calm, idle(), progress(), stop.clone())),
            tokio::spawn(drive(quarantine, Pace { busy: Duration::ZERO, ..slow }, idle(), progress(), stop.clone())),
            tokio::spawn(drive(sweeper, slow, idle(), progress(), stop.clone())),
        ]
    }
}

impl Daemon {
    /// Stops claiming, lets running sends finish inside the limit, writes the rest as unknown with its evidence.
    ///
    /// Ends whatever Postgres does: a loop that waits for an answer that never comes counts as a send that did not finish.
    pub async fn stop(self) {
        self.shutdown.begin();
        self.sends.close();
        let drained = tokio::select! {
            () = finished(self.loops, &self.sends) => true,
            () = tokio::time::sleep(self.drain) => false,
            () = self.shutdown.hurried() => false,
        };
        if !drained {
            tracing::warn!(open = self.sends.len(), "sends that did not finish are written as unknown");
            self.hard_stop.cancel();
            let _still_open = tokio::time::timeout(PARTING, self.sends.wait()).await;
        }
        // The last sender is gone with the last send; the recorder ends when everything is written.
        let written = tokio::time::timeout(Duration::from_secs(10), self.recorder).await;
        if written.is_err() {
            tracing::error!("results could not be written before the end; their leases will tell");
        }
        self.shutdown.hurry();
        let _ended = tokio::time::timeout(PARTING, self.api).await;
        self.heartbeat.abort();
        let signed_off = async {
            let mut conn = self.pool.acquire().await?;
            store::workers::stop(&mut conn, self.worker).await
        };
        match tokio::time::timeout(PARTING, signed_off).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the worker could not be signed off"),
            Err(_elapsed) => tracing::warn!("the worker could not be signed off: the database does not answer"),
        }
        let _in_order = tokio::time::timeout(PARTING, self.pool.close()).await;
        tracing::info!("settled is down");
    }
}

/// All loops have ended, and then all sends.
async fn finished(loops: Vec<JoinHandle<()>>, sends: &TaskTracker) {
    for task in loops {
        // A loop that panicked has nothing left to stop.
        let _ended = task.await;
    }
    sends.wait().await;
}

fn keyring(settings: &Settings) -> anyhow::Result<Keyring> {
    let loaded = settings.keys.load()?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let secrets = loaded
        .secrets
        .into_iter()
        .map(|(kid, secret)| (kid, SecretSlice::from(secret.expose_secret().as_bytes().to_vec())));
    Ok(Keyring::new(loaded.active, secrets)?)
}

/// The database must be at this version and belong to this installation.
async fn own(conn: &mut PgConnection, settings: &Settings) -> anyhow::Result<()> {
    let expected = store::migrations::expected();
    let found = store::migrations::version(conn).await?;
    if found != Some(expected) {
        let found = found.map_or_else(|| "holds no ledger".to_owned(), |version| format!("is at version {version}"));
        bail!("the database {found}, this build needs version {expected}; run `settled migrate`");
    }
    match store::instance::belongs(conn, &settings.instance.name, &settings.instance.region).await? {
        Belongs::Here => {}
        Belongs::Claimed => tracing::info!(instance = %settings.instance.name, "the database is claimed"),
        Belongs::Elsewhere { why } => bail!("instance: {why}; nothing is sent"),
    }
    let permits = Permits {
        fsync_off: settings.database.allow_fsync_off,
        lossy_failover: settings.instance.accept_lossy_failover,
    };
    for note in start_checks::check(&store::instance::safety(conn).await?, permits)? {
        tracing::warn!("{note}");
    }
    Ok(())
}

/// Builds and publishes the configured destinations; what another process published under a higher revision is not served.
async fn fleet(conn: &mut PgConnection, settings: &Settings) -> anyhow::Result<Fleet> {
    let mut served = Vec::new();
    for config in &settings.destinations {
        let ready = build(config).with_context(|| format!("destination {}", config.name))?;
        let publication = Publication {
            destination: config,
            revision: settings.destinations_revision,
            generation: &ready.generation,
            asked_by_key: ready.look_up.as_ref().is_some_and(|l| l.abilities().shows_key),
        };
        match store::destinations::publish(conn, publication).await? {
            Published::New | Published::Replaced | Published::Unchanged => {
                let (limits, in_doubt) = (check::effective(config), check::doubt_in_words(config));
                tracing::info!(destination = %config.name, generation = %ready.generation, limits, in_doubt, "served");
                served.push(ready);
            }
            Published::Older { held } => {
                tracing::warn!(destination = %config.name, held, "a higher revision is published; it is not served here");
            }
        }
    }
    for row in store::destinations::list(conn).await? {
        let configured = settings.destinations.iter().any(|d| d.name == row.name);
        if !configured && row.withdrawn_at.is_none() && row.revision <= settings.destinations_revision {
            store::destinations::withdraw(conn, &row.name).await?;
            tracing::warn!(destination = %row.name, "left the configuration; its intents wait for a person");
        }
    }
    let again = |config: &Destination| look_up::registry::build(config).map_err(|e| e.to_string());
    Ok(Fleet::new(served, Box::new(again)))
}

/// One destination with its adapters.
///
/// # Errors
/// When its settings or secrets cannot be used.
pub fn build(config: &Destination) -> anyhow::Result<Served> {
    let channel = channels::registry::build(config)?;
    let look_up = look_up::registry::build(config)?;
    Ok(Served::new(config.clone(), channels::registry::generation(config), channel, look_up))
}

async fn heartbeat(pool: PgPool, retirement: session::Retirement, watch: Arc<Watch>, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = watch.alarmed() => {}
        }
        if let Err(error) = beat(&watch, &pool).await {
            if error.is_read_only() {
                // After a failover, sessions to the server that was demoted would stay for ever.
                retirement.all();
            }
            tracing::warn!(%error, "no heartbeat; other daemons will hold this one for dead");
        }
    }
}

/// Beats; where several daemons notice the same rewind, all but one look again.
async fn beat(watch: &Watch, pool: &PgPool) -> Result<(), StoreError> {
    match watch.beat(pool).await {
        Err(StoreError::Moved { .. }) => watch.beat(pool).await,
        beaten => beaten,
    }?;
    Ok(())
}
