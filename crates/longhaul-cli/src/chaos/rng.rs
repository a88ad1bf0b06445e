//! Pseudo-random numbers from a seed, not suitable for secrets.

/// Pseudo-random number generator (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next pseudo-random number from `min` to `max`, both inclusive.
    pub(crate) const fn next_in_range(&mut self, min: u64, max: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        match max.saturating_sub(min).checked_add(1) {
            Some(width) => min + bits % width,
            None => bits,
        }
    }
}
