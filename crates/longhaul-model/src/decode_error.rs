//! Errors while decoding a provider's response.

/// Error while decoding a provider's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The provider reported an error. Contains the JSON of the error, unchanged.
    ProviderError(String),
    /// The response is malformed. Contains a description of what is wrong.
    Malformed(String),
    /// The response exceeds a limit, and a retry would exceed it again. Contains a description of
    /// the limit.
    TooLarge(String),
}

/// Result of decoding a part of a provider's response.
pub(crate) type Decoded<T = ()> = Result<T, DecodeError>;

impl DecodeError {
    pub(crate) fn malformed(problem: &str) -> Self {
        Self::Malformed(problem.to_owned())
    }

    /// Converts a JSON error. `problem` says which part of the response is invalid.
    pub(crate) fn invalid_json(problem: &str) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| Self::Malformed(format!("{problem}: {error}"))
    }
}
