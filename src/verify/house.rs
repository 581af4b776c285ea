//! The parts of a daemon that `verify` needs, without its loops: it claims by name, asks by name, and writes results itself.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use chrono::Utc;
use secrecy::{ExposeSecret, SecretSlice};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{Findings, TENANT};
use crate::{
    channels,
    clock::{Clock, SystemClock},
    config::{destination::Approval, destination::Destination, settings::Settings},
    domain::key::Keyring,
    engine::{
        dispatcher::Sending,
        fleet::{Fleet, Served},
        reconciler::Reconciler,
        resolution::{self, Act, Person, Target},
        results::{Finished, Recorder},
        watch::{Beaten, Times, Watch},
    },
    look_up,
    store::{
        self,
        destinations::Row,
        instance::Belongs,
        requests::{NewRequest, Options},
        session,
        tokens::Kind,
    },
    telemetry::metrics::Metrics,
};

/// Who acts, in the journal and in requests.
pub(super) const PRINCIPAL: &str = "settled verify";
/// Why canaries are withdrawn.
pub(super) const WITHDRAWN: &str = "a canary of settled verify";
/// Between two looks at a canary.
const GLANCE: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct House {
    pub(super) pool: PgPool,
    pub(super) sending: Sending,
    pub(super) reconciler: Reconciler,
    /// The operator wants it to end.
    pub(super) stop: CancellationToken,
    /// The daemons that were alive when it began.
    pub(super) daemons: i64,
    claimed: bool,
    recorder: Recorder,
    inbox: mpsc::Receiver<Finished>,
    heartbeat: JoinHandle<()>,
}

impl House {
    pub(super) async fn open(
        settings: &Settings,
        url: &str,
        chosen: &[&Destination],
        stop: CancellationToken,
    ) -> anyhow::Result<Self> {
        let options = session::options(url, settings.database.pooler).context("database.url")?;
        session::check(&options, settings.database.pooler).await.context("connect to the database")?;
        let pool = PgPoolOptions::new()
            .max_connections(settings.database.max_connections)
            .acquire_timeout(settings.database.acquire_timeout)
            .connect_with(options)
            .await
            .context("connect to the database")?;
        let mut conn = pool.acquire().await?;
        let (expected, found) = (store::migrations::expected(), store::migrations::version(&mut conn).await?);
        if found != Some(expected) {
            bail!("the database is not at version {expected}; run `settled migrate`");
        }
        drop(conn);
        let mut served = Vec::new();
        for config in chosen {
            served.push(build(config).with_context(|| format!("destination {}", config.name))?);
        }
        let again = |config: &Destination| look_up::registry::build(config).map_err(|e| e.to_string());
        let fleet = Arc::new(Fleet::new(served, Box::new(again)));
        let (clock, metrics): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), Metrics::new());
        let worker = Uuid::now_v7();
        let times = Times::of(&settings.destinations, settings.retention.callers_replay_horizon);
        let watch = Watch::new(worker, &settings.instance.name, Arc::clone(&clock), Arc::clone(&metrics), times);
        let claimed = belongs(settings, &watch, &pool).await?;
        let mut conn = pool.acquire().await?;
        let silent_for = settings.dispatcher.worker_dead_after.as_secs_f64();
        let daemons = store::verify::other_daemons(&mut conn, worker, silent_for).await?;
        drop(conn);
        let (results, inbox) = mpsc::channel(16);
        let sending = Sending {
            pool: pool.clone(),
            fleet: Arc::clone(&fleet),
            clock: Arc::clone(&clock),
            watch: Arc::clone(&watch),
            keyring: Arc::new(keyring(settings)?),
            region: settings.instance.region.clone(),
            worker,
            results,
            stopping: stop.clone(),
            hard_stop: CancellationToken::new(),
            tracker: TaskTracker::new(),
            metrics: Arc::clone(&metrics),
            batch: 1,
        };
        let recorder = Recorder::new(pool.clone(), fleet, clock, worker, Arc::default(), Arc::default(), metrics);
        let heartbeat = tokio::spawn(beats(watch, pool.clone(), settings.dispatcher.heartbeat));
        let reconciler = Reconciler::new(sending.clone());
        Ok(Self { pool, sending, reconciler, stop, daemons, claimed, recorder, inbox, heartbeat })
    }

    /// Why nothing can be sent to a destination now, if so.
    pub(super) async fn hindered(
        &self,
        config: &Destination,
        generation: &str,
        published: &[Row],
    ) -> anyhow::Result<Option<String>> {
        if config.canary.is_none() {
            return Ok(Some("no canary; give it a [destinations.canary]".to_owned()));
        }
        if !self.claimed {
            return Ok(Some("no daemon has ever served this database; start `settled serve`".to_owned()));
        }
        let row = published.iter().find(|row| row.name == config.name && row.withdrawn_at.is_none());
        let Some(row) = row else { return Ok(Some("it is not published; start `settled serve`".to_owned())) };
        if row.generation != generation {
            return Ok(Some("the published destination is another one than that of this configuration".to_owned()));
        }
        let mut conn = self.pool.acquire().await?;
        if store::generations::is_stopped(&mut conn, &config.name, TENANT).await? {
            return Ok(Some("it is parked or paused".to_owned()));
        }
        Ok((config.approval == Approval::Always).then(|| "a person must approve everything that goes there".to_owned()))
    }

    /// Waits for what is being sent and takes its results.
    pub(super) async fn ended(&mut self) -> Vec<Finished> {
        self.sending.tracker.close();
        self.sending.tracker.wait().await;
        self.sending.tracker.reopen();
        let mut batch = Vec::new();
        while let Ok(finished) = self.inbox.try_recv() {
            batch.push(finished);
        }
        batch
    }

    /// Writes results; what cannot be written now will be found by its lease.
    pub(super) async fn write(&mut self, batch: Vec<Finished>) {
        let mut left = batch;
        for round in 1..=5 {
            if left.is_empty() {
                return;
            }
            left = self.recorder.write(left).await;
            if !left.is_empty() {
                tokio::time::sleep(GLANCE * round).await;
            }
        }
    }

    /// Waits for what is being sent and writes how it ended.
    pub(super) async fn settle(&mut self) {
        let ended = self.ended().await;
        self.write(ended).await;
    }

    /// Waits a moment. False: the time is over, or the operator wants an end.
    pub(super) async fn patience(&self, until: Instant, moment: Duration) -> bool {
        let next = (Instant::now() + moment).min(until);
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = self.stop.cancelled() => {}
        }
        Instant::now() < until && !self.stop.is_cancelled()
    }

    /// A short moment of [`Self::patience`].
    pub(super) async fn glance(&self, until: Instant) -> bool {
        self.patience(until, GLANCE).await
    }

    /// Withdraws what was never sent, answers what people would be asked, tells what is left, and says goodbye.
    pub(super) async fn close(mut self, findings: &mut Findings) -> anyhow::Result<()> {
        self.settle().await;
        let mut conn = self.pool.acquire().await?;
        let person = Person { principal: PRINCIPAL.to_owned(), kind: Kind::Admin, tenant: Some(TENANT.to_owned()) };
        for (id, state) in store::verify::unsettled(&mut conn, TENANT).await? {
            if matches!(state.as_str(), "pending" | "held") {
                let act = Act::Cancel { reason: WITHDRAWN.to_owned() };
                let (fleet, clock) = (&self.sending.fleet, &*self.sending.clock);
                // Told below where it did not work.
                let _told = resolution::act(&self.pool, fleet, clock, &person, Target::Intent(id), &act, None).await;
            }
        }
        store::verify::close_escalations(&mut conn, TENANT, &person.actor()).await?;
        for (id, state) in store::verify::unsettled(&mut conn, TENANT).await? {
            findings.unseen("left behind", format!("canary {id} is {state}; `settled show {id}`"));
        }
        self.heartbeat.abort();
        store::workers::stop(&mut conn, self.sending.worker).await?;
        drop(conn);
        self.pool.close().await;
        Ok(())
    }
}

/// A call that asks for a canary.
pub(super) fn request(destination: &str, reference: &str, payload: &str, run_id: &str) -> NewRequest {
    NewRequest {
        destination: destination.to_owned(),
        reference: reference.to_owned(),
        payload: payload.to_owned(),
        run_id: Some(run_id.to_owned()),
        step: Some(1),
        options: Options {
            tenant: Some(TENANT.to_owned()),
            surface: Some("settled".to_owned()),
            principal: Some(PRINCIPAL.to_owned()),
            ..Options::default()
        },
    }
}

/// The date and a number that no other canary of the day has.
pub(super) fn mark() -> (String, u64) {
    (Utc::now().format("%Y%m%d").to_string(), rand::random_range(0..10_000_000_000))
}

fn build(config: &Destination) -> anyhow::Result<Served> {
    let channel = channels::registry::build(config)?;
    let look_up = look_up::registry::build(config)?;
    Ok(Served::new(config.clone(), channels::registry::generation(config), channel, look_up))
}

/// Whether a daemon has claimed the database for this installation; one of another installation is refused.
async fn belongs(settings: &Settings, watch: &Watch, pool: &PgPool) -> anyhow::Result<bool> {
    if watch.beat(pool).await? == Beaten::Unclaimed {
        return Ok(false);
    }
    let mut conn = pool.acquire().await?;
    match store::instance::belongs(&mut conn, &settings.instance.name, &settings.instance.region).await? {
        Belongs::Here | Belongs::Claimed => Ok(true),
        Belongs::Elsewhere { why } => bail!("instance: {why}; nothing is sent"),
    }
}

fn keyring(settings: &Settings) -> anyhow::Result<Keyring> {
    let loaded = settings.keys.load()?;
    let secrets = loaded
        .secrets
        .into_iter()
        .map(|(kid, secret)| (kid, SecretSlice::from(secret.expose_secret().as_bytes().to_vec())));
    Ok(Keyring::new(loaded.active, secrets)?)
}

async fn beats(watch: Arc<Watch>, pool: PgPool, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    loop {
        ticks.tick().await;
        if let Err(error) = watch.beat(&pool).await {
            tracing::warn!(%error, "no heartbeat");
        }
    }
}
