//! An agent that calls by SQL: where it does not know whether its call was committed, it calls again with the same identity.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::Utc;
use settled::store::{
    self,
    requests::{EnqueueError, NewRequest, Receipt},
};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::{
    count::Accepted,
    house::{CHANNELS, request},
    process::PATIENCE,
};

/// How long it waits for one try.
const TRY: Duration = Duration::from_secs(2);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// What all callers of a scene were told.
#[derive(Default)]
pub struct Calls {
    accepted: Mutex<BTreeSet<Accepted>>,
    asked: AtomicUsize,
    repeats: AtomicUsize,
}

impl Calls {
    /// The next call of this scene: its destination and its reference.
    pub fn next(&self, prefix: &str) -> (&'static str, String) {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        (CHANNELS[number % CHANNELS.len()], format!("{prefix}-{number:05}"))
    }

    /// Calls so far, each counted once.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Calls that were made again.
    pub fn repeats(&self) -> usize {
        self.repeats.load(Ordering::SeqCst)
    }

    /// Destination and reference of every call that was answered.
    pub fn accepted(&self) -> Vec<Accepted> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn note(&self, destination: &str, reference: &str) {
        let name = (destination.to_owned(), reference.to_owned());
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }
}

/// An answer, and what it took.
pub struct Answer {
    /// The last receipt.
    pub receipt: Receipt,
    /// Tries.
    pub tries: usize,
}

/// One agent with its connection.
pub struct Caller<'c> {
    url: String,
    connection: Option<PgConnection>,
    calls: &'c Calls,
}

enum Failure {
    /// Nobody knows; the same call again is harmless.
    Again(String),
    /// It must not have come to this.
    Wrong(String),
}

impl<'c> Caller<'c> {
    /// Not connected yet.
    pub fn new(url: &str, calls: &'c Calls) -> Self {
        Self { url: url.to_owned(), connection: None, calls }
    }

    /// The next call of the scene.
    pub async fn next(&mut self, prefix: &str) -> Uuid {
        let (destination, reference) = self.calls.next(prefix);
        self.ask(destination, &reference).await.receipt.intent_id
    }

    /// The same, and it is due only after that time. Repeated by [`Caller::ask`], which wants it now: the same content.
    pub async fn later(&mut self, prefix: &str, due_in: Duration) -> Uuid {
        let (destination, reference) = self.calls.next(prefix);
        let mut call = request(destination, &reference);
        call.options.due_at = Some(Utc::now() + due_in);
        self.call(&call).await.receipt.intent_id
    }

    /// Books an order and asks for its effect in one transaction, until somebody answers.
    pub async fn ask(&mut self, destination: &str, reference: &str) -> Answer {
        self.call(&request(destination, reference)).await
    }

    async fn call(&mut self, call: &NewRequest) -> Answer {
        let NewRequest { destination, reference, .. } = call;
        let began = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let tried = tokio::time::timeout(TRY, self.once(call)).await;
            let why = match tried.unwrap_or_else(|_| Err(Failure::Again("no answer".to_owned()))) {
                Ok(receipt) => {
                    self.calls.note(destination, reference);
                    return Answer { receipt, tries };
                }
                Err(Failure::Again(why)) => why,
                Err(Failure::Wrong(why)) => panic!("{reference} to {destination}: {why}"),
            };
            self.connection = None;
            self.calls.repeats.fetch_add(1, Ordering::SeqCst);
            assert!(began.elapsed() < PATIENCE, "{reference} to {destination}: after {tries} tries: {why}");
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
    }

    async fn once(&mut self, call: &NewRequest) -> Result<Receipt, Failure> {
        if self.connection.is_none() {
            self.connection = Some(PgConnection::connect(&self.url).await.map_err(|e| judge(&e))?);
        }
        let Some(connection) = &mut self.connection else { return Err(Failure::Again("not connected".to_owned())) };
        let mut business = connection.begin().await.map_err(|e| judge(&e))?;
        sqlx::query("insert into public.orders (number) values ($1) on conflict do nothing")
            .bind(&call.reference)
            .execute(&mut *business)
            .await
            .map_err(|e| judge(&e))?;
        let receipt = match store::requests::enqueue(&mut business, call).await {
            Ok(receipt) => receipt,
            Err(EnqueueError::Database(error)) => return Err(judge(&error)),
            // The transaction of the try before is still open over there.
            Err(error @ EnqueueError::RivalOpen(_)) => return Err(Failure::Again(error.to_string())),
            Err(error) => return Err(Failure::Wrong(error.to_string())),
        };
        business.commit().await.map_err(|e| judge(&e))?;
        Ok(receipt)
    }
}

/// A broken or refused connection says nothing about the call; whatever else the database says is wrong here.
fn judge(error: &sqlx::Error) -> Failure {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    match code.as_deref() {
        None => Failure::Again(error.to_string()),
        // Connection exceptions, shutdown, crash, starting up, no longer or not yet writable, lock timeout.
        Some(code) if code.starts_with("08") || code.starts_with("57P") => Failure::Again(error.to_string()),
        Some("25006" | "55P03" | "40001" | "40P01" | "53300") => Failure::Again(error.to_string()),
        Some(_) => Failure::Wrong(error.to_string()),
    }
}
