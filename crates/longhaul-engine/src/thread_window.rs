//! What a run remembers of its thread: the newest messages that fit, oldest first,
//! and of a long one its beginning and its end.
//!
//! Never: changes a thread. The trim is a view of it.

use std::sync::Arc;

use longhaul_core::message::{Block, Message, Part, Reply};

/// So many messages of a thread are looked at.
pub(crate) const MESSAGES_MAX: usize = 50;

/// So many tokens of them are shown.
pub(crate) const TOKENS_MAX: u64 = 2_000;

/// So many characters are one token, about.
const CHARS_PER_TOKEN: u64 = 4;

/// What a picture stands for, in characters: about 1,500 tokens.
const IMAGE_CHARS: u64 = 6_000;

/// One message takes half of the room at most where others need the rest: a long
/// answer leaves room for its question, however long that is.
const SHARES_MIN: u64 = 2;

/// The mark in a text that was shortened has so many characters at most.
const MARKER_CHARS_MAX: u64 = 100;

/// To less than this a text is not shortened: little but the mark would be left.
const TRUNCATED_CHARS_MIN: u64 = 2 * MARKER_CHARS_MAX;

/// The newest of these messages that fit into so many tokens, oldest first, and none
/// between them left out. They begin with what a person said: no provider lets the
/// model speak first. A message that is longer than its share is shortened as far as
/// the others need it, the newest the least, so that it never shuts them out.
pub(crate) fn trim_thread(mut messages: Vec<Message>, tokens: u64) -> Vec<Message> {
    let room = tokens.saturating_mul(CHARS_PER_TOKEN);
    messages.drain(..messages.len().saturating_sub(MESSAGES_MAX));
    let sizes: Vec<MessageSize> = messages.iter().map(MessageSize::measure).collect();
    // Smaller shares are for many long answers to one question. With no share, a long
    // message is there whole or not at all.
    let parts = SHARES_MIN..=room / TRUNCATED_CHARS_MIN;
    let mut shares = parts.map(|parts| room / parts).chain([u64::MAX]);
    let begun = shares.find_map(|share| {
        let from = first_that_fits(&sizes, room, share);
        let mut fit = messages[from..].iter();
        let said = fit.position(|message| matches!(message, Message::User(_)))?;
        Some((from + said, share))
    });
    let Some((from, share)) = begun else {
        return Vec::new();
    };
    messages.drain(..from);
    let sizes = &sizes[from..];
    let taken: u64 = sizes.iter().map(|size| size.min_chars(share)).sum();
    let mut spare = room.saturating_sub(taken);
    // What nobody else needs is for the long ones, and the newest matters most.
    for (message, size) in messages.iter_mut().zip(sizes).rev() {
        let least = size.min_chars(share);
        let more = spare.min(size.chars - least);
        spare -= more;
        if least + more < size.chars {
            *message = truncate_message(message, least + more);
        }
    }
    messages
}

/// How long a message is.
struct MessageSize {
    chars: u64,
    can_truncate: bool,
}

impl MessageSize {
    fn measure(message: &Message) -> Self {
        Self { chars: message_chars(message), can_truncate: plain_text(message).is_some() }
    }

    /// How many characters it takes at least: all it has, or its share.
    fn min_chars(&self, share: u64) -> u64 {
        match self.can_truncate {
            true => self.chars.min(share),
            false => self.chars,
        }
    }
}

/// Where the newest messages begin that fit if each has its share at most.
fn first_that_fits(sizes: &[MessageSize], room: u64, share: u64) -> usize {
    let mut letters: u64 = 0;
    let fits = sizes.iter().rev().take_while(|size| {
        letters = letters.saturating_add(size.min_chars(share));
        letters <= room
    });
    sizes.len() - fits.count()
}

/// The text of a message that is nothing else, as those of threads are. Others are
/// shown whole or not at all: a part of a call or of a picture is nothing.
fn plain_text(message: &Message) -> Option<&str> {
    match message {
        Message::User(parts) => match &parts[..] {
            [Part::Text(text)] => Some(text),
            _ => None,
        },
        Message::Assistant(reply) => match &reply.blocks[..] {
            [Block::Text(words)] => Some(&words.text),
            _ => None,
        },
        Message::Results(_) => None,
    }
}

/// A message whose text has so many characters at most.
fn truncate_message(message: &Message, letters: u64) -> Message {
    let Some(text) = plain_text(message) else {
        return message.clone();
    };
    let text = truncate_middle(text, letters);
    match message {
        Message::User(_) | Message::Results(_) => Message::user(text),
        Message::Assistant(reply) => {
            // What a provider says of its text is not true of a part of it.
            Message::Assistant(Arc::new(Reply {
                api: reply.api.clone(),
                blocks: vec![Block::text(text)],
            }))
        }
    }
}

/// The beginning and the end of a text, and between them how much is left out.
fn truncate_middle(text: &str, letters: u64) -> String {
    let whole = text.chars().count();
    let kept = usize::try_from(letters.saturating_sub(MARKER_CHARS_MAX)).unwrap_or(usize::MAX);
    let tail = kept / 4;
    let head = kept - tail;
    let at = |letter: usize| {
        let mut places = text.char_indices();
        places.nth(letter).map_or(text.len(), |(place, _)| place)
    };
    format!(
        "{}\n\n[longhaul] {} of {whole} characters are left out here.\n\n{}",
        &text[..at(head)],
        whole.saturating_sub(kept),
        &text[at(whole.saturating_sub(tail))..]
    )
}

/// How many characters a message has.
fn message_chars(message: &Message) -> u64 {
    match message {
        Message::User(parts) => parts.iter().map(part_chars).sum(),
        Message::Assistant(reply) => reply.blocks.iter().map(block_chars).sum(),
        Message::Results(results) => {
            let parts = results.iter().flat_map(|result| &result.content);
            parts.map(part_chars).sum()
        }
    }
}

fn part_chars(part: &Part) -> u64 {
    match part {
        Part::Text(text) => char_count(text),
        Part::Image(_) => IMAGE_CHARS,
    }
}

fn block_chars(block: &Block) -> u64 {
    match block {
        Block::Text(words) => char_count(&words.text),
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

    fn model(text: &str) -> Message {
        Message::Assistant(Arc::new(Reply {
            api: "scripted".into(),
            blocks: vec![Block::text(text)],
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
    fn the_newest_messages_that_fit_are_kept_oldest_first() {
        let check = |said: &str, tokens: u64, kept: &str| {
            // A character counts once, however many bytes it has.
            for letter in ['a', 'é', '東', '🦀'] {
                let all = thread(said, letter);
                let expect = thread(kept, letter);
                assert_eq!(trim_thread(all, tokens), expect, "{said} in {tokens}");
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

    /// Messages in short, as they came back: `*` marks those that were shortened.
    fn abbreviate(messages: &[Message]) -> String {
        let told = messages.iter().map(|message| {
            let who = match message {
                Message::User(_) => "u",
                Message::Assistant(_) | Message::Results(_) => "m",
            };
            let text = plain_text(message).unwrap();
            let mark = text.split_once(" characters are left out here.");
            match mark.and_then(|(before, _)| before.rsplit_once(" of ")) {
                Some((_, whole)) => format!("{who}{whole}*"),
                None => format!("{who}{}", char_count(text)),
            }
        });
        told.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_long_message_is_truncated_and_displaces_no_other() {
        let check = |said: &str, tokens: u64, kept: &str| {
            for letter in ['a', 'é', '東', '🦀'] {
                let some = trim_thread(thread(said, letter), tokens);
                assert_eq!(abbreviate(&some), kept, "{said} in {tokens} of {letter}");
                let room = tokens * CHARS_PER_TOKEN;
                let taken: u64 = some.iter().map(message_chars).sum();
                assert!(taken <= room, "{taken}: {said} in {tokens}");
                // Nothing is shortened while there is room for it.
                let cut = kept.matches('*').count() as u64;
                let full = cut == 0 || taken + cut * MARKER_CHARS_MAX >= room;
                assert!(full, "{taken}: {said} in {tokens}");
            }
        };
        check("u40 m9000", 2_000, "u40 m9000*");
        check("u40 m7999", 2_000, "u40 m7999*");
        check("u40 m7960", 2_000, "u40 m7960");
        check("u9000 m40", 2_000, "u9000* m40");
        check("u40 m40 u9000 m40 u40 m40", 2_000, "u40 m40 u9000* m40 u40 m40");
        check("u40 m40 u40 m1000000 u40 m40", 2_000, "u40 m40 u40 m1000000* u40 m40");
        // Half of the room each, and the older ones have to go.
        check("u9000 m9000 u9000 m9000", 2_000, "u9000* m9000*");
        check("u40 m40 u9000 m9000", 2_000, "u9000* m9000*");
        // What fits beside the others stays whole, the newest first.
        check("u3000 m5000", 2_000, "u3000 m5000");
        check("u4500 m5000", 2_000, "u4500* m5000*");
        check("u2000 m4500 u100 m4500", 2_000, "u100 m4500");
        check("u100 m4500 u100 m3000", 2_000, "u100 m4500 u100 m3000");
        check("u100 m5000 u100 m2999", 2_000, "u100 m5000* u100 m2999");
        // Many answers to one question.
        check("u40 m9000 m9000 m9000", 2_000, "u40 m9000* m9000* m9000*");
        // A small room holds what a mark leaves of it, a smaller one no mark.
        check("u40 m9000", 100, "u40 m9000*");
        check("u400 m9000", 100, "u400* m9000*");
        check("u40 m9000", 99, "");
        check("u40 m9000", 0, "");
    }

    #[test]
    fn a_text_is_truncated_in_its_middle_at_a_char_boundary() {
        let text: String = ('a'..='z').cycle().take(500).collect();
        for text in [text.clone(), text.replace('e', "東").replace('b', "🦀")] {
            let cut = truncate_middle(&text, 200);
            let (head, rest) = cut.split_once("\n\n").unwrap();
            let (mark, tail) = rest.split_once("\n\n").unwrap();
            assert_eq!(mark, "[longhaul] 400 of 500 characters are left out here.");
            assert_eq!((char_count(head), char_count(tail)), (75, 25));
            assert!(text.starts_with(head) && text.ends_with(tail), "{cut}");
        }
        // However much is left out, the mark has its room.
        let mark = truncate_middle("", 0).replace(['0'], &u64::MAX.to_string());
        assert!(char_count(&mark) <= MARKER_CHARS_MAX, "{mark}");
    }

    #[test]
    fn messages_without_text_are_kept_whole_or_dropped() {
        let call = Block::Other(longhaul_core::raw::RawJson::from_serialize(&"x".repeat(9_000)));
        let odd =
            Message::Assistant(Arc::new(Reply { api: "scripted".into(), blocks: vec![call] }));
        let mut messages = thread("u40 m40", 'x');
        messages.push(odd);
        messages.extend(thread("u40 m9000", 'x'));
        assert_eq!(abbreviate(&trim_thread(messages, 2_000)), "u40 m9000*");
    }

    #[test]
    fn the_number_of_thread_messages_is_limited() {
        let said = "u1 m1 ".repeat(40);
        let kept = trim_thread(thread(&said, 'x'), 2_000);
        assert_eq!(kept, thread(&"u1 m1 ".repeat(25), 'x'));
        assert_eq!(kept.len(), MESSAGES_MAX);
    }
}
