//! Where new ids and secrets come from.
//!
//! Never: an id twice, and never a secret that follows from anything.

use std::fmt;
use std::sync::Mutex;

use longhaul_core::time::Clock as _;
use uuid::{ContextV7, Uuid};

use crate::clock::SystemClock;

/// A source of ids that rise with time, and of chance.
pub trait IdGenerator: Send + Sync + fmt::Debug {
    /// The bits of the next id.
    fn next_bits(&self) -> u128;

    /// Bits that nobody can guess; none: the system has no chance to give.
    fn random_bytes(&self) -> Option<[u8; 32]>;
}

/// Ids of version 7: a time and chance.
#[derive(Debug, Clone, Copy, Default)]
pub struct UuidV7Generator;

impl IdGenerator for UuidV7Generator {
    fn next_bits(&self) -> u128 {
        // The context keeps ids rising when the wall clock is set back.
        static CONTEXT: Mutex<ContextV7> = Mutex::new(ContextV7::new());
        let micros = u64::try_from(SystemClock.now().as_micros()).unwrap_or_default();
        let nanos = (micros % 1_000_000) as u32 * 1_000;
        let now = uuid::Timestamp::from_unix(&CONTEXT, micros / 1_000_000, nanos);
        Uuid::new_v7(now).as_u128()
    }

    fn random_bytes(&self) -> Option<[u8; 32]> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).ok()?;
        Some(bits)
    }
}
