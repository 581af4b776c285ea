//! `--fault`: a share of the sends goes wrong, and everything is counted at the receiver.

use std::{
    collections::BTreeMap,
    str::FromStr,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    daemon::{Bench, Plan},
    load,
    sink::Sink,
    usage::Usage,
};
use crate::{demo::cluster::Cluster, store, telemetry::bar::Bar};

/// Sends at the same time.
const CONCURRENCY: u32 = 64;

/// What the receiver does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Acts and answers.
    Fine,
    /// Acts and answers after the client has given up.
    Late,
    /// Acts and cuts the connection.
    Cut,
    /// Does not act and cuts the connection.
    Lost,
    /// Does not act and says so.
    Refused,
    /// Does not act and answers 503.
    Failed,
}

impl Fate {
    /// Whether the effect happens.
    pub(super) fn acts(self) -> bool {
        match self {
            Self::Fine | Self::Late | Self::Cut => true,
            Self::Lost | Self::Refused | Self::Failed => false,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Late => "late",
            Self::Cut => "cut",
            Self::Lost => "lost",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Shares of the sends, 0 to 1: `late=0.002,lost=0.001`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Shares {
    /// Acts, and answers after the client has given up.
    pub late: f64,
    /// Acts, and cuts the connection.
    pub cut: f64,
    /// Does not act, and cuts the connection.
    pub lost: f64,
    /// Refuses.
    pub refused: f64,
    /// Does not act, and answers 503; the same reference at most twice.
    pub failed: f64,
}

/// Fates that can be named.
const NAMED: &str = "late, cut, lost, refused, failed";

impl FromStr for Shares {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut shares = Self::default();
        for part in text.split(',') {
            let (name, share) = part.split_once('=').ok_or("must be NAME=SHARE, separated by commas")?;
            let share: f64 = share.parse().map_err(|_| format!("{name}: the share must be a number from 0 to 1"))?;
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name}: the share must be from 0 to 1"));
            }
            match name {
                "late" => shares.late = share,
                "cut" => shares.cut = share,
                "lost" => shares.lost = share,
                "refused" => shares.refused = share,
                "failed" => shares.failed = share,
                other => return Err(format!("{other} is none of {NAMED}")),
            }
        }
        let all = shares.late + shares.cut + shares.lost + shares.refused + shares.failed;
        if all > 1.0 { Err("the shares are more than 1 together".to_owned()) } else { Ok(shares) }
    }
}

impl Shares {
    /// The fate that a number from 0 to 1 falls upon. What was not acted upon twice is let through.
    pub(super) fn draw(self, failed: u32, chance: f64) -> Fate {
        if failed >= 2 {
            return Fate::Fine;
        }
        let mut upto = 0.0;
        for (share, fate) in [
            (self.late, Fate::Late),
            (self.cut, Fate::Cut),
            (self.lost, Fate::Lost),
            (self.refused, Fate::Refused),
            (self.failed, Fate::Failed),
        ] {
            upto += share;
            if chance < upto {
                return fate;
            }
        }
        Fate::Fine
    }
}

/// What became of the intents.
#[derive(Debug, Clone, Serialize)]
pub struct Faulty {
    /// Intents enqueued.
    pub intents: u64,
    /// Sends that met each fault, as counted by the receiver.
    pub met: BTreeMap<&'static str, u64>,
    /// Intents with an attempt whose outcome was in doubt.
    pub unknown: u64,
    /// References that arrived more than once.
    pub doubled: usize,
    /// References that never arrived and were not refused.
    pub lost: u64,
    /// Intents that the receiver refused.
    pub refused: u64,
    /// Intents that wait for a person because of a doubt.
    pub left_to_a_person: u64,
    /// Open escalations by reason.
    pub escalations: BTreeMap<String, u64>,
    /// Intents without an end when the time was over.
    pub open: u64,
    /// Until everything had its end, seconds.
    pub seconds: f64,
    /// Largest memory of the daemon, MB.
    pub daemon_peak_mb: f64,
    /// CPU of the daemon for one intent, microseconds.
    pub daemon_cpu_us: f64,
    /// CPU of Postgres for one intent, microseconds.
    pub postgres_cpu_us: f64,
}

/// Sends a backlog to a receiver with faults and waits until everything has its end.
pub(super) async fn run(
    cluster: &Cluster,
    sink: &Sink,
    intents: u32,
    shares: Shares,
    bar: &Bar,
) -> anyhow::Result<Faulty> {
    let bench = Bench::build(cluster, Plan::faulty(sink, CONCURRENCY, intents)).await?;
    load::backlog(&bench.pool, &Plan::hook(CONCURRENCY), "fault", intents).await?;
    sink.fails(shares);
    let postgres = Usage::of_postgres(cluster)?;
    let mut running = bench.start()?;
    let _in_use = load::trickle(&bench.pool, &Plan::hook(CONCURRENCY));
    let began = Instant::now();
    bar.says("faults");
    let at_most = Duration::from_secs(120 + u64::from(intents) / 200);
    let ended = async {
        loop {
            running.check()?;
            let open = store::bench::without_end(&bench.pool).await?;
            if open == 0 || began.elapsed() > at_most {
                return anyhow::Ok(open);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let open = bar.follow(u64::from(intents), || sink.count(), ended).await?;
    let seconds = began.elapsed().as_secs_f64();
    let usage = running.usage()?;
    let postgres = Usage::of_postgres(cluster)?.cpu_seconds - postgres.cpu_seconds;
    running.stop().await?;
    let told = store::bench::doubts(&bench.pool).await?;
    let refused = u64::try_from(told.refused).unwrap_or(0);
    let arrived = u64::try_from(sink.distinct()).unwrap_or(0);
    let per = |seconds: f64| seconds * 1e6 / f64::from(intents.max(1));
    Ok(Faulty {
        intents: u64::from(intents),
        met: [Fate::Late, Fate::Cut, Fate::Lost, Fate::Refused, Fate::Failed]
            .into_iter()
            .map(|fate| (fate.as_str(), sink.met(fate)))
            .filter(|(_, count)| *count > 0)
            .collect(),
        unknown: u64::try_from(told.unknown).unwrap_or(0),
        doubled: sink.doubled(),
        lost: u64::from(intents).saturating_sub(arrived + refused),
        refused,
        left_to_a_person: u64::try_from(told.left_to_a_person).unwrap_or(0),
        escalations: store::bench::escalations(&bench.pool).await?,
        open: u64::try_from(open).unwrap_or(0),
        seconds,
        daemon_peak_mb: usage.peak_mb,
        daemon_cpu_us: per(usage.cpu_seconds),
        postgres_cpu_us: per(postgres),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_drawn_in_proportion() {
        let shares: Shares = "late=0.25,lost=0.5".parse().unwrap_or_default();
        assert_eq!((shares.late, shares.lost, shares.refused), (0.25, 0.5, 0.0));
        assert_eq!(shares.draw(0, 0.1), Fate::Late);
        assert_eq!(shares.draw(0, 0.3), Fate::Lost);
        assert_eq!(shares.draw(0, 0.8), Fate::Fine);
        assert_eq!(shares.draw(2, 0.1), Fate::Fine, "what failed twice is let through");
        for wrong in ["late", "late=2", "late=x", "often=0.1", "late=0.6,lost=0.6"] {
            assert!(wrong.parse::<Shares>().is_err(), "{wrong}");
        }
    }
}
