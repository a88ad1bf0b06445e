//! Longhaul, a durable runtime for AI agents, as the library that programs depend on.
//!
//! [`Runtime::builder`] opens a store with agents, Rust functions, tools, models and context
//! providers; `docs/library.md` begins with a whole program. A program names no other crate of
//! ours. Features: `mcp` (tools of MCP servers; on by default) and `server` (the HTTP API and the
//! dashboard inside a program).
//!
//! Never: holds a business rule. It names the concrete parts, puts them
//! together, and passes words on.

#![deny(missing_docs)]

mod agent;
pub mod agents;
pub mod assemble;
pub mod config;
pub mod context;
pub mod duration;
pub mod ephemeral;
mod error;
pub mod events;
mod gates;
mod handler;
pub mod local_key;
pub mod mcp;
pub mod models;
pub mod policy;
pub mod private_file;
pub mod process;
mod project_file;
mod run;
mod runtime;
mod runtime_state;
pub mod server_marker;
pub mod skills;
pub mod spanned;
mod task;
pub mod tools;
pub mod trust;
mod worker;

pub use agent::{Agent, AgentTool};
pub use error::Error;
pub use gates::{Answer, Gates};
pub use handler::{HandlerError, HandlerRequest};
pub use run::{FinishedRun, RunEvents, RunHandle};
pub use runtime::{AnswerOutcome, Runtime, RuntimeBuilder};
pub use task::Task;
pub use worker::{Worker, WorkerHandle};

pub use async_trait::async_trait;
pub use longhaul_api::gate::{AnswerView, GateView};
pub use longhaul_api::run::{BudgetView, OutputView, RunView, UsageView};
#[cfg(feature = "server")]
pub use longhaul_core::access::Role;
pub use longhaul_core::id::{
    AgentName, Epoch, GateId, IdError, InboxName, LaneKey, ResourceKey, RunId, Seq, SteerId,
    ThreadKey, WorkerId,
};
pub use longhaul_core::policy::gate::{GateKind, GateStatus};
pub use longhaul_core::port::store::{RunRow, StoreError};
pub use longhaul_core::raw::{Hash, RawJson};
pub use longhaul_core::status::{RunError, Status};
pub use longhaul_core::time::{Millis, Timestamp};
pub use longhaul_engine::Error as EngineError;
pub use longhaul_engine::agent::Agent as AgentDefinition;
pub use tokio_util::sync::CancellationToken;
pub use {schemars, serde_json};

use std::path::Path;

/// The bytes of the project's file `name` below `root`, at most `bytes_max`. A link is followed as
/// long as it stays inside.
///
/// # Errors
/// Why it can't be read, as the rest of a sentence that begins with its name.
pub fn read_project_file(root: &Path, name: &Path, bytes_max: usize) -> Result<Vec<u8>, String> {
    project_file::read(root, name, bytes_max).map_err(|unread| unread.to_string())
}
