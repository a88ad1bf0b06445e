//! Other people's queues: a folder, a mailbox, another system's tasks.
//!
//! Never: the durable queue itself. What an inbox gives becomes a run first.

use async_trait::async_trait;

use crate::id::InboxName;
use crate::raw::RawJson;
use crate::status::Outcome;

/// A queue outside of the store.
#[async_trait]
pub trait Inbox: Send + Sync + std::fmt::Debug {
    /// Its name.
    fn name(&self) -> &InboxName;

    /// Takes the next task, if there is one. The handle is unique and stable: a
    /// task that is taken again after a crash has the same one.
    async fn take(&self) -> Result<Option<InboxTask>, InboxError>;

    /// The task has become a run: it need not be given again.
    async fn taken(&self, handle: &str) -> Result<(), InboxError>;

    /// The task's run has ended.
    async fn ended(&self, handle: &str, outcome: &Outcome) -> Result<(), InboxError>;
}

/// A task in somebody else's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxTask {
    /// What the queue calls it.
    pub handle: String,
    /// Its type.
    pub kind: Option<String>,
    /// What is to be done.
    pub payload: RawJson,
}

/// A queue that does not answer.
#[derive(Debug, thiserror::Error)]
#[error("the inbox failed: {0}")]
pub struct InboxError(pub String);
