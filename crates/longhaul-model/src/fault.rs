//! What a codec can find wrong with what a provider says.

/// Why a codec hears no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The provider says that it failed: its error, as it came.
    Told(String),
    /// What it says makes no sense.
    Nonsense(String),
    /// It says more than anybody can use, and would again.
    TooMuch(String),
}
