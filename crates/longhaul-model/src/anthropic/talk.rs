//! A conversation in the words of the Messages API.
//!
//! Never: two messages of the same side in a row, a call without its result, or
//! a result without its call.

use longhaul_core::message::{Block, Message, Part, Reply, ToolResult};

use crate::album::Album;
use crate::anthropic::spell;
use crate::anthropic::wire::Messages;
use crate::ids::Ids;
use crate::owed::{Owed, Paired, pair, says_something};
use crate::talk::{Page, Talk, Tongue};

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

/// What the next message must know.
#[derive(Debug, Clone, Default)]
pub(super) struct After {
    /// Whose message is open.
    side: Option<Side>,
    /// Where a mark goes, if the message is from our side.
    mark: Option<usize>,
    owed: Vec<Owed>,
}

impl Tongue for Messages {
    type After = After;

    fn write(&self, page: Page<'_>, before: After, message: &Message) -> After {
        let mut scroll = Scroll {
            text: page.text,
            side: before.side,
            mark: None,
            own: matches!(message, Message::Assistant(reply) if reply.dialect == self.dialect),
        };
        let owed = match message {
            Message::User(parts) => {
                scroll.settle(&before.owed);
                scroll.parts(parts, page.album);
                Vec::new()
            }
            Message::Results(results) => scroll.results(results, before.owed, page.album),
            Message::Assistant(reply) => {
                scroll.settle(&before.owed);
                scroll.reply(reply, page.ids, page.number)
            }
        };
        let (side, mark) = (scroll.side, scroll.mark);
        After {
            side,
            mark: mark.filter(|_| side == Some(Side::User)),
            owed,
        }
    }

    fn copy(&self, talk: &Talk<After>, out: &mut Vec<u8>) {
        let marks = talk.entries.iter().rev();
        let marks = marks.filter_map(|entry| entry.after.mark);
        let mut marks: Vec<usize> = marks.take(MARKED).collect();
        marks.reverse();
        let mut from = 0;
        for mark in marks {
            out.extend_from_slice(&talk.text[from..mark]);
            out.extend_from_slice(MARK);
            from = mark;
        }
        out.extend_from_slice(&talk.text[from..]);
        if let Some(last) = talk.entries.last() {
            let mut scroll = Scroll {
                text: out,
                side: last.after.side,
                mark: None,
                own: false,
            };
            scroll.settle(&last.after.owed);
            if scroll.side.is_some() {
                out.extend_from_slice(b"]}");
            }
        }
    }
}

/// Writes blocks, and opens a message where the side changes.
struct Scroll<'a> {
    text: &'a mut Vec<u8>,
    side: Option<Side>,
    /// Before the last brace of the last block.
    mark: Option<usize>,
    /// What is written came over this wire, from this provider.
    own: bool,
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
        for part in parts.iter().filter(|part| says_something(part)) {
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
        let Paired {
            paid,
            missing,
            strays,
        } = pair(owed, results);
        for (owed, result) in paid {
            spell::result(self.block(Side::User), &owed.id, result, album);
            self.is_written();
        }
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
        let own = self.own;
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
