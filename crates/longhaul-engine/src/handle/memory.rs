//! Access to the memory of agents for people and programs: thread messages and notes.
//!
//! The messages that a run itself adds to its thread are part of the append that ends the run.

use longhaul_api::transcript::{NewThreadMessageBody, ThreadMessageRole, ThreadMessagesView};
use longhaul_core::change::NewThreadMessages;
use longhaul_core::id::{ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::note::{AddNoteOutcome, NewMemoryNote};
use longhaul_run::Rejection;

use crate::error::Result;
use crate::handle::{Longhaul, check_text_len};

/// Maximum number of bytes that can be added to a thread (conversation) at once.
const APPEND_BYTES_MAX: usize = 1024 * 1024;

/// A message that a program adds to a thread, outside of any run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThreadMessage {
    /// Message written by a person.
    User(String),
    /// Message written by a model.
    Assistant(String),
}

impl ThreadMessage {
    fn into_message(self) -> Message {
        match self {
            Self::User(text) => Message::user(text),
            Self::Assistant(text) => Message::assistant(text),
        }
    }

    /// Returns the texts of a message of a thread. `None` for tool results, which no thread has.
    pub fn from_message(message: &Message) -> Option<Self> {
        match message {
            Message::User(_) => Some(Self::User(message.text())),
            Message::Assistant(_) => Some(Self::Assistant(message.text())),
            Message::Results(_) => None,
        }
    }
}

impl From<NewThreadMessageBody> for ThreadMessage {
    fn from(body: NewThreadMessageBody) -> Self {
        match body.role {
            ThreadMessageRole::User => Self::User(body.text),
            ThreadMessageRole::Assistant => Self::Assistant(body.text),
        }
    }
}

impl Longhaul {
    /// Returns the newest messages of a thread (conversation), oldest first.
    pub async fn thread_messages(&self, thread: &ThreadKey, limit: usize) -> Result<Vec<Message>> {
        Ok(self.services.records.thread_messages(thread, limit).await?)
    }

    /// Returns the newest messages of a thread (conversation), and how many it has.
    pub async fn thread(&self, thread: &ThreadKey, limit: usize) -> Result<ThreadMessagesView> {
        let data = self.thread_messages(thread, limit).await?;
        let count = self.thread_message_count(thread).await?;
        Ok(ThreadMessagesView { thread: thread.to_string(), count, data })
    }

    /// Returns the number of messages in a thread (conversation).
    pub async fn thread_message_count(&self, thread: &ThreadKey) -> Result<u64> {
        Ok(self.services.records.thread_message_count(thread).await?)
    }

    /// Adds messages to a thread outside of any run, in the given order. Runs that start later see
    /// these messages; runs that are already in progress do not.
    pub async fn append_to_thread(
        &self,
        thread: &ThreadKey,
        added: Vec<ThreadMessage>,
    ) -> Result<()> {
        let added: Vec<Message> = added.into_iter().map(ThreadMessage::into_message).collect();
        if added.iter().any(|message| message.text().trim().is_empty()) {
            return Err(Rejection::Empty("a message of a thread").into());
        }
        let bytes = added.iter().map(|message| message.text().len()).sum();
        check_text_len("the text added to a thread", bytes, APPEND_BYTES_MAX)?;
        self.check_no_secret_in_name("the thread", thread.as_str())?;
        let added = added.into_iter();
        let messages = added.map(|message| self.redaction().redact_message(message)).collect();
        let added = NewThreadMessages { thread: thread.clone(), messages };
        Ok(self.services.records.append_thread_messages(added, self.request.clone()).await?)
    }

    /// Deletes all messages of a thread (conversation). The journals of its runs are kept.
    pub async fn clear_thread(&self, thread: &ThreadKey) -> Result<()> {
        Ok(self.services.records.clear_thread(thread).await?)
    }

    /// Adds a note about a resource (a person or thing). Does nothing if a note with the same key
    /// exists.
    pub async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewMemoryNote,
    ) -> Result<AddNoteOutcome> {
        let note = self.redact_note(resource, note)?;
        Ok(self.services.records.add_note(resource, note).await?)
    }
}
