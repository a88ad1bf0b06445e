//! Memory, for people and programs: the messages of threads, and notes.
//!
//! Never: a run's. What a run says is added when it ends, by its own append.

use longhaul_core::id::{NoteId, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::note::{NewNote, Note, Noted};

use crate::error::Error;
use crate::handle::{Longhaul, within};

/// So many bytes may be added to a thread at once.
const SAID_BYTES_MAX: usize = 1024 * 1024;

/// A message that a program adds to a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A person said it.
    User(String),
    /// The model said it.
    Assistant(String),
}

impl Said {
    const fn bytes(&self) -> usize {
        match self {
            Self::User(text) | Self::Assistant(text) => text.len(),
        }
    }

    fn message(self) -> Message {
        match self {
            Self::User(text) => Message::user(text),
            Self::Assistant(text) => Message::assistant(text),
        }
    }
}

impl Longhaul {
    /// The newest messages of a thread, oldest first.
    pub async fn thread(&self, thread: &ThreadKey, limit: usize) -> Result<Vec<Message>, Error> {
        Ok(self.ports.shelves.thread(thread, limit).await?)
    }

    /// How many messages a thread has.
    pub async fn thread_len(&self, thread: &ThreadKey) -> Result<u64, Error> {
        Ok(self.ports.shelves.thread_len(thread).await?)
    }

    /// Adds to a thread what no run has said, in this order. Runs that look at
    /// their thread later remember it; those under way do not.
    pub async fn add_to_thread(&self, thread: &ThreadKey, said: Vec<Said>) -> Result<(), Error> {
        let bytes = said.iter().map(Said::bytes).sum();
        within("what is added to a thread", bytes, SAID_BYTES_MAX)?;
        self.is_no_secret("the thread", thread.as_str())?;
        let messages = said.into_iter().map(Said::message);
        let messages = messages
            .map(|message| self.cleaner().message(message))
            .collect();
        Ok(self.ports.shelves.extend_thread(thread, messages).await?)
    }

    /// Forgets a thread. Journals keep what its runs said.
    pub async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), Error> {
        Ok(self.ports.shelves.clear_thread(thread).await?)
    }

    /// Keeps a note about a resource. The same key again changes nothing.
    pub async fn remember(&self, resource: &ResourceKey, note: NewNote) -> Result<Noted, Error> {
        let note = self.clean_note(resource, note)?;
        Ok(self.ports.shelves.remember(resource, note).await?)
    }

    /// The notes about a resource with any word of `query`, the best match first;
    /// without a word in it the newest.
    pub async fn recall(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Note>, Error> {
        Ok(self.ports.shelves.recall(resource, query, limit).await?)
    }

    /// The notes about a resource, the newest first, after one of them.
    pub async fn notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<Note>, Error> {
        Ok(self.ports.shelves.notes(resource, after, limit).await?)
    }

    /// Forgets a note; false: there is none.
    pub async fn forget_note(&self, note: NoteId) -> Result<bool, Error> {
        Ok(self.ports.shelves.forget_note(note).await?)
    }

    /// Forgets all notes about a resource, and says how many there were.
    pub async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, Error> {
        Ok(self.ports.shelves.clear_notes(resource).await?)
    }
}
