//! Assembles a runtime for a program that uses the library, with a project or without one.

use std::sync::Arc;

use longhaul_core::port::records::RecordStore;
use longhaul_core::time::Clock;
use longhaul_engine::Longhaul;
use longhaul_engine::agent::AgentRegistry;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::services::{EngineServices, NoContextProviders};
use longhaul_engine::tool_registry::ToolRegistry;
use longhaul_store::{OpenMode, StoreOptions};

use crate::agents::load_context::{LoadContext, ServersUnavailable};
use crate::agents::loaded_agents::LoadedAgents;
use crate::assemble::images::StoreImageSource;
use crate::assemble::mcp_servers;
use crate::assemble::mcp_tools::McpTools;
use crate::assemble::models::ModelRegistry;
use crate::assemble::redactor::{ProjectRedactor, build_redactor};
use crate::assemble::registrations::Registrations;
use crate::assemble::{
    AssembleError, IN_MEMORY_URL, OpenOptions, ProjectRuntime, open_at, store_url, with_store_tools,
};
use crate::config;
use crate::config::error::ConfigError;
use crate::config::load::Flag;
use crate::config::process_env::ProcessEnv;
use crate::mcp::file::McpFile;

/// Opens what a program registers and what the files of its project say, over this store or the
/// project's own.
pub(crate) fn open_project(
    here: &ProcessEnv,
    store: Option<String>,
    registered: Registrations,
) -> Result<ProjectRuntime, AssembleError> {
    // As a setting, so that the store is closed to agents' tools like a project's own.
    let named = store.as_deref().map(store_flag).transpose()?.flatten();
    let config = config::load::load(here, named.as_slice()).map_err(settings_error)?;
    let url = match store {
        Some(url) if url == IN_MEMORY_URL => url,
        Some(_) | None => store_url(&config)?,
    };
    let house = open_at(url, config, open_options(), registered)?;
    for problem in house.loaded.problems.iter().chain(&house.loaded.missing) {
        tracing::warn!("{problem}");
    }
    Ok(house)
}

/// The store URL of a program as a setting, or `None` for a store in memory. A relative path is
/// resolved against the program's working directory, not the project's folder.
fn store_flag(url: &str) -> Result<Option<Flag>, AssembleError> {
    let words = match url.strip_prefix("sqlite:") {
        Some(_) if url == IN_MEMORY_URL => return Ok(None),
        Some(file) => {
            let file = file.strip_prefix("//").unwrap_or(file);
            let unnamed = |why| AssembleError::Setting(format!("`{url}` names no file: {why}"));
            let file = std::path::absolute(file).map_err(unnamed)?;
            format!("sqlite:{}", file.display())
        }
        None => url.to_owned(),
    };
    Ok(Some(Flag { name: ".store(..)".to_owned(), key: "store.url".to_owned(), value: words }))
}

/// Opens what a program registers, and models by the keys in the environment. No file of a
/// project or of the user is read.
pub(crate) fn open_without_project(
    here: &ProcessEnv,
    store: String,
    registered: Registrations,
) -> Result<ProjectRuntime, AssembleError> {
    let config = config::load::load_environment(here).map_err(settings_error)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = StoreOptions {
        holder: open_options().holder,
        ..StoreOptions::new(store, OpenMode::Driver, Arc::clone(&clock))
    };
    let store = Arc::new(longhaul_store::open(store)?);
    let mut registered = registered.with_handlers(&store)?;
    let tools = registered.tool_registry(with_store_tools(ToolRegistry::new([])?, &store)?)?;
    let names: Vec<&str> = tools.all().map(|tool| tool.spec().name.as_str()).collect();
    let why = "only a project has servers: name its folder with `.project(..)`";
    registered.check(
        &config,
        &LoadContext {
            servers_unavailable: Some(ServersUnavailable::Invalid(why)),
            ..LoadContext::new(&config.root, &names)
        },
    )?;
    let album = StoreImageSource(Arc::clone(&store) as Arc<dyn RecordStore>);
    let shelf = ModelRegistry::new(&config, Arc::clone(&clock)).with_images(Arc::new(album));
    let models = registered.model_resolver(Arc::new(shelf));
    let ports = EngineServices {
        context_providers: registered.context_providers(Arc::new(NoContextProviders)),
        redact: Arc::new(ProjectRedactor(build_redactor(&config))),
        ..EngineServices::minimal(Arc::clone(&store), Arc::clone(&clock), models, tools)
    };
    let roster = registered.agent_registry(AgentRegistry::default());
    let file = McpFile::default();
    let line = mcp_servers::client(&config, &file, &clock);
    Ok(ProjectRuntime {
        longhaul: Longhaul::new(ports, roster, config.defaults()),
        loaded: LoadedAgents::default(),
        store,
        mcp_tools: Arc::new(McpTools::new(&config, file, line)),
        config,
    })
}

fn settings_error(error: ConfigError) -> AssembleError {
    AssembleError::Setting(format!("the settings can't be used: {error}"))
}

/// How a program opens the store of its own runs.
fn open_options() -> OpenOptions {
    let program = std::env::args().next().unwrap_or_default();
    OpenOptions {
        mode: OpenMode::Driver,
        holder: format!("the program {program}"),
        on_fatal: None,
        recorder: None,
    }
}
