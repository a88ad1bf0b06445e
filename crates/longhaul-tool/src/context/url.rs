//! An address that is asked what the world looks like.
//!
//! Never: past the guard, and never with its path or query in an error.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use longhaul_core::port::context::{ContextError, ContextProvider, Glance, Perception};
use longhaul_core::port::outbound::{Outbound, OutboundError, Reach, Request};
use longhaul_core::time::Millis;

use crate::context::answer::{ANSWER_BYTES_MAX, read, too_long};
use crate::outbound::hop::{address, said};

/// An address that who looks is posted to, and that answers with what is seen.
#[derive(Clone)]
pub struct UrlEye {
    /// Where to.
    pub url: String,
    /// The way out.
    pub outbound: Arc<dyn Outbound>,
    /// How long it may take.
    pub timeout: Millis,
    /// Whether it may be at a private address.
    pub reach: Reach,
}

impl UrlEye {
    fn said(&self) -> String {
        address(&self.url).map_or_else(|_| "the address".into(), |url| said(&url))
    }
}

impl fmt::Debug for UrlEye {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlEye")
            .field("url", &self.said())
            .field("timeout", &self.timeout)
            .field("reach", &self.reach)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ContextProvider for UrlEye {
    async fn look(&self, glance: &Glance) -> Result<Perception, ContextError> {
        let said = |why: String| format!("{}: {why}", self.said());
        // What another try would not change is told at once.
        let lasts = |why: String| ContextError::lasting(said(why));
        let glance = serde_json::to_vec(glance).map_err(|why| lasts(why.to_string()))?;
        let header = |name: &str| (name.to_owned(), "application/json".to_owned());
        let request = Request {
            method: "POST".into(),
            url: self.url.clone(),
            headers: vec![header("content-type"), header("accept")],
            body: glance,
            timeout: self.timeout,
            bytes_max: ANSWER_BYTES_MAX as u64,
            reach: self.reach,
        };
        let response = match self.outbound.send(request).await {
            Ok(response) => response,
            Err(OutboundError::TooLong { .. }) => return Err(lasts(too_long())),
            Err(why @ (OutboundError::Forbidden { .. } | OutboundError::Packed { .. })) => {
                return Err(ContextError::lasting(why.to_string()));
            }
            Err(why @ OutboundError::Failed { .. }) => {
                return Err(ContextError::passing(why.to_string()));
            }
        };
        if !(200..300).contains(&response.status) {
            let why = format!("it answered with status {} instead of 200", response.status);
            return Err(ContextError::passing(said(why)));
        }
        read(&response.body).map_err(lasts)
    }
}
