//! Collects the parts of a runtime and opens it. The builder methods never fail: errors are
//! reported by `open`.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::model::Model;
use longhaul_core::port::tool::Progress;
use serde::Serialize;

use crate::agent::Agent;
use crate::assemble::embedded::{open_project, open_without_project};
use crate::assemble::registrations::RuntimeRegistrations;
use crate::error::Error;
use crate::handler::function::Handler;
use crate::handler::request::{HandlerError, HandlerRequest};
use crate::process;
use crate::runtime::Runtime;
use crate::runtime_state::RuntimeState;

/// Builder of a runtime: collects the store, agents, models and other parts.
#[must_use = "nothing is opened until `open` is called"]
#[derive(Debug, Default)]
pub struct RuntimeBuilder {
    store: Option<String>,
    project: Option<PathBuf>,
    agents: Vec<Agent>,
    registrations: RuntimeRegistrations,
}

impl RuntimeBuilder {
    /// Sets the URL of the store: `sqlite:PATH`, or `sqlite::memory:` for runs that are lost when
    /// the process ends. Default: the store of the project.
    pub fn store(mut self, url: impl Into<String>) -> Self {
        self.store = Some(url.into());
        self
    }

    /// Adds an agent with its tools. It replaces an agent of the project with the same name.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Adds a Rust function as an agent. It receives the task's input, and its result is the run's
    /// output; if it returns an error, the run fails with it.
    ///
    /// A function that has returned is not called again for the same run. If a crash interrupts a
    /// call, the function is called again with the same input and the same key, at most three
    /// times. It is called *at least once*; `request.key` lets it make its effect only once. Its
    /// result may have up to 4 MiB as JSON.
    ///
    /// One call is reported as overdue after 2 minutes and ended after 5 minutes. After that, and
    /// after a [transient error](HandlerError::transient), the run is retried once.
    /// [`register`](Self::register) accepts a handler with other settings.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), longhaul::Error> {
    /// let runtime = longhaul::Runtime::builder()
    ///     .store("sqlite:agents.db")
    ///     .handler("count", |request, progress| async move {
    ///         let path: String = request.input()?;
    ///         progress.report(None, "reading");
    ///         Ok(std::fs::read_to_string(path)?.split_whitespace().count())
    ///     })
    ///     .open()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn handler<F, R, T>(self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(HandlerRequest, Arc<dyn Progress>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, HandlerError>> + Send + 'static,
        T: Serialize + 'static,
    {
        self.register(Handler::new(name, function))
    }

    /// Adds a Rust function with its settings as an agent, such as one that a crash must not repeat.
    ///
    /// ```no_run
    /// use longhaul::{Handler, Runtime};
    ///
    /// let pay = Handler::new("pay", |_, _| async move { Ok("paid") }).once();
    /// let builder = Runtime::builder().store("sqlite:agents.db").register(pay);
    /// ```
    pub fn register(mut self, handler: Handler) -> Self {
        self.registrations.handlers.push(handler);
        self
    }

    /// Adds a model under a name that agents refer to.
    pub fn model(mut self, name: impl Into<String>, model: impl Model + 'static) -> Self {
        self.registrations.add_model(name.into(), Arc::new(model));
        self
    }

    /// Adds a context provider under a name that agents refer to.
    pub fn context_provider(
        mut self,
        name: impl Into<String>,
        provider: impl ContextProvider + 'static,
    ) -> Self {
        let provider = Arc::new(provider);
        self.registrations.add_context_provider(name.into(), provider);
        self
    }

    /// Adds the files of a project folder: `longhaul.toml`, `agents/`, `skills/` and `.mcp.json`.
    /// Commands and outbound requests of these files are blocked until a person has trusted them
    /// with `longhaul trust`.
    pub fn project(mut self, folder: impl Into<PathBuf>) -> Self {
        self.project = Some(folder.into());
        self
    }

    /// Opens the store and builds the runtime. API keys of model providers come from the
    /// environment, such as `ANTHROPIC_API_KEY`.
    ///
    /// # Errors
    /// Neither a store nor a project is set; the store can't be opened or another process drives
    /// it; a name or a tool is invalid or a duplicate; an agent in code names an unknown tool,
    /// model or context provider, or its prompt or output schema is invalid; or a setting is
    /// invalid. Problems of agent files are logged, and returned when a task is submitted to such
    /// an agent.
    pub async fn open(mut self) -> Result<Runtime, Error> {
        for agent in self.agents {
            let (definition, tools) = agent.build_definition()?;
            self.registrations.agents.push(definition);
            self.registrations.tools.extend(tools);
        }
        if let Some((kind, name)) = self.registrations.find_duplicate_name() {
            return Err(Error::Duplicate { kind, name });
        }
        let (project, store, registered) = (self.project, self.store, self.registrations);
        // Opening reads files and may wait for another process.
        let task = tokio::task::spawn_blocking(move || match (project, store) {
            (Some(folder), store) => {
                let found = folder.canonicalize();
                let found = found.map_err(|why| Error::ProjectUnavailable { folder, why })?;
                let here = process::process_env_in_folder(found);
                Ok(open_project(&here, store, registered)?)
            }
            (None, Some(store)) => {
                let here = process::process_env_in_folder(PathBuf::new());
                Ok(open_without_project(&here, store, registered)?)
            }
            (None, None) => Err(Error::StoreNotConfigured),
        });
        Ok(Runtime(Arc::new(RuntimeState::new(task.await??)?)))
    }
}
