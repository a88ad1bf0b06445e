//! External inboxes: sources of tasks outside the store, such as a folder or the queue of another
//! system.
//!
//! A worker that serves an external inbox submits each of its tasks as a run, which is durable from
//! then on, and tells the inbox how the run ended:
//!
//! 1. [`Inbox::claim`] returns new tasks. Each one becomes a run in the inbox of the same name. The
//!    id of the task identifies the run, so that a task which is claimed again after a crash is not
//!    executed twice.
//! 2. [`Inbox::start`] is called when the run exists.
//! 3. [`Inbox::complete`] or [`Inbox::fail`] is called when the run has ended. The end of the run
//!    and the message to the inbox are written in one transaction, so the call is made even if the
//!    process crashes in between: at least once, and again with growing delays after an error.
//! 4. [`Inbox::on_complete`] or [`Inbox::on_error`] is called after that, at most once.
//!
//! ```
//! use longhaul::inbox::{Inbox, InboxError, InboxTask, TaskFailure, ClaimFilter};
//! use longhaul::{async_trait, RunView, Task};
//! # #[derive(Debug)] struct Ticket { number: u64, text: String }
//! # #[derive(Debug)] struct Tickets;
//! # impl Tickets {
//! #     async fn assign_open(&self, limit: usize) -> Result<Vec<Ticket>, InboxError> { Ok(vec![]) }
//! #     async fn close(&self, ticket: &str, comment: &str) -> Result<(), InboxError> { Ok(()) }
//! # }
//!
//! /// Takes the open tickets of a ticket system, and closes each with the answer of the agent.
//! #[derive(Debug)]
//! struct TicketInbox(Tickets);
//!
//! #[async_trait]
//! impl Inbox for TicketInbox {
//!     fn name(&self) -> &str {
//!         "tickets"
//!     }
//!
//!     async fn claim(&self, filter: &ClaimFilter) -> Result<Vec<InboxTask>, InboxError> {
//!         let tickets = self.0.assign_open(filter.limit).await?.into_iter();
//!         let task = |ticket: Ticket| {
//!             InboxTask::new(ticket.number.to_string(), Task::new("support").input(ticket.text))
//!         };
//!         Ok(tickets.map(task).collect())
//!     }
//!
//!     async fn complete(&self, id: &str, run: &RunView) -> Result<(), InboxError> {
//!         let text = run.output.as_ref().map_or("", |output| output.text.as_str());
//!         self.0.close(id, text).await
//!     }
//!
//!     async fn fail(&self, id: &str, failure: &TaskFailure) -> Result<(), InboxError> {
//!         self.0.close(id, &failure.error.message).await
//!     }
//! }
//! ```
//!
//! [`Worker::source`](crate::Worker::source) lets a worker serve the inbox.

mod folder;
mod folder_files;
mod interface;
mod serve;

pub use crate::inbox::folder::FolderInbox;
pub use crate::inbox::interface::{ClaimFilter, Inbox, InboxError, InboxTask, TaskFailure};
#[doc(hidden)] // Public for the `longhaul` binary.
pub use crate::inbox::serve::{InboxWorker, add_inbox_names, serve_inboxes};
