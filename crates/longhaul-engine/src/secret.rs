//! Secrets that open doors: 256 bits of chance, in letters that survive a
//! terminal, a mail and a URL.
//!
//! Never: shown by accident. Only `reveal` gives the letters away.

use std::fmt;

use longhaul_core::raw::Hash;

/// Crockford's alphabet in lower case, as ids have it.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// So many letters of five bits hold 256 bits.
const CHARS: usize = 52;

/// What secrets of keys begin with, so that they are recognised where they leak.
pub const KEY_PREFIX: &str = "lh_";

/// Letters that open a door.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret of these bits, after this prefix.
    pub fn new(prefix: &str, bits: [u8; 32]) -> Self {
        let mut text = String::with_capacity(prefix.len() + CHARS);
        text.push_str(prefix);
        let (mut held, mut pending) = (0_u32, 0_u32);
        for byte in bits {
            pending = pending << 8 | u32::from(byte);
            held += 8;
            while held >= 5 {
                held -= 5;
                text.push(base32_char(pending >> held));
            }
        }
        text.push(base32_char(pending << (5 - held)));
        Self(text)
    }

    /// A secret that somebody has shown.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What is stored of it.
    pub fn hash(&self) -> Hash {
        Hash::digest(self.0.as_bytes())
    }

    /// The letters themselves.
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
