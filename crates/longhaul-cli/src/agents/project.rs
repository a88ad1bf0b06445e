//! A project, as far as it is about agents.
//!
//! Never: opens its store.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul::agents::loaded_agents::LoadedAgents;
use longhaul::assemble::{load_agents, tool_registry};
use longhaul::config::process_env::ProcessEnv;
use longhaul::config::settings::Config;
use longhaul_core::time::Clock;
use longhaul_engine::tool_registry::ToolRegistry;

use crate::environment;

/// A project and its agents.
#[derive(Debug)]
pub(crate) struct AgentsProject {
    pub(crate) process_env: ProcessEnv,
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tools: ToolRegistry,
    /// The project's folder as it is said to people.
    pub(crate) display_root: PathBuf,
    pub(crate) loaded: LoadedAgents,
}

impl AgentsProject {
    /// The project that this command was started in.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let here = environment::process_env()?;
        let config = environment::load_config(&here)?;
        let clock = environment::system_clock();
        let tools = tool_registry(&config, &clock)?;
        let said = here.display_path(&config.root);
        let loaded = load_agents(&config, &tools, &said);
        Ok(Self { process_env: here, config, clock, tools, display_root: said, loaded })
    }
}
