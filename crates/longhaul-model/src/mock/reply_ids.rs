//! IDs in the replies of the mock provider.
//!
//! Invariant: IDs are deterministic. The same request in the same turn gets the same IDs.

use longhaul_core::raw::Hash;

/// Number of hexadecimal digits of the request hash in an ID.
const HASH_DIGITS: usize = 20;

/// Source of the IDs in a reply. IDs are made from the hash of the request and the turn.
#[derive(Debug)]
pub(crate) struct ReplyIdGenerator {
    digits: String,
    turn: u32,
}

impl ReplyIdGenerator {
    pub(crate) fn from_request_hash(request_hash: Hash, turn: u32) -> Self {
        let mut digits = request_hash.to_string();
        digits.truncate(HASH_DIGITS);
        Self { digits, turn }
    }

    pub(crate) fn item_id(&self, id_prefix: &str, index: usize) -> String {
        format!("{id_prefix}{}{:04x}{index:02x}", self.digits, self.turn)
    }

    /// Returns the ID of the response. The ID contains the turn.
    pub(crate) fn response_id(&self) -> String {
        format!("{RESPONSE_ID_PREFIX}{:08x}{}", self.turn, self.digits)
    }
}

const RESPONSE_ID_PREFIX: &str = "resp_";

/// Returns the turn that a response ID contains. `None` means that the ID was not made by the mock
/// provider.
pub(crate) fn turn_from_response_id(response_id: &str) -> Option<u32> {
    let rest = response_id.strip_prefix(RESPONSE_ID_PREFIX)?;
    let (turn, digits) = rest.split_at_checked(8)?;
    let is_mock_id =
        digits.len() == HASH_DIGITS && digits.bytes().all(|one| one.is_ascii_hexdigit());
    u32::from_str_radix(turn, 16).ok().filter(|_| is_mock_id)
}
