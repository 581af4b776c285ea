//! `settled completions` and `settled man`: made from the same definition that parses.

use std::{fs, path::Path};

use anyhow::Context as _;
use clap::{Command as Definition, CommandFactory};

use super::{
    arguments::Cli,
    exit::{Exit, Failure},
    output,
};

pub(super) fn completions(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "settled", &mut text);
    output::write_all(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Ok)
}

/// One page for the program and one for each command: `settled.1`, `settled-escalations-claim.1`.
pub(super) fn pages(directory: &Path) -> Result<Exit, Failure> {
    let mut program = Cli::command();
    program.build();
    if !directory.exists() {
        fs::create_dir(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    write_pages(&program, "settled", directory)?;
    Ok(Exit::Ok)
}

fn write_pages(command: &Definition, name: &str, directory: &Path) -> anyhow::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut page)?;
    let file = directory.join(format!("{name}.1"));
    fs::write(&file, page).with_context(|| format!("write {}", file.display()))?;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, &format!("{name}-{}", inner.get_name()), directory)?;
    }
    Ok(())
}
