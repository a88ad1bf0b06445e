//! Where new ids and secrets come from.
//!
//! Never: an id twice, and never a secret that follows from anything.

use std::fmt;

/// A source of ids that rise with time, and of chance.
pub trait Mint: Send + Sync + fmt::Debug {
    /// The bits of the next id.
    fn bits(&self) -> u128;

    /// Bits that nobody can guess; none: the system has no chance to give.
    fn chance(&self) -> Option<[u8; 32]>;
}

/// Ids of version 7: a time and chance.
#[derive(Debug, Clone, Copy, Default)]
pub struct UuidMint;

impl Mint for UuidMint {
    fn bits(&self) -> u128 {
        uuid::Uuid::now_v7().as_u128()
    }

    fn chance(&self) -> Option<[u8; 32]> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).ok()?;
        Some(bits)
    }
}
