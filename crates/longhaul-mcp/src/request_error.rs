//! Why a request or a greeting came to nothing, without where it went to.

/// What somebody has to give us before a server lets us in. It is told as a value: a
/// stranger's words may hold whatever ours do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    Nothing,
    Login {
        /// What is wrong with it may pass by itself.
        passes: bool,
    },
    Key,
}

/// Why a request or a greeting came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub(crate) struct RequestError {
    pub(crate) why: String,
    /// The request may have reached the server.
    pub(crate) sent: bool,
    pub(crate) wants: Wants,
}

impl RequestError {
    /// It wants nothing, and the request may have reached the server.
    pub(crate) fn plain(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            sent: true,
            wants: Wants::Nothing,
        }
    }

    /// Nothing was sent: it is for want of a login.
    pub(crate) fn login(why: impl Into<String>, passes: bool) -> Self {
        Self {
            why: why.into(),
            sent: false,
            wants: Wants::Login { passes },
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
        Self {
            sent,
            ..Self::plain(deepest.to_string())
        }
    }
}
