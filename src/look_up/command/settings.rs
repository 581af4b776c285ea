//! `[destinations.look_up.command]`: the program that asks. Parsed and checked by [`super::Command::build`].

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    config::{
        BuildError,
        access::{self, Setting},
        template::{Template, Variable},
    },
    look_up::template::Asked,
};

/// Path of the section, for errors.
const SECTION: &str = "look_up.command";

/// The section as written. Unknown members are refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Absolute path; no shell reads it.
    program: PathBuf,
    /// One text for each argument, with variables.
    #[serde(default)]
    arguments: Vec<String>,
    /// Everything that the program finds in its environment. Values are texts or secrets.
    #[serde(default)]
    environment: BTreeMap<String, Setting>,
    /// Where it is started.
    #[serde(default = "root")]
    directory: PathBuf,
    /// Who it must say that it was answered as. Without it absence is never believed.
    #[serde(default)]
    account: Option<String>,
    /// It looks for the key itself, not for the reference alone.
    #[serde(default)]
    shows_key: bool,
    /// The exit status that goes with `absent`.
    #[serde(default = "forty_four")]
    absent_exit: i32,
    /// For one run. There is a run for each probe of a question.
    #[serde(with = "humantime_serde", default = "twenty_seconds")]
    within: Duration,
    /// Runs at the same time, in this process.
    #[serde(default = "four")]
    at_once: usize,
    /// Most that is read of its output, and as much again of its errors.
    #[serde(default = "a_quarter_mebibyte")]
    output_bytes: usize,
}

/// A checked section.
pub(super) struct Plan {
    pub program: PathBuf,
    pub arguments: Vec<Argument>,
    pub environment: Vec<(String, Entry)>,
    pub directory: PathBuf,
    pub account: Option<String>,
    pub shows_key: bool,
    pub absent_exit: i32,
    pub within: Duration,
    pub at_once: usize,
    pub output_bytes: usize,
}

/// One argument.
pub(super) struct Argument {
    pub template: Template<Word>,
    /// It is written as an option, so a dash at its beginning is meant.
    pub is_option: bool,
}

/// A value of the environment.
pub(super) enum Entry {
    Plain(String),
    Secret(SecretString),
}

/// What may stand in braces: the variables of a question, and the nonce of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// Made anew for every run.
    Nonce,
    /// As in every look-up.
    Asked(Asked),
}

impl Variable for Word {
    fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        if (name, argument) == ("nonce", None) {
            Ok(Self::Nonce)
        } else {
            Asked::parse(name, argument).map(Self::Asked)
        }
    }
}

fn fail<T>(field: &str, rule: &str) -> Result<T, BuildError> {
    Err(BuildError::new(format!("{SECTION}.{field}"), rule))
}

impl Plan {
    /// Checks the section and reads its secrets.
    pub(super) fn build(section: &Value) -> Result<Self, BuildError> {
        let settings: Settings =
            serde_json::from_value(section.clone()).map_err(|error| BuildError::unread(SECTION, &error))?;
        check(&settings)?;
        let mut arguments = Vec::new();
        for (at, text) in settings.arguments.iter().enumerate() {
            let field = format!("{SECTION}.arguments[{at}]");
            if text.contains('\0') {
                return Err(BuildError::new(field, "must not hold a NUL"));
            }
            arguments.push(Argument { template: Template::parse(text, &field)?, is_option: text.starts_with('-') });
        }
        let mut environment = Vec::new();
        for (name, setting) in &settings.environment {
            let field = format!("{SECTION}.environment.{name}");
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(BuildError::new(field, "must be a name without = and NUL"));
            }
            let entry = match setting {
                Setting::Plain(text) if text.contains('\0') => {
                    return Err(BuildError::new(field, "must not hold a NUL"));
                }
                Setting::Plain(text) => Entry::Plain(text.clone()),
                Setting::Secret(secret) => Entry::Secret(access::load(secret, &field)?),
            };
            environment.push((name.clone(), entry));
        }
        Ok(Self {
            program: settings.program,
            arguments,
            environment,
            directory: settings.directory,
            account: settings.account,
            shows_key: settings.shows_key,
            absent_exit: settings.absent_exit,
            within: settings.within,
            at_once: settings.at_once,
            output_bytes: settings.output_bytes,
        })
    }
}

fn check(settings: &Settings) -> Result<(), BuildError> {
    if !settings.program.is_absolute() {
        return fail("program", "must be an absolute path: nothing is searched for");
    }
    let Ok(metadata) = std::fs::metadata(&settings.program) else {
        return fail("program", "must name a file that is there");
    };
    let mode = metadata.permissions().mode();
    if !metadata.is_file() || mode & 0o111 == 0 {
        return fail("program", "must name an executable file");
    }
    if mode & 0o002 != 0 {
        return fail("program", "must not be writable by everybody");
    }
    if !settings.directory.is_absolute() {
        return fail("directory", "must be an absolute path");
    }
    if settings.account.as_ref().is_some_and(String::is_empty) {
        return fail("account", "must not be empty");
    }
    // 1 and 2 are what every broken script and program returns, 126 to 165 what shells and signals do.
    if !(3..=125).contains(&settings.absent_exit) {
        return fail("absent_exit", "must be between 3 and 125: lower and higher ones are what broken programs return");
    }
    if settings.within.is_zero() || settings.within > Duration::from_secs(60) {
        return fail("within", "must be longer than nothing and at most 60s");
    }
    if !(1..=64).contains(&settings.at_once) {
        return fail("at_once", "must be between 1 and 64");
    }
    if !(1024..=16 << 20).contains(&settings.output_bytes) {
        return fail("output_bytes", "must be between 1024 and 16777216");
    }
    Ok(())
}

fn root() -> PathBuf {
    PathBuf::from("/")
}
fn forty_four() -> i32 {
    44
}
fn twenty_seconds() -> Duration {
    Duration::from_secs(20)
}
fn four() -> usize {
    4
}
fn a_quarter_mebibyte() -> usize {
    256 << 10
}
