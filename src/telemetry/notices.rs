//! Warnings of Postgres during one statement.
//!
//! The driver tells of them by an event of the log only, on the thread that reads the reply. A COMMIT that did not wait for its
//! standby answers like any other and warns; whoever must know wraps it in [`heard`].

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    filter::Targets,
    layer::{self, Layer},
    registry::LookupSpan,
};

/// Target of the driver's events.
const TARGET: &str = "sqlx::postgres::notice";

thread_local! {
    static WARNINGS: Cell<u64> = const { Cell::new(0) };
}

struct Notices;

/// Counts warnings of Postgres on their thread. Part of the subscriber of every process that claims.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    Notices.with_filter(Targets::new().with_target(TARGET, LevelFilter::WARN))
}

impl<S: Subscriber> Layer<S> for Notices {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == TARGET && *metadata.level() <= Level::WARN {
            WARNINGS.set(WARNINGS.get().wrapping_add(1));
        }
    }
}

/// Runs a statement; the second value says whether Postgres warned meanwhile.
pub async fn heard<F: Future>(statement: F) -> (F::Output, bool) {
    Heard { statement: Box::pin(statement), warned: false }.await
}

struct Heard<F> {
    statement: Pin<Box<F>>,
    warned: bool,
}

impl<F: Future> Future for Heard<F> {
    type Output = (F::Output, bool);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let before = WARNINGS.get();
        let polled = self.statement.as_mut().poll(context);
        self.warned |= WARNINGS.get() != before;
        polled.map(|output| (output, self.warned))
    }
}
