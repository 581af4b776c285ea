//! Bodies that no single type of the code describes: what one type reads in two ways, and answers of two forms.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        AllOfBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, SchemaFormat,
        schema::{AnyOfBuilder, Type},
    },
};

use crate::{
    api::asking::Asked,
    domain::state::State,
    engine::resolution::{Resolved, VERBS},
    store::requests::Receipt,
};

/// Gives a schema its name.
macro_rules! named {
    ($($name:ident)*) => {
        $(
            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                    for (name, schema) in [("Receipt", Receipt::schema()), ("Resolved", Resolved::schema()), ("State", State::schema())] {
                        schemas.push((name.to_owned(), schema));
                    }
                }
            }
        )*
    };
}

named! { Call Verb Openness PauseScope Withdrawal BulkItem }

/// A call of its own: as an item of a bulk call, but for the key, which is a header.
pub(in crate::api) struct Call;

impl PartialSchema for Call {
    fn schema() -> RefOr<Schema> {
        let mut schema = Asked::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.properties.remove("idempotency_key");
            object.examples = vec![json!({
                "destination": "erp-orders", "reference": "ord-4711", "run_id": "checkout-4711", "step": 1,
                "payload": { "order": 4711, "total": "840.00" },
            })];
        }
        schema
    }
}

/// A closed list of words.
macro_rules! words {
    ($($(#[$meta:meta])* $name:ident = $words:expr, $told:literal;)*) => {
        $(
            $(#[$meta])*
            pub(in crate::api) struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    ObjectBuilder::new().schema_type(Type::String).enum_values(Some($words)).description(Some($told)).into()
                }
            }
        )*
    };
}

words! {
    /// The acts, as they stand in paths.
    Verb = VERBS, "What a person does.";
    /// Which escalations are listed.
    Openness = ["open", "closed"], "Open ones, or closed ones.";
    /// What a pause is about.
    PauseScope = ["all", "destination", "tenant"], "What is paused.";
}

/// What is said when an intent is withdrawn.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "the order was cancelled" }))]
pub(in crate::api) struct Cancellation {
    /// Why.
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
    /// People only: the version that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i64>,
}

/// A producer is told the state, a person what the act has led to.
pub(in crate::api) struct Withdrawal;

impl PartialSchema for Withdrawal {
    fn schema() -> RefOr<Schema> {
        let told = ObjectBuilder::new()
            .description(Some("For producers."))
            .property("intent_id", uuid())
            .property("state", Ref::from_schema_name("State"))
            .required("intent_id")
            .required("state");
        AnyOfBuilder::new().item(told).item(Ref::from_schema_name("Resolved")).into()
    }
}

/// What became of the items of a bulk call.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "accepted": 1, "refused": 0, "items": [{ "index": 0, "status": 201, "verdict": "accepted",
    "intent_id": "0195f1a2-7c3e-7b11-8d4e-2f6a9c0b1e56", "state": "pending", "provider_id": null, "sent_at": null, "detail": null }] }))]
pub(in crate::api) struct BulkAnswer {
    /// How many intents are new.
    pub(in crate::api) accepted: usize,
    /// How many items were refused.
    pub(in crate::api) refused: usize,
    /// An answer for each item, in their order.
    #[schema(value_type = Vec<BulkItem>)]
    pub(in crate::api) items: Vec<serde_json::Value>,
}

/// A receipt or a problem, with the place of its item and the status that a call of its own would have had.
struct BulkItem;

impl PartialSchema for BulkItem {
    fn schema() -> RefOr<Schema> {
        let placed = || {
            ObjectBuilder::new()
                .property("index", ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)))
                .property("status", ObjectBuilder::new().schema_type(Type::Integer))
                .required("index")
                .required("status")
        };
        let with = |name: &str| AllOfBuilder::new().item(Ref::from_schema_name(name)).item(placed());
        OneOfBuilder::new().item(with("Receipt")).item(with("Problem")).into()
    }
}

fn uuid() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid)))
}
