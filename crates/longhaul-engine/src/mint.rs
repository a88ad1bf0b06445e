//! Where new ids come from.
//!
//! Never: an id twice.

use std::fmt;

/// A source of ids that rise with time.
pub trait Mint: Send + Sync + fmt::Debug {
    /// The bits of the next id.
    fn bits(&self) -> u128;
}

/// Ids of version 7: a time and chance.
#[derive(Debug, Clone, Copy, Default)]
pub struct UuidMint;

impl Mint for UuidMint {
    fn bits(&self) -> u128 {
        uuid::Uuid::now_v7().as_u128()
    }
}
