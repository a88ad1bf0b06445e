//! The ways in which the failing store of the tests fails.

use longhaul_core::port::store::StoreError;

/// How a call of the store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// The store is busy, and nothing was done.
    Busy,
    /// The disk is full, and nothing was done.
    Full,
    /// The store is broken, and nothing was done.
    Broken,
    /// The call took effect, but its response was lost.
    Lost,
    /// The call never returns, and nothing was done.
    Hang,
}

impl StoreFault {
    pub(crate) fn error(self) -> StoreError {
        let location = "a failing store".to_owned();
        match self {
            Self::Busy | Self::Lost | Self::Hang => StoreError::Busy { location },
            Self::Full => StoreError::DiskFull { location },
            Self::Broken => StoreError::Database { location, source: "disk error".into() },
        }
    }
}
