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

use crate::call_ids::CallIds;
use crate::images::EncodedImages;
use crate::request_cache::ByteSize;
use crate::tool_results::{MatchedResults, PendingCall, match_results};

/// How a provider spells a conversation.
pub(crate) trait MessageEncoder {
    /// How a piece is put into the list that is sent.
    type Kind: Copy + fmt::Debug + Send + Sync;

    /// What is said to the model.
    fn encode_user(&self, page: &mut EncodeTarget<'_, Self::Kind>, parts: &[Part]);

    /// The result of a call that goes by this id.
    fn encode_result(&self, page: &mut EncodeTarget<'_, Self::Kind>, id: &str, result: &ToolResult);

    /// The result of a call of which nothing is known.
    fn encode_missing_result(&self, page: &mut EncodeTarget<'_, Self::Kind>, id: &str);

    /// What the model said.
    fn encode_reply(&self, page: &mut EncodeTarget<'_, Self::Kind>, reply: &Reply);

    /// What of these results a user must say, behind the results of all calls.
    fn trailing_user_messages(
        &self,
        _: &[(PendingCall, &ToolResult)],
        _: &EncodedImages,
    ) -> Vec<Vec<Part>> {
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
pub(crate) struct EncodeTarget<'a, K> {
    pub(crate) images: &'a EncodedImages,
    pieces: Vec<Piece<K>>,
    /// The calls of the message, which wait for their results.
    pending_calls: Vec<PendingCall>,
    ids: &'a mut CallIds,
    /// The place of the message in the conversation, from 0.
    message_index: usize,
}

impl<K> EncodeTarget<'_, K> {
    /// Adds a piece.
    pub(crate) fn add(&mut self, kind: K, value: &impl Serialize) {
        let json = RawJson::from_serialize(value);
        self.pieces.push(Piece { kind, json });
    }

    /// Adds a piece that is JSON already, byte for byte.
    pub(crate) fn add_raw(&mut self, kind: K, json: &RawJson) {
        let json = json.clone();
        self.pieces.push(Piece { kind, json });
    }

    /// The id that a call goes by, given for the one it came with. Its result is waited for.
    pub(crate) fn register_call(&mut self, call: &ToolCall, came: &str, give: AssignId) -> String {
        let index = self.pending_calls.len() + 1;
        let id = give(self.ids, came, self.message_index, index);
        self.pending_calls.push(PendingCall {
            id: id.clone(),
            original_id: call.id.clone(),
            index,
        });
        id
    }
}

/// Gives an id to a call: the ids so far, the id it came with, the number of its message and
/// its own number in that.
type AssignId = fn(&mut CallIds, &str, usize, usize) -> String;

/// One message, as far as the next one needs to know.
#[derive(Debug)]
pub(crate) struct EncodedMessage<K> {
    /// Which message this is. Its place in memory is not given to another for
    /// as long as somebody points there.
    source: Weak<Message>,
    pub(crate) pieces: Vec<Piece<K>>,
    pending_calls: Vec<PendingCall>,
    /// Length of all pieces up to here.
    cumulative_bytes: usize,
}

/// A conversation.
#[derive(Debug)]
pub(crate) struct EncodedConversation<K> {
    pub(crate) messages: Vec<EncodedMessage<K>>,
    ids: CallIds,
}

impl<K> Default for EncodedConversation<K> {
    fn default() -> Self {
        Self { messages: Vec::new(), ids: CallIds::default() }
    }
}

impl<K> ByteSize for EncodedConversation<K> {
    fn byte_size(&self) -> usize {
        let text = self.messages.last().map_or(0, |last| last.cumulative_bytes);
        text + self.messages.len() * size_of::<EncodedMessage<K>>()
    }
}

impl<K: Copy> EncodedConversation<K> {
    /// Keeps what is still the beginning of these messages, and says how many
    /// that are.
    pub(crate) fn retain_prefix(&mut self, messages: &[Arc<Message>]) -> usize {
        let same = self.messages.iter().zip(messages);
        let same = same
            .take_while(|(entry, message)| {
                std::ptr::eq(entry.source.as_ptr(), Arc::as_ptr(message))
            })
            .count();
        if same < self.messages.len() {
            self.messages.truncate(same);
            self.ids.remove_from(same);
        }
        same
    }

    /// Encodes the next message.
    pub(crate) fn push<T>(&mut self, tongue: &T, message: &Arc<Message>, album: &EncodedImages)
    where
        T: MessageEncoder<Kind = K>,
    {
        let last = self.messages.last();
        let (owed, before) =
            last.map_or((&[][..], 0), |last| (&last.pending_calls, last.cumulative_bytes));
        let mut page = EncodeTarget {
            images: album,
            pieces: Vec::new(),
            pending_calls: Vec::new(),
            ids: &mut self.ids,
            message_index: self.messages.len(),
        };
        match &**message {
            Message::User(parts) => {
                encode_missing_results(tongue, &mut page, owed);
                tongue.encode_user(&mut page, parts);
            }
            Message::Results(all) => encode_results(tongue, &mut page, owed.to_vec(), all),
            Message::Assistant(reply) => {
                encode_missing_results(tongue, &mut page, owed);
                tongue.encode_reply(&mut page, reply);
            }
        }
        let EncodeTarget { pieces, pending_calls: owed, .. } = page;
        let lengths = pieces.iter().map(|piece| piece.json.as_str().len());
        self.messages.push(EncodedMessage {
            source: Arc::downgrade(message),
            cumulative_bytes: before + lengths.sum::<usize>(),
            pieces,
            pending_calls: owed,
        });
    }

    /// Results for the calls that have none yet, should nothing follow.
    pub(crate) fn missing_results<T: MessageEncoder<Kind = K>>(
        &mut self,
        tongue: &T,
    ) -> Vec<Piece<K>> {
        let album = EncodedImages::default();
        let mut page = EncodeTarget {
            images: &album,
            pieces: Vec::new(),
            pending_calls: Vec::new(),
            message_index: self.messages.len(),
            ids: &mut self.ids,
        };
        if let Some(last) = self.messages.last() {
            encode_missing_results(tongue, &mut page, &last.pending_calls);
        }
        page.pieces
    }
}

/// Gives every call a result that will get no other.
fn encode_missing_results<T: MessageEncoder>(
    tongue: &T,
    page: &mut EncodeTarget<'_, T::Kind>,
    owed: &[PendingCall],
) {
    for owed in owed {
        tongue.encode_missing_result(page, &owed.id);
    }
}

/// Writes results in the order of their calls, and keeps those that are missing.
fn encode_results<T: MessageEncoder>(
    tongue: &T,
    page: &mut EncodeTarget<'_, T::Kind>,
    owed: Vec<PendingCall>,
    results: &[ToolResult],
) {
    let MatchedResults { matched: paid, missing, orphans: strays } = match_results(owed, results);
    for (owed, result) in &paid {
        tongue.encode_result(page, &owed.id, result);
    }
    let behind = tongue.trailing_user_messages(&paid, page.images);
    if strays.is_empty() && behind.is_empty() {
        page.pending_calls = missing;
        return;
    }
    // A result whose call is gone is still something that was seen; but a user may only
    // speak behind the results of all calls.
    encode_missing_results(tongue, page, &missing);
    for parts in behind {
        tongue.encode_user(page, &parts);
    }
    for stray in strays {
        tongue.encode_user(page, &stray.content);
    }
}
