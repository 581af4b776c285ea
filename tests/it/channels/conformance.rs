//! The conformance table: one fault, one outcome, for every channel.
//!
//! A channel joins with a [`Bench`]: it starts its fake downstream with the fault and gives back the channel that talks to
//! it. [`check`] plays one row and holds the outcome against the table and against what every report must be.

use std::{sync::Arc, time::Duration};

use settled::{
    channels::Channel,
    domain::{
        gate::{BoxFuture, Gate},
        intent::Outgoing,
        outcome::{DoubtKind, Ended, Outcome, Proof, Stage},
    },
};

use super::fake::TestGate;

/// What goes wrong downstream, or here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it accepts.
    None,
    /// Nobody listens.
    NobodyListens,
    /// The connection is reset in the middle of the body.
    ResetInBody,
    /// It stops reading in the middle of the body.
    StallInBody,
    /// Everything was read; the connection is reset.
    ResetAfterBody,
    /// Everything was read; the connection is closed.
    CloseAfterBody,
    /// Everything was read; nothing is said.
    SilentAfterBody,
    /// Everything was read; garbage is said.
    GarbageAfterBody,
    /// No, for good.
    Refused,
    /// Not now.
    NotNow,
    /// Our credentials are refused.
    NotYou,
    /// A failure that may have come after the effect.
    Broken,
    /// The gate is closed from the start.
    GateShut,
    /// The gate says no to the last bytes.
    GateSaysNo,
}

/// All rows.
pub const FAULTS: [Fault; 14] = [
    Fault::None,
    Fault::NobodyListens,
    Fault::ResetInBody,
    Fault::StallInBody,
    Fault::ResetAfterBody,
    Fault::CloseAfterBody,
    Fault::SilentAfterBody,
    Fault::GarbageAfterBody,
    Fault::Refused,
    Fault::NotNow,
    Fault::NotYou,
    Fault::Broken,
    Fault::GateShut,
    Fault::GateSaysNo,
];

/// A downstream with the fault, and the channel that talks to it.
pub struct Running {
    /// The channel under test, with short limits.
    pub channel: Arc<dyn Channel>,
    /// What is sent.
    pub outgoing: Outgoing,
    /// How many messages the downstream has taken whole.
    pub taken: Box<dyn Fn() -> usize + Send + Sync>,
    /// Keeps the downstream alive.
    pub downstream: Box<dyn std::any::Any + Send>,
}

/// A channel with its fake downstream.
pub trait Bench: Send + Sync {
    /// Starts the downstream with the fault; `None` where this channel cannot have it.
    fn start(&self, fault: Fault) -> BoxFuture<'_, Option<Running>>;
}

/// What the table says about a fault.
fn expected(fault: Fault, outcome: &Outcome) -> bool {
    match fault {
        Fault::None => matches!(outcome, Outcome::Sent { .. }),
        Fault::NobodyListens => matches!(outcome, Outcome::NotSent { proof: Proof::NotConnected, .. }),
        Fault::ResetInBody | Fault::StallInBody => {
            matches!(outcome, Outcome::NotSent { proof: Proof::Incomplete, .. })
        }
        Fault::ResetAfterBody | Fault::CloseAfterBody => {
            matches!(outcome, Outcome::Ambiguous { doubt: DoubtKind::ConnectionLost })
        }
        Fault::SilentAfterBody => matches!(outcome, Outcome::Ambiguous { doubt: DoubtKind::NoReply }),
        Fault::GarbageAfterBody | Fault::Broken => {
            matches!(outcome, Outcome::Ambiguous { doubt: DoubtKind::UnclearReply })
        }
        Fault::Refused => matches!(outcome, Outcome::Refused { .. }),
        Fault::NotNow => matches!(outcome, Outcome::NotSent { proof: Proof::Deferred | Proof::Throttled, .. }),
        Fault::NotYou => matches!(outcome, Outcome::NotSent { proof: Proof::Parked, .. }),
        Fault::GateShut | Fault::GateSaysNo => {
            matches!(outcome, Outcome::NotSent { proof: Proof::SelfStopped, .. })
        }
    }
}

/// Plays one row. Panics with the row's name where the outcome is another or the report contradicts it.
pub async fn check(bench: &dyn Bench, fault: Fault) {
    let Some(running) = bench.start(fault).await else { return };
    let gate = TestGate::open();
    match fault {
        Fault::GateShut => gate.shut(),
        Fault::GateSaysNo => gate.answer(false),
        Fault::None
        | Fault::NobodyListens
        | Fault::ResetInBody
        | Fault::StallInBody
        | Fault::ResetAfterBody
        | Fault::CloseAfterBody
        | Fault::SilentAfterBody
        | Fault::GarbageAfterBody
        | Fault::Refused
        | Fault::NotNow
        | Fault::NotYou
        | Fault::Broken => {}
    }
    let prepared = running.channel.prepare(&running.outgoing).unwrap();
    let asked = Arc::clone(&gate);
    let sending = running.channel.send(prepared, &running.outgoing, gate as Arc<dyn Gate>);
    let ended = tokio::time::timeout(Duration::from_secs(20), sending)
        .await
        .unwrap_or_else(|_| panic!("{fault:?}: the attempt has no end"));
    assert!(expected(fault, &ended.outcome), "{fault:?}: {ended:?}");
    consistent(fault, &ended);
    let taken = (running.taken)();
    assert!(taken <= 1, "{fault:?}: taken {taken} times");
    if ended.outcome.is_hard_negative() && !matches!(fault, Fault::Refused | Fault::NotNow | Fault::NotYou) {
        assert_eq!(taken, 0, "{fault:?}: a proof of absence for what was taken");
    }
    assert!(asked.asked() <= 1, "{fault:?}: the gate was asked {} times", asked.asked());
    drop(running.downstream);
}

/// What every report must be, whatever happened.
fn consistent(fault: Fault, ended: &Ended) {
    let report = &ended.report;
    assert!(report.bytes_handed <= report.bytes_needed, "{fault:?}: {report:?}");
    assert!(report.excerpt.as_ref().is_none_or(|text| text.chars().count() <= 500), "{fault:?}");
    match &ended.outcome {
        Outcome::Sent { .. } => assert_eq!((report.stage, report.bytes_handed), (Stage::Replied, report.bytes_needed)),
        Outcome::Ambiguous { .. } => assert!(report.stage >= Stage::Handed, "{fault:?}: {report:?}"),
        Outcome::NotSent { proof: Proof::Incomplete | Proof::SelfStopped, .. } => {
            assert!(report.stage < Stage::Handed, "{fault:?}: {report:?}");
            assert!(report.bytes_handed < report.bytes_needed || report.bytes_needed == 0, "{fault:?}: {report:?}");
        }
        Outcome::NotSent { .. } | Outcome::Refused { .. } => {}
    }
    if !matches!(ended.outcome, Outcome::Sent { .. } | Outcome::Refused { .. }) {
        assert!(report.cause.is_some() || report.code.is_some(), "{fault:?}: nothing says why");
    }
}
