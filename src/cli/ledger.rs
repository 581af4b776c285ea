//! `settled migrate`.

use serde_json::json;

use super::{
    context::Context,
    exit::{Exit, Failure},
};
use crate::store::migrations;

pub(super) async fn migrate(context: &Context) -> Result<Exit, Failure> {
    let mut conn = context.connect_to_migrate().await?;
    let version = migrations::run(&mut conn).await?;
    context.out.value(&json!({ "schema_version": version }), |_| format!("the ledger is at version {version}"))?;
    Ok(Exit::Ok)
}
