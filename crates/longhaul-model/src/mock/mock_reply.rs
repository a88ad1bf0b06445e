//! A reply of the mock provider before it is rendered for an API: content, stop reason, usage and
//! IDs.
//!
//! Invariant: IDs are deterministic. The same request in the same turn gets the same IDs.

use longhaul_core::message::{Reply, StopReason};
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use longhaul_core::usage::Usage;

use crate::mock::request::ParsedRequest;

/// Maximum number of chunks in which the arguments of a tool call are streamed.
const CHUNKS_MAX: usize = 4;

/// Number of hexadecimal digits of the request hash in an ID.
const HASH_DIGITS: usize = 20;

/// A reply of the mock provider, with everything needed to render it in the format of an API.
#[derive(Debug)]
pub(crate) struct MockReply<'a> {
    pub(crate) request: &'a ParsedRequest<'a>,
    pub(crate) reply: &'a Reply,
    pub(crate) stop: StopReason,
    pub(crate) usage: Usage,
    pub(crate) ids: ReplyIdGenerator,
    pub(crate) now: Timestamp,
}

impl MockReply<'_> {
    /// Returns the time of the request in Unix seconds.
    pub(crate) const fn unix_seconds(&self) -> u64 {
        self.now.as_millis() / 1_000
    }
}

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

/// Splits the arguments of a tool call into a few chunks for streaming.
pub(crate) fn argument_chunks(arguments: &str) -> Vec<&str> {
    let chunk_len = arguments.len().div_ceil(CHUNKS_MAX).max(1);
    let mut rest = arguments;
    let mut pieces = Vec::with_capacity(CHUNKS_MAX);
    while !rest.is_empty() {
        let end = rest.ceil_char_boundary(chunk_len);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}
