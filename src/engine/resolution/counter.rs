//! *Compensate*: the declared counter-action of an effect that may have happened becomes an intent of its own, in the
//! transaction of the act that agreed to it. Whether the first effect happened stays unknown; it is closed.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{ActError, Call};
use crate::{
    engine::folding::Case,
    store::{
        self,
        requests::{self, EnqueueError, NewRequest, Options},
    },
};

/// The call that will ask for the counter-action of this intent. Its identity comes from the intent, so that agreeing twice
/// asks once.
pub(super) async fn request(
    conn: &mut PgConnection,
    call: &Call<'_>,
    case: &Case,
    reason: &str,
) -> Result<NewRequest, ActError> {
    let intent = &case.intent;
    let declared = call.fleet.get(&intent.destination).and_then(|served| served.config.compensate.as_ref());
    let Some(declared) = declared else {
        return Err(ActError::NotPossible(format!("{} declares no counter-action", intent.destination)));
    };
    let spelled = store::intents::given_reference(conn, intent.id).await?;
    let reference = spelled.as_deref().unwrap_or(&intent.reference);
    let filled = declared
        .fill(reference, intent.occurrence, intent.key.as_deref().unwrap_or_default())
        .map_err(|error| ActError::NotPossible(format!("the counter-action cannot be made: {error}")))?;
    Ok(NewRequest {
        destination: declared.destination.clone(),
        reference: filled.reference,
        payload: filled.payload,
        run_id: Some(format!("compensate:{}", intent.id)),
        step: Some(0),
        options: Options {
            tenant: Some(intent.tenant.clone()),
            principal: Some(call.actor.to_owned()),
            surface: Some("settled".to_owned()),
            instructed_by: Some(serde_json::json!({
                "compensates": intent.id.to_string(),
                "reference": reference,
                "agreed_by": call.actor,
                "reason": reason,
            })),
            ..Options::default()
        },
    })
}

/// Asks the ledger, as any caller does; its rules hold for counter-actions too. A refusal undoes the whole act.
pub(super) async fn enqueue(conn: &mut PgConnection, request: &NewRequest) -> Result<Uuid, ActError> {
    match requests::enqueue(conn, request).await {
        Ok(receipt) => Ok(receipt.intent_id),
        Err(EnqueueError::Database(error)) => Err(error.into()),
        Err(
            error @ (EnqueueError::Invalid { .. }
            | EnqueueError::IdentityRequired
            | EnqueueError::NotAllowed(_)
            | EnqueueError::NotFound(_)
            | EnqueueError::Conflict { .. }
            | EnqueueError::Expired(_)
            | EnqueueError::EndedWithoutEffect(_)
            | EnqueueError::EffectHeld(_)
            | EnqueueError::TooLate { .. }
            | EnqueueError::RivalOpen(_)),
        ) => Err(ActError::NotPossible(format!("the counter-action was refused: {error}"))),
    }
}
