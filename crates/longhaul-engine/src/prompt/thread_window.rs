//! The part of a thread that a run sees: the newest messages that fit, with long messages truncated
//! in the middle.
//!
//! The stored thread is not changed.

use std::sync::Arc;

use longhaul_core::message::{Block, Message, Part, Reply};

/// Maximum number of messages of a thread that a run sees.
pub(crate) const MESSAGES_MAX: usize = 50;

/// Maximum number of tokens of a thread that a run sees.
pub(crate) const TOKENS_MAX: u64 = 2_000;

/// Estimated number of characters per token.
const CHARS_PER_TOKEN: u64 = 4;

/// Number of characters for which an image counts, equivalent to about 1,500 tokens.
const IMAGE_CHARS: u64 = 6_000;

/// Number of equal shares into which the character limit is divided at first. A message is
/// truncated to one share if other messages need the rest, so that a long answer leaves space for
/// its question.
const SHARES_MIN: u64 = 2;

/// Maximum number of characters of the mark that says how much text was left out.
const MARKER_CHARS_MAX: u64 = 100;

/// Minimum number of characters to which a text is truncated. A shorter text would be little more
/// than the mark that says how much was left out.
const TRUNCATED_CHARS_MIN: u64 = 2 * MARKER_CHARS_MAX;

/// Returns the newest messages of a thread that fit into the token limit, oldest first and without
/// gaps. They start with a message of a person, because providers do not accept a conversation that
/// the model starts. A message longer than its share of the limit is truncated as far as the others
/// need the space, the newest message the least.
pub(crate) fn trim_thread_messages(mut messages: Vec<Message>, max_tokens: u64) -> Vec<Message> {
    let chars_max = max_tokens.saturating_mul(CHARS_PER_TOKEN);
    messages.drain(..messages.len().saturating_sub(MESSAGES_MAX));
    let sizes: Vec<MessageSize> = messages.iter().map(MessageSize::measure).collect();
    // Try smaller and smaller shares, for many long answers to one question. The last try has no
    // share: long messages are then included in full or not at all.
    let parts = SHARES_MIN..=chars_max / TRUNCATED_CHARS_MIN;
    let mut shares = parts.map(|parts| chars_max / parts).chain([u64::MAX]);
    let start = shares.find_map(|share| {
        let from = oldest_fitting_message_index(&sizes, chars_max, share);
        let mut window = messages[from..].iter();
        let offset = window.position(|message| matches!(message, Message::User(_)))?;
        Some((from + offset, share))
    });
    let Some((from, share)) = start else { return Vec::new() };
    messages.drain(..from);
    let sizes = &sizes[from..];
    let used_chars: u64 = sizes.iter().map(|size| size.min_chars_to_keep(share)).sum();
    let mut spare = chars_max.saturating_sub(used_chars);
    // Unused space goes to truncated messages, the newest first.
    for (message, size) in messages.iter_mut().zip(sizes).rev() {
        let min_chars_to_keep = size.min_chars_to_keep(share);
        let more = spare.min(size.chars - min_chars_to_keep);
        spare -= more;
        if min_chars_to_keep + more < size.chars {
            *message = truncate_message(message, min_chars_to_keep + more);
        }
    }
    messages
}

/// Size of a message in characters, and whether the message can be truncated.
struct MessageSize {
    chars: u64,
    can_truncate: bool,
}

impl MessageSize {
    fn measure(message: &Message) -> Self {
        Self { chars: message_char_count(message), can_truncate: only_text(message).is_some() }
    }

    /// Returns the minimum number of characters that the message needs: at most `share_chars` if it
    /// can be truncated, otherwise all of its characters.
    fn min_chars_to_keep(&self, share_chars: u64) -> u64 {
        if self.can_truncate { self.chars.min(share_chars) } else { self.chars }
    }
}

/// Returns the index of the oldest message that fits into `chars_max` together with all newer ones,
/// if every message that can be truncated takes at most `share_chars` characters.
fn oldest_fitting_message_index(sizes: &[MessageSize], chars_max: u64, share_chars: u64) -> usize {
    let mut total: u64 = 0;
    let fits = sizes.iter().rev().take_while(|size| {
        total = total.saturating_add(size.min_chars_to_keep(share_chars));
        total <= chars_max
    });
    sizes.len() - fits.count()
}

/// Returns the text of a message that consists of a single text. `None` for other messages, which
/// are shown in full or not at all, because part of a tool call or of an image is useless.
fn only_text(message: &Message) -> Option<&str> {
    match message {
        Message::User(parts) => match &parts[..] {
            [Part::Text(text)] => Some(text),
            _ => None,
        },
        Message::Assistant(reply) => match &reply.blocks[..] {
            [Block::Text(text_block)] => Some(&text_block.text),
            _ => None,
        },
        Message::Results(_) => None,
    }
}

/// Truncates the text of a message to a number of characters.
fn truncate_message(message: &Message, chars_max: u64) -> Message {
    let Some(text) = only_text(message) else { return message.clone() };
    let text = truncate_middle(text, chars_max);
    match message {
        Message::User(_) | Message::Results(_) => Message::user(text),
        Message::Assistant(reply) => {
            // The provider's metadata does not apply to a part of the text.
            Message::Assistant(Arc::new(Reply {
                api: reply.api.clone(),
                blocks: vec![Block::from_text(text)],
            }))
        }
    }
}

/// Truncates a text in the middle, with a mark that says how much is left out.
fn truncate_middle(text: &str, chars_max: u64) -> String {
    let total_chars = text.chars().count();
    let kept_chars =
        usize::try_from(chars_max.saturating_sub(MARKER_CHARS_MAX)).unwrap_or(usize::MAX);
    let tail = kept_chars / 4;
    let head = kept_chars - tail;
    let at = |nth: usize| {
        let mut indices = text.char_indices();
        indices.nth(nth).map_or(text.len(), |(index, _)| index)
    };
    format!(
        "{}\n\n[longhaul] {} of {total_chars} characters are left out here.\n\n{}",
        &text[..at(head)],
        total_chars.saturating_sub(kept_chars),
        &text[at(total_chars.saturating_sub(tail))..]
    )
}

/// Returns the size of a message in characters.
fn message_char_count(message: &Message) -> u64 {
    match message {
        Message::User(parts) => parts.iter().map(part_char_count).sum(),
        Message::Assistant(reply) => reply.blocks.iter().map(block_char_count).sum(),
        Message::Results(results) => {
            let parts = results.iter().flat_map(|result| &result.content);
            parts.map(part_char_count).sum()
        }
    }
}

fn part_char_count(part: &Part) -> u64 {
    match part {
        Part::Text(text) => char_count(text),
        Part::Image(_) => IMAGE_CHARS,
    }
}

fn block_char_count(block: &Block) -> u64 {
    match block {
        Block::Text(text_block) => char_count(&text_block.text),
        Block::Thinking(thought) => char_count(&thought.text),
        Block::ToolCall(call) => char_count(&call.name) + char_count(call.input.as_str()),
        Block::Other(raw) => char_count(raw.as_str()),
    }
}

fn char_count(text: &str) -> u64 {
    text.chars().count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assistant_message(text: &str) -> Message {
        Message::Assistant(Arc::new(Reply {
            api: "scripted".into(),
            blocks: vec![Block::from_text(text)],
        }))
    }

    /// Builds messages from a short notation: `u` for a person or `m` for the model, followed by
    /// the number of characters.
    fn messages_from_roles_and_sizes(script: &str, fill: char) -> Vec<Message> {
        let messages = script.split_whitespace().map(|word| {
            let (role, count) = word.split_at(1);
            let text: String = std::iter::repeat_n(fill, count.parse().unwrap()).collect();
            match role {
                "u" => Message::user(text),
                _ => assistant_message(&text),
            }
        });
        messages.collect()
    }

    #[test]
    fn the_newest_messages_that_fit_are_kept_oldest_first() {
        let check = |script: &str, tokens: u64, expected: &str| {
            // A character counts once, however many bytes it has.
            for fill in ['a', 'é', '東', '🦀'] {
                let all = messages_from_roles_and_sizes(script, fill);
                let expect = messages_from_roles_and_sizes(expected, fill);
                assert_eq!(trim_thread_messages(all, tokens), expect, "{script} in {tokens}");
            }
        };
        check("", 10, "");
        check("u8 m8", 4, "u8 m8");
        check("u8 m9", 4, "");
        check("u8 m8 u4 m4", 4, "u4 m4");
        check("u8 m8 u4 m4", 6, "u8 m8 u4 m4");
        // An answer of the model without its question cannot be first.
        check("u8 m8 u4 m4", 5, "u4 m4");
        check("m4 m4 u4", 100, "u4");
        check("m4 m4", 100, "");
        check("u41 m4", 10, "");
        check("u4", 0, "");
    }

    /// Formats messages in a short notation, such as `u12` for a user message of 12 characters, or
    /// `m12*` for a message of the model that was truncated from 12 characters.
    fn roles_and_sizes_of_messages(messages: &[Message]) -> String {
        let labels = messages.iter().map(|message| {
            let role_label = match message {
                Message::User(_) => "u",
                Message::Assistant(_) | Message::Results(_) => "m",
            };
            let text = only_text(message).unwrap();
            let marker = text.split_once(" characters are left out here.");
            let (length, star_if_truncated) =
                match marker.and_then(|(before, _)| before.rsplit_once(" of ")) {
                    Some((_, full_length)) => (full_length.to_owned(), "*"),
                    None => (char_count(text).to_string(), ""),
                };
            format!("{role_label}{length}{star_if_truncated}")
        });
        labels.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_long_message_is_truncated_before_others_are_dropped() {
        let check = |script: &str, tokens: u64, expected: &str| {
            for fill in ['a', 'é', '東', '🦀'] {
                let trimmed =
                    trim_thread_messages(messages_from_roles_and_sizes(script, fill), tokens);
                assert_eq!(
                    roles_and_sizes_of_messages(&trimmed),
                    expected,
                    "{script} in {tokens} of {fill}"
                );
                let chars_max = tokens * CHARS_PER_TOKEN;
                let total_chars: u64 = trimmed.iter().map(message_char_count).sum();
                assert!(total_chars <= chars_max, "{total_chars}: {script} in {tokens}");
                // Nothing is truncated while there is space for it.
                let truncated_count = expected.matches('*').count() as u64;
                let full = truncated_count == 0
                    || total_chars + truncated_count * MARKER_CHARS_MAX >= chars_max;
                assert!(full, "{total_chars}: {script} in {tokens}");
            }
        };
        check("u40 m9000", 2_000, "u40 m9000*");
        check("u40 m7999", 2_000, "u40 m7999*");
        check("u40 m7960", 2_000, "u40 m7960");
        check("u9000 m40", 2_000, "u9000* m40");
        check("u40 m40 u9000 m40 u40 m40", 2_000, "u40 m40 u9000* m40 u40 m40");
        check("u40 m40 u40 m1000000 u40 m40", 2_000, "u40 m40 u40 m1000000* u40 m40");
        // Each gets half of the space, and the older ones are dropped.
        check("u9000 m9000 u9000 m9000", 2_000, "u9000* m9000*");
        check("u40 m40 u9000 m9000", 2_000, "u9000* m9000*");
        // Messages that fit next to the others stay whole, the newest first.
        check("u3000 m5000", 2_000, "u3000 m5000");
        check("u4500 m5000", 2_000, "u4500* m5000*");
        check("u2000 m4500 u100 m4500", 2_000, "u100 m4500");
        check("u100 m4500 u100 m3000", 2_000, "u100 m4500 u100 m3000");
        check("u100 m5000 u100 m2999", 2_000, "u100 m5000* u100 m2999");
        // Many answers to one question.
        check("u40 m9000 m9000 m9000", 2_000, "u40 m9000* m9000* m9000*");
        // A small limit has space for a truncated text, a smaller one does not.
        check("u40 m9000", 100, "u40 m9000*");
        check("u400 m9000", 100, "u400* m9000*");
        check("u40 m9000", 99, "");
        check("u40 m9000", 0, "");
    }

    #[test]
    fn a_text_is_truncated_in_its_middle_at_a_char_boundary() {
        let text: String = ('a'..='z').cycle().take(500).collect();
        for text in [text.clone(), text.replace('e', "東").replace('b', "🦀")] {
            let truncated = truncate_middle(&text, 200);
            let (head, rest) = truncated.split_once("\n\n").unwrap();
            let (marker, tail) = rest.split_once("\n\n").unwrap();
            assert_eq!(marker, "[longhaul] 400 of 500 characters are left out here.");
            assert_eq!((char_count(head), char_count(tail)), (75, 25));
            assert!(text.starts_with(head) && text.ends_with(tail), "{truncated}");
        }
        // The mark fits its limit, however much is left out.
        let marker = truncate_middle("", 0).replace(['0'], &u64::MAX.to_string());
        assert!(char_count(&marker) <= MARKER_CHARS_MAX, "{marker}");
    }

    #[test]
    fn messages_without_text_are_kept_whole_or_dropped() {
        let call = Block::Other(longhaul_core::raw::RawJson::from_serialize(&"x".repeat(9_000)));
        let message =
            Message::Assistant(Arc::new(Reply { api: "scripted".into(), blocks: vec![call] }));
        let mut messages = messages_from_roles_and_sizes("u40 m40", 'x');
        messages.push(message);
        messages.extend(messages_from_roles_and_sizes("u40 m9000", 'x'));
        assert_eq!(
            roles_and_sizes_of_messages(&trim_thread_messages(messages, 2_000)),
            "u40 m9000*"
        );
    }

    #[test]
    fn the_number_of_thread_messages_is_limited() {
        let script = "u1 m1 ".repeat(40);
        let trimmed = trim_thread_messages(messages_from_roles_and_sizes(&script, 'x'), 2_000);
        assert_eq!(trimmed, messages_from_roles_and_sizes(&"u1 m1 ".repeat(25), 'x'));
        assert_eq!(trimmed.len(), MESSAGES_MAX);
    }
}
