//! An address that is asked what the world looks like.
//!
//! Never: past the guard, and never with its path or query in an error.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::port::outbound::{NetworkScope, Outbound, OutboundError, Request};
use longhaul_core::time::Millis;

use crate::context::response::{RESPONSE_BYTES_MAX, parse_perception, too_long_message};
use crate::outbound::hop::{parse_url, redacted_url};

/// An address that who looks is posted to, and that answers with what is seen.
#[derive(Clone)]
pub struct HttpContextProvider {
    /// Where to.
    pub url: String,
    /// The way out.
    pub outbound: Arc<dyn Outbound>,
    /// How long it may take.
    pub timeout: Millis,
    /// Whether it may be at a private address.
    pub reach: NetworkScope,
}

impl HttpContextProvider {
    fn display_url(&self) -> String {
        parse_url(&self.url).map_or_else(|_| "the address".into(), |url| redacted_url(&url))
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
    async fn fetch(&self, glance: &ContextRequest) -> Result<Perception, ContextError> {
        let said = |why: String| format!("{}: {why}", self.display_url());
        // What another try would not change is told at once.
        let lasts = |why: String| ContextError::permanent(said(why));
        let glance = serde_json::to_vec(glance).map_err(|why| lasts(why.to_string()))?;
        let header = |name: &str| (name.to_owned(), "application/json".to_owned());
        let request = Request {
            method: "POST".into(),
            url: self.url.clone(),
            headers: vec![header("content-type"), header("accept")],
            body: glance,
            timeout: self.timeout,
            bytes_max: RESPONSE_BYTES_MAX as u64,
            network_scope: self.reach,
        };
        let response = match self.outbound.send(request).await {
            Ok(response) => response,
            Err(OutboundError::TooLong { .. }) => return Err(lasts(too_long_message())),
            Err(
                why @ (OutboundError::Forbidden { .. } | OutboundError::UnexpectedEncoding { .. }),
            ) => {
                return Err(ContextError::permanent(why.to_string()));
            }
            Err(why @ OutboundError::Failed { .. }) => {
                return Err(ContextError::transient(why.to_string()));
            }
        };
        if !(200..300).contains(&response.status) {
            let why = format!("it answered with status {} instead of 200", response.status);
            return Err(ContextError::transient(said(why)));
        }
        parse_perception(&response.body).map_err(lasts)
    }
}
