//! A ledger without a daemon: a database, published destinations, intents asked for through SQL, and attempts that end as the
//! test says. Every step is one call; nothing runs by itself, and the clock stands until it is turned.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use secrecy::SecretSlice;
use settled::{
    channels::{self, Channel, Prepared, Unsupported},
    clock::{Clock, TestClock},
    config::destination::Destination,
    domain::{
        evidence::Verdict,
        gate::{BoxFuture, Gate},
        intent::Outgoing,
        key::{Keyring, Spelling},
        outcome::{DoubtKind, Ended, Outcome, Proof, Report},
        state::State,
    },
    engine::{
        fleet::{Fleet, Policy, Served},
        folding::{self, Case, Cause, LookUpTold},
        results::{self, Finished},
    },
    store::{
        self,
        attempts::AttemptRow,
        destinations::Publication,
        journal::Entry,
        queue::Batch,
        requests::{self, EnqueueError, NewRequest, Options, Receipt},
    },
};
use sqlx::PgPool;
use uuid::Uuid;

use super::db::Database;

/// The tenant of everything that does not name one.
pub const TENANT: &str = "acme";

/// One database with what is configured over it.
pub struct Ledger {
    pub db: Database,
    /// Stands an hour after the real time, so that what SQL has just written is in its past.
    pub clock: Arc<TestClock>,
    /// Name of the newest destination: where [`Ledger::enqueue`] goes.
    newest: Mutex<String>,
    destinations: Mutex<BTreeMap<String, Destination>>,
    keyring: Keyring,
    worker: Uuid,
    calls: AtomicI64,
}

/// A channel that is never used: attempts end as the test says.
struct Unused;

impl Channel for Unused {
    fn prepare(&self, _: &Outgoing) -> Result<Prepared, Unsupported> {
        Err(Unsupported { field: "/".to_owned(), rule: "nothing is sent here".to_owned() })
    }

    fn send<'a>(&'a self, _: Prepared, _: &'a Outgoing, _: Arc<dyn Gate>) -> BoxFuture<'a, Ended> {
        panic!("nothing is sent here")
    }
}

/// A destination from TOML, as it stands under `[[destinations]]`.
pub fn destination(toml: &str) -> Destination {
    toml::from_str(toml).unwrap_or_else(|e| panic!("{e}: {toml}"))
}

/// A webhook that nobody can ask: in doubt a person decides.
pub fn unaskable(name: &str) -> Destination {
    destination(&format!(
        "name = '{name}'\nchannel = 'webhook'\nin_doubt = 'person'\nif_twice = 'paid twice'\nif_never = 'not paid'\n
         webhook = {{ url = 'https://hook.test/' }}"
    ))
}

/// Lost after the last byte.
pub fn lost() -> Outcome {
    Outcome::Ambiguous { doubt: DoubtKind::NoReply }
}

pub fn sent(provider_id: &str) -> Outcome {
    Outcome::Sent { provider_id: Some(provider_id.to_owned()) }
}

pub fn refused(code: u16) -> Outcome {
    Outcome::Refused { code }
}

pub fn not_sent(proof: Proof) -> Outcome {
    Outcome::NotSent { proof, retry_after: None }
}

impl Ledger {
    /// A database with one destination, `ledger-hook`, that cannot be asked.
    pub async fn new() -> Self {
        let ledger = Self::empty().await;
        ledger.destination(unaskable("ledger-hook")).await;
        ledger
    }

    /// A database without destinations.
    pub async fn empty() -> Self {
        Self {
            db: Database::new().await,
            clock: Arc::new(TestClock::at(Utc::now() + Duration::from_secs(3600))),
            newest: Mutex::default(),
            destinations: Mutex::default(),
            keyring: Keyring::new("k1", [("k1".to_owned(), SecretSlice::from(vec![7; 32]))]).unwrap(),
            worker: Uuid::now_v7(),
            calls: AtomicI64::new(0),
        }
    }

    pub fn pool(&self) -> &PgPool {
        &self.db.pool
    }

    /// Publishes it, grants it to [`TENANT`], and makes it the one that is asked for from now on. A name that is there is
    /// published anew under a higher revision.
    pub async fn destination(&self, config: Destination) {
        let mut conn = self.pool().acquire().await.unwrap();
        let revision: i64 = sqlx::query_scalar("select coalesce(max(revision), 0) + 1 from settled.destinations")
            .fetch_one(&mut *conn)
            .await
            .unwrap();
        let generation = channels::registry::generation(&config);
        let publication = Publication { destination: &config, revision, generation: &generation, asked_by_key: false };
        store::destinations::publish(&mut conn, publication).await.unwrap();
        store::producers::grant_destination(&mut conn, TENANT, &config.name).await.unwrap();
        *self.newest.lock().unwrap() = config.name.clone();
        self.destinations.lock().unwrap().insert(config.name.clone(), config);
    }

    /// Lets another tenant use the newest destination.
    pub async fn grant(&self, tenant: &str) {
        let name = self.newest.lock().unwrap().clone();
        let mut conn = self.pool().acquire().await.unwrap();
        store::producers::grant_destination(&mut conn, tenant, &name).await.unwrap();
    }

    /// What the engine is given: destinations with a channel that is never used and no adapter that asks.
    pub fn fleet(&self) -> Arc<Fleet> {
        let configured = self.destinations.lock().unwrap();
        let served = configured
            .values()
            .map(|config| Served::new(config.clone(), channels::registry::generation(config), Arc::new(Unused), None));
        Arc::new(Fleet::new(served.collect(), Box::new(|_| Ok(None))))
    }

    pub fn policy(&self, destination: &str) -> Policy {
        self.fleet().policy(destination)
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    pub fn sql_now(&self) -> Option<DateTime<Utc>> {
        self.clock.sql_now()
    }

    /// A call of a run of its own for the newest destination; change what matters and give it to [`Ledger::ask_for`].
    pub fn call(&self, reference: &str) -> NewRequest {
        NewRequest {
            destination: self.newest.lock().unwrap().clone(),
            reference: reference.to_owned(),
            payload: format!(r#"{{"text":"about {reference}"}}"#),
            run_id: Some(format!("run-{}", self.calls.fetch_add(1, Ordering::Relaxed) + 1)),
            step: Some(1),
            options: Options {
                tenant: Some(TENANT.to_owned()),
                principal: Some("tests".to_owned()),
                ..Options::default()
            },
        }
    }

    /// What the ledger answers.
    pub async fn ask_for(&self, call: &NewRequest) -> Result<Receipt, EnqueueError> {
        let mut conn = self.pool().acquire().await.unwrap();
        requests::enqueue(&mut conn, call).await
    }

    /// A new intent.
    pub async fn enqueue(&self, reference: &str) -> Uuid {
        let receipt = self.ask_for(&self.call(reference)).await.unwrap();
        assert_eq!(receipt.verdict, requests::Verdict::Accepted, "{receipt:?}");
        receipt.intent_id
    }

    /// Opens a send of this intent, as the dispatcher does, and returns its row.
    pub async fn claim(&self, id: Uuid) -> AttemptRow {
        let case = self.case(id).await;
        let config = self.destinations.lock().unwrap()[&case.intent.destination].clone();
        let generation = channels::registry::generation(&config);
        let mut tx = self.pool().begin().await.unwrap();
        let picked = store::queue::pick(&mut tx, &config.name, 1000, self.sql_now()).await.unwrap();
        let pick = picked
            .into_iter()
            .find(|pick| pick.id == id)
            .unwrap_or_else(|| panic!("{id} is {:?} and not due", case.intent.state));
        let derived =
            self.keyring.derive(None, "test", &pick.identity, &pick.effect_scope, Spelling::default()).unwrap();
        let batch = Batch {
            ids: vec![id],
            tokens: vec![Uuid::new_v4()],
            keys: vec![pick.key.unwrap_or(derived.text)],
            kids: vec![pick.kid.unwrap_or(derived.kid)],
            digests: vec![vec![1; 32]],
        };
        let replay = |replay: &settled::config::destination::Replay| pick.now + (replay.key_lifetime - replay.margin);
        let (lease_until, replay_until) = (pick.now + config.lease(), config.replay.as_ref().map(replay));
        store::queue::open_attempts(&mut tx, &batch, self.worker, &generation, pick.now, lease_until, replay_until)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        self.case(id).await.attempts.pop().unwrap()
    }

    /// The newest attempt ends so, by the careful path of the recorder.
    pub async fn finish(&self, id: Uuid, outcome: Outcome) -> State {
        let row = self.case(id).await.attempts.pop().expect("an attempt");
        self.report(id, &row, outcome).await
    }

    /// A result of that attempt arrives, on time or late.
    pub async fn report(&self, id: Uuid, row: &AttemptRow, outcome: Outcome) -> State {
        let case = self.case(id).await;
        let finished = Finished {
            intent_id: id,
            destination: case.intent.destination.clone(),
            key: case.intent.key.clone().unwrap_or_default(),
            reference: case.intent.reference.clone(),
            occurrence: case.intent.occurrence,
            recipient: case.intent.recipient.clone(),
            attempt: row.attempt.number,
            token: row.token,
            generation: row.generation.clone(),
            claimed_at: row.claimed_at,
            lease_until: row.lease_until,
            digest: row.digest.clone(),
            ended: Ended { outcome, report: Report::nothing_written("told by the test") },
            urgent: false,
        };
        let policy = self.policy(&case.intent.destination);
        let actor = format!("dispatcher@{}", self.worker);
        let mut tx = self.pool().begin().await.unwrap();
        let moved = results::record(&mut tx, &finished, &policy, &actor, self.sql_now()).await.unwrap().unwrap();
        tx.commit().await.unwrap();
        moved.folded.state
    }

    /// A send that ends so at once.
    pub async fn attempt(&self, id: Uuid, outcome: Outcome) -> State {
        self.claim(id).await;
        self.finish(id, outcome).await
    }

    /// Asking has proven the newest attempt absent, until then.
    pub async fn look_up_says_absent(&self, id: Uuid, valid_until: DateTime<Utc>) -> State {
        self.look_up_says(id, Verdict::Absent { valid_until }).await
    }

    /// Asking about the newest attempt has come to this.
    pub async fn look_up_says(&self, id: Uuid, verdict: Verdict) -> State {
        self.look_up_said(id, self.now(), verdict).await
    }

    /// The answer to a question about the newest attempt, put then, is written now.
    pub async fn look_up_said(&self, id: Uuid, asked_at: DateTime<Utc>, verdict: Verdict) -> State {
        let case = self.case(id).await;
        let row = case.attempts.last().expect("an attempt");
        let told = LookUpTold {
            nothing: matches!(verdict, Verdict::Absent { .. } | Verdict::AbsentByLag { .. }),
            verdict,
            asked_at,
            generation: row.generation.clone(),
            round: None,
            error: false,
            record: serde_json::json!({}),
        };
        let entry = Entry {
            intent_id: Some(id),
            at: self.sql_now(),
            kind: "look_up",
            attempt: Some(row.attempt.number),
            actor: "reconciler@tests",
            data: serde_json::to_value(&told).unwrap(),
        };
        let mut conn = self.pool().acquire().await.unwrap();
        store::journal::append(&mut conn, &entry).await.unwrap();
        drop(conn);
        self.settle_with(id, |cause| {
            cause.appended = 1;
            cause.new_version = false;
        })
        .await
    }

    /// Folds and writes what follows, as any loop does.
    pub async fn settle(&self, id: Uuid) -> State {
        self.settle_with(id, |_| ()).await
    }

    async fn settle_with(&self, id: Uuid, change: impl FnOnce(&mut Cause<'_>)) -> State {
        let mut tx = self.pool().begin().await.unwrap();
        let case = Case::lock(&mut tx, id, self.sql_now()).await.unwrap().expect("the intent");
        let mut cause = Cause::of("tests");
        change(&mut cause);
        let moved = folding::settle(&mut tx, &case, &self.policy(&case.intent.destination), &cause).await.unwrap();
        tx.commit().await.unwrap();
        moved.folded.state
    }

    /// The intent with everything the fold reads.
    pub async fn case(&self, id: Uuid) -> Case {
        let mut tx = self.pool().begin().await.unwrap();
        let case = Case::lock(&mut tx, id, self.sql_now()).await.unwrap().expect("the intent");
        tx.rollback().await.unwrap();
        case
    }

    /// What the fold says; it must be what the row says.
    pub async fn fold_state(&self, id: Uuid) -> State {
        let case = self.case(id).await;
        let folded = case.fold(&self.policy(&case.intent.destination));
        assert_eq!(folded.state, case.intent.state, "the row and the fold differ");
        folded.state
    }

    /// Reasons of the open escalations of an intent, sorted.
    pub async fn open_escalations(&self, id: Uuid) -> Vec<String> {
        sqlx::query_scalar(
            "select reason from settled.escalations where intent_id = $1 and closed_at is null order by reason",
        )
        .bind(id)
        .fetch_all(self.pool())
        .await
        .unwrap()
    }

    /// Journal rows of a kind about an intent: actor and data, oldest first.
    pub async fn journal(&self, id: Uuid, kind: &str) -> Vec<(String, serde_json::Value)> {
        sqlx::query_as("select actor, data from settled.journal where intent_id = $1 and kind = $2 order by id")
            .bind(id)
            .bind(kind)
            .fetch_all(self.pool())
            .await
            .unwrap()
    }
}
