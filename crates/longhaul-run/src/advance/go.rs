//! Whether a decision has more to state.
//!
//! Never: what.

/// Whether there may be more to state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Go {
    /// Look again.
    On,
    /// Somebody outside is needed, or nothing at all.
    Stop,
}
