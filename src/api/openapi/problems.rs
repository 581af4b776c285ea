//! Problems as the document describes them: one schema, and for each status the types that may come with it.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        AllOfBuilder, ContentBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Schema,
        schema::{AdditionalProperties, Type},
    },
};

use super::headers::header;
use crate::{
    api::problem::{Kind, Problem},
    store::requests::ConflictKind,
};

fn urn(kind: Kind) -> String {
    format!("urn:settled:problem:{}", kind.name())
}

/// The closed list of types.
pub(super) struct ProblemType;

impl PartialSchema for ProblemType {
    fn schema() -> RefOr<Schema> {
        let list: Vec<String> =
            Kind::ALL.into_iter().map(|k| format!("- `{}` ({}): {}", urn(k), k.status().as_u16(), k.title())).collect();
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(Kind::ALL.map(urn)))
            .description(Some(format!("What went wrong; a type never changes its meaning.\n\n{}", list.join("\n"))))
            .into()
    }
}

impl ToSchema for ProblemType {
    fn name() -> Cow<'static, str> {
        "ProblemType".into()
    }
}

/// An RFC 9457 document.
pub(super) struct ProblemDocument;

impl PartialSchema for ProblemDocument {
    fn schema() -> RefOr<Schema> {
        let text = |words: &str| ObjectBuilder::new().schema_type(Type::String).description(Some(words)).build();
        let whole = |words: &str| ObjectBuilder::new().schema_type(Type::Integer).description(Some(words)).build();
        let example = Problem::field(Kind::Invalid, "/reference", "must be 1 to 120 characters").members();
        ObjectBuilder::new()
            .description(Some("An RFC 9457 problem; which of the further members are there depends on its type."))
            .property("type", Ref::from_schema_name("ProblemType"))
            .property("title", text("The type in words"))
            .property("status", whole("The HTTP status"))
            .property("detail", text("What happened here, and what to do"))
            .property("request_id", text("Of the call, as in `x-request-id` and in the log"))
            .property("field", text("The member, parameter or header that breaks a rule, mostly as a JSON pointer"))
            .property("rule", text("The broken rule in one word"))
            .property("intent_id", text("The earlier intent"))
            .property("state", text("Its state"))
            .property("collides_in", ConflictKind::schema())
            .property(
                "pointers",
                ObjectBuilder::new()
                    .schema_type(Type::Array)
                    .description(Some("JSON pointers at which the contents differ")),
            )
            .property(
                "items",
                ObjectBuilder::new()
                    .schema_type(Type::Array)
                    .description(Some("Refused items of a bulk call, each a problem with its `index`")),
            )
            .property("re_requested_as", text("The intent that has the effect meanwhile"))
            .property(
                "who",
                ObjectBuilder::new().schema_type(nullable(Type::String)).description(Some("Who was faster")),
            )
            .property(
                "what",
                ObjectBuilder::new().schema_type(nullable(Type::String)).description(Some("What they did")),
            )
            .property("when", ObjectBuilder::new().schema_type(nullable(Type::String)).description(Some("When")))
            .property("version", whole("The newest version"))
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .examples([serde_json::Value::Object(example)])
            .required("type")
            .required("title")
            .required("status")
            .required("detail")
            .into()
    }
}

fn nullable(of: Type) -> utoipa::openapi::schema::SchemaType {
    [of, Type::Null].into_iter().collect()
}

impl ToSchema for ProblemDocument {
    fn name() -> Cow<'static, str> {
        "Problem".into()
    }
}

/// What is answered with one status, for any of these types.
pub(super) fn answer(kinds: &[Kind]) -> Response {
    let words: Vec<String> = kinds.iter().map(|kind| format!("`{}`: {}", kind.name(), kind.title())).collect();
    let narrowed = ObjectBuilder::new().property(
        "type",
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(kinds.iter().copied().map(urn))),
    );
    let schema = AllOfBuilder::new().item(Ref::from_schema_name("Problem")).item(narrowed);
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let mut response =
        ResponseBuilder::new().description(words.join("; ")).content("application/problem+json", content);
    if kinds.iter().any(|kind| Problem::new(*kind, "").retry_after().is_some()) {
        response = response
            .header("Retry-After", header(Type::Integer, "Seconds after which the same call may be made again"));
    }
    match kinds.first().map(|kind| kind.status().as_u16()) {
        Some(401) => response.header("WWW-Authenticate", header(Type::String, "Which credentials are taken")).build(),
        Some(409 | 422) => response
            .header("x-should-retry", header(Type::String, "`false`: the same call has the same answer"))
            .build(),
        Some(_) | None => response.build(),
    }
}
