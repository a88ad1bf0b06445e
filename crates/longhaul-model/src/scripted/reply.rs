//! Builds the response of one turn from a scripted reply and the conversation.
//!
//! Invariant: the same reply, turn and conversation give the same response.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::message::{Block, Message, Reply, StopReason, ToolCall};
use longhaul_core::port::model::{CostEstimate, ModelRequest};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{ModelPricing, Price, Usage};
use serde_json::Value;

use crate::scripted::render::{TemplateRenderer, Values};
use crate::scripted::script::{ScriptedFailure, ScriptedReply};

/// Label that is stored with the replies of scripted models, in place of a provider's API.
pub(crate) const API: &str = "scripted";

/// Maximum number of chunks in which a text is streamed.
const CHUNKS_MAX: usize = 4;

/// Default pricing of a scripted model: free, with a practically unlimited context window.
pub(crate) const FREE_PRICING: ModelPricing = ModelPricing {
    price: Some(Price::FREE),
    max_output_tokens: 8_192,
    window_tokens: 1 << 40,
    bytes_per_token: 3,
    fixed_tokens: 0,
};

/// Returns the scripted failure of this attempt. `None` means that the attempt succeeds.
pub(crate) fn failure_of_attempt(failure: ScriptedFailure, attempt: u32) -> Option<Failure> {
    let ScriptedFailure { status, times } = failure;
    (attempt <= times).then(|| Failure {
        status: Some(status),
        ..Failure::new(
            failure.class(),
            format!(
                "the script makes this call fail with status {status}, attempt {attempt} of {times}"
            ),
        )
    })
}

/// Renders a scripted reply. The error says why a template can't be rendered.
pub(crate) fn render_reply(
    line: &ScriptedReply,
    request: &ModelRequest,
    renderer: &TemplateRenderer,
) -> Result<Reply, String> {
    let values = Values(request);
    let text = line.text.as_ref().map(|text| renderer.render_text(&text.value, &values));
    let text = text.transpose()?.filter(|text| !text.is_empty());
    let text_block = text.map(Block::from_text);
    let no_input = Value::Object(Default::default());
    let calls = line.tools.iter().zip(1_u32..).map(|(call, index)| {
        let name = call.name.value.clone();
        let input = call.input.as_ref().map_or(&no_input, |input| &input.value);
        let input = renderer.render_json(input, &values);
        let input =
            input.map_err(|error| format!("can't render the input of `{name}`: {error}"))?;
        Ok(Block::ToolCall(ToolCall {
            id: format!("call_{}_{index}", request.turn),
            name,
            input: RawJson::from_serialize(&input),
            extra: None,
        }))
    });
    let blocks = text_block.into_iter().map(Ok).chain(calls);
    Ok(Reply { api: API.to_owned(), blocks: blocks.collect::<Result<_, String>>()? })
}

/// Returns the stop reason of a reply: tool use if the reply contains calls, otherwise the end of
/// the turn.
pub(crate) fn stop_reason(reply: &Reply) -> StopReason {
    match reply.tool_calls().next() {
        Some(_) => StopReason::ToolUse,
        None => StopReason::EndTurn,
    }
}

/// Estimates the usage from the lengths of request and reply, in the same way as the budget
/// reservation, so that the input never exceeds what was reserved.
pub(crate) fn estimate_usage(request: &ModelRequest, reply: &Arc<Reply>) -> Usage {
    let pricing = CostEstimate::new(FREE_PRICING, request).pricing;
    let reply_bytes = Message::Assistant(Arc::clone(reply)).estimated_bytes();
    pricing.estimate_usage(request.conversation_bytes(), reply_bytes)
}

/// Splits a text into a few chunks for streaming, each of which ends after whitespace.
pub(crate) fn text_chunks(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_inclusive(char::is_whitespace).collect();
    let words_per_chunk = words.len().div_ceil(CHUNKS_MAX).max(1);
    let mut rest = text;
    let mut pieces = Vec::new();
    for group in words.chunks(words_per_chunk) {
        let (piece, after) = rest.split_at(group.iter().map(|word| word.len()).sum());
        pieces.push(piece);
        rest = after;
    }
    pieces
}
