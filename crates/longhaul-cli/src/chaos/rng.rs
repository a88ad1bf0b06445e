//! Numbers that look random and are the same for the same seed.
//!
//! Never: a secret. Whoever knows the seed knows them all.

/// A source of numbers (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from `least` to `most`, both included.
    pub(crate) const fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        match most.saturating_sub(least).checked_add(1) {
            Some(width) => least + bits % width,
            None => bits,
        }
    }
}
