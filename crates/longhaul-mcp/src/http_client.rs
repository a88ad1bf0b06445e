//! What all HTTP clients of this crate share: their settings, reading a limited response, and the
//! error of a failed request.
//!
//! Invariant: the error does not contain the URL.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, ClientBuilder, Response};

/// Kind of credentials that a failed request lacked: none, an OAuth login or a key. It is stored
/// separately from the error text, because that text may come from the server and can't be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredCredentials {
    None,
    Login {
        /// Whether the login may work again without user action.
        is_transient: bool,
    },
    Key,
}

/// The error of a failed request or handshake.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct RequestError {
    pub(crate) reason: String,
    /// Whether the request may have reached the server.
    pub(crate) may_have_been_sent: bool,
    pub(crate) required_credentials: RequiredCredentials,
}

impl RequestError {
    /// Creates the error of a request that may have reached the server and did not fail for lack of
    /// credentials.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            may_have_been_sent: true,
            required_credentials: RequiredCredentials::None,
        }
    }

    /// Creates the error of a request that was not sent because a login is missing. `is_transient`
    /// says whether the login may work again without user action.
    pub(crate) fn login_required(reason: impl Into<String>, is_transient: bool) -> Self {
        Self {
            reason: reason.into(),
            may_have_been_sent: false,
            required_credentials: RequiredCredentials::Login { is_transient },
        }
    }
}

impl From<reqwest::Error> for RequestError {
    /// Converts an HTTP error, with the message of its innermost error and without the URL.
    fn from(error: reqwest::Error) -> Self {
        let may_have_been_sent = !error.is_connect() && !error.is_builder();
        let error = error.without_url();
        let mut root_cause: &dyn std::error::Error = &error;
        while let Some(source) = root_cause.source() {
            root_cause = source;
        }
        Self { may_have_been_sent, ..Self::new(root_cause.to_string()) }
    }
}

/// Timeout for connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the builder of an HTTP client. Each request gets a connection of its own, because streams
/// that were interrupted leave connections that stall.
pub(crate) fn client_builder() -> ClientBuilder {
    // An error means that another part of this process has installed a TLS provider.
    _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0)
}

/// Reads a response body of at most `max_bytes` bytes.
pub(crate) async fn read_body(
    response: &mut Response,
    max_bytes: usize,
) -> Result<Vec<u8>, RequestError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max_bytes {
            return Err(RequestError::new("the server sent a message that exceeds the size limit"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns whether a response has this media type.
pub(crate) fn has_content_type(response: &Response, media_type: &str) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    content_type
        .is_some_and(|content_type| content_type.as_bytes().starts_with(media_type.as_bytes()))
}

/// Gives access to the `Ok` type of a result type, to name a type that the SDK does not export.
pub(crate) trait ResultOkType {
    type Value;
}

impl<T, E> ResultOkType for Result<T, E> {
    type Value = T;
}
