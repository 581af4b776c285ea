//! Every number there is, in one place. [`Metric`] is the closed list of names; [`Metrics`] holds the instruments.
//!
//! Labels are configured names and closed lists only: never a recipient, a reference, an intent or a run. Gauges about the
//! ledger are written by one loop from `store::pauses::health`; counters by whoever does the thing.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64},
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::domain::failure_mode::FailureMode;

/// The name, the help text and the labels of every metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Attempts that ended.
    Attempts,
    /// Duration of attempts.
    AttemptDuration,
    /// Questions by verdict.
    LookUps,
    /// Calls that asking took.
    LookUpCalls,
    /// Calls that may be made at once.
    AskingCalls,
    /// Destinations that asked to be left alone.
    AskingSuspended,
    /// Audits by result.
    Audits,
    /// How long sends take to become visible.
    VisibleAfter,
    /// Generations whose absence is not believed.
    AbsenceSuspended,
    /// Moves of intents.
    Moves,
    /// Calls that asked for an effect.
    Enqueues,
    /// Open escalations.
    EscalationsOpen,
    /// Acts of people.
    Acts,
    /// Rows of the queue.
    QueueDepth,
    /// Intents in doubt.
    UnknownOpen,
    /// Since when the oldest is in doubt.
    UnknownOldest,
    /// Rows that nothing will ever pick up.
    Stranded,
    /// The window in which a repeat is recognised.
    DedupeWindow,
    /// Pauses in force.
    Pauses,
    /// Breakers.
    BreakerOpen,
    /// Parked destinations.
    Parked,
    /// Last step of each loop.
    LoopTick,
    /// Answers of the API.
    HttpAnswers,
    /// Calls that were not let in.
    AuthFailures,
    /// Quarantines.
    Quarantine,
    /// Steps of the database clock.
    ClockSteps,
    /// Failure modes that were met and contained.
    FailureModes,
    /// This build.
    BuildInfo,
}

impl Metric {
    /// All of them, for documentation and its test.
    pub const ALL: [Self; 28] = [
        Self::Attempts,
        Self::AttemptDuration,
        Self::LookUps,
        Self::LookUpCalls,
        Self::AskingCalls,
        Self::AskingSuspended,
        Self::Audits,
        Self::VisibleAfter,
        Self::AbsenceSuspended,
        Self::Moves,
        Self::Enqueues,
        Self::EscalationsOpen,
        Self::Acts,
        Self::QueueDepth,
        Self::UnknownOpen,
        Self::UnknownOldest,
        Self::Stranded,
        Self::DedupeWindow,
        Self::Pauses,
        Self::BreakerOpen,
        Self::Parked,
        Self::LoopTick,
        Self::HttpAnswers,
        Self::AuthFailures,
        Self::Quarantine,
        Self::ClockSteps,
        Self::FailureModes,
        Self::BuildInfo,
    ];

    /// As registered; counters are exposed with `_total`, units are appended.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attempts => "settled_attempts",
            Self::AttemptDuration => "settled_attempt_duration",
            Self::LookUps => "settled_look_ups",
            Self::LookUpCalls => "settled_look_up_calls",
            Self::AskingCalls => "settled_asking_calls_left",
            Self::AskingSuspended => "settled_asking_suspended",
            Self::Audits => "settled_audits",
            Self::VisibleAfter => "settled_visible_after",
            Self::AbsenceSuspended => "settled_absence_suspended",
            Self::Moves => "settled_moves",
            Self::Enqueues => "settled_enqueues",
            Self::EscalationsOpen => "settled_escalations_open",
            Self::Acts => "settled_acts",
            Self::QueueDepth => "settled_queue_depth",
            Self::UnknownOpen => "settled_unknown_open",
            Self::UnknownOldest => "settled_unknown_oldest_timestamp",
            Self::Stranded => "settled_stranded",
            Self::DedupeWindow => "settled_dedupe_window_hours",
            Self::Pauses => "settled_pauses",
            Self::BreakerOpen => "settled_breaker_open",
            Self::Parked => "settled_destination_parked",
            Self::LoopTick => "settled_loop_last_tick_timestamp",
            Self::HttpAnswers => "settled_http_answers",
            Self::AuthFailures => "settled_auth_failures",
            Self::Quarantine => "settled_quarantine",
            Self::ClockSteps => "settled_clock_steps",
            Self::FailureModes => "settled_failure_modes",
            Self::BuildInfo => "settled_build",
        }
    }

    /// What it means.
    pub fn help(self) -> &'static str {
        match self {
            Self::Attempts => "Attempts that ended, by destination and outcome",
            Self::AttemptDuration => "From the claim to the end of an attempt",
            Self::LookUps => "Questions to downstreams, by destination and verdict",
            Self::LookUpCalls => {
                "Calls that questions took, by destination: pages, controls and account checks each count"
            }
            Self::AskingCalls => {
                "Calls that all daemons together may make at once, by destination; below 0 where an answer took more than was expected"
            }
            Self::AskingSuspended => "1 while a destination has asked to be left alone",
            Self::Audits => "Sends that were asked about without a doubt, by destination and result",
            Self::VisibleAfter => {
                "How long ordinary sends of the last day took to become visible, by destination and figure: p50, p999, longest, invisible (the longest that one was still not visible)"
            }
            Self::AbsenceSuspended => {
                "1 while the measured lag comes too near the declared one, so that absence is not believed"
            }
            Self::Moves => "Moves of intents, by the state they came to and who moved them",
            Self::Enqueues => "Calls that asked for an effect, by surface and verdict",
            Self::EscalationsOpen => "Escalations that wait for a person, by reason",
            Self::Acts => "Acts of people, by verb and outcome",
            Self::QueueDepth => "Rows of the queue, by destination and kind",
            Self::UnknownOpen => "Intents in doubt, by destination",
            Self::UnknownOldest => "When the oldest intent in doubt was created; absent when there is none",
            Self::Stranded => "Rows that nothing will ever pick up; must be 0",
            Self::DedupeWindow => "Hours in which a repeat is recognised",
            Self::Pauses => "Pauses in force, by scope",
            Self::BreakerOpen => "1 while the breaker of a destination is open",
            Self::Parked => "1 while a destination is parked",
            Self::LoopTick => "When a loop made its last step",
            Self::HttpAnswers => "Answers of the API, by route and status",
            Self::AuthFailures => "Calls that were not let in, by reason",
            Self::Quarantine => "1 while a rewind of the database is not settled",
            Self::ClockSteps => "Steps of the database clock against that of this process",
            Self::FailureModes => "Failure modes that were met and contained, by name",
            Self::BuildInfo => "This build",
        }
    }
}

type Labels<const N: usize> = [(&'static str, String); N];

/// The instruments. Made once; cheap to clone behind the `Arc`.
pub struct Metrics {
    registry: Registry,
    attempts: Family<Labels<2>, Counter>,
    attempt_duration: Family<Labels<1>, Histogram>,
    look_ups: Family<Labels<2>, Counter>,
    look_up_calls: Family<Labels<1>, Counter>,
    asking_calls: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    asking_suspended: Family<Labels<1>, Gauge>,
    audits: Family<Labels<2>, Counter>,
    visible_after: Family<Labels<2>, Gauge<f64, AtomicU64>>,
    absence_suspended: Family<Labels<1>, Gauge>,
    moves: Family<Labels<2>, Counter>,
    enqueues: Family<Labels<2>, Counter>,
    escalations_open: Family<Labels<1>, Gauge>,
    acts: Family<Labels<2>, Counter>,
    queue_depth: Family<Labels<2>, Gauge>,
    unknown_open: Family<Labels<1>, Gauge>,
    unknown_oldest: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    stranded: Gauge,
    dedupe_window: Gauge<i64, AtomicI64>,
    pauses: Family<Labels<1>, Gauge>,
    breaker_open: Family<Labels<1>, Gauge>,
    parked: Family<Labels<1>, Gauge>,
    loop_tick: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    http_answers: Family<Labels<2>, Counter>,
    auth_failures: Family<Labels<1>, Counter>,
    quarantine: Gauge,
    clock_steps: Counter,
    failure_modes: Family<Labels<1>, Counter>,
}

impl Metrics {
    /// Registers everything.
    pub fn new() -> Arc<Self> {
        let mut this = Self {
            registry: Registry::default(),
            attempts: Family::default(),
            attempt_duration: Family::new_with_constructor(send_times),
            look_ups: Family::default(),
            look_up_calls: Family::default(),
            asking_calls: Family::default(),
            asking_suspended: Family::default(),
            audits: Family::default(),
            visible_after: Family::default(),
            absence_suspended: Family::default(),
            moves: Family::default(),
            enqueues: Family::default(),
            escalations_open: Family::default(),
            acts: Family::default(),
            queue_depth: Family::default(),
            unknown_open: Family::default(),
            unknown_oldest: Family::default(),
            stranded: Gauge::default(),
            dedupe_window: Gauge::default(),
            pauses: Family::default(),
            breaker_open: Family::default(),
            parked: Family::default(),
            loop_tick: Family::default(),
            http_answers: Family::default(),
            auth_failures: Family::default(),
            quarantine: Gauge::default(),
            clock_steps: Counter::default(),
            failure_modes: Family::default(),
        };
        let registry = &mut this.registry;
        add(registry, Metric::Attempts, &this.attempts);
        add(registry, Metric::AttemptDuration, &this.attempt_duration);
        add(registry, Metric::LookUps, &this.look_ups);
        add(registry, Metric::LookUpCalls, &this.look_up_calls);
        add(registry, Metric::AskingCalls, &this.asking_calls);
        add(registry, Metric::AskingSuspended, &this.asking_suspended);
        add(registry, Metric::Audits, &this.audits);
        add(registry, Metric::VisibleAfter, &this.visible_after);
        add(registry, Metric::AbsenceSuspended, &this.absence_suspended);
        add(registry, Metric::Moves, &this.moves);
        add(registry, Metric::Enqueues, &this.enqueues);
        add(registry, Metric::EscalationsOpen, &this.escalations_open);
        add(registry, Metric::Acts, &this.acts);
        add(registry, Metric::QueueDepth, &this.queue_depth);
        add(registry, Metric::UnknownOpen, &this.unknown_open);
        add(registry, Metric::UnknownOldest, &this.unknown_oldest);
        add(registry, Metric::Stranded, &this.stranded);
        add(registry, Metric::DedupeWindow, &this.dedupe_window);
        add(registry, Metric::Pauses, &this.pauses);
        add(registry, Metric::BreakerOpen, &this.breaker_open);
        add(registry, Metric::Parked, &this.parked);
        add(registry, Metric::LoopTick, &this.loop_tick);
        add(registry, Metric::HttpAnswers, &this.http_answers);
        add(registry, Metric::AuthFailures, &this.auth_failures);
        add(registry, Metric::Quarantine, &this.quarantine);
        add(registry, Metric::ClockSteps, &this.clock_steps);
        add(registry, Metric::FailureModes, &this.failure_modes);
        // All of them from the start: an alert on a missing series never fires.
        for mode in FailureMode::ALL {
            let _there = this.failure_modes.get_or_create(&[("mode", mode.as_str().to_owned())]);
        }
        registry.register(
            Metric::BuildInfo.name(),
            Metric::BuildInfo.help(),
            prometheus_client::metrics::info::Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        Arc::new(this)
    }

    /// The OpenMetrics text.
    ///
    /// # Errors
    /// When an instrument cannot be written.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// An attempt ended.
    pub fn attempt(&self, destination: &str, outcome: &str, seconds: f64) {
        self.attempts.get_or_create(&[("destination", destination.to_owned()), ("outcome", outcome.to_owned())]).inc();
        self.attempt_duration.get_or_create(&[("destination", destination.to_owned())]).observe(seconds);
    }

    /// A question was answered.
    pub fn look_up(&self, destination: &str, verdict: &str) {
        self.look_ups.get_or_create(&[("destination", destination.to_owned()), ("verdict", verdict.to_owned())]).inc();
    }

    /// A question took so many calls.
    pub fn look_up_calls(&self, destination: &str, calls: u32) {
        self.look_up_calls.get_or_create(&[("destination", destination.to_owned())]).inc_by(u64::from(calls));
    }

    /// What all daemons together may ask of a destination now.
    pub fn asking(&self, destination: &str, calls_left: f64, suspended: bool) {
        let labels = [("destination", destination.to_owned())];
        self.asking_calls.get_or_create(&labels).set(calls_left);
        self.asking_suspended.get_or_create(&labels).set(i64::from(suspended));
    }

    /// An audit is over.
    pub fn audited(&self, destination: &str, result: &str) {
        self.audits.get_or_create(&[("destination", destination.to_owned()), ("result", result.to_owned())]).inc();
    }

    /// Sets what is measured of a destination, seconds by figure, and whether absence is believed.
    pub fn visible_after(&self, destination: &str, figures: &[(&'static str, Option<f64>)], suspended: bool) {
        for (figure, seconds) in figures {
            let labels = [("destination", destination.to_owned()), ("figure", (*figure).to_owned())];
            match seconds {
                Some(seconds) => {
                    self.visible_after.get_or_create(&labels).set(*seconds);
                }
                None => {
                    self.visible_after.remove(&labels);
                }
            }
        }
        self.absence_suspended.get_or_create(&[("destination", destination.to_owned())]).set(i64::from(suspended));
    }

    /// An intent moved; `by` is a loop, `person` or `producer`.
    pub fn moved(&self, to: &str, by: &str) {
        self.moves.get_or_create(&[("to", to.to_owned()), ("by", by.to_owned())]).inc();
    }

    /// A call asked for an effect; `verdict` is one of the ledger's verdicts or a problem's name.
    pub fn enqueue(&self, surface: &str, verdict: &str) {
        self.enqueues.get_or_create(&[("surface", surface.to_owned()), ("verdict", verdict.to_owned())]).inc();
    }

    /// A person acted.
    pub fn act(&self, verb: &str, outcome: &str) {
        self.acts.get_or_create(&[("verb", verb.to_owned()), ("outcome", outcome.to_owned())]).inc();
    }

    /// Sets the number of open escalations of every reason; reasons that are not named go to 0.
    pub fn escalations_open(&self, counts: &[(String, i64)]) {
        set_all(&self.escalations_open, "reason", counts);
    }

    /// Sets the depth of the queue; what is not named is gone.
    pub fn queue_depth(&self, rows: &[(String, String, i64)]) {
        self.queue_depth.clear();
        for (destination, kind, count) in rows {
            self.queue_depth.get_or_create(&[("destination", destination.clone()), ("kind", kind.clone())]).set(*count);
        }
    }

    /// Sets what is in doubt: destination, how many, since when (seconds since 1970).
    pub fn unknown(&self, rows: &[(String, i64, f64)]) {
        self.unknown_open.clear();
        self.unknown_oldest.clear();
        for (destination, count, oldest) in rows {
            let labels = [("destination", destination.clone())];
            self.unknown_open.get_or_create(&labels).set(*count);
            self.unknown_oldest.get_or_create(&labels).set(*oldest);
        }
    }

    /// Sets the number of rows that nothing will ever pick up.
    pub fn stranded(&self, count: i64) {
        self.stranded.set(count);
    }

    /// Sets the window in which a repeat is recognised.
    pub fn dedupe_window(&self, hours: i64) {
        self.dedupe_window.set(hours);
    }

    /// Sets the number of pauses of every scope.
    pub fn pauses(&self, counts: &[(String, i64)]) {
        set_all(&self.pauses, "scope", counts);
    }

    /// Sets the state of a breaker.
    pub fn breaker(&self, destination: &str, open: bool) {
        self.breaker_open.get_or_create(&[("destination", destination.to_owned())]).set(i64::from(open));
    }

    /// Sets whether a destination is parked.
    pub fn parked(&self, destination: &str, parked: bool) {
        self.parked.get_or_create(&[("destination", destination.to_owned())]).set(i64::from(parked));
    }

    /// Sets whether a quarantine is on.
    pub fn quarantine(&self, on: bool) {
        self.quarantine.set(i64::from(on));
    }

    /// The database clock stepped.
    pub fn clock_stepped(&self) {
        self.clock_steps.inc();
    }

    /// A loop made a step, at that time (seconds since 1970).
    pub fn loop_tick(&self, name: &str, at: f64) {
        self.loop_tick.get_or_create(&[("loop", name.to_owned())]).set(at);
    }

    /// The API answered.
    pub fn http_answer(&self, route: &str, status: u16) {
        self.http_answers.get_or_create(&[("route", route.to_owned()), ("status", status.to_string())]).inc();
    }

    /// A failure mode was met and contained.
    pub fn failure_mode(&self, mode: FailureMode) {
        self.failure_modes.get_or_create(&[("mode", mode.as_str().to_owned())]).inc();
    }

    /// A call was not let in.
    pub fn auth_failure(&self, reason: &str) {
        self.auth_failures.get_or_create(&[("reason", reason.to_owned())]).inc();
    }
}

fn add<M>(registry: &mut Registry, metric: Metric, instrument: &M)
where
    M: prometheus_client::registry::Metric + Clone,
{
    let seconds =
        [Metric::AttemptDuration, Metric::UnknownOldest, Metric::VisibleAfter, Metric::LoopTick].contains(&metric);
    if seconds {
        registry.register_with_unit(metric.name(), metric.help(), Unit::Seconds, instrument.clone());
    } else {
        registry.register(metric.name(), metric.help(), instrument.clone());
    }
}

fn set_all(family: &Family<Labels<1>, Gauge>, label: &'static str, counts: &[(String, i64)]) {
    family.clear();
    for (name, count) in counts {
        family.get_or_create(&[(label, name.clone())]).set(*count);
    }
}

fn send_times() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0])
}
