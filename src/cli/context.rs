//! What every command may need: the configuration, a connection, where output goes, who acts.

use std::path::PathBuf;

use anyhow::Context as _;
use secrecy::{ExposeSecret, SecretString};
use sqlx::{Connection, PgConnection};

use super::{arguments::Cli, exit::Failure, output::Output};
use crate::config::{self, Settings};

pub(super) struct Context {
    config: Option<PathBuf>,
    database_url: Option<String>,
    pub(super) out: Output,
}

impl Context {
    pub(super) fn new(cli: &Cli) -> Self {
        Self { config: cli.config.clone(), database_url: cli.database_url.clone(), out: Output { json: cli.json } }
    }

    pub(super) fn config_path(&self) -> PathBuf {
        self.config.clone().unwrap_or_else(config::load::default_path)
    }

    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        Ok(config::load(&self.config_path())?)
    }

    /// A connection to the ledger. The configuration is not needed where a URL is given.
    pub(super) async fn connect(&self) -> Result<PgConnection, Failure> {
        let url = match &self.database_url {
            Some(url) => SecretString::from(url.clone()),
            None => self.settings()?.database.url()?,
        };
        connect(&url).await
    }

    /// The connection for migrations.
    pub(super) async fn connect_to_migrate(&self) -> Result<PgConnection, Failure> {
        let url = match &self.database_url {
            Some(url) => SecretString::from(url.clone()),
            None => self.settings()?.database.migrate_url()?,
        };
        connect(&url).await
    }

    /// Who acts, for the journal: whoever runs the command with the owner's database access.
    pub(super) fn actor() -> String {
        let name = ["SUDO_USER", "USER", "LOGNAME"]
            .into_iter()
            .find_map(|variable| std::env::var(variable).ok().filter(|name| !name.is_empty()));
        format!("operator:{}", name.as_deref().unwrap_or("unnamed"))
    }
}

async fn connect(url: &SecretString) -> Result<PgConnection, Failure> {
    Ok(PgConnection::connect(url.expose_secret()).await.context("the database cannot be used")?)
}
