//! Builds a runtime for a program that uses the library, with or without a project.

use std::sync::Arc;

use longhaul_core::port::records::RecordStore;
use longhaul_core::time::Clock;
use longhaul_engine::Longhaul;
use longhaul_engine::agent::AgentRegistry;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::counters::EngineCounters;
use longhaul_engine::services::{EngineServices, NoContextProviders};
use longhaul_engine::spend_caps::SpendCaps;
use longhaul_engine::tool_registry::ToolRegistry;
use longhaul_store::{OpenMode, StoreOptions};

use crate::agents::load_context::{AgentLoadContext, McpUnavailableReason};
use crate::agents::loaded_agents::LoadedAgents;
use crate::assemble::images::StoreImageSource;
use crate::assemble::mcp_servers;
use crate::assemble::mcp_tools::McpTools;
use crate::assemble::models::ModelRegistry;
use crate::assemble::redactor::{ProjectRedactor, build_redactor};
use crate::assemble::registrations::RuntimeRegistrations;
use crate::assemble::{
    AssembleError, IN_MEMORY_URL, ProjectOpenOptions, ProjectRuntime, open_runtime_with_store_url,
    register_store_backed_tools, store_url,
};
use crate::config;
use crate::config::error::ConfigError;
use crate::config::load::SettingOverride;
use crate::config::process_env::ProcessEnv;
use crate::handler::threads::HandlerThreadRunner;
use crate::mcp::file::McpFile;

/// Opens a runtime with the agents, tools and models that the program registered, and with the
/// files of its project. `store` is a URL that overrides the URL of the project's store.
pub(crate) fn open_project_runtime(
    process_env: &ProcessEnv,
    store: Option<String>,
    registered: RuntimeRegistrations,
) -> Result<ProjectRuntime, AssembleError> {
    // Passed as a setting, so that agents' tools can't access the store's files.
    let store_override = store.as_deref().map(store_url_override).transpose()?.flatten();
    let config = config::load::load(process_env, store_override.as_slice())
        .map_err(invalid_settings_error)?;
    let url = match store {
        Some(url) if url == IN_MEMORY_URL => url,
        Some(_) | None => store_url(&config)?,
    };
    let runtime =
        open_runtime_with_store_url(url, config, open_options_of_library_program(), registered)?;
    for problem in runtime.loaded.problems.iter().chain(&runtime.loaded.missing_references) {
        tracing::warn!("{problem}");
    }
    Ok(runtime)
}

/// Converts the store URL that the program sets to an override of the setting `store.url`. `None`
/// means a store in memory. A relative path is resolved against the program's working directory,
/// not the project's folder.
fn store_url_override(url: &str) -> Result<Option<SettingOverride>, AssembleError> {
    let value = match url.strip_prefix("sqlite:") {
        Some(_) if url == IN_MEMORY_URL => return Ok(None),
        Some(file) => {
            let file = file.strip_prefix("//").unwrap_or(file);
            let invalid_path_error = |error| {
                AssembleError::Setting(format!(
                    "the path in the store URL `{url}` is invalid: {error}"
                ))
            };
            let file = std::path::absolute(file).map_err(invalid_path_error)?;
            format!("sqlite:{}", file.display())
        }
        None => url.to_owned(),
    };
    Ok(Some(SettingOverride {
        name: ".store(..)".to_owned(),
        setting_path: "store.url".to_owned(),
        value,
    }))
}

/// Opens a runtime with the agents, tools and models that the program registered, and with the
/// provider models whose API keys are in the environment. No file of a project or of the user is
/// read.
pub(crate) fn open_runtime_without_project(
    process_env: &ProcessEnv,
    store: String,
    registered: RuntimeRegistrations,
) -> Result<ProjectRuntime, AssembleError> {
    let config =
        config::load::load_from_environment(process_env).map_err(invalid_settings_error)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = StoreOptions {
        holder: open_options_of_library_program().holder,
        ..StoreOptions::new(store, OpenMode::Driver, Arc::clone(&clock))
    };
    let store = Arc::new(longhaul_store::open_sqlite_store(store)?);
    let counters = EngineCounters::default();
    let handler_threads = HandlerThreadRunner::new(Arc::clone(&clock), counters.clone());
    let mut registered = registered.convert_handlers_to_agents(&store, &handler_threads)?;
    let tools = registered
        .extend_tool_registry(register_store_backed_tools(ToolRegistry::new([])?, &store)?)?;
    let names: Vec<&str> = tools.tools().map(|tool| tool.spec().name.as_str()).collect();
    let reason = "only a project has servers: set its folder with `.project(..)`";
    registered.check_registered_agents(
        &config,
        &AgentLoadContext {
            servers_unavailable: Some(McpUnavailableReason::Invalid(reason)),
            ..AgentLoadContext::new(&config.root, &names)
        },
    )?;
    let images = StoreImageSource(Arc::clone(&store) as Arc<dyn RecordStore>);
    let registry =
        ModelRegistry::new(&config, Arc::clone(&clock)).with_image_source(Arc::new(images));
    let models = registered.model_resolver_with_fallback(Arc::new(registry));
    let services = EngineServices {
        context_providers: registered.context_providers_with_fallback(Arc::new(NoContextProviders)),
        redact: Arc::new(ProjectRedactor(build_redactor(&config))),
        counters,
        caps: SpendCaps::new(config.spend_caps()).map_err(AssembleError::Setting)?,
        ..EngineServices::from_single_store(Arc::clone(&store), Arc::clone(&clock), models, tools)
    };
    let agents = registered.extend_agent_registry(AgentRegistry::default());
    let file = McpFile::default();
    let client = mcp_servers::create_mcp_client(&config, &file, &clock);
    Ok(ProjectRuntime {
        longhaul: Longhaul::new(services, agents, config.run_policy_defaults()),
        loaded: LoadedAgents::default(),
        store,
        mcp_tools: Arc::new(McpTools::new(&config, file, client)),
        config,
    })
}

fn invalid_settings_error(error: ConfigError) -> AssembleError {
    AssembleError::Setting(format!("invalid settings: {error}"))
}

/// Returns the options with which a program that uses the library opens its runtime: the program
/// drives runs, and requests to models are not recorded.
fn open_options_of_library_program() -> ProjectOpenOptions {
    let program = std::env::args().next().unwrap_or_default();
    ProjectOpenOptions {
        mode: OpenMode::Driver,
        holder: format!("the program {program}"),
        on_fatal: None,
        recorder: None,
        loaded_agents: None,
    }
}
