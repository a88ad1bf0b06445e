//! Why a request or a greeting came to nothing, without where it went to.

/// What somebody has to give us before a server lets us in. It is told as a value: a
/// stranger's words may hold whatever ours do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthNeed {
    None,
    Login {
        /// What is wrong with it may pass by itself.
        is_transient: bool,
    },
    Key,
}

/// Why a request or a greeting came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct RequestError {
    pub(crate) reason: String,
    /// The request may have reached the server.
    pub(crate) may_have_been_sent: bool,
    pub(crate) auth_need: AuthNeed,
}

impl RequestError {
    /// It wants nothing, and the request may have reached the server.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), may_have_been_sent: true, auth_need: AuthNeed::None }
    }

    /// Nothing was sent: it is for want of a login.
    pub(crate) fn login_required(reason: impl Into<String>, passes: bool) -> Self {
        Self {
            reason: reason.into(),
            may_have_been_sent: false,
            auth_need: AuthNeed::Login { is_transient: passes },
        }
    }
}

impl From<reqwest::Error> for RequestError {
    /// What lies behind an error, without its address.
    fn from(error: reqwest::Error) -> Self {
        let sent = !error.is_connect() && !error.is_builder();
        let error = error.without_url();
        let mut deepest: &dyn std::error::Error = &error;
        while let Some(deeper) = deepest.source() {
            deepest = deeper;
        }
        Self { may_have_been_sent: sent, ..Self::new(deepest.to_string()) }
    }
}
