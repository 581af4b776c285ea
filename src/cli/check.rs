//! `settled check`.

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
};
use crate::config::{
    check::{Level, Report},
    destination::Destination,
    load,
};
use crate::{channels, look_up};

pub(super) fn run(context: &Context) -> Result<Exit, Failure> {
    let path = context.config_path();
    let report = match load::parse(&path, std::env::vars()) {
        Ok(settings) => crate::config::check::run(&settings, &path.display().to_string(), &objections),
        Err(errors) => Report::unreadable(&errors.0),
    };
    print(context.out, &report)?;
    match report.worst() {
        Level::Ok | Level::Warning => Ok(Exit::Ok),
        Level::Failed => Ok(Exit::Config),
    }
}

/// One line for each thing that was looked at.
pub(super) fn print(out: Output, report: &Report) -> anyhow::Result<()> {
    out.rows(&report.lines, &["", "WHAT", "FOUND"], |line| {
        let mark = match line.level {
            Level::Ok => "ok",
            Level::Warning => "warn",
            Level::Failed => "FAIL",
        };
        vec![mark.to_owned(), line.subject.clone(), line.text.clone()]
    })
}

/// What the adapters of a destination say about its section.
fn objections(destination: &Destination) -> Vec<String> {
    let channel = channels::registry::build(destination).err();
    let look_up = look_up::registry::build(destination).err();
    channel.into_iter().chain(look_up).map(|error| error.to_string()).collect()
}
