//! Formats a run's conversation as text. No message is left out; images and unknown blocks are
//! named.

use longhaul_api::transcript::{CompactionView, TranscriptView};
use longhaul_core::message::{Block, Message, Part, Reply, ToolResult};

/// Formats a run's conversation, one text per part of a message.
pub(crate) fn render_transcript(transcript: &TranscriptView) -> Vec<String> {
    let mut blocks = Vec::new();
    if let Some(system) = transcript.system.as_deref().filter(|text| !text.is_empty()) {
        blocks.push(speaker_block("system", system));
    }
    blocks.extend(transcript.compactions.iter().map(compaction_line));
    blocks.extend(render_messages(transcript.messages.iter().map(|message| &**message)));
    blocks
}

/// Formats a compaction of the conversation. Its summary is in the first message.
fn compaction_line(compaction: &CompactionView) -> String {
    let CompactionView { after_turn, at, replaced_messages, model } = compaction;
    format!(
        "-- compacted after turn {after_turn} at {at}: a summary by {model} has replaced \
         {replaced_messages} messages, which are still in the journal --\n"
    )
}

/// Formats messages, one text per part of a message.
pub(crate) fn render_messages<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<String> {
    let mut blocks = Vec::new();
    for message in messages {
        match message {
            Message::User(parts) => blocks.push(speaker_block("user", &message_parts_text(parts))),
            Message::Assistant(reply) => blocks.extend(reply_texts(reply)),
            Message::Results(results) => blocks.extend(results.iter().map(tool_result_block)),
        }
    }
    blocks
}

fn speaker_block(speaker: &str, text: &str) -> String {
    let lines: String = text.trim_end().lines().map(|line| format!("\n  {line}")).collect();
    format!("{speaker}:{}\n", if lines.is_empty() { "\n" } else { &lines })
}

fn reply_texts(reply: &Reply) -> Vec<String> {
    let block_text = |block: &Block| match block {
        Block::Text(text) => speaker_block("assistant", &text.text),
        Block::Thinking(thought) if thought.text.is_empty() => {
            speaker_block("assistant, thinking", "(hidden by the provider)")
        }
        Block::Thinking(thought) => speaker_block("assistant, thinking", &thought.text),
        Block::ToolCall(call) => {
            speaker_block(&format!("assistant calls {}", call.name), call.input.as_str())
        }
        Block::Other(raw) => speaker_block("assistant, unknown block", raw.as_str()),
    };
    reply.blocks.iter().map(block_text).collect()
}

fn tool_result_block(result: &ToolResult) -> String {
    let speaker = match result.is_error {
        true => format!("failed result of {}", result.call),
        false => format!("result of {}", result.call),
    };
    speaker_block(&speaker, &message_parts_text(&result.content))
}

fn message_parts_text(parts: &[Part]) -> String {
    let part_text = |part: &Part| match part {
        Part::Text(text) => text.to_string(),
        Part::Image(image) => {
            let (kind, size) = (&image.media_type, image.blob.size);
            format!("(image: {kind}, {size} bytes)")
        }
    };
    parts.iter().map(part_text).collect::<Vec<_>>().join("\n")
}
