//! What can go wrong for a program that uses Longhaul, in sentences that say what helps.
//!
//! Never: the failure of a run. That is a fact of its journal and part of `FinishedRun`;
//! `FinishedRun::output` turns it into an error for those who want one.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::id::{IdError, RunId};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::RawJson;
use longhaul_core::status::{RunError, Status};
use longhaul_engine::tool_registry;
use longhaul_model::scripted::ScriptError;
use longhaul_tool::typed;
use serde::Serialize;

use crate::agents::loaded_agents::AgentError;
use crate::assemble::AssembleError;

/// Why something that a program asked of Longhaul was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a store nor a project was named.
    #[error(
        "nothing says where runs are kept: name a store, such as `.store(\"sqlite:agents.db\")`, \
         or a project with `.project(\".\")`"
    )]
    StoreNotConfigured,
    /// The store can't be opened, or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name can't be one of Longhaul's names.
    #[error(transparent)]
    InvalidName(#[from] IdError),
    /// A value can't be written as JSON, such as a map whose keys are no texts.
    #[error("{what} can't be written as JSON: {why}")]
    Serialize {
        /// Which value.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two agents, models or context providers of one name; a handler is an agent.
    #[error("there are two {kind}s named `{name}`: give one of them another name")]
    Duplicate {
        /// `agent`, `model` or `context provider`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// What an agent is made of, in a file or in code, can't be used.
    #[error("the agent `{name}` can't be used:\n{}", .problems.join("\n"))]
    BrokenAgent {
        /// The agent.
        name: String,
        /// Everything that is wrong with it.
        problems: Vec<String>,
    },
    /// The model of an agent can't be asked, such as for want of a key.
    #[error("{0}")]
    ModelUnavailable(String),
    /// A tool can't be registered.
    #[error(transparent)]
    Tool(#[from] tool_registry::ToolRegistrationError),
    /// The type of a tool's input gives no schema that models take.
    #[error(transparent)]
    ToolInput(#[from] typed::TypedToolError),
    /// The script of a scripted model can't be read.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The settings of the project or of the environment can't be used.
    #[error("{0}")]
    Settings(String),
    /// No agent has this name.
    #[error(
        "there is no agent named `{name}`{}: register it with `.agent(..)` or `.handler(..)` \
         before `.open()`",
        .suggestion.as_ref().map_or(String::new(), |like| format!(", did you mean `{like}`?"))
    )]
    AgentNotFound {
        /// The name that was asked for.
        name: String,
        /// A name that may have been meant.
        suggestion: Option<String>,
    },
    /// The idempotency key belongs to another task.
    #[error(
        "this idempotency key was used for another task in the last 24 hours: submit the same \
         task again, or take another key"
    )]
    IdempotencyKeyReused,
    /// The engine refuses what was asked, or met a fault.
    #[error(transparent)]
    Engine(longhaul_engine::Error),
    /// A run has ended without an output.
    #[error("{run} ended as {}: {}: {}", .status.as_str(), .error.code, .error.message)]
    NoOutput {
        /// The run.
        run: RunId,
        /// How it ended.
        status: Status,
        /// Why, and what helps.
        error: RunError,
    },
    /// The output of a run is not of the type that was asked for.
    #[error("the output of {run} is not what was expected: {why}")]
    OutputType {
        /// The run.
        run: RunId,
        /// What does not fit.
        why: serde_json::Error,
    },
    /// The folder of the project can't be opened.
    #[error("the project folder `{}` can't be opened: {why}", .folder.display())]
    ProjectUnavailable {
        /// The folder that was named.
        folder: PathBuf,
        /// Why not.
        why: std::io::Error,
    },
    /// The listener of a server has no address.
    #[cfg(feature = "server")]
    #[error("the listener has no address to serve at: {0}")]
    Listener(std::io::Error),
    /// The last worker has failed, so that nothing is driven.
    #[error(
        "nothing is driven, since the worker has ended: {0}. Start another with \
         `runtime.worker()`: its runs go on"
    )]
    WorkerFailed(#[source] Arc<Self>),
    /// The worker that was run or stopped has failed. Its code is that of the cause.
    #[error("the worker has failed: {0}")]
    Worker(#[source] Arc<Self>),
    /// A worker has panicked.
    #[error("a worker panicked; the panic message says where")]
    WorkerPanicked,
    /// A task of the runtime ended without a result; runs wait for the next worker.
    #[error("a task of the runtime was lost: {0}. Open the runtime again: its runs go on")]
    TaskLost(#[from] tokio::task::JoinError),
}

impl Error {
    /// A word for programs, which stays the same when the sentence is put better.
    ///
    /// ```no_run
    /// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
    /// match runtime.submit(longhaul::Task::new("helper").lane("npc-7")).await {
    ///     Err(error) if error.code() == "lane_full" => println!("later, then"),
    ///     submitted => println!("{}", submitted?.id()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn code(&self) -> &'static str {
        match self {
            Self::StoreNotConfigured => "no_store",
            Self::Store(StoreError::DiskFull { .. }) => "disk_full",
            Self::Store(StoreError::Busy { .. }) => "busy",
            Self::Store(StoreError::AlreadyDriven { .. }) => "driven",
            Self::Store(_) => "store",
            Self::InvalidName(_) => "bad_name",
            Self::Serialize { .. } => "not_json",
            Self::Duplicate { .. } => "duplicate",
            Self::BrokenAgent { .. } => "broken_agent",
            Self::ModelUnavailable(_) => "no_model",
            Self::Tool(_) | Self::ToolInput(_) => "bad_tool",
            Self::Script(_) => "bad_script",
            Self::Settings(_) => "settings",
            Self::AgentNotFound { .. } => "no_agent",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::Engine(error) => error.code(),
            Self::NoOutput { .. } => "no_output",
            Self::OutputType { .. } => "output_type",
            Self::ProjectUnavailable { .. } => "no_project",
            #[cfg(feature = "server")]
            Self::Listener(_) => "listener",
            Self::WorkerFailed(_) => "worker_failed",
            Self::Worker(cause) => cause.code(),
            Self::WorkerPanicked => "worker_panicked",
            Self::TaskLost(_) => "task_lost",
        }
    }
}

impl From<longhaul_engine::Error> for Error {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only some errors are said in other words to a program"
    )]
    fn from(error: longhaul_engine::Error) -> Self {
        match error {
            longhaul_engine::Error::AgentNotFound { name, suggestion: like } => {
                Self::AgentNotFound { name, suggestion: like }
            }
            longhaul_engine::Error::IdempotencyKeyReused => Self::IdempotencyKeyReused,
            longhaul_engine::Error::Store(error) => Self::Store(error),
            other => Self::Engine(other),
        }
    }
}

impl From<AssembleError> for Error {
    fn from(error: AssembleError) -> Self {
        match error {
            AssembleError::Store(error) => Self::Store(error),
            AssembleError::Tool(error) => Self::Tool(error),
            AssembleError::BuiltInTool(error) => Self::ToolInput(error),
            AssembleError::InvalidId(error) => Self::InvalidName(error),
            AssembleError::Setting(why) | AssembleError::Unsupported(why) => Self::Settings(why),
            AssembleError::Agent { name, problems } => Self::BrokenAgent { name, problems },
        }
    }
}

impl From<AgentError> for Error {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Unknown(name) => Self::AgentNotFound { name, suggestion: None },
            AgentError::Broken { name, problems } => Self::BrokenAgent {
                name,
                problems: problems.iter().map(ToString::to_string).collect(),
            },
        }
    }
}

/// A value as JSON. `fault` keeps why it can't be written, for the call that takes the value.
pub(crate) fn to_json(
    what: &str,
    value: &impl Serialize,
    fault: &mut Option<SerializeError>,
) -> RawJson {
    match serde_json::to_string(value).and_then(RawJson::parse) {
        Ok(json) => json,
        Err(why) => {
            *fault = Some(SerializeError { what: what.to_owned(), why: why.to_string() });
            RawJson::null()
        }
    }
}

/// Why a value can't be written as JSON.
#[derive(Debug, Clone)]
pub(crate) struct SerializeError {
    what: String,
    why: String,
}

impl From<SerializeError> for Error {
    fn from(SerializeError { what, why }: SerializeError) -> Self {
        Self::Serialize { what, why }
    }
}
