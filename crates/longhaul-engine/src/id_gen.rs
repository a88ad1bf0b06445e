//! Generates ids and random secrets.

use std::fmt;
use std::sync::Mutex;

use longhaul_core::time::Clock as _;
use uuid::{ContextV7, Uuid};

use crate::clock::SystemClock;

/// Generator of ids that increase with time, and of random bytes.
pub trait IdGenerator: Send + Sync + fmt::Debug {
    fn next_id_bits(&self) -> u128;

    /// Returns cryptographically secure random bytes. `None` if the operating system can't provide
    /// any.
    fn random_bytes(&self) -> Option<[u8; 32]>;
}

/// Generator of version 7 UUIDs, which consist of a timestamp and random bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct UuidV7Generator;

impl IdGenerator for UuidV7Generator {
    fn next_id_bits(&self) -> u128 {
        // The context keeps ids increasing when the wall clock is set back.
        static CONTEXT: Mutex<ContextV7> = Mutex::new(ContextV7::new());
        let micros = u64::try_from(SystemClock.now().as_micros()).unwrap_or_default();
        let nanos = (micros % 1_000_000) as u32 * 1_000;
        let now = uuid::Timestamp::from_unix(&CONTEXT, micros / 1_000_000, nanos);
        Uuid::new_v7(now).as_u128()
    }

    fn random_bytes(&self) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).ok()?;
        Some(bytes)
    }
}
