//! A call of an API operation: the request after its caller, path, query and body were checked, and
//! the reply of its handler.

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use longhaul_api::list::List;
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
use crate::idempotency::{OneTimeSecretMarker, RequestAttempt, idempotency_key_header, scoped_key};
use crate::middleware::auth::Credential;
use crate::params::{parse_path, parse_query};
use crate::peer::request_base_url;
use crate::problem::Problem;

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
        let caller = require_caller(&parts, operation.role.unwrap_or(Role::Admin))?;
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

impl<P, B, Q> Call<P, B, Q> {
    /// Returns the engine.
    pub(crate) fn longhaul(&self) -> &Longhaul {
        self.ctx.longhaul()
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
        Ok(scoped_key(&self.caller, self.idempotency_key()?))
    }

    /// Returns the URL of the server as the caller wrote it.
    pub(crate) fn base_url(&self) -> String {
        request_base_url(&self.headers)
    }
}

/// Returns the caller of a request, or an error unless the caller has at least this role.
pub(crate) fn require_caller(parts: &Parts, required: Role) -> Result<CallerIdentity, Problem> {
    // The auth middleware lets no unauthenticated request pass; this check is a second barrier.
    let Some(identity) = parts.extensions.get::<CallerIdentity>() else {
        return Err(Problem::forbidden("authentication required"));
    };
    require_role(identity, required)?;
    Ok(identity.clone())
}

/// Returns an error unless the caller has at least this role.
pub(crate) fn require_role(identity: &CallerIdentity, required: Role) -> Result<(), Problem> {
    if identity.principal.role >= required {
        return Ok(());
    }
    let (actual_role, required_role) = (identity.principal.role.as_str(), required.as_str());
    let message = format!(
        "this request needs the role {required_role}, but your key has the role {actual_role}"
    );
    Err(Problem::forbidden(message).with_hint(format!(
        "ask an admin for a key: longhaul keys new NAME --role {required_role}"
    )))
}

/// Reply of a handler: the answer with its HTTP status.
pub(crate) struct Reply<A> {
    answer: A,
    status: StatusCode,
    location: Option<String>,
    permit: Option<OwnedSemaphorePermit>,
    has_secret: bool,
}

/// What the handler of an operation with the answer `A` returns.
pub(crate) type Replied<A> = Result<Reply<A>, Problem>;

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

impl<A> Reply<List<A>> {
    /// Creates the reply with a complete list.
    pub(crate) const fn list(data: Vec<A>) -> Self {
        Self::ok(List { data, next: None })
    }
}

/// What a handler of an operation with the answer `A` may return.
pub(crate) trait IntoReply<A> {
    fn into_response(self) -> Result<Response, Problem>;
}

impl<A: Serialize> IntoReply<A> for Reply<A> {
    fn into_response(self) -> Result<Response, Problem> {
        let bytes = serde_json::to_vec(&self.answer).map_err(|error| {
            tracing::error!(%error, "could not serialize a response");
            Problem::internal_error()
        })?;
        let body = Bytes::from_owner(BodyBytes { bytes, _permit: self.permit });
        let mut response =
            (self.status, [(CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(location) = self.location.and_then(|at| HeaderValue::try_from(at).ok()) {
            response.headers_mut().insert(LOCATION, location);
        }
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

/// Bytes of a response body, with the permit to hold them in memory until the last byte is sent. The
/// body alone could not hold the permit: hyper drops the body while its bytes still wait to be
/// written.
struct BodyBytes {
    bytes: Vec<u8>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for BodyBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Turns a list that was read with one item more than `limit` into a page. If there was an extra
/// item, `next` of the page is the name of its last item, after which the next page starts.
pub(crate) fn paginate<T>(mut data: Vec<T>, limit: usize, name: impl Fn(&T) -> String) -> List<T> {
    let has_more = data.len() > limit;
    data.truncate(limit);
    let next = data.last().filter(|_| has_more).map(name);
    List { data, next }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_permit_is_held_until_the_response_bytes_are_dropped() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let response = Reply::ok("text").holding(permit).into_response().unwrap();
        // Like hyper: the body is dropped at its end, while its bytes wait to be written.
        let mut body = response.into_body();
        let frame = body.frame().await.unwrap().unwrap();
        drop(body);
        let mut bytes = frame.into_data().unwrap();
        assert_eq!((&*bytes, permits.available_permits()), (&b"\"text\""[..], 0));
        let chunk = bytes.split_to(3);
        drop(chunk);
        assert_eq!(permits.available_permits(), 0);
        drop(bytes);
        assert_eq!(permits.available_permits(), 1);
    }
}
