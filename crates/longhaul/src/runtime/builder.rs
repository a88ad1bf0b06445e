//! Collects what a runtime is made of, and opens it.
//!
//! Never: fails before `open`, so that a program reads as one sentence.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::model::Model;
use longhaul_core::port::tool::Progress;
use serde::Serialize;

use crate::agent::Agent;
use crate::assemble::embedded::{open_project, open_without_project};
use crate::assemble::registrations::Registrations;
use crate::error::Error;
use crate::handler::{Handler, HandlerError, HandlerRequest};
use crate::process;
use crate::runtime::Runtime;
use crate::runtime_state::RuntimeState;

/// What a runtime is made of, until it is opened.
#[must_use = "nothing is opened until `open` is called"]
#[derive(Debug, Default)]
pub struct RuntimeBuilder {
    store: Option<String>,
    project: Option<PathBuf>,
    agents: Vec<Agent>,
    registrations: Registrations,
}

impl RuntimeBuilder {
    /// Where runs are kept: `sqlite:PATH`, or `sqlite::memory:` for runs that end with the
    /// process. Without it runs are kept where the project says.
    pub fn store(mut self, url: impl Into<String>) -> Self {
        self.store = Some(url.into());
        self
    }

    /// Adds an agent with its own tools, in the place of one of the same name in the project.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Adds a plain Rust function as an agent: it gets the task's input, and what it returns is
    /// the run's output; its error is what the run fails with.
    ///
    /// A function that returned is not called again for the same run. One that was cut off by a
    /// crash is called again with the same input and the same key, at most three times: it is
    /// called *at least once*, and `request.key` lets it make its effect only once. One call may
    /// take 24 hours, and its result may have 4 MiB as JSON.
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
    pub fn handler<F, R, T>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(HandlerRequest, Arc<dyn Progress>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, HandlerError>> + Send + 'static,
        T: Serialize,
    {
        let handler = Handler::new(name.into(), function);
        self.registrations.handlers.push(handler);
        self
    }

    /// Adds a model under the name by which agents ask for it.
    pub fn model(mut self, name: impl Into<String>, model: impl Model + 'static) -> Self {
        self.registrations.add_model(name.into(), Arc::new(model));
        self
    }

    /// Adds a context provider under the name by which agents ask for it.
    pub fn context_provider(
        mut self,
        name: impl Into<String>,
        provider: impl ContextProvider + 'static,
    ) -> Self {
        let provider = Arc::new(provider);
        self.registrations.add_context_provider(name.into(), provider);
        self
    }

    /// Adds what the files of this folder say: `longhaul.toml`, `agents/`, `skills/` and
    /// `.mcp.json`. What such a file would run or send counts only after a person has trusted it
    /// with `longhaul trust`.
    pub fn project(mut self, folder: impl Into<PathBuf>) -> Self {
        self.project = Some(folder.into());
        self
    }

    /// Opens the store and puts everything together. Keys of model providers come from the
    /// environment, such as `ANTHROPIC_API_KEY`.
    ///
    /// # Errors
    /// Neither a store nor a project is named; the store can't be opened or another process
    /// drives it; a name or a tool can't be registered, or is registered twice; an agent in code
    /// names a tool, a model or a context provider that is not there, or its prompt or output
    /// schema is broken; or a setting can't be used. Agents in files that are broken are logged,
    /// and say why when they are submitted to.
    pub async fn open(mut self) -> Result<Runtime, Error> {
        for agent in self.agents {
            let (definition, tools) = agent.build()?;
            self.registrations.agents.push(definition);
            self.registrations.tools.extend(tools);
        }
        if let Some((kind, name)) = self.registrations.duplicate_name() {
            return Err(Error::Duplicate { kind, name });
        }
        let (project, store, registered) = (self.project, self.store, self.registrations);
        // Opening reads files and may wait for another process.
        let opened = tokio::task::spawn_blocking(move || match (project, store) {
            (Some(folder), store) => {
                let found = folder.canonicalize();
                let found = found.map_err(|why| Error::ProjectUnavailable { folder, why })?;
                let here = process::process_env(found);
                Ok(open_project(&here, store, registered)?)
            }
            (None, Some(store)) => {
                let here = process::process_env(PathBuf::new());
                Ok(open_without_project(&here, store, registered)?)
            }
            (None, None) => Err(Error::StoreNotConfigured),
        });
        Ok(Runtime(Arc::new(RuntimeState::new(opened.await??)?)))
    }
}
