//! Random secrets of 256 bits, encoded in characters that are safe in terminals, mails and URLs.
//!
//! Invariant: `Debug` output never contains the secret; only `reveal` returns it.

use std::fmt;

use longhaul_core::raw::Hash;

/// Crockford's base32 alphabet in lower case, which ids use too.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Number of base32 characters (five bits each) that hold 256 bits.
const CHARS: usize = 52;

/// Prefix of the secrets of API keys, so that leaked keys can be recognized.
pub const KEY_PREFIX: &str = "lh_";

/// A secret such as an API key, a session token or a link token.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Encodes random bytes as a secret that starts with `prefix`.
    pub fn new(prefix: &str, random_bytes: [u8; 32]) -> Self {
        let mut text = String::with_capacity(prefix.len() + CHARS);
        text.push_str(prefix);
        let (mut bit_count, mut bits) = (0_u32, 0_u32);
        for byte in random_bytes {
            bits = bits << 8 | u32::from(byte);
            bit_count += 8;
            while bit_count >= 5 {
                bit_count -= 5;
                text.push(base32_char(bits >> bit_count));
            }
        }
        text.push(base32_char(bits << (5 - bit_count)));
        Self(text)
    }

    /// Wraps a secret that a caller has presented.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the hash of the secret, which is stored instead of the secret.
    pub fn hash(&self) -> Hash {
        Hash::digest(self.0.as_bytes())
    }

    /// Returns the secret itself in plain text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

fn base32_char(bits: u32) -> char {
    char::from(ALPHABET[(bits & 31) as usize])
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_encodes_every_bit_and_is_hidden_in_debug() {
        let zero = Secret::new(KEY_PREFIX, [0; 32]);
        assert_eq!(zero.reveal(), format!("lh_{}", "0".repeat(CHARS)));
        for bit in 0..256 {
            let mut bits = [0; 32];
            bits[bit / 8] = 1 << (bit % 8);
            assert_ne!(Secret::new(KEY_PREFIX, bits), zero, "bit {bit}");
        }
        assert_eq!(format!("{zero:?}"), "Secret(…)");
    }
}
