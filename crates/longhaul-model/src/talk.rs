//! A conversation as it goes out: encoded once, and then only copied.
//!
//! Every message is encoded behind the ones before it and depends on nothing
//! after it, so the next turn encodes only what is new. Where a message is no
//! longer the same, everything from there on is encoded again.
//!
//! Never: knows how a provider spells a message, leaves a call without its result, or
//! sends a result without its call.

use std::fmt;
use std::sync::{Arc, Weak};

use longhaul_core::message::{Message, Part, Reply, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;
use serde::Serialize;

use crate::album::Album;
use crate::ids::Ids;
use crate::kept::Weighs;
use crate::owed::{Owed, Paired, pair};

/// How a provider spells a conversation.
pub(crate) trait Tongue {
    /// How a piece is put into the list that is sent.
    type Kind: Copy + fmt::Debug + Send + Sync;

    /// What is said to the model.
    fn user(&self, page: &mut Page<'_, Self::Kind>, parts: &[Part]);

    /// The result of a call that goes by this id.
    fn result(&self, page: &mut Page<'_, Self::Kind>, id: &str, result: &ToolResult);

    /// The result of a call of which nothing is known.
    fn missing_result(&self, page: &mut Page<'_, Self::Kind>, id: &str);

    /// What the model said.
    fn reply(&self, page: &mut Page<'_, Self::Kind>, reply: &Reply);

    /// What of these results a user must say, behind the results of all calls.
    fn said_behind(&self, _: &[(Owed, &ToolResult)], _: &Album) -> Vec<Vec<Part>> {
        Vec::new()
    }
}

/// A piece of the list that is sent.
#[derive(Debug)]
pub(crate) struct Piece<K> {
    pub(crate) kind: K,
    pub(crate) json: RawJson,
}

/// Where one message is written.
#[derive(Debug)]
pub(crate) struct Page<'a, K> {
    pub(crate) album: &'a Album,
    pieces: Vec<Piece<K>>,
    /// The calls of the message, which wait for their results.
    owed: Vec<Owed>,
    ids: &'a mut Ids,
    /// The place of the message in the conversation, from 0.
    number: usize,
}

impl<K> Page<'_, K> {
    /// Adds a piece.
    pub(crate) fn add(&mut self, kind: K, value: &impl Serialize) {
        let json = RawJson::of(value);
        self.pieces.push(Piece { kind, json });
    }

    /// Adds a piece that is JSON already, byte for byte.
    pub(crate) fn add_raw(&mut self, kind: K, json: &RawJson) {
        let json = json.clone();
        self.pieces.push(Piece { kind, json });
    }

    /// The id that a call goes by, given for the one it came with. Its result is waited for.
    pub(crate) fn call(&mut self, call: &ToolCall, came: &str, give: GiveId) -> String {
        let index = self.owed.len() + 1;
        let id = give(self.ids, came, self.number, index);
        self.owed.push(Owed {
            id: id.clone(),
            came: call.id.clone(),
            index,
        });
        id
    }
}

/// Gives an id to a call: the ids so far, the id it came with, the number of its message and
/// its own number in that.
type GiveId = fn(&mut Ids, &str, usize, usize) -> String;

/// One message, as far as the next one needs to know.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    /// Which message this is. Its place in memory is not given to another for
    /// as long as somebody points there.
    of: Weak<Message>,
    pub(crate) pieces: Vec<Piece<K>>,
    owed: Vec<Owed>,
    /// Length of all pieces up to here.
    bytes: usize,
}

/// A conversation.
#[derive(Debug)]
pub(crate) struct Talk<K> {
    pub(crate) entries: Vec<Entry<K>>,
    ids: Ids,
}

impl<K> Default for Talk<K> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            ids: Ids::default(),
        }
    }
}

impl<K> Weighs for Talk<K> {
    fn bytes(&self) -> usize {
        let text = self.entries.last().map_or(0, |last| last.bytes);
        text + self.entries.len() * size_of::<Entry<K>>()
    }
}

impl<K: Copy> Talk<K> {
    /// Keeps what is still the beginning of these messages, and says how many
    /// that are.
    pub(crate) fn keep(&mut self, messages: &[Arc<Message>]) -> usize {
        let same = self.entries.iter().zip(messages);
        let same = same
            .take_while(|(entry, message)| std::ptr::eq(entry.of.as_ptr(), Arc::as_ptr(message)))
            .count();
        if same < self.entries.len() {
            self.entries.truncate(same);
            self.ids.forget_from(same);
        }
        same
    }

    /// Encodes the next message.
    pub(crate) fn add<T>(&mut self, tongue: &T, message: &Arc<Message>, album: &Album)
    where
        T: Tongue<Kind = K>,
    {
        let last = self.entries.last();
        let (owed, before) = last.map_or((&[][..], 0), |last| (&last.owed, last.bytes));
        let mut page = Page {
            album,
            pieces: Vec::new(),
            owed: Vec::new(),
            ids: &mut self.ids,
            number: self.entries.len(),
        };
        match &**message {
            Message::User(parts) => {
                settle(tongue, &mut page, owed);
                tongue.user(&mut page, parts);
            }
            Message::Results(all) => results(tongue, &mut page, owed.to_vec(), all),
            Message::Assistant(reply) => {
                settle(tongue, &mut page, owed);
                tongue.reply(&mut page, reply);
            }
        }
        let Page { pieces, owed, .. } = page;
        let lengths = pieces.iter().map(|piece| piece.json.as_str().len());
        self.entries.push(Entry {
            of: Arc::downgrade(message),
            bytes: before + lengths.sum::<usize>(),
            pieces,
            owed,
        });
    }

    /// Results for the calls that have none yet, should nothing follow.
    pub(crate) fn closing<T: Tongue<Kind = K>>(&mut self, tongue: &T) -> Vec<Piece<K>> {
        let album = Album::default();
        let mut page = Page {
            album: &album,
            pieces: Vec::new(),
            owed: Vec::new(),
            number: self.entries.len(),
            ids: &mut self.ids,
        };
        if let Some(last) = self.entries.last() {
            settle(tongue, &mut page, &last.owed);
        }
        page.pieces
    }
}

/// Gives every call a result that will get no other.
fn settle<T: Tongue>(tongue: &T, page: &mut Page<'_, T::Kind>, owed: &[Owed]) {
    for owed in owed {
        tongue.missing_result(page, &owed.id);
    }
}

/// Writes results in the order of their calls, and keeps those that are missing.
fn results<T: Tongue>(
    tongue: &T,
    page: &mut Page<'_, T::Kind>,
    owed: Vec<Owed>,
    results: &[ToolResult],
) {
    let Paired {
        paid,
        missing,
        strays,
    } = pair(owed, results);
    for (owed, result) in &paid {
        tongue.result(page, &owed.id, result);
    }
    let behind = tongue.said_behind(&paid, page.album);
    if strays.is_empty() && behind.is_empty() {
        page.owed = missing;
        return;
    }
    // A result whose call is gone is still something that was seen; but a user may only
    // speak behind the results of all calls.
    settle(tongue, page, &missing);
    for parts in behind {
        tongue.user(page, &parts);
    }
    for stray in strays {
        tongue.user(page, &stray.content);
    }
}
