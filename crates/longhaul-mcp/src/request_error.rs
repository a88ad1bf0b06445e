//! The error of a failed request or handshake.
//!
//! Invariant: the error does not contain the URL.

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
