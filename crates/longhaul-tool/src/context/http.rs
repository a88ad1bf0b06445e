//! Sends an HTTP request as a context provider, which describes the current state of the world to a
//! run.
//!
//! Invariant: requests go through the guarded client, and errors contain neither the path nor the
//! query of the URL.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::port::outbound::{
    NetworkScope, OutboundError, OutboundHttpClient, OutboundRequest,
};
use longhaul_core::time::Millis;

use crate::context::response::{RESPONSE_BYTES_MAX, parse_response, too_long_message};
use crate::outbound::hop::{parse_url, redacted_url};

/// A context provider: an HTTP endpoint that gets the request as a JSON POST and responds with a
/// perception, which describes the current state of the world.
#[derive(Clone)]
pub struct HttpContextProvider {
    /// URL of the endpoint.
    pub url: String,
    /// HTTP client that only connects to allowed addresses.
    pub outbound: Arc<dyn OutboundHttpClient>,
    /// Timeout of a request to the endpoint.
    pub timeout: Millis,
    /// Whether the endpoint may be on a private network.
    pub reach: NetworkScope,
}

impl HttpContextProvider {
    fn display_url(&self) -> String {
        parse_url(&self.url).map_or_else(|_| "the URL".into(), |url| redacted_url(&url))
    }
}

impl fmt::Debug for HttpContextProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpContextProvider")
            .field("url", &self.display_url())
            .field("timeout", &self.timeout)
            .field("reach", &self.reach)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ContextProvider for HttpContextProvider {
    async fn fetch(&self, context_request: &ContextRequest) -> Result<Perception, ContextError> {
        let describe = |reason: String| format!("{}: {reason}", self.display_url());
        // Permanent errors are not retried.
        let permanent_error = |reason: String| ContextError::permanent(describe(reason));
        let context_request = serde_json::to_vec(context_request)
            .map_err(|error| permanent_error(error.to_string()))?;
        let header = |name: &str| (name.to_owned(), "application/json".to_owned());
        let request = OutboundRequest {
            method: "POST".into(),
            url: self.url.clone(),
            headers: vec![header("content-type"), header("accept")],
            body: context_request,
            timeout: self.timeout,
            bytes_max: RESPONSE_BYTES_MAX as u64,
            network_scope: self.reach,
        };
        let response = match self.outbound.send(request).await {
            Ok(response) => response,
            Err(OutboundError::TooLong { .. }) => {
                return Err(permanent_error(too_long_message()));
            }
            Err(
                error
                @ (OutboundError::Forbidden { .. } | OutboundError::UnexpectedEncoding { .. }),
            ) => {
                return Err(ContextError::permanent(error.to_string()));
            }
            Err(error @ OutboundError::Failed { .. }) => {
                return Err(ContextError::transient(error.to_string()));
            }
        };
        if !(200..300).contains(&response.status) {
            let reason = format!("the endpoint answered {} instead of 200", response.status);
            return Err(ContextError::transient(describe(reason)));
        }
        parse_response(&response.body).map_err(permanent_error)
    }
}
