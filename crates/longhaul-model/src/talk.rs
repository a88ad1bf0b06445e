//! A conversation as it goes out: serialised once, and then only copied.
//!
//! Every message is written behind the ones before it and depends on nothing
//! after it, so the next turn writes only what is new. Where a message is no
//! longer the same, everything from there on is written again.
//!
//! Never: knows how a provider spells a message.

use std::fmt;
use std::sync::{Arc, Weak};

use longhaul_core::message::Message;

use crate::album::Album;
use crate::ids::Ids;
use crate::kept::Weighs;

/// A page that the next message is written on.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    /// Everything written so far; what is added stays.
    pub(crate) text: &'a mut Vec<u8>,
    pub(crate) ids: &'a mut Ids,
    pub(crate) album: &'a Album,
    /// The place of the message in the conversation, from 0.
    pub(crate) number: usize,
}

/// How a provider spells a conversation.
pub(crate) trait Tongue {
    /// What the next message must know of the ones before it.
    type After: Clone + Default + fmt::Debug + Send;

    /// Writes one message behind the others, with the comma before it if there
    /// is one.
    fn write(&self, page: Page<'_>, before: Self::After, message: &Message) -> Self::After;

    /// Copies the conversation and closes it, so that what is in `out` is a list
    /// of messages but for its brackets.
    fn copy(&self, talk: &Talk<Self::After>, out: &mut Vec<u8>);
}

/// One message, as far as the next one needs to know.
#[derive(Debug)]
pub(crate) struct Entry<A> {
    /// Which message this is. Its place in memory is not given to another for
    /// as long as somebody points there.
    of: Weak<Message>,
    /// Where it ends in the text.
    end: usize,
    pub(crate) after: A,
}

/// A conversation.
#[derive(Debug)]
pub(crate) struct Talk<A> {
    pub(crate) text: Vec<u8>,
    pub(crate) entries: Vec<Entry<A>>,
    ids: Ids,
}

impl<A> Default for Talk<A> {
    fn default() -> Self {
        Self {
            text: Vec::new(),
            entries: Vec::new(),
            ids: Ids::default(),
        }
    }
}

impl<A> Weighs for Talk<A> {
    fn bytes(&self) -> usize {
        self.text.capacity() + self.entries.len() * size_of::<Entry<A>>()
    }
}

impl<A: Clone + Default> Talk<A> {
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
            self.text
                .truncate(self.entries.last().map_or(0, |entry| entry.end));
        }
        same
    }

    /// Writes the next message.
    pub(crate) fn add<T>(&mut self, tongue: &T, message: &Arc<Message>, album: &Album)
    where
        T: Tongue<After = A>,
    {
        let page = Page {
            number: self.entries.len(),
            text: &mut self.text,
            ids: &mut self.ids,
            album,
        };
        let before = self.entries.last().map(|last| last.after.clone());
        let after = tongue.write(page, before.unwrap_or_default(), message);
        self.entries.push(Entry {
            of: Arc::downgrade(message),
            end: self.text.len(),
            after,
        });
    }
}
