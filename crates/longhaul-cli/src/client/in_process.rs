//! The API on a store that this process has opened, called without a socket.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use longhaul_api::client::InProcess;
use longhaul_api::client::reqwest::{Body, Request, Response};
use longhaul_api::problem::Problem;
use longhaul_engine::Longhaul;
use longhaul_server::InProcessApi;

use crate::caller_name::caller_name;

/// The API in this process, for the person who runs the command.
#[derive(Debug)]
pub(super) struct StoreApi(InProcessApi);

impl StoreApi {
    /// Creates the API. `inboxes` has the default agent of each inbox.
    pub(super) fn new(longhaul: Longhaul, inboxes: BTreeMap<String, String>) -> Self {
        Self(InProcessApi::new(longhaul, caller_name(), inboxes))
    }
}

impl InProcess for StoreApi {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Response, Problem>> {
        Box::pin(async move {
            let response = self.0.call(request.try_into().map_err(invalid_request)?).await?;
            Ok(response.map(|body| Body::wrap_stream(body.into_data_stream())).into())
        })
    }
}

fn invalid_request(error: longhaul_api::client::reqwest::Error) -> Problem {
    Problem::new("internal", error.to_string())
}
