//! A project, as far as it is about agents.
//!
//! Never: opens its store.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul::agents::loaded::Loaded;
use longhaul::assemble::{agents, toolbox};
use longhaul::config::settings::Config;
use longhaul::config::surroundings::Surroundings;
use longhaul_core::time::Clock;
use longhaul_engine::toolbox::Toolbox;

use crate::here;

/// A project and its agents.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) here: Surroundings,
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tools: Toolbox,
    /// The project's folder as it is said to people.
    pub(crate) said: PathBuf,
    pub(crate) loaded: Loaded,
}

impl Project {
    /// The project that this command was started in.
    pub(crate) fn here() -> anyhow::Result<Self> {
        let here = here::surroundings()?;
        let config = here::config(&here)?;
        let clock = here::system_clock();
        let tools = toolbox(&config, &clock)?;
        let said = here.said(&config.root);
        let loaded = agents(&config, &tools, &said);
        Ok(Self {
            here,
            config,
            clock,
            tools,
            said,
            loaded,
        })
    }
}
