//! A conversation as text: who said what, one after the other.
//!
//! Never: leaves a message out. Pictures and blocks that we don't know are named.

use longhaul_api::transcript::TranscriptView;
use longhaul_core::message::{Block, Message, Part, Reply, ToolResult};

/// The parts of a conversation, in order.
pub(crate) fn render(transcript: &TranscriptView) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(system) = transcript.system.as_deref().filter(|text| !text.is_empty()) {
        told.push(speaker_block("system", system));
    }
    told.extend(render_messages(transcript.messages.iter().map(|message| &**message)));
    told
}

/// The parts of some messages, in order.
pub(crate) fn render_messages<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<String> {
    let mut told = Vec::new();
    for message in messages {
        match message {
            Message::User(parts) => told.push(speaker_block("user", &parts_text(parts))),
            Message::Assistant(reply) => told.extend(reply_parts(reply)),
            Message::Results(results) => told.extend(results.iter().map(result_block)),
        }
    }
    told
}

fn speaker_block(who: &str, text: &str) -> String {
    format!("{who}:\n{}\n", indent(text))
}

fn indent(text: &str) -> String {
    let lines: Vec<String> = text.trim_end().lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

fn reply_parts(reply: &Reply) -> Vec<String> {
    let part = |block: &Block| match block {
        Block::Text(words) => speaker_block("assistant", &words.text),
        Block::Thinking(thought) if thought.text.is_empty() => {
            speaker_block("assistant, thinking", "(hidden by the provider)")
        }
        Block::Thinking(thought) => speaker_block("assistant, thinking", &thought.text),
        Block::ToolCall(call) => {
            speaker_block(&format!("assistant calls {}", call.name), call.input.as_str())
        }
        Block::Other(raw) => speaker_block("assistant, in a block we don't know", raw.as_str()),
    };
    reply.blocks.iter().map(part).collect()
}

fn result_block(result: &ToolResult) -> String {
    let who = match result.is_error {
        true => format!("result of {}, failed", result.call),
        false => format!("result of {}", result.call),
    };
    speaker_block(&who, &parts_text(&result.content))
}

fn parts_text(parts: &[Part]) -> String {
    let word = |part: &Part| match part {
        Part::Text(text) => text.to_string(),
        Part::Image(image) => {
            let (kind, size) = (&image.media_type, image.blob.size);
            format!("(a picture: {kind}, {size} bytes)")
        }
    };
    parts.iter().map(word).collect::<Vec<_>>().join("\n")
}
