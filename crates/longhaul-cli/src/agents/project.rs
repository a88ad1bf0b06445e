//! The part of a project that concerns agents: settings, tools and agent files. The project's store
//! is not opened.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use longhaul_core::time::Clock;
use longhaul_engine::tools::registry::ToolRegistry;
use longhaul_project::agents::loaded_agents::{AgentError, LoadedAgent, LoadedAgents};
use longhaul_project::assemble::{built_in_tool_registry, load_agents};
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::Config;

use crate::environment;

/// A project's settings, tools and agents, without its store.
#[derive(Debug)]
pub(crate) struct ProjectWithAgents {
    pub(crate) process_env: ProcessEnv,
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tools: ToolRegistry,
    /// The project's folder, as printed in messages.
    pub(crate) display_root: PathBuf,
    pub(crate) loaded: LoadedAgents,
}

impl ProjectWithAgents {
    /// Loads the project of the current folder.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let process_env = environment::current_process_env()?;
        let config = environment::load_config(&process_env)?;
        let clock = environment::system_clock();
        let tools = built_in_tool_registry(&config, &clock)?;
        let display_root = process_env.display_path(&config.root);
        let loaded = load_agents(&config, &tools, &display_root);
        Ok(Self { process_env, config, clock, tools, display_root, loaded })
    }

    /// Returns the agent with this name, or an error for the user.
    pub(crate) fn find_agent(&self, name: &str) -> anyhow::Result<&LoadedAgent> {
        self.loaded.find_loaded_agent(name).map_err(|error| match error {
            AgentError::Unknown(message) => {
                anyhow!("{message}\n`longhaul agents` lists all agents")
            }
            AgentError::Broken { .. } => anyhow!("{error}"),
        })
    }
}
