//! A call of an API operation: the request after its caller, path, query and body were checked, and
//! the reply of its handler.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use longhaul_api::operation::{NoQuery, Operation};
use longhaul_api::path::PathParams;
use longhaul_core::access::Role;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_engine::Longhaul;
use longhaul_engine::handle::CallerIdentity;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::body::parse_request_body;
use crate::caller::{require_caller_identity, require_role};
use crate::idempotency::{RequestAttempt, caller_scoped_idempotency_key, idempotency_key_header};
use crate::middleware::auth::Credential;
use crate::params::{parse_path, parse_query};
use crate::peer::request_base_url;
use crate::problem::Problem;
use crate::response::{
    OneTimeSecretMarker, created_response, json_response, ok_response_with_memory_permit,
};

/// A call of an operation with these path parameters, body and query.
pub(crate) struct Call<P = (), B = (), Q = NoQuery> {
    pub(crate) ctx: Context,
    pub(crate) path: P,
    pub(crate) query: Q,
    pub(crate) body: B,
}

/// Who calls an operation, and everything else that a handler may need besides the parameters.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) app: App,
    pub(crate) caller: CallerIdentity,
    pub(crate) credential: Credential,
    pub(crate) headers: HeaderMap,
    attempt: Option<RequestAttempt>,
}

impl<P, B, Q> Call<P, B, Q>
where
    P: PathParams,
    B: DeserializeOwned,
    Q: DeserializeOwned,
{
    /// Checks the role of the caller and parses the path, the query and the body of a request.
    pub(crate) async fn from_request<A>(
        app: App,
        request: Request,
        operation: Operation<P, Q, B, A>,
    ) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        // An operation without a role has a handler of another form.
        let caller = require_caller_identity(&parts, operation.role.unwrap_or(Role::Admin))?;
        let credential = parts.extensions.get::<Credential>().cloned();
        let credential = credential.ok_or_else(|| Problem::forbidden("authentication required"))?;
        let path = parse_path(&mut parts, &app).await?;
        let query = parse_query(parts.uri.query().unwrap_or_default())?;
        let ctx = Context {
            caller,
            credential,
            headers: parts.headers.clone(),
            attempt: parts.extensions.get::<RequestAttempt>().cloned(),
            app: app.clone(),
        };
        let request = Request::from_parts(parts, body);
        let body = parse_request_body(request, &app, operation.body).await?;
        Ok(Self { ctx, path, query, body })
    }
}

impl Context {
    /// Returns the engine.
    pub(crate) fn longhaul(&self) -> &Longhaul {
        self.app.longhaul()
    }

    /// Returns an engine handle whose changes are committed together with the idempotency key of the
    /// request, and the change that an earlier attempt of this request has committed without
    /// storing its response. `None` means that there is no such change.
    pub(crate) fn longhaul_of_request(&self) -> (Longhaul, Option<IdempotentRequestEffect>) {
        match self.attempt.clone() {
            Some(RequestAttempt { key, effect }) => {
                (self.longhaul().for_idempotent_request(key), effect)
            }
            None => (self.longhaul().clone(), None),
        }
    }

    /// Returns the caller's name as it appears in journals.
    pub(crate) fn by(&self) -> &str {
        &self.caller.principal.name
    }

    /// Returns an error unless the caller has at least this role.
    pub(crate) fn require_role(&self, role: Role) -> Result<(), Problem> {
        require_role(&self.caller, role)
    }

    /// Returns the idempotency key in the request's header. `None` means that it has none.
    pub(crate) fn idempotency_key(&self) -> Result<Option<String>, Problem> {
        idempotency_key_header(&self.headers)
    }

    /// Returns the idempotency key in the request's header, prefixed so that different callers can't
    /// share it. `None` means that the request has none.
    pub(crate) fn scoped_idempotency_key(&self) -> Result<Option<String>, Problem> {
        Ok(caller_scoped_idempotency_key(&self.caller, self.idempotency_key()?))
    }

    /// Returns the URL of the server as the caller wrote it.
    pub(crate) fn base_url(&self) -> String {
        request_base_url(&self.headers)
    }
}

/// Reply of a handler: the answer with its HTTP status.
pub(crate) struct Reply<A> {
    answer: A,
    status: StatusCode,
    location: Option<String>,
    permit: Option<OwnedSemaphorePermit>,
    has_secret: bool,
}

impl<A> Reply<A> {
    pub(crate) const fn ok(answer: A) -> Self {
        let (status, location, permit) = (StatusCode::OK, None, None);
        Self { answer, status, location, permit, has_secret: false }
    }

    pub(crate) fn with_status(answer: A, status: StatusCode) -> Self {
        Self { status, ..Self::ok(answer) }
    }

    /// Creates the reply with a new resource and its path.
    pub(crate) fn created(location: String, answer: A) -> Self {
        Self { location: Some(location), ..Self::with_status(answer, StatusCode::CREATED) }
    }

    /// Keeps a permit to hold the answer in memory until its last byte is sent.
    #[must_use]
    pub(crate) fn holding(self, permit: OwnedSemaphorePermit) -> Self {
        Self { permit: Some(permit), ..self }
    }

    /// Marks the answer as a secret that is shown only once and is not stored for retries.
    #[must_use]
    pub(crate) fn with_secret(self) -> Self {
        Self { has_secret: true, ..self }
    }
}

/// What a handler of an operation with the answer `A` may return.
pub(crate) trait IntoReply<A> {
    fn into_response(self) -> Result<Response, Problem>;
}

impl<A: Serialize> IntoReply<A> for Reply<A> {
    fn into_response(self) -> Result<Response, Problem> {
        let mut response = match (self.location, self.permit) {
            (Some(location), _) => created_response(&location, &self.answer)?,
            (None, Some(permit)) => ok_response_with_memory_permit(&self.answer, permit)?,
            (None, None) => json_response(self.status, &self.answer)?,
        };
        if self.has_secret {
            response.extensions_mut().insert(OneTimeSecretMarker);
        }
        Ok(response)
    }
}

/// For handlers of event streams.
impl<A> IntoReply<A> for Response {
    fn into_response(self) -> Result<Response, Problem> {
        Ok(self)
    }
}
