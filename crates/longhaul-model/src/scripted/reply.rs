//! Makes the answer of one turn out of a script's line and the conversation.
//!
//! Never: waits or speaks. The same line, turn and conversation give the same answer.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::message::{Block, Message, Reply, StopReason, ToolCall};
use longhaul_core::port::model::{Ask, Quote};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{Price, Tariff, Usage};

use crate::scripted::render::{Renderer, Values};
use crate::scripted::script::{Call, Input, Line, Outage};

/// Whose blocks a scripted reply is made of.
pub(crate) const DIALECT: &str = "scripted";

/// In so many pieces, at most, is a text spoken.
const PIECES_MAX: usize = 4;

/// What a scripted model charges where nobody says otherwise: nothing, and that is
/// known. A script reads nothing, so nothing is too long for it.
pub(crate) const FREE: Tariff = Tariff {
    price: Some(Price::FREE),
    max_output_tokens: 8_192,
    window_tokens: 1 << 40,
    bytes_per_token: 3,
    fixed_tokens: 0,
};

/// The failure that this try meets, if it meets one.
pub(crate) fn failure(outage: Outage, attempt: u32) -> Option<Failure> {
    let Outage {
        status,
        class,
        times,
    } = outage;
    (attempt <= times).then(|| Failure {
        status: Some(status),
        ..Failure::new(
            class,
            format!("the script fails this call with status {status}, {attempt} of {times}"),
        )
    })
}

/// The reply of a line in this turn, or which template can't be filled.
pub(crate) fn reply(line: &Line, ask: &Ask, renderer: &Renderer) -> Result<Reply, String> {
    let values = Values(ask);
    let text = line
        .text
        .as_deref()
        .map(|text| renderer.text(text, &values));
    let text = text.transpose()?.filter(|text| !text.is_empty());
    let words = text.map(Block::text);
    let calls = line.tools.iter().zip(1_u32..).map(|(call, index)| {
        Ok(Block::ToolCall(ToolCall {
            id: format!("call_{}_{index}", ask.turn),
            name: call.name.clone(),
            input: input(call, &values, renderer)?,
            extra: None,
        }))
    });
    let blocks = words.into_iter().map(Ok).chain(calls);
    Ok(Reply {
        dialect: DIALECT.to_owned(),
        blocks: blocks.collect::<Result<_, String>>()?,
    })
}

fn input(call: &Call, values: &Values<'_>, renderer: &Renderer) -> Result<RawJson, String> {
    match &call.input {
        Input::Plain(raw) => Ok(raw.clone()),
        Input::Templated(value) => {
            let filled = renderer.value(value, values);
            let filled = filled.map_err(|fault| format!("input of {}: {fault}", call.name))?;
            Ok(RawJson::of(&filled))
        }
    }
}

/// Why a model that says this stops.
pub(crate) fn stop(reply: &Reply) -> StopReason {
    match reply.calls().next() {
        Some(_) => StopReason::ToolUse,
        None => StopReason::EndTurn,
    }
}

/// A guess from the lengths, by the measure of the hold, so that what went in
/// never passes what was held for it.
pub(crate) fn guess(ask: &Ask, reply: &Arc<Reply>) -> Usage {
    let tariff = Quote::new(FREE, ask).tariff;
    let said = Message::Assistant(Arc::clone(reply)).bytes();
    tariff.estimate(ask.bytes(), said)
}

/// The text in a few pieces that join to it again, cut after a space.
pub(crate) fn pieces(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_inclusive(char::is_whitespace).collect();
    let each = words.len().div_ceil(PIECES_MAX).max(1);
    let mut rest = text;
    let mut pieces = Vec::new();
    for group in words.chunks(each) {
        let (piece, after) = rest.split_at(group.iter().map(|word| word.len()).sum());
        pieces.push(piece);
        rest = after;
    }
    pieces
}
