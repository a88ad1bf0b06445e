//! The API for a caller in the same process, without a socket: the same handlers as behind HTTP.
//!
//! There is nobody to authenticate: the caller has opened the store, and may do everything. Checks of
//! hosts and origins, rate limits and stored responses are for requests from elsewhere.

use std::collections::BTreeMap;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use axum::{BoxError, Router};
use longhaul_api::problem;
use longhaul_core::access::{Principal, Role};
use longhaul_core::port::auth::ApiKeyRef;
use longhaul_engine::Longhaul;
use longhaul_engine::handle::CallerIdentity;
use tower_service::Service as _;

use crate::api_router::api_routes;
use crate::app::App;
use crate::middleware::auth::Credential;
use crate::problem::Problem;

/// The API for one caller in this process.
#[derive(Debug, Clone)]
pub struct InProcessApi {
    router: Router,
    caller: CallerIdentity,
}

impl InProcessApi {
    /// Creates the API. `caller` is the caller's name as it appears in journals, and `inboxes` has
    /// the default agent of each inbox.
    pub fn new(longhaul: Longhaul, caller: String, inboxes: BTreeMap<String, String>) -> Self {
        let app = App::in_process(longhaul, inboxes);
        let principal = Principal { name: caller, role: Role::Admin };
        Self {
            router: api_routes().router.with_state(app),
            caller: CallerIdentity { principal, key: ApiKeyRef::Local },
        }
    }

    /// Handles a request.
    ///
    /// # Errors
    /// The request is rejected, or failed. The source of the problem is the error of the engine, if
    /// there is one.
    pub async fn call<B>(&self, request: Request<B>) -> Result<Response, problem::Problem>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.caller.clone());
        request.extensions_mut().insert(Credential::InProcess);
        let result = self.router.clone().call(request).await;
        let mut response = result.unwrap_or_else(|never| match never {});
        match response.extensions_mut().remove::<Problem>() {
            Some(problem) => Err(problem.into_api_problem_with_source()),
            None => Ok(response),
        }
    }
}
