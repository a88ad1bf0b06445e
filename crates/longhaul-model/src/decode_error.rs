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
