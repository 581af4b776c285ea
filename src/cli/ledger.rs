//! `settled migrate`.

use serde_json::json;

use super::{
    context::Context,
    exit::{Exit, Failure},
};
use crate::{store::migrations, telemetry::bar::Bar};

pub(super) async fn migrate(context: &Context) -> Result<Exit, Failure> {
    let mut conn = context.connect_to_migrate().await?;
    let bar = Bar::spinning("migrating; waits while somebody else migrates", context.out.json);
    let version = migrations::run(&mut conn).await?;
    drop(bar);
    context.out.value(&json!({ "schema_version": version }), |_| format!("the ledger is at version {version}"))?;
    Ok(Exit::Ok)
}
