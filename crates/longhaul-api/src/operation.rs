//! An operation of the API: what the server and its clients must agree on. `operations.rs` is the
//! table of all operations.

use std::marker::PhantomData;

use longhaul_core::access::Role;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// An operation of the API, with the types of its path parameters, query, body and answer. The
/// server makes a route and an entry of the OpenAPI document from it, and a client makes requests.
#[derive(Debug)]
pub struct Operation<P, Q, B, A> {
    /// Name of the operation in capitals. In lower case it is the operation id.
    pub name: &'static str,
    pub method: Method,
    /// Path, with the names of its parameters in braces.
    pub path: &'static str,
    /// Minimum role of the caller. `None` means that no key is needed.
    pub role: Option<Role>,
    /// Group of the operation in the OpenAPI document.
    pub tag: &'static str,
    /// Description of the operation.
    pub doc: &'static str,
    pub body: BodyKind,
    /// Form of the answer.
    pub content: Content,
    /// Whether clients send an idempotency key, so that a repeated request takes effect once.
    pub once: bool,
    /// HTTP statuses of successful responses, with their meaning.
    pub responses: &'static [(u16, &'static str)],
    pub(crate) types: PhantomData<fn(P, Q, B) -> A>,
}

impl<P, Q, B, A> Clone for Operation<P, Q, B, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P, Q, B, A> Copy for Operation<P, Q, B, A> {}

impl<P, Q, B, A> Operation<P, Q, B, A> {
    /// Returns the same operation with another type for its answer, for an operation whose query
    /// decides the form of the answer.
    pub(crate) const fn with_answer<A2>(self) -> Operation<P, Q, B, A2> {
        Operation {
            name: self.name,
            method: self.method,
            path: self.path,
            role: self.role,
            tag: self.tag,
            doc: self.doc,
            body: self.body,
            content: self.content,
            once: self.once,
            responses: self.responses,
            types: PhantomData,
        }
    }
}

/// HTTP method of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

/// Whether an operation has a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    None,
    /// A missing body means an empty JSON object.
    Optional,
    Required,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Json,
    /// JSON, or an event stream if the request accepts one.
    JsonOrStream,
    /// An event stream.
    Stream,
}

/// Query of an operation without parameters. Unknown parameters are ignored.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
pub struct NoQuery {}

/// Query of a list without parameters. Unknown parameters are refused, because they may be meant as
/// filters.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct NoFilter {}

/// Request body without fields.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EmptyBody {}
