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
    ModelResolver, ResolveModelError, ResolvedModel, Services, StorePorts,
};
use longhaul_engine::tools::read_output::ReadOutputTool;
use longhaul_engine::tools::registry::ToolRegistry;
use longhaul_model::image_source::StoreImageSource;
use longhaul_model::providers::built_in::{CASSETTE_PROVIDER, SCRIPTED_PROVIDER};
use longhaul_model::providers::model_choice::ModelSelector;
use longhaul_model::providers::open::ProviderModels;
use longhaul_tool::memory::memory_tools;
use tokio::sync::watch;

use crate::assemble::registrations::{RegisteredModelResolver, RuntimeRegistrations};
use crate::assemble::settings::Settings;
use crate::error::Error;
use crate::handler::agent::handler_to_agent_parts;
use crate::handler::threads::HandlerThreadRunner;
use crate::runtime_state::RuntimeState;

/// URL of a store in memory, whose content is lost when the process ends.
#[cfg(feature = "sqlite")]
pub(crate) const IN_MEMORY_URL: &str = "sqlite::memory:";

/// A store with what the program registered. Tools, models and agents are added to it.
#[derive(Debug)]
pub(crate) struct RuntimeBase {
    ports: StorePorts,
    clock: Arc<dyn Clock>,
    counters: EngineCounters,
    pub(crate) registered: RuntimeRegistrations,
}

impl RuntimeBase {
    /// Converts the registered handlers to agents, which read their journals from the store.
    pub(crate) fn new(
        ports: StorePorts,
        clock: Arc<dyn Clock>,
        mut registered: RuntimeRegistrations,
    ) -> Result<Self, Error> {
        let counters = EngineCounters::default();
        let threads = HandlerThreadRunner::new(Arc::clone(&clock), counters.clone());
        for handler in std::mem::take(&mut registered.handlers) {
            let (agent, tool, model) = handler_to_agent_parts(handler, &ports, &threads)?;
            registered.models.insert(model.name.clone(), Arc::new(model));
            registered.agents.push(agent);
            registered.tools.push(Arc::new(tool));
        }
        Ok(Self { ports, clock, counters, registered })
    }

    /// Adds the tools that access the store, and the registered tools. A tool that several agents
    /// share is added once.
    pub(crate) fn add_tools(&self, tools: ToolRegistry) -> Result<ToolRegistry, Error> {
        let (store, records) = (Arc::clone(&self.ports.store), Arc::clone(&self.ports.records));
        let paging = ReadOutputTool::new(store, Arc::clone(&records));
        let mut tools = tools.with_built_in_tool(Arc::new(paging))?;
        for tool in memory_tools(records)? {
            tools = tools.with_built_in_tool(tool)?;
        }
        for (index, tool) in self.registered.tools.iter().enumerate() {
            let earlier_tools = &self.registered.tools[..index];
            if !earlier_tools.iter().any(|registered| Arc::ptr_eq(registered, tool)) {
                tools = tools.with_tool(Arc::clone(tool))?;
            }
        }
        Ok(tools)
    }

    /// Returns services with these models and tools, and without external tools and context
    /// providers.
    pub(crate) fn services(&self, models: Arc<dyn ModelResolver>, tools: ToolRegistry) -> Services {
        Services::new(self.ports.clone(), Arc::clone(&self.clock), models, tools)
    }

    /// Adds what the program registered to the services and agents of a runtime, where it takes
    /// precedence, and the settings.
    pub(crate) fn connect(
        self,
        services: Services,
        mut agents: AgentRegistry,
        settings: &Settings,
    ) -> Longhaul {
        let registered = self.registered;
        let context_providers =
            registered.context_providers_with_fallback(services.context_providers);
        let (models, fallback) = (registered.models, services.models);
        let mut sandboxes = services.sandboxes;
        registered.sandboxes.into_values().for_each(|provider| sandboxes.register(provider));
        let services = Services {
            models: Arc::new(RegisteredModelResolver { models, fallback }),
            context_providers,
            redact: Arc::clone(&settings.redact),
            counters: self.counters,
            caps: settings.caps.clone(),
            sandboxes,
            ..services
        };
        for agent in registered.agents {
            agents.register(agent);
        }
        Longhaul::new(services, agents, settings.run_defaults)
    }
}

/// Opens a runtime with the agents, tools and models that the program registered, and with the
/// provider models whose API keys are in the environment. No file of a project or of the user is
/// read.
pub(crate) fn open(store_url: String, parts: RuntimeRegistrations) -> Result<RuntimeState, Error> {
    let settings = Settings::from_environment()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ports = open_store(store_url, &clock)?;
    let mut base = RuntimeBase::new(ports, Arc::clone(&clock), parts)?;
    let tools = base.add_tools(ToolRegistry::new([])?)?;
    let selector = &settings.selector;
    base.registered
        .check_registered_agents(selector.as_ref(), &|tool| tool_problem(tool, &tools))?;
    let images = Arc::new(StoreImageSource(Arc::clone(&base.ports.records)));
    let models = ProviderModels::new(clock, Some(images));
    let models = Arc::new(ProgramModels { selector: selector.clone(), models });
    let services = base.services(models, tools);
    Ok(RuntimeState {
        workers: watch::Sender::default(),
        longhaul: base.connect(services, AgentRegistry::default(), &settings),
        worker: settings.worker,
        #[cfg(all(feature = "server", feature = "project"))]
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
