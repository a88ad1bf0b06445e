//! A reply of the mock provider before it is rendered for an API: content, stop reason, usage and
//! IDs.

use longhaul_core::message::{Block, Reply, StopReason, ToolCall};
use longhaul_core::time::Timestamp;
use longhaul_core::usage::Usage;

use crate::mock::reply_ids::ReplyIdGenerator;
use crate::mock::request::ParsedRequest;
use crate::scripted::reply::text_chunks;

/// Maximum number of chunks in which the arguments of a tool call are streamed.
const CHUNKS_MAX: usize = 4;

/// A reply of the mock provider, with everything needed to render it in the format of an API.
#[derive(Debug)]
pub(crate) struct MockReply<'a> {
    pub(crate) request: &'a ParsedRequest,
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

    /// Returns the texts and tool calls of the reply. Scripts never contain other blocks.
    pub(crate) fn items(&self) -> impl Iterator<Item = ReplyItem<'_>> {
        let blocks = self.reply.blocks.iter().enumerate();
        blocks.filter_map(|(index, block)| match block {
            Block::Text(block) => Some(ReplyItem { index, text: &block.text, call: None }),
            Block::ToolCall(call) => {
                Some(ReplyItem { index, text: call.input.as_str(), call: Some(call) })
            }
            Block::Thinking(_) | Block::Other(_) => None,
        })
    }
}

/// A text or a tool call of a reply.
#[derive(Debug)]
pub(crate) struct ReplyItem<'a> {
    /// Position of the item in the reply.
    pub(crate) index: usize,
    /// The text, or the arguments of the tool call.
    pub(crate) text: &'a str,
    pub(crate) call: Option<&'a ToolCall>,
}

impl<'a> ReplyItem<'a> {
    /// Splits the text into a few chunks for streaming.
    pub(crate) fn chunks(&self) -> Vec<&'a str> {
        match self.call {
            None => text_chunks(self.text),
            Some(_) => argument_chunks(self.text),
        }
    }
}

/// Splits the arguments of a tool call into a few chunks for streaming.
fn argument_chunks(arguments: &str) -> Vec<&str> {
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
