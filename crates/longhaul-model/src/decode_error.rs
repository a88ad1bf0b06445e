//! What a codec can find wrong with what a provider says.

/// Why a codec hears no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The provider says that it failed: its error, as it came.
    ProviderError(String),
    /// What it says makes no sense.
    Malformed(String),
    /// It says more than anybody can use, and would again.
    TooLarge(String),
}
