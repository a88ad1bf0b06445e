//! A conversation in the items of the Responses API.
//!
//! Never: a call without its result, a result without its call, or a thought
//! without what it led to.

use longhaul_core::message::{Block, Message, Part, Reply, Thinking, ToolCall, ToolResult, Words};
use longhaul_core::raw::RawJson;

use crate::album::Album;
use crate::fields::Fields;
use crate::ids::Ids;
use crate::owed::{Owed, Paired, pair, says_something};
use crate::responses::spell::{self, Spoken};
use crate::responses::wire::Responses;
use crate::talk::{Page, Talk, Tongue};

/// What the next message must know.
#[derive(Debug, Clone, Default)]
pub(super) struct After {
    owed: Vec<Owed>,
}

impl Tongue for Responses {
    type After = After;

    fn write(&self, page: Page<'_>, before: After, message: &Message) -> After {
        let own = matches!(message, Message::Assistant(reply) if reply.dialect == self.dialect);
        let mut scroll = Scroll {
            begun: !page.text.is_empty(),
            text: page.text,
            own,
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
        After { owed }
    }

    fn copy(&self, talk: &Talk<After>, out: &mut Vec<u8>) {
        out.extend_from_slice(&talk.text);
        if let Some(last) = talk.entries.last() {
            let mut scroll = Scroll {
                begun: !talk.text.is_empty(),
                text: out,
                own: false,
            };
            scroll.settle(&last.after.owed);
        }
    }
}

/// Writes items one behind the other.
struct Scroll<'a> {
    text: &'a mut Vec<u8>,
    begun: bool,
    /// What is written came over this wire, from this provider.
    own: bool,
}

impl Scroll<'_> {
    /// Makes room for an item.
    fn item(&mut self) -> &mut Vec<u8> {
        if self.begun {
            self.text.push(b',');
        }
        self.begun = true;
        self.text
    }

    fn parts(&mut self, parts: &[Part], album: &Album) {
        let parts = parts.iter().filter(|part| says_something(part));
        let parts: Vec<&Part> = parts.collect();
        if !parts.is_empty() {
            spell::user(self.item(), &parts, album);
        }
    }

    /// Gives every call a result that will get no other.
    fn settle(&mut self, owed: &[Owed]) {
        for owed in owed {
            spell::missing_result(self.item(), &owed.id);
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
            spell::result(self.item(), &owed.id, result, album);
        }
        if strays.is_empty() {
            return missing;
        }
        // A result whose call is gone is still something that was seen.
        self.settle(&missing);
        for stray in strays {
            self.parts(&stray.content, album);
        }
        Vec::new()
    }

    /// Writes what the model said, and says which calls it wants made.
    fn reply(&mut self, reply: &Reply, ids: &mut Ids, message: usize) -> Vec<Owed> {
        let mut telling = Telling::new(self.own);
        let mut owed = Vec::new();
        let mut blocks = reply.blocks.as_slice();
        while let Some((block, rest)) = blocks.split_first() {
            blocks = rest;
            match block {
                Block::Text(words) => {
                    let more = telling.more_of_it(rest);
                    blocks = &rest[more.len()..];
                    telling.words(self, words, &more);
                }
                Block::Thinking(thought) => telling.thought(thought),
                Block::Other(raw) => telling.other(self, raw),
                Block::ToolCall(call) => {
                    let index = owed.len() + 1;
                    let id = ids.give(&call.id, message, index);
                    telling.call(self, call, &id);
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

/// A reply while it is told again.
struct Telling<'a> {
    /// It came over this wire.
    own: bool,
    /// Thoughts that wait for what they led to.
    thoughts: Vec<&'a RawJson>,
    /// A thought is missing. The provider knows by their ids which items came of
    /// which thought, and refuses those whose thought is not there.
    severed: bool,
}

impl<'a> Telling<'a> {
    const fn new(own: bool) -> Self {
        Self {
            own,
            thoughts: Vec::new(),
            severed: false,
        }
    }

    fn thought(&mut self, thought: &'a Thinking) {
        if !self.own {
            return;
        }
        match thought.extra.as_ref().filter(|item| can_go_back(item)) {
            Some(item) => self.thoughts.push(item),
            None => self.severed = true,
        }
    }

    /// Writes the thoughts before the item that they led to.
    fn think(&mut self, scroll: &mut Scroll<'_>) {
        for thought in self.thoughts.drain(..) {
            let thought = thought.as_str().as_bytes();
            scroll.item().extend_from_slice(thought);
            self.severed = false;
        }
    }

    /// The words that follow in the same message.
    fn more_of_it(&self, blocks: &'a [Block]) -> Vec<&'a Words> {
        let more = blocks.iter().map_while(|block| match block {
            Block::Text(words) if self.own => Some(words),
            Block::Text(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        });
        more.take_while(|words| {
            let extra = extra(words.extra.as_ref());
            extra.get("message").is_none() && extra.get("part").is_some()
        })
        .collect()
    }

    fn words(&mut self, scroll: &mut Scroll<'_>, first: &Words, more: &[&Words]) {
        if !self.own {
            return plainly(scroll, &[first]);
        }
        let mut fields = extra(first.extra.as_ref());
        let message = fields.take("message");
        let mut parts = vec![Spoken::of(first, &mut fields)];
        for words in more {
            parts.push(Spoken::of(words, &mut extra(words.extra.as_ref())));
        }
        if parts.iter().all(Spoken::is_blank) {
            // A message that says nothing is refused, and so is a thought that
            // led to it alone.
            self.severed |= !self.thoughts.is_empty();
            self.thoughts.clear();
            return;
        }
        self.think(scroll);
        match message.and_then(named).filter(|_| !self.severed) {
            Some(message) => spell::message(scroll.item(), &message, &parts),
            None => plainly(scroll, &[&[first], more].concat()),
        }
    }

    fn call(&mut self, scroll: &mut Scroll<'_>, call: &ToolCall, id: &str) {
        self.think(scroll);
        let kept = self.own.then(|| {
            let mut kept = extra(call.extra.as_ref());
            if self.severed {
                _ = kept.take("id");
            }
            kept
        });
        spell::call(scroll.item(), call, id, kept);
    }

    fn other(&mut self, scroll: &mut Scroll<'_>, raw: &RawJson) {
        if self.own {
            self.think(scroll);
            scroll.item().extend_from_slice(raw.as_str().as_bytes());
        }
    }
}

fn plainly(scroll: &mut Scroll<'_>, words: &[&Words]) {
    for words in words.iter().filter(|words| !words.text.trim().is_empty()) {
        spell::plain_words(scroll.item(), &words.text);
    }
}

fn extra(raw: Option<&RawJson>) -> Fields {
    let fields = raw.and_then(|raw| Fields::read(raw.as_str()));
    fields.unwrap_or_default()
}

/// The fields of a message as the API wants them back; none: it has no id, without
/// which it can't go back in its own form.
fn named(message: RawJson) -> Option<RawJson> {
    let mut fields = extra(Some(&message));
    if !fields.get("id")?.as_str().starts_with('"') {
        return None;
    }
    for (name, usual) in [("role", "assistant"), ("status", "completed")] {
        if fields.get(name).is_none() {
            fields.set(name, RawJson::of(&usual));
        }
    }
    fields.raw()
}

/// Whether the provider can know this thought again: it is sealed, or spelled
/// out as servers do that seal nothing. It looks for any other in its store,
/// where nothing of ours is.
fn can_go_back(item: &RawJson) -> bool {
    let fields = extra(Some(item));
    let empty = ["null", r#""""#, "[]"];
    let has = |name: &str| {
        let value = fields.get(name).map(RawJson::as_str);
        value.is_some_and(|value| !empty.contains(&value))
    };
    has("encrypted_content") || has("content")
}
