//! Builds a runtime: opens the store and connects it with models, tools and agents.
//!
//! Only this module and `project` name the concrete implementations. They contain no business rules.

pub(crate) mod registrations;
pub(crate) mod settings;

use std::sync::Arc;

use longhaul_core::suggest;
use longhaul_core::time::Clock;
use longhaul_engine::Longhaul;
use longhaul_engine::agent::AgentRegistry;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::counters::EngineCounters;
use longhaul_engine::services::{
    ContextProviders, ExternalToolSource, ModelResolver, NoContextProviders, NoExternalTools,
    ResolveModelError, ResolvedModel, Services, StorePorts,
};
use longhaul_engine::tools::read_output::ReadOutputTool;
use longhaul_engine::tools::registry::ToolRegistry;
use longhaul_engine::worker::WorkerOptions;
use longhaul_model::providers::built_in::{CASSETTE_PROVIDER, SCRIPTED_PROVIDER};
use longhaul_model::providers::model_choice::ModelSelector;
use longhaul_model::providers::open::ProviderModels;
use longhaul_model::store_images::StoreImageSource;
#[cfg(feature = "project")]
use longhaul_project::{
    agents::loaded_agents::{AgentError, LoadedAgents},
    assemble::{mcp_tools::McpTools, restart_mcp_servers},
    config::settings::Config,
};
use longhaul_tool::MemoryTools;

use crate::assemble::registrations::RuntimeRegistrations;
use crate::assemble::settings::Settings;
use crate::error::Error;
use crate::handler::threads::HandlerThreadRunner;

/// URL of a store in memory, whose content is lost when the process ends.
#[cfg(feature = "sqlite")]
pub(crate) const IN_MEMORY_URL: &str = "sqlite::memory:";

/// The parts of an open runtime that its handles use.
#[derive(Debug)]
pub(crate) struct OpenedRuntime {
    pub(crate) longhaul: Longhaul,
    pub(crate) worker: WorkerOptions,
    /// The settings of the project, or of the environment.
    #[cfg(feature = "project")]
    pub(crate) config: Config,
    /// The project of the runtime. `None` means that it has none.
    #[cfg(feature = "project")]
    pub(crate) project: Option<OpenedProject>,
}

/// The files of an open runtime's project.
#[cfg(feature = "project")]
#[derive(Debug)]
pub(crate) struct OpenedProject {
    pub(crate) loaded: LoadedAgents,
    pub(crate) mcp_tools: Arc<McpTools>,
}

impl OpenedRuntime {
    /// Closes the connections to all MCP servers of the project. The returned future completes when
    /// they are closed. A server that is needed afterwards is started again.
    #[cfg(feature = "project")]
    pub(crate) fn restart_mcp_servers(&self) -> impl Future<Output = ()> + use<> {
        let project = self.project.as_ref();
        let clock = &self.longhaul.services().clock;
        let closing =
            project.map(|project| restart_mcp_servers(&self.config, &project.mcp_tools, clock));
        async {
            if let Some(closing) = closing {
                closing.await;
            }
        }
    }

    /// Checks that no file of the project defines an invalid agent with this name.
    #[cfg(feature = "project")]
    pub(crate) fn check_agent_file_valid(&self, agent_name: &str) -> Result<(), Error> {
        let Some(project) = &self.project else { return Ok(()) };
        match project.loaded.find_loaded_agent(agent_name) {
            Err(broken @ AgentError::Broken { .. }) => Err(broken.into()),
            Err(AgentError::Unknown(_)) | Ok(_) => Ok(()),
        }
    }

    /// Does nothing: only a project has agent files.
    #[cfg(not(feature = "project"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with the feature")]
    pub(crate) const fn check_agent_file_valid(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    /// Does nothing: only a project has MCP servers.
    #[cfg(not(feature = "project"))]
    pub(crate) fn restart_mcp_servers(&self) -> impl Future<Output = ()> + use<> {
        std::future::ready(())
    }
}

/// A store with what the program registered. Tools, models and agents are added to it.
#[derive(Debug)]
pub(crate) struct RuntimeBase {
    ports: StorePorts,
    clock: Arc<dyn Clock>,
    counters: EngineCounters,
    registered: RuntimeRegistrations,
}

/// The parts of a runtime that differ between a program with and without a project.
#[derive(Debug)]
pub(crate) struct RuntimeParts {
    pub(crate) tools: ToolRegistry,
    pub(crate) models: Arc<dyn ModelResolver>,
    pub(crate) tool_source: Arc<dyn ExternalToolSource>,
    pub(crate) context_providers: Arc<dyn ContextProviders>,
    pub(crate) agents: AgentRegistry,
}

impl RuntimeBase {
    /// Converts the registered handlers to agents, which read their journals from the store.
    pub(crate) fn new(
        ports: StorePorts,
        clock: Arc<dyn Clock>,
        registered: RuntimeRegistrations,
    ) -> Result<Self, Error> {
        let counters = EngineCounters::default();
        let threads = HandlerThreadRunner::new(Arc::clone(&clock), counters.clone());
        let registered = registered.convert_handlers_to_agents(&ports, &threads)?;
        Ok(Self { ports, clock, counters, registered })
    }

    /// Adds the tools that access the store, and the registered tools.
    pub(crate) fn add_tools(&self, tools: ToolRegistry) -> Result<ToolRegistry, Error> {
        let (store, records) = (Arc::clone(&self.ports.store), Arc::clone(&self.ports.records));
        let paging = ReadOutputTool::new(store, Arc::clone(&records));
        let mut tools = tools.with_built_in_tool(Arc::new(paging))?;
        for tool in MemoryTools::new(records).tools()? {
            tools = tools.with_built_in_tool(tool)?;
        }
        Ok(self.registered.extend_tool_registry(tools)?)
    }

    /// Checks the registered agents. `tool_problem` returns why a tool with this name can't be used.
    pub(crate) fn check_registered_agents(
        &mut self,
        settings: &Settings,
        tool_problem: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Error> {
        self.registered.check_registered_agents(settings.selector.as_ref(), tool_problem)
    }

    /// Connects all parts. The registered ones take precedence over those of `parts`.
    pub(crate) fn connect(self, parts: RuntimeParts, settings: &Settings) -> Longhaul {
        let registered = &self.registered;
        let models = registered.model_resolver_with_fallback(parts.models);
        let context_providers = registered.context_providers_with_fallback(parts.context_providers);
        let services = Services {
            tool_source: parts.tool_source,
            context_providers,
            redact: Arc::clone(&settings.redact),
            counters: self.counters,
            caps: settings.caps.clone(),
            ..Services::new(self.ports, self.clock, models, parts.tools)
        };
        let agents = registered.extend_agent_registry(parts.agents);
        Longhaul::new(services, agents, settings.run_defaults)
    }
}

/// Opens a runtime with the agents, tools and models that the program registered, and with the
/// provider models whose API keys are in the environment. No file of a project or of the user is
/// read.
pub(crate) fn open(
    store_url: String,
    registered: RuntimeRegistrations,
) -> Result<OpenedRuntime, Error> {
    let settings = Settings::from_environment()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ports = open_store(store_url, &clock)?;
    let mut base = RuntimeBase::new(ports, Arc::clone(&clock), registered)?;
    let tools = base.add_tools(ToolRegistry::new([])?)?;
    base.check_registered_agents(&settings, &|tool| tool_problem(tool, &tools))?;
    let images = Arc::new(StoreImageSource(Arc::clone(&base.ports.records)));
    let models = ProgramModels {
        selector: settings.selector.clone(),
        models: ProviderModels::new(clock, Some(images)),
    };
    let parts = RuntimeParts {
        tools,
        models: Arc::new(models),
        tool_source: Arc::new(NoExternalTools),
        context_providers: Arc::new(NoContextProviders),
        agents: AgentRegistry::default(),
    };
    Ok(OpenedRuntime {
        longhaul: base.connect(parts, &settings),
        worker: settings.worker,
        #[cfg(feature = "project")]
        config: settings.config,
        #[cfg(feature = "project")]
        project: None,
    })
}

/// Opens a store to drive its runs.
#[cfg(feature = "sqlite")]
pub(crate) fn open_store(url: String, clock: &Arc<dyn Clock>) -> Result<StorePorts, Error> {
    let mode = longhaul_store::OpenMode::Driver;
    let options = longhaul_store::StoreOptions {
        holder: holder(),
        ..longhaul_store::StoreOptions::new(url, mode, Arc::clone(clock))
    };
    Ok(StorePorts::new(Arc::new(longhaul_store::open_sqlite_store(options)?)))
}

/// Returns an error: this build has no store.
#[cfg(not(feature = "sqlite"))]
fn open_store(url: String, _: &Arc<dyn Clock>) -> Result<StorePorts, Error> {
    let message = format!("this build can't open the store `{url}`: enable the feature `sqlite`");
    Err(Error::Settings(message))
}

/// Returns the description of this process for another one that wants to drive the same store.
#[cfg(feature = "sqlite")]
pub(crate) fn holder() -> String {
    format!("the program {}", std::env::args().next().unwrap_or_default())
}

/// Returns why a program without a project can't use this tool.
fn tool_problem(tool: &str, tools: &ToolRegistry) -> Option<String> {
    if tool.starts_with("mcp:") {
        return Some(format!(
            "`{tool}` needs an MCP server, but only a project has servers: set its folder with \
             `.project(..)`"
        ));
    }
    let names: Vec<&str> = tools.tools().map(|tool| tool.spec().name.as_str()).collect();
    (!names.contains(&tool)).then(|| suggest::unknown_name_message("tool", tool, &names))
}

/// The models of providers whose API keys are in the environment.
#[derive(Debug)]
struct ProgramModels {
    selector: Result<ModelSelector, String>,
    models: ProviderModels,
}

impl ModelResolver for ProgramModels {
    fn resolve_model_name(&self, name: Option<&str>) -> Result<ResolvedModel, ResolveModelError> {
        let selector = self.selector.as_ref().map_err(Clone::clone)?;
        let ollama = |provider: &_| self.models.first_ollama_model(provider);
        let name = selector.choose_model(name, ollama)?.name;
        if let Some((SCRIPTED_PROVIDER | CASSETTE_PROVIDER, _)) = name.split_once('/') {
            return Err(ResolveModelError::NotConfigured(format!(
                "The model `{name}` is a file of a project: set its folder with `.project(..)`."
            )));
        }
        Ok(ResolvedModel { model: self.models.open(selector, &name)?, name })
    }

    fn idle_tick_model_override(&self) -> Option<String> {
        self.selector.as_ref().ok()?.idle_tick_model_override()
    }

    fn idle_tick_model_of_same_provider(&self, model_name: Option<&str>) -> Option<String> {
        self.selector.as_ref().ok()?.idle_tick_model_of_same_provider(model_name)
    }
}
