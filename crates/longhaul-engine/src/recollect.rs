//! What a run remembers of its thread: the newest messages that fit, oldest first.
//!
//! Never: changes a thread. The trim is a view of it.

use longhaul_core::message::{Block, Message, Part};

/// So many messages of a thread are looked at.
pub(crate) const MESSAGES_MAX: usize = 50;

/// So many tokens of them are shown.
pub(crate) const TOKENS_MAX: u64 = 2_000;

/// So many characters are one token, about.
const LETTERS_PER_TOKEN: u64 = 4;

/// What a picture stands for, in characters: about 1,500 tokens.
const PICTURE_LETTERS: u64 = 6_000;

/// The newest of these messages that fit into so many tokens, oldest first. They
/// begin with what a person said: no provider lets the model speak first.
pub(crate) fn recollect(mut messages: Vec<Message>, tokens: u64) -> Vec<Message> {
    let room = tokens.saturating_mul(LETTERS_PER_TOKEN);
    let mut letters: u64 = 0;
    let newest = messages.iter().rev().take(MESSAGES_MAX);
    let fits = newest.take_while(|message| {
        letters = letters.saturating_add(length(message));
        letters <= room
    });
    let from = messages.len() - fits.count();
    messages.drain(..from);
    let begins = messages
        .iter()
        .position(|message| matches!(message, Message::User(_)));
    messages.drain(..begins.unwrap_or(messages.len()));
    messages
}

/// How many characters a message has.
fn length(message: &Message) -> u64 {
    match message {
        Message::User(parts) => parts.iter().map(part).sum(),
        Message::Assistant(reply) => reply.blocks.iter().map(block).sum(),
        Message::Results(results) => {
            let parts = results.iter().flat_map(|result| &result.content);
            parts.map(part).sum()
        }
    }
}

fn part(part: &Part) -> u64 {
    match part {
        Part::Text(text) => letters(text),
        Part::Image(_) => PICTURE_LETTERS,
    }
}

fn block(block: &Block) -> u64 {
    match block {
        Block::Text(words) => letters(&words.text),
        Block::Thinking(thought) => letters(&thought.text),
        Block::ToolCall(call) => letters(&call.name) + letters(call.input.as_str()),
        Block::Other(raw) => letters(raw.as_str()),
    }
}

fn letters(text: &str) -> u64 {
    text.chars().count() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::message::{Reply, Words};

    use super::*;

    fn model(text: &str) -> Message {
        let words = Words {
            text: text.into(),
            extra: None,
        };
        Message::Assistant(Arc::new(Reply {
            dialect: "scripted".into(),
            blocks: vec![Block::Text(words)],
        }))
    }

    /// Messages in short: `u` a person's, `m` the model's, each so many letters.
    fn thread(said: &str, letter: char) -> Vec<Message> {
        let messages = said.split_whitespace().map(|word| {
            let (who, count) = word.split_at(1);
            let text: String = std::iter::repeat_n(letter, count.parse().unwrap()).collect();
            match who {
                "u" => Message::user(text),
                _ => model(&text),
            }
        });
        messages.collect()
    }

    #[test]
    fn the_newest_that_fit_are_kept_oldest_first() {
        let check = |said: &str, tokens: u64, kept: &str| {
            // A character counts once, however many bytes it has.
            for letter in ['a', 'é', '東', '🦀'] {
                let all = thread(said, letter);
                let expect = thread(kept, letter);
                assert_eq!(recollect(all, tokens), expect, "{said} in {tokens}");
            }
        };
        check("", 10, "");
        check("u8 m8", 4, "u8 m8");
        check("u8 m9", 4, "");
        check("u8 m8 u4 m4", 4, "u4 m4");
        check("u8 m8 u4 m4", 6, "u8 m8 u4 m4");
        // What the model said without the question is no beginning.
        check("u8 m8 u4 m4", 5, "u4 m4");
        check("m4 m4 u4", 100, "u4");
        check("m4 m4", 100, "");
        check("u41 m4", 10, "");
        check("u4", 0, "");
    }

    #[test]
    fn so_many_messages_are_kept_at_most() {
        let said = "u1 m1 ".repeat(40);
        let kept = recollect(thread(&said, 'x'), 2_000);
        assert_eq!(kept, thread(&"u1 m1 ".repeat(25), 'x'));
        assert_eq!(kept.len(), MESSAGES_MAX);
    }
}
