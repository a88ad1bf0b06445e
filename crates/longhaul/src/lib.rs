//! Longhaul, a durable runtime for AI agents, as a library.
//!
//! A program opens a [`Runtime`] with a store and agents, submits a [`Task`] and starts a
//! [`Worker`], which drives the run of the task to its end. Every step is journaled: a program that
//! is killed and started again continues its runs.
//!
//! ```
//! use longhaul::{Error, Runtime, Task};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Error> {
//! let count = |request: longhaul::HandlerRequest, _progress| async move {
//!     Ok(request.input::<String>()?.split_whitespace().count())
//! };
//! let runtime = Runtime::builder().store("sqlite::memory:").handler("count", count).open().await?;
//! let worker = runtime.worker().spawn();
//! let run = runtime.submit(Task::new("count").input("three short words")).await?;
//! assert_eq!(run.wait().await?.data::<u32>()?, 3);
//! worker.stop().await
//! # }
//! ```
//!
//! | to | use |
//! |---|---|
//! | define an agent with a model, a prompt and tools | [`Agent`], [`tools`], [`models`] |
//! | run a Rust function as an agent | [`RuntimeBuilder::handler`], [`Handler`] |
//! | submit one task, or many at once | [`Runtime::submit`], [`Runtime::submit_all`] |
//! | send an event of the program's world to an agent | [`Runtime::event`], [`context`] |
//! | start runs at fixed times | [`Schedules`] |
//! | execute the runs of one key one at a time | [`Task::lane`], [`Lane`] |
//! | take tasks from a folder or another queue | [`inbox`] |
//! | let tools work in isolated environments | [`sandboxes`] |
//! | answer questions and approvals | [`Gates`] |
//! | follow a run and read its result | [`RunHandle`], [`events`] |
//!
//! `docs/library.md` describes each with a complete program. A program depends on this crate only,
//! not on the other Longhaul crates. Features:
//!
//! | feature | adds |
//! |---|---|
//! | `sqlite` (default) | the SQLite store |
//! | `project` | the files of a project folder, with `RuntimeBuilder::project` |
//! | `mcp` | the tools of the MCP servers that a project lists in `.mcp.json` |
//! | `sandbox` | the sandbox providers of a project: `local`, `docker` and `daytona` |
//! | `server` | the HTTP API and the dashboard inside a program |
//!
//! This crate contains no business rules: it builds the concrete components and forwards requests
//! to the engine.

#![deny(missing_docs)]

// The hidden items are public for the `longhaul` binary. They are not part of the library.
mod agent;
mod assemble;
pub mod context;
#[cfg(feature = "sqlite")]
#[doc(hidden)]
pub mod ephemeral;
mod error;
pub mod events;
mod gates;
mod handler;
pub mod inbox;
pub mod models;
pub mod policy;
#[cfg(feature = "project")]
#[doc(hidden)]
pub mod project;
mod run;
mod runtime;
mod runtime_state;
pub mod sandboxes;
mod schedules;
mod submit;
mod task;
pub mod tools;
mod worker;

pub use agent::{Agent, AgentTool};
pub use error::Error;
pub use gates::{Answer, Gates, Rules};
pub use handler::function::{Handler, Response};
pub use handler::request::{HandlerError, HandlerRequest};
pub use run::{Batch, FinishedRun, RunEvents, RunHandle};
#[cfg(all(feature = "server", feature = "project"))]
#[doc(hidden)]
pub use runtime::project_server_options;
pub use runtime::{Lane, Runtime, RuntimeBuilder, Thread};
pub use schedules::{Schedule, Schedules};
pub use submit::EventBuilder;
pub use task::Task;
pub use worker::{FailedTask, Worker, WorkerHandle};

pub use async_trait::async_trait;
pub use longhaul_api::fork::{
    DiffSideView, DiffTurnView, EditedResult, FirstDifferenceView, ForkBody, ForkEditBody,
    ForkedFromView, RunDiffView, TurnDiffView,
};
pub use longhaul_api::gate::{AnswerView, GateView, RevocationView, RuleView};
pub use longhaul_api::lane::LaneView;
pub use longhaul_api::run::{
    BudgetView, OutputView, RetryCountsView, RunChainView, RunView, UsageView,
};
pub use longhaul_api::schedule::ScheduleView;
pub use longhaul_api::task::ChainChoice;
#[cfg(feature = "server")]
pub use longhaul_core::access::Role;
pub use longhaul_core::chain::{
    ChainRepeatEndCondition, ChainRepeatSpec, ChainSpec, ChainStepCondition, ChainStepSpec,
};
pub use longhaul_core::duration;
pub use longhaul_core::id::{
    AgentName, BatchId, Epoch, GateId, IdError, InboxName, LaneKey, ResourceKey, RuleId, RunId,
    Seq, SteerId, ThreadKey, WorkerId,
};
pub use longhaul_core::policy::gate::{GateKind, GateStatus};
pub use longhaul_core::port::store::{RunRow, StoreError};
pub use longhaul_core::raw::{Hash, RawJson};
pub use longhaul_core::schedule::{CatchUp, Overlap};
pub use longhaul_core::status::{RunError, Status};
pub use longhaul_core::task::{RunBatchMode as Mode, TaskSpec};
pub use longhaul_core::time::{Millis, Timestamp};
pub use longhaul_engine::Error as EngineError;
pub use longhaul_engine::agent::Agent as AgentDefinition;
/// Effect of an answer to a gate (a question or approval that waits for a person).
///
/// ```
/// use longhaul::AnswerOutcome;
///
/// fn describe(outcome: AnswerOutcome) -> &'static str {
///     match outcome {
///         AnswerOutcome::Closed(_) => "the run continues",
///         AnswerOutcome::Voted(_) => "another person has to approve too",
///     }
/// }
/// ```
pub use longhaul_engine::handle::GateAnswerOutcome as AnswerOutcome;
pub use longhaul_engine::handle::ThreadMessage;
pub use tokio_util::sync::CancellationToken;
pub use {schemars, serde_json};
