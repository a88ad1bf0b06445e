//! Makes the answer of one turn out of a script's line and the conversation.
//!
//! Never: waits or speaks. The same line, turn and conversation give the same answer.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::message::{Block, Message, Reply, StopReason, ToolCall};
use longhaul_core::port::model::{CostEstimate, ModelRequest};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{ModelPricing, Price, Usage};

use crate::scripted::render::{Renderer, TemplateValues};
use crate::scripted::script::{ScriptedCall, ScriptedFailure, ScriptedInput, ScriptedReply};

/// Whose blocks a scripted reply is made of.
pub(crate) const API: &str = "scripted";

/// In so many pieces, at most, is a text spoken.
const CHUNKS_MAX: usize = 4;

/// What a scripted model charges where nobody says otherwise: nothing, and that is
/// known. A script reads nothing, so nothing is too long for it.
pub(crate) const FREE_PRICING: ModelPricing = ModelPricing {
    price: Some(Price::FREE),
    max_output_tokens: 8_192,
    window_tokens: 1 << 40,
    bytes_per_token: 3,
    fixed_tokens: 0,
};

/// The failure that this try meets, if it meets one.
pub(crate) fn scripted_failure(outage: ScriptedFailure, attempt: u32) -> Option<Failure> {
    let ScriptedFailure { status, class, times } = outage;
    (attempt <= times).then(|| Failure {
        status: Some(status),
        ..Failure::new(
            class,
            format!("the script fails this call with status {status}, {attempt} of {times}"),
        )
    })
}

/// The reply of a line in this turn, or which template can't be filled.
pub(crate) fn render_reply(
    line: &ScriptedReply,
    ask: &ModelRequest,
    renderer: &Renderer,
) -> Result<Reply, String> {
    let values = TemplateValues(ask);
    let text = line.text.as_deref().map(|text| renderer.render_text(text, &values));
    let text = text.transpose()?.filter(|text| !text.is_empty());
    let words = text.map(Block::text);
    let calls = line.calls.iter().zip(1_u32..).map(|(call, index)| {
        Ok(Block::ToolCall(ToolCall {
            id: format!("call_{}_{index}", ask.turn),
            name: call.name.clone(),
            input: render_input(call, &values, renderer)?,
            extra: None,
        }))
    });
    let blocks = words.into_iter().map(Ok).chain(calls);
    Ok(Reply { api: API.to_owned(), blocks: blocks.collect::<Result<_, String>>()? })
}

fn render_input(
    call: &ScriptedCall,
    values: &TemplateValues<'_>,
    renderer: &Renderer,
) -> Result<RawJson, String> {
    match &call.input {
        ScriptedInput::Literal(raw) => Ok(raw.clone()),
        ScriptedInput::Templated(value) => {
            let filled = renderer.render_value(value, values);
            let filled = filled.map_err(|fault| format!("input of {}: {fault}", call.name))?;
            Ok(RawJson::from_serialize(&filled))
        }
    }
}

/// Why a model that says this stops.
pub(crate) fn stop_reason(reply: &Reply) -> StopReason {
    match reply.calls().next() {
        Some(_) => StopReason::ToolUse,
        None => StopReason::EndTurn,
    }
}

/// A guess from the lengths, by the measure of the hold, so that what went in
/// never passes what was held for it.
pub(crate) fn estimate_usage(ask: &ModelRequest, reply: &Arc<Reply>) -> Usage {
    let tariff = CostEstimate::new(FREE_PRICING, ask).pricing;
    let said = Message::Assistant(Arc::clone(reply)).estimated_bytes();
    tariff.estimate(ask.bytes(), said)
}

/// The text in a few pieces that join to it again, cut after a space.
pub(crate) fn text_chunks(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_inclusive(char::is_whitespace).collect();
    let each = words.len().div_ceil(CHUNKS_MAX).max(1);
    let mut rest = text;
    let mut pieces = Vec::new();
    for group in words.chunks(each) {
        let (piece, after) = rest.split_at(group.iter().map(|word| word.len()).sum());
        pieces.push(piece);
        rest = after;
    }
    pieces
}
