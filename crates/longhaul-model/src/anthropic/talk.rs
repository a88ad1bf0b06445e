//! A conversation as it goes out: serialised once, and then only copied.
//!
//! Every message is written behind the ones before it and depends on nothing
//! after it, so the next turn writes only what is new. Where a message is no
//! longer the same, everything from there on is written again.
//!
//! Never: two messages of the same side in a row, a call without its result, or
//! a result without its call.

use std::sync::{Arc, Weak};

use longhaul_core::message::{Block, Message, Part, Reply, ToolResult};

use crate::anthropic::ids::Ids;
use crate::anthropic::spell::{self, Album};
use crate::anthropic::wire::DIALECT;
use crate::kept::Weighs;

/// What makes the provider keep everything up to here in its cache.
pub(super) const MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;

/// So many of the last messages from our side are marked: the newest, so that
/// the next turn finds it, and the one before, which this turn finds.
const MARKED: usize = 2;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    User,
    Assistant,
}

impl Side {
    const fn opening(self) -> &'static [u8] {
        match self {
            Self::User => br#"{"role":"user","content":["#,
            Self::Assistant => br#"{"role":"assistant","content":["#,
        }
    }
}

/// A call that has no result yet.
#[derive(Debug, Clone)]
struct Owed {
    /// The id it goes by.
    id: String,
    /// The id it came with.
    came: String,
    /// Its place among the calls of its reply, from 1.
    index: usize,
}

/// One message, as far as the next one needs to know.
#[derive(Debug)]
struct Entry {
    /// Which message this is. Its place in memory is not given to another for
    /// as long as somebody points there.
    of: Weak<Message>,
    /// Where it ends in the text.
    end: usize,
    /// Whose message is open after it.
    side: Option<Side>,
    /// Where a mark goes, if it is a message from our side.
    mark: Option<usize>,
    owed: Vec<Owed>,
}

/// A conversation.
#[derive(Debug, Default)]
pub(super) struct Talk {
    /// Everything written so far; the last message is not closed.
    text: Vec<u8>,
    entries: Vec<Entry>,
    ids: Ids,
}

impl Weighs for Talk {
    fn bytes(&self) -> usize {
        self.text.capacity() + self.entries.len() * size_of::<Entry>()
    }
}

impl Talk {
    /// Keeps what is still the beginning of these messages, and says how many
    /// that are.
    pub(super) fn keep(&mut self, messages: &[Arc<Message>]) -> usize {
        let same = self.entries.iter().zip(messages);
        let same = same
            .take_while(|(entry, message)| std::ptr::eq(entry.of.as_ptr(), Arc::as_ptr(message)))
            .count();
        if same < self.entries.len() {
            self.entries.truncate(same);
            self.ids.forget_from(same);
            self.text
                .truncate(self.entries.last().map_or(0, |entry| entry.end));
        }
        same
    }

    /// Writes the next message.
    pub(super) fn add(&mut self, message: &Arc<Message>, album: &Album) {
        let (side, owed) = match self.entries.last() {
            Some(last) => (last.side, last.owed.clone()),
            None => (None, Vec::new()),
        };
        let mut scroll = Scroll {
            text: &mut self.text,
            side,
            mark: None,
        };
        let owed = match &**message {
            Message::User(parts) => {
                scroll.settle(&owed);
                scroll.parts(parts, album);
                Vec::new()
            }
            Message::Results(results) => scroll.results(results, owed, album),
            Message::Assistant(reply) => {
                scroll.settle(&owed);
                scroll.reply(reply, &mut self.ids, self.entries.len())
            }
        };
        let (side, mark) = (scroll.side, scroll.mark);
        self.entries.push(Entry {
            of: Arc::downgrade(message),
            end: self.text.len(),
            side,
            mark: mark.filter(|_| side == Some(Side::User)),
            owed,
        });
    }

    /// How long the conversation is when it is written out, about.
    pub(super) fn len(&self) -> usize {
        self.text.len() + MARKED * MARK.len() + 64
    }

    /// Copies the conversation, with its marks, as a list of messages.
    pub(super) fn copy(&self, out: &mut Vec<u8>) {
        let marks = self.entries.iter().rev().filter_map(|entry| entry.mark);
        let mut marks: Vec<usize> = marks.take(MARKED).collect();
        marks.reverse();
        out.push(b'[');
        let mut from = 0;
        for mark in marks {
            out.extend_from_slice(&self.text[from..mark]);
            out.extend_from_slice(MARK);
            from = mark;
        }
        out.extend_from_slice(&self.text[from..]);
        if let Some(last) = self.entries.last() {
            let mut scroll = Scroll {
                text: out,
                side: last.side,
                mark: None,
            };
            scroll.settle(&last.owed);
            if scroll.side.is_some() {
                out.extend_from_slice(b"]}");
            }
        }
        out.push(b']');
    }
}

/// Writes blocks, and opens a message where the side changes.
struct Scroll<'a> {
    text: &'a mut Vec<u8>,
    side: Option<Side>,
    /// Before the last brace of the last block.
    mark: Option<usize>,
}

impl Scroll<'_> {
    /// Makes room for a block of this side.
    fn block(&mut self, side: Side) -> &mut Vec<u8> {
        match self.side {
            Some(open) if open == side => self.text.push(b','),
            Some(_) => {
                self.text.extend_from_slice(b"]},");
                self.text.extend_from_slice(side.opening());
            }
            None => self.text.extend_from_slice(side.opening()),
        }
        self.side = Some(side);
        self.text
    }

    fn is_written(&mut self) {
        self.mark = Some(self.text.len() - 1);
    }

    fn parts(&mut self, parts: &[Part], album: &Album) {
        for part in parts.iter().filter(|part| spell::says_something(part)) {
            spell::part(self.block(Side::User), part, album);
            self.is_written();
        }
    }

    /// Gives every call a result that will get no other.
    fn settle(&mut self, owed: &[Owed]) {
        for owed in owed {
            spell::missing_result(self.block(Side::User), &owed.id);
            self.is_written();
        }
    }

    /// Writes results in the order of their calls, and says which are missing.
    fn results(&mut self, results: &[ToolResult], owed: Vec<Owed>, album: &Album) -> Vec<Owed> {
        let mut left: Vec<Option<&ToolResult>> = results.iter().map(Some).collect();
        let mut missing = Vec::new();
        for owed in owed {
            let found = place(&left, &owed).and_then(|place| left[place].take());
            match found {
                None => missing.push(owed),
                Some(result) => {
                    spell::result(self.block(Side::User), &owed.id, result, album);
                    self.is_written();
                }
            }
        }
        let strays: Vec<&ToolResult> = left.into_iter().flatten().collect();
        if strays.is_empty() {
            return missing;
        }
        // A result whose call is gone is still something that was seen; but words
        // may only stand behind the results of all calls.
        self.settle(&missing);
        for stray in strays {
            self.parts(&stray.content, album);
        }
        Vec::new()
    }

    /// Writes what the model said, and says which calls it wants made.
    fn reply(&mut self, reply: &Reply, ids: &mut Ids, message: usize) -> Vec<Owed> {
        let own = reply.dialect == DIALECT;
        let mut owed = Vec::new();
        for block in &reply.blocks {
            match block {
                Block::Text(words) if words.text.trim().is_empty() => {}
                Block::Text(words) => spell::words(self.block(Side::Assistant), words, own),
                // Another provider's seal is broken here, and so is its grammar.
                Block::Thinking(_) | Block::Other(_) if !own => {}
                Block::Thinking(thought) => spell::thinking(self.block(Side::Assistant), thought),
                Block::Other(raw) => {
                    let raw = raw.as_str().as_bytes();
                    self.block(Side::Assistant).extend_from_slice(raw);
                }
                Block::ToolCall(call) => {
                    let index = owed.len() + 1;
                    let id = ids.give(&call.id, message, index);
                    spell::call(self.block(Side::Assistant), call, &id, own);
                    owed.push(Owed {
                        id,
                        came: call.id.clone(),
                        index,
                    });
                }
            }
        }
        owed
    }
}

/// The result of a call: by our count, or else by the provider's id.
fn place(left: &[Option<&ToolResult>], owed: &Owed) -> Option<usize> {
    let alike = |result: &ToolResult| result.id.is_empty() || result.id == owed.came;
    let by_index = left.iter().position(|result| {
        result.is_some_and(|one| usize::from(one.call.index) == owed.index && alike(one))
    });
    by_index.or_else(|| {
        left.iter()
            .position(|result| result.is_some_and(|one| !one.id.is_empty() && one.id == owed.came))
    })
}
