//! Errors of the library. Each message says what helps against the error.
//!
//! The failure of a run is not an error here: it is recorded in the journal and returned in
//! `FinishedRun`. `FinishedRun::text` and `FinishedRun::data` turn it into an [`Error`].

#[cfg(feature = "project")]
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::id::{IdError, RunId};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::RawJson;
use longhaul_core::status::{RunError, Status};
use longhaul_engine::tools::registry;
use longhaul_model::scripted::ScriptError;
use longhaul_tool::typed;
use serde::Serialize;

/// Reason why a request of the program to Longhaul failed.
///
/// ```
/// # async fn example(runtime: longhaul::Runtime) {
/// match runtime.submit(longhaul::Task::new("helper").input("Hello!")).await {
///     Ok(run) => println!("submitted {}", run.id()),
///     Err(error) if error.code() == "lane_full" => println!("try again later: {error}"),
///     Err(error) => println!("{}: {error}", error.code()),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a store nor a project was set.
    #[error(
        "no store is set: call `.store(\"sqlite:agents.db\")`, \
         or open a project with `.project(\".\")`"
    )]
    StoreNotConfigured,
    /// The store can't be opened, or an operation on the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name contains characters that an id of Longhaul must not contain.
    #[error(transparent)]
    InvalidName(#[from] IdError),
    /// A value can't be serialized as JSON, such as a map whose keys are not strings.
    #[error("{value_name} can't be serialized as JSON: {reason}")]
    Serialize {
        /// Description of the value that can't be serialized.
        value_name: String,
        /// Reason from the serializer.
        reason: String,
    },
    /// Two agents, models or context providers have the same name. A handler counts as an agent.
    #[error("there are two {kind}s named `{name}`: give one of them another name")]
    Duplicate {
        /// What has the duplicate name: `agent`, `model` or `context provider`.
        kind: &'static str,
        /// The name that is used twice.
        name: String,
    },
    /// An agent, defined in a file or in code, is invalid.
    #[error("the agent `{name}` can't be used:\n{}", .problems.join("\n"))]
    BrokenAgent {
        /// Name of the invalid agent.
        name: String,
        /// All problems of the invalid agent.
        problems: Vec<String>,
    },
    /// A model of an agent can't be used, for example because its API key is missing. The text is
    /// the complete message.
    #[error("{0}")]
    ModelUnavailable(String),
    /// A tool can't be registered, for example because its name is used twice.
    #[error(transparent)]
    Tool(#[from] registry::ToolRegistrationError),
    /// The input type of a tool has no JSON Schema that models accept.
    #[error(transparent)]
    ToolInput(#[from] typed::TypedToolError),
    /// The script of a scripted model can't be parsed.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The settings of the project or of the environment are invalid. The text is the complete
    /// message.
    #[error("{0}")]
    Settings(String),
    /// There is no agent with the requested name.
    #[error(
        "there is no agent named `{name}`{}: register it with `.agent(..)` or `.handler(..)` \
         before `.open()`",
        .suggestion.as_ref().map_or(String::new(), |name| format!(", did you mean `{name}`?"))
    )]
    AgentNotFound {
        /// The requested name of the agent.
        name: String,
        /// The most similar name of an existing agent. `None` means that no name is similar.
        suggestion: Option<String>,
    },
    /// The idempotency key was already used for another task.
    #[error(
        "this idempotency key was used for another task in the last 24 hours: submit the same \
         task again, or use another key"
    )]
    IdempotencyKeyReused,
    /// The engine rejected the request or failed.
    #[error(transparent)]
    Engine(longhaul_engine::Error),
    /// The run failed or was cancelled, so it has no output.
    #[error("{run} ended as {}: {}: {}", .status.as_str(), .error.code, .error.message)]
    NoOutput {
        /// Id of the run that has no output.
        run: RunId,
        /// Final status of the run.
        status: Status,
        /// Reason why the run failed or was cancelled, with a hint.
        error: RunError,
    },
    /// The output of a run can't be deserialized to the requested type.
    #[error("the output of {run} does not have the expected type: {reason}")]
    OutputType {
        /// Id of the run with this output.
        run: RunId,
        /// Reason from the deserializer.
        reason: serde_json::Error,
    },
    /// The project folder can't be opened.
    #[cfg(feature = "project")]
    #[error("the project folder `{}` can't be opened: {reason}", .folder.display())]
    ProjectUnavailable {
        /// Path of the project folder.
        folder: PathBuf,
        /// Reason from the operating system.
        reason: std::io::Error,
    },
    /// The local address of the server's TCP listener can't be determined.
    #[cfg(feature = "server")]
    #[error("the listener has no local address: {0}")]
    Listener(std::io::Error),
    /// The last running worker has failed, so no worker drives the runs.
    #[error(
        "no worker is running, since the last one failed: {0}. Start another with \
         `runtime.worker()`: its runs continue"
    )]
    WorkerFailed(#[source] Arc<Self>),
    /// The worker that was run or stopped has failed. [`Error::code`] returns the code of the
    /// cause.
    #[error("the worker has failed: {0}")]
    Worker(#[source] Arc<Self>),
    /// A worker was started with a maximum of 0 concurrent runs.
    #[error("`max_concurrent(0)` would execute no run: use at least 1, or do not start the worker")]
    NoConcurrency,
    /// The operating system refused a thread or a signal handler for a worker.
    #[error("the worker can't be started: {0}")]
    WorkerSetup(std::io::Error),
    /// A worker of this runtime panicked. Callers of `wait` get this error instead of waiting
    /// forever.
    #[error("a worker panicked; the panic message says where")]
    WorkerPanicked,
    /// A background task of the runtime ended without a result. Its runs continue when the next
    /// worker takes them over.
    #[error(
        "a background task of the runtime failed: {0}. Open the runtime again: its runs continue"
    )]
    TaskLost(#[from] tokio::task::JoinError),
}

impl Error {
    /// Returns the error code, for programs. The code stays the same when the message is reworded.
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
            Self::StoreNotConfigured => "store_not_configured",
            Self::Store(StoreError::DiskFull { .. }) => "disk_full",
            Self::Store(StoreError::Busy { .. }) => "busy",
            Self::Store(StoreError::AlreadyDriven { .. }) => "already_driven",
            Self::Store(_) => "store",
            Self::InvalidName(_) => "invalid_name",
            Self::Serialize { .. } => "serialization_failed",
            Self::Duplicate { .. } => "duplicate",
            Self::BrokenAgent { .. } => "invalid_agent",
            Self::ModelUnavailable(_) => "model_unavailable",
            Self::Tool(_) | Self::ToolInput(_) => "invalid_tool",
            Self::Script(_) => "invalid_script",
            Self::Settings(_) => "invalid_settings",
            Self::AgentNotFound { .. } => "agent_not_found",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::Engine(error) => error.code(),
            Self::NoOutput { .. } => "no_output",
            Self::OutputType { .. } => "output_type_mismatch",
            #[cfg(feature = "project")]
            Self::ProjectUnavailable { .. } => "project_unavailable",
            #[cfg(feature = "server")]
            Self::Listener(_) => "listener",
            Self::WorkerFailed(_) => "worker_failed",
            Self::Worker(cause) => cause.code(),
            Self::NoConcurrency => "invalid_concurrency",
            Self::WorkerSetup(_) => "worker_setup",
            Self::WorkerPanicked => "worker_panicked",
            Self::TaskLost(_) => "task_lost",
        }
    }
}

impl From<longhaul_engine::Error> for Error {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only some errors have a variant of their own here"
    )]
    fn from(error: longhaul_engine::Error) -> Self {
        match error {
            longhaul_engine::Error::AgentNotFound { name, suggestion } => {
                Self::AgentNotFound { name, suggestion }
            }
            longhaul_engine::Error::IdempotencyKeyReused => Self::IdempotencyKeyReused,
            longhaul_engine::Error::Store(error) => Self::Store(error),
            other => Self::Engine(other),
        }
    }
}

#[cfg(feature = "project")]
impl Error {
    pub(crate) fn invalid_settings(error: longhaul_project::config::error::ConfigError) -> Self {
        Self::Settings(format!("invalid settings: {error}"))
    }
}

#[cfg(feature = "project")]
impl From<longhaul_project::assemble::AssembleError> for Error {
    fn from(error: longhaul_project::assemble::AssembleError) -> Self {
        use longhaul_project::assemble::AssembleError;

        match error {
            AssembleError::Tool(error) => Self::Tool(error),
            AssembleError::BuiltInTool(error) => Self::ToolInput(error),
            AssembleError::InvalidId(error) => Self::InvalidName(error),
            AssembleError::Setting(message) => Self::Settings(message),
        }
    }
}

#[cfg(feature = "project")]
impl From<longhaul_project::agents::loaded_agents::AgentError> for Error {
    fn from(error: longhaul_project::agents::loaded_agents::AgentError) -> Self {
        use longhaul_project::agents::loaded_agents::AgentError;

        match error {
            AgentError::Unknown(name) => Self::AgentNotFound { name, suggestion: None },
            AgentError::Broken { name, problems } => Self::BrokenAgent {
                name,
                problems: problems.iter().map(ToString::to_string).collect(),
            },
        }
    }
}

/// A value that a builder changes. The first invalid argument of a builder method is kept, and is
/// reported when the value is used.
#[derive(Debug, Clone)]
pub(crate) struct Draft<T>(pub(crate) Result<T, InvalidValue>);

/// Reason why an argument of a builder method is invalid.
#[derive(Debug, Clone)]
pub(crate) enum InvalidValue {
    Name(IdError),
    NotJson { value_name: String, reason: String },
}

impl From<IdError> for InvalidValue {
    fn from(error: IdError) -> Self {
        Self::Name(error)
    }
}

impl<T> Draft<T> {
    /// Changes the value, unless an earlier change was invalid.
    pub(crate) fn with(self, change: impl FnOnce(&mut T)) -> Self {
        self.set(Ok::<_, InvalidValue>(()), |value, ()| change(value))
    }

    /// Changes the value with an argument, unless this or an earlier argument is invalid.
    pub(crate) fn set<A>(
        self,
        argument: Result<A, impl Into<InvalidValue>>,
        change: impl FnOnce(&mut T, A),
    ) -> Self {
        Self(self.0.and_then(|mut value| {
            change(&mut value, argument.map_err(Into::into)?);
            Ok(value)
        }))
    }

    /// Returns the value, or the error of the first invalid argument.
    pub(crate) fn build(self) -> Result<T, Error> {
        self.0.map_err(|error| match error {
            InvalidValue::Name(error) => Error::InvalidName(error),
            InvalidValue::NotJson { value_name, reason } => Error::Serialize { value_name, reason },
        })
    }
}

/// Converts a value of the program to JSON. `value_name` describes the value in the error.
pub(crate) fn to_json(value_name: &str, value: &impl Serialize) -> Result<RawJson, InvalidValue> {
    let json = serde_json::to_string(value).and_then(RawJson::parse);
    json.map_err(|error| InvalidValue::NotJson {
        value_name: value_name.to_owned(),
        reason: error.to_string(),
    })
}
