//! What holds for every operation, and what the attributes cannot say.

use utoipa::{
    Modify,
    openapi::{
        Header, HeaderBuilder, ObjectBuilder, OpenApi, RefOr, Required, Schema,
        path::{Operation, ParameterIn, PathItem},
        schema::{SchemaType, Type},
    },
};

/// A header of an answer.
pub(super) fn header(of: Type, words: &str) -> Header {
    HeaderBuilder::new().schema(ObjectBuilder::new().schema_type(of)).description(Some(words)).build()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten()
}

/// Every answer carries the id of its call.
pub(super) struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, document: &mut OpenApi) {
        let id = header(
            Type::String,
            "Of the call: the caller's own `x-request-id`, where it is a plain word, or a new one",
        );
        for operation in document.paths.paths.values_mut().flat_map(operations) {
            for response in operation.responses.responses.values_mut() {
                if let RefOr::T(response) = response {
                    response.headers.insert("x-request-id".to_owned(), id.clone());
                }
            }
        }
    }
}

/// An act may come without a body: claim, release, ask and the like have nothing to say.
pub(super) struct WithoutBody;

impl Modify for WithoutBody {
    fn modify(&self, document: &mut OpenApi) {
        for operation in document.paths.paths.values_mut().flat_map(operations) {
            let acts = operation.operation_id.as_deref().is_some_and(|id| id.starts_with("act_on_"));
            if let Some(body) = operation.request_body.as_mut().filter(|_| acts) {
                body.required = Some(Required::False);
            }
        }
    }
}

/// A header may be absent, never null.
pub(super) struct HeadersAreText;

impl Modify for HeadersAreText {
    fn modify(&self, document: &mut OpenApi) {
        let parameters = document.paths.paths.values_mut().flat_map(operations).filter_map(|op| op.parameters.as_mut());
        for parameter in parameters.flatten().filter(|parameter| parameter.parameter_in == ParameterIn::Header) {
            if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
                && let SchemaType::Array(types) = &object.schema_type
                && let Some(of) = types.iter().find(|of| **of != Type::Null)
            {
                object.schema_type = SchemaType::Type(of.clone());
            }
        }
    }
}
