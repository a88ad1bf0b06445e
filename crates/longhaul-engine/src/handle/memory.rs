//! Memory, for people and programs: the messages of threads, and notes.
//!
//! Never: a run's. What a run says is added when it ends, by its own append.

use longhaul_core::id::{NoteId, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::note::{NewNote, Note, NoteOutcome};

use crate::error::Error;
use crate::handle::{Longhaul, check_len};

/// So many bytes may be added to a thread at once.
const APPEND_BYTES_MAX: usize = 1024 * 1024;

/// A message that a program adds to a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThreadMessage {
    /// A person said it.
    User(String),
    /// The model said it.
    Assistant(String),
}

impl ThreadMessage {
    const fn text_bytes(&self) -> usize {
        match self {
            Self::User(text) | Self::Assistant(text) => text.len(),
        }
    }

    fn into_message(self) -> Message {
        match self {
            Self::User(text) => Message::user(text),
            Self::Assistant(text) => Message::assistant(text),
        }
    }
}

impl Longhaul {
    /// The newest messages of a thread, oldest first.
    pub async fn thread_messages(
        &self,
        thread: &ThreadKey,
        limit: usize,
    ) -> Result<Vec<Message>, Error> {
        Ok(self.services.records.thread_messages(thread, limit).await?)
    }

    /// How many messages a thread has.
    pub async fn thread_len(&self, thread: &ThreadKey) -> Result<u64, Error> {
        Ok(self.services.records.thread_len(thread).await?)
    }

    /// Adds to a thread what no run has said, in this order. Runs that look at
    /// their thread later remember it; those under way do not.
    pub async fn append_to_thread(
        &self,
        thread: &ThreadKey,
        said: Vec<ThreadMessage>,
    ) -> Result<(), Error> {
        let bytes = said.iter().map(ThreadMessage::text_bytes).sum();
        check_len("what is added to a thread", bytes, APPEND_BYTES_MAX)?;
        self.check_no_secret("the thread", thread.as_str())?;
        let messages = said.into_iter().map(ThreadMessage::into_message);
        let messages = messages.map(|message| self.redaction().message(message)).collect();
        Ok(self.services.records.extend_thread(thread, messages).await?)
    }

    /// Forgets a thread. Journals keep what its runs said.
    pub async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), Error> {
        Ok(self.services.records.clear_thread(thread).await?)
    }

    /// Keeps a note about a resource. The same key again changes nothing.
    pub async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewNote,
    ) -> Result<NoteOutcome, Error> {
        let note = self.redact_note(resource, note)?;
        Ok(self.services.records.add_note(resource, note).await?)
    }

    /// The notes about a resource with any word of `query`, the best match first;
    /// without a word in it the newest.
    pub async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Note>, Error> {
        Ok(self.services.records.search_notes(resource, query, limit).await?)
    }

    /// The notes about a resource, the newest first, after one of them.
    pub async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<Note>, Error> {
        Ok(self.services.records.list_notes(resource, after, limit).await?)
    }

    /// Forgets a note; false: there is none.
    pub async fn delete_note(&self, note: NoteId) -> Result<bool, Error> {
        Ok(self.services.records.delete_note(note).await?)
    }

    /// Forgets all notes about a resource, and says how many there were.
    pub async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, Error> {
        Ok(self.services.records.clear_notes(resource).await?)
    }
}
