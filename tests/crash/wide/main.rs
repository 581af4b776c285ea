//! The crash suite in width, behind `make crash`: hundreds of kills and cuts, counted at the downstream and compared with the
//! database. A program of its own, because its last line is the account and its exit code the verdict.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on must stop loudly, and the account is printed"
)]

#[path = "../../it/support/db.rs"]
mod db;

#[path = "../count.rs"]
mod count;
#[path = "../house.rs"]
#[expect(dead_code, reason = "shared with the shorter suite")]
mod house;
#[path = "../points.rs"]
mod points;
#[path = "../process.rs"]
#[expect(dead_code, reason = "shared with the shorter suite")]
mod process;
#[path = "../proxy.rs"]
mod proxy;
#[path = "../wire.rs"]
mod wire;

mod caller;
mod cuts;
mod kills;
mod rewound;
mod stage;

use std::{panic::AssertUnwindSafe, process::ExitCode, time::Duration};

use futures_util::FutureExt;
use stage::Totals;
use tokio::signal::unix::{SignalKind, signal};

const SCENES: [&str; 4] = ["kills", "cuts", "failover", "restore"];

/// What the command line asks for.
struct Arguments {
    seed: u64,
    percent: usize,
    scenes: Vec<String>,
}

/// `--seed N` repeats a run, `--percent N` kills less, names of scenes run only those.
fn arguments() -> Result<Arguments, String> {
    let mut given = std::env::args().skip(1);
    let mut arguments = Arguments { seed: rand::random_range(0..1_000_000), percent: 100, scenes: Vec::new() };
    while let Some(word) = given.next() {
        match word.as_str() {
            "--seed" => {
                let number = given.next().and_then(|text| text.parse().ok());
                arguments.seed = number.ok_or("--seed needs a number")?;
            }
            "--percent" => {
                let number = given.next().and_then(|text| text.parse().ok()).filter(|n| (1..=100).contains(n));
                arguments.percent = number.ok_or("--percent needs a number up to 100")?;
            }
            scene if SCENES.contains(&scene) => arguments.scenes.push(scene.to_owned()),
            other => return Err(format!("{other} is neither --seed nor --percent nor one of {SCENES:?}")),
        }
    }
    if arguments.scenes.is_empty() {
        arguments.scenes = SCENES.map(str::to_owned).to_vec();
    }
    Ok(arguments)
}

async fn play(arguments: &Arguments, totals: &mut Totals) {
    let wanted = |scene: &str| arguments.scenes.iter().any(|name| name == scene);
    if wanted("kills") {
        kills::play(arguments.seed, arguments.percent, totals).await;
    }
    if wanted("cuts") {
        cuts::play(arguments.seed, totals).await;
    }
    // Both wait most of the time.
    let (failover, restore) =
        tokio::join!(async { if wanted("failover") { rewound::failover().await } else { Totals::default() } }, async {
            if wanted("restore") { rewound::restore().await } else { Totals::default() }
        },);
    *totals += failover;
    *totals += restore;
}

/// Ready when whoever started us is gone: nobody would read the account.
async fn orphaned() {
    let parent = rustix::process::getppid();
    while rustix::process::getppid() == parent {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn run(arguments: Arguments) -> u8 {
    // Taken over first: Ctrl-C must end in an orderly removal of everything.
    let mut interrupt = signal(SignalKind::interrupt()).unwrap();
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    println!("seed={} scenes={}", arguments.seed, arguments.scenes.join(","));
    let mut totals = Totals::default();
    let played = tokio::select! {
        played = AssertUnwindSafe(play(&arguments, &mut totals)).catch_unwind() => played,
        _ = interrupt.recv() => return 130,
        _ = terminate.recv() => return 143,
        () = orphaned() => return 1,
    };
    if played.is_err() {
        println!("failed; the same choices again: make crash ARGS='--seed {}'", arguments.seed);
    }
    println!("{}", totals.last_line());
    u8::from(played.is_err() || totals.count.lost + totals.count.doubled > 0)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    ExitCode::from(runtime.block_on(run(arguments)))
}
