//! One reply before it is spelled: what is said, why it ends, what it used, and
//! the ids under which it is said.
//!
//! Never: chance. The same request in the same turn gets the same ids.

use longhaul_core::message::{Reply, StopReason};
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use longhaul_core::usage::Usage;

use crate::mock::request::ParsedRequest;

/// In so many pieces, at most, are a call's arguments streamed.
const CHUNKS_MAX: usize = 4;

/// So many digits of a request's hash stand in an id.
const HASH_DIGITS: usize = 20;

/// One reply.
#[derive(Debug)]
pub(crate) struct MockReply<'a> {
    pub(crate) request: &'a ParsedRequest<'a>,
    pub(crate) reply: &'a Reply,
    pub(crate) stop: StopReason,
    pub(crate) usage: Usage,
    pub(crate) ids: ReplyIds,
    pub(crate) now: Timestamp,
}

impl MockReply<'_> {
    /// Seconds since 1970, as OpenAI tells the time.
    pub(crate) const fn unix_seconds(&self) -> u64 {
        self.now.as_millis() / 1_000
    }
}

/// What ids are made of: the request, and its turn.
#[derive(Debug)]
pub(crate) struct ReplyIds {
    digits: String,
    turn: u32,
}

impl ReplyIds {
    pub(crate) fn new(request: Hash, turn: u32) -> Self {
        let mut digits = request.to_string();
        digits.truncate(HASH_DIGITS);
        Self { digits, turn }
    }

    /// The id of the thing at this place of the reply.
    pub(crate) fn id(&self, prefix: &str, place: usize) -> String {
        format!("{prefix}{}{:04x}{place:02x}", self.digits, self.turn)
    }

    /// The id of a whole response, from which its turn can be read again.
    pub(crate) fn response_id(&self) -> String {
        format!("{RESPONSE_ID_PREFIX}{:08x}{}", self.turn, self.digits)
    }
}

const RESPONSE_ID_PREFIX: &str = "resp_";

/// The turn of the response with this id; none: no such response was ever given.
pub(crate) fn turn_of_response(response: &str) -> Option<u32> {
    let rest = response.strip_prefix(RESPONSE_ID_PREFIX)?;
    let (turn, digits) = rest.split_at_checked(8)?;
    let is_ours = digits.len() == HASH_DIGITS && digits.bytes().all(|one| one.is_ascii_hexdigit());
    u32::from_str_radix(turn, 16).ok().filter(|_| is_ours)
}

/// Arguments in a few pieces that join to them again.
pub(crate) fn argument_chunks(arguments: &str) -> Vec<&str> {
    let each = arguments.len().div_ceil(CHUNKS_MAX).max(1);
    let mut rest = arguments;
    let mut pieces = Vec::with_capacity(CHUNKS_MAX);
    while !rest.is_empty() {
        let end = rest.ceil_char_boundary(each);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}
