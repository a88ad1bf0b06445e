//! A conversation in the words of the Chat Completions API.
//!
//! What is written is not yet a list: messages stand in it whole, but what users
//! say stands in pieces, because only their last piece decides whether they are
//! one text or a list of parts.
//!
//! Never: two users' messages in a row, a call without its result, or a result
//! without its call.

use longhaul_core::message::{Block, Message, Part, Reply, Thinking, ToolResult};

use crate::album::in_words;
use crate::chat::spell::{self, Eyes, FIELD, REASONING, REASONING_CONTENT, Turn};
use crate::chat::wire::Completions;
use crate::fields::Fields;
use crate::ids::Ids;
use crate::owed::{Owed, Paired, pair, says_something};
use crate::spell::text;
use crate::talk::{Page, Talk, Tongue};

/// The longest id of another provider's that is sent: OpenAI takes no longer one.
const FOREIGN_ID_MAX: usize = 40;

/// A piece of what is written.
#[derive(Debug, Clone, Copy)]
struct Piece {
    kind: Kind,
    /// Where it ends in the text.
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A whole message.
    Message,
    /// Words of a user, as a JSON string.
    Words,
    /// A picture, as a part of a user's message.
    Picture,
}

/// What the next message must know, and the pieces of this one.
#[derive(Debug, Clone, Default)]
pub(super) struct After {
    pieces: Vec<Piece>,
    owed: Vec<Owed>,
}

impl Tongue for Completions {
    type After = After;

    fn write(&self, page: Page<'_>, before: After, message: &Message) -> After {
        let eyes = Eyes {
            album: page.album,
            quirks: self.quirks,
        };
        let mut scroll = Scroll {
            text: page.text,
            pieces: Vec::new(),
            eyes,
        };
        let owed = match message {
            Message::User(parts) => {
                scroll.settle(&before.owed);
                scroll.parts(parts);
                Vec::new()
            }
            Message::Results(results) => scroll.results(results, before.owed),
            Message::Assistant(reply) => {
                scroll.settle(&before.owed);
                let is_own = reply.dialect == self.dialect;
                let (turn, owed) = sorted(reply, is_own, page.ids, page.number);
                scroll.turn(turn);
                owed
            }
        };
        After {
            pieces: scroll.pieces,
            owed,
        }
    }

    fn copy(&self, talk: &Talk<After>, out: &mut Vec<u8>) {
        let mut said = Vec::new();
        let mut from = 0;
        for piece in talk.entries.iter().flat_map(|entry| &entry.after.pieces) {
            let bytes = &talk.text[from..piece.end];
            from = piece.end;
            match piece.kind {
                Kind::Words | Kind::Picture => said.push((piece.kind, bytes)),
                Kind::Message => {
                    user(out, &mut said);
                    next(out).extend_from_slice(bytes);
                }
            }
        }
        user(out, &mut said);
        let owed = talk.entries.last().map_or(&[][..], |last| &last.after.owed);
        for owed in owed {
            spell::missing_result(next(out), &owed.id);
        }
    }
}

/// Makes room for a message in the list.
fn next(out: &mut Vec<u8>) -> &mut Vec<u8> {
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
    out
}

/// Writes what users said in a row as one message: as one text where it is but
/// words, because not all servers read lists.
fn user(out: &mut Vec<u8>, said: &mut Vec<(Kind, &[u8])>) {
    if said.is_empty() {
        return;
    }
    next(out).extend_from_slice(br#"{"role":"user","content":"#);
    let is_words = said.iter().all(|(kind, _)| *kind == Kind::Words);
    let (opening, between, closing): (&[u8], &[u8], &[u8]) = match is_words {
        true => (b"\"", br"\n\n", b"\"}"),
        false => (b"[", b",", b"]}"),
    };
    out.extend_from_slice(opening);
    for (place, (kind, bytes)) in said.drain(..).enumerate() {
        if place > 0 {
            out.extend_from_slice(between);
        }
        match kind {
            Kind::Words if is_words => out.extend_from_slice(&bytes[1..bytes.len() - 1]),
            Kind::Words => {
                out.extend_from_slice(br#"{"type":"text","text":"#);
                out.extend_from_slice(bytes);
                out.push(b'}');
            }
            Kind::Picture | Kind::Message => out.extend_from_slice(bytes),
        }
    }
    out.extend_from_slice(closing);
}

/// Writes pieces.
struct Scroll<'a> {
    text: &'a mut Vec<u8>,
    pieces: Vec<Piece>,
    eyes: Eyes<'a>,
}

impl Scroll<'_> {
    fn is_written(&mut self, kind: Kind) {
        let end = self.text.len();
        self.pieces.push(Piece { kind, end });
    }

    fn words(&mut self, words: &str) {
        text(self.text, words);
        self.is_written(Kind::Words);
    }

    fn parts(&mut self, parts: &[Part]) {
        for part in parts.iter().filter(|part| says_something(part)) {
            match part {
                Part::Text(words) => self.words(words),
                Part::Image(image) => match self.eyes.see(image) {
                    None => self.words(&in_words(image)),
                    Some(data) => {
                        spell::picture(self.text, image, data);
                        self.is_written(Kind::Picture);
                    }
                },
            }
        }
    }

    /// Gives every call a result that will get no other.
    fn settle(&mut self, owed: &[Owed]) {
        for owed in owed {
            spell::missing_result(self.text, &owed.id);
            self.is_written(Kind::Message);
        }
    }

    /// Writes results in the order of their calls, and says which are missing.
    fn results(&mut self, results: &[ToolResult], owed: Vec<Owed>) -> Vec<Owed> {
        let Paired {
            paid,
            missing,
            strays,
        } = pair(owed, results);
        for (owed, result) in &paid {
            let words = spell::result_words(result, self.eyes);
            spell::result(self.text, &owed.id, &words);
            self.is_written(Kind::Message);
        }
        let shown: Vec<(&Owed, Vec<Part>)> = paid
            .iter()
            .map(|(owed, result)| (owed, self.shown(result)))
            .filter(|(_, pictures)| !pictures.is_empty())
            .collect();
        if strays.is_empty() && shown.is_empty() {
            return missing;
        }
        // Pictures can only be shown by a user, and a result whose call is gone is
        // still something that was seen; but a user may only speak behind the
        // results of all calls.
        self.settle(&missing);
        for (owed, pictures) in shown {
            self.words(&format!("[from the result of the call {}]", owed.id));
            self.parts(&pictures);
        }
        for stray in strays {
            self.parts(&stray.content);
        }
        Vec::new()
    }

    /// The pictures of a result that can be shown.
    fn shown(&self, result: &ToolResult) -> Vec<Part> {
        let is_shown = |part: &&Part| match part {
            Part::Text(_) => false,
            Part::Image(image) => self.eyes.see(image).is_some(),
        };
        result.content.iter().filter(is_shown).cloned().collect()
    }

    fn turn(&mut self, mut turn: Turn<'_>) {
        if self.eyes.quirks.no_extras {
            turn.extras.clear();
            turn.is_own = false;
        }
        if turn.says_something() {
            spell::turn(self.text, &turn, self.eyes.quirks);
            self.is_written(Kind::Message);
        }
    }
}

/// What the model said, sorted by where it goes, and which calls it wants made.
fn sorted<'a>(
    reply: &'a Reply,
    is_own: bool,
    ids: &mut Ids,
    message: usize,
) -> (Turn<'a>, Vec<Owed>) {
    let mut turn = Turn {
        is_own,
        ..Turn::default()
    };
    let mut owed = Vec::new();
    for block in &reply.blocks {
        match block {
            Block::Text(words) => turn.words.push_str(&words.text),
            // Another provider's thoughts mean nothing here, and nor do its fields.
            Block::Thinking(_) | Block::Other(_) if !is_own => {}
            Block::Thinking(thought) => {
                turn.thought = field(thought).map(|field| (field, &*thought.text));
            }
            Block::Other(raw) => turn.extras.push(raw),
            Block::ToolCall(call) => {
                let index = owed.len() + 1;
                let id = match is_own {
                    true => ids.keep(&call.id, message, index),
                    false => {
                        let short: String = call.id.chars().take(FOREIGN_ID_MAX).collect();
                        ids.give(&short, message, index)
                    }
                };
                turn.calls.push((id.clone(), call));
                owed.push(Owed {
                    id,
                    came: call.id.clone(),
                    index,
                });
            }
        }
    }
    (turn, owed)
}

/// The field that a thought goes back under; none: it came in another way.
fn field(thought: &Thinking) -> Option<&'static str> {
    let Some(extra) = &thought.extra else {
        return Some(REASONING_CONTENT);
    };
    let name = Fields::read(extra.as_str())?.take_text(FIELD)?;
    [REASONING, REASONING_CONTENT]
        .into_iter()
        .find(|known| *known == name)
}
