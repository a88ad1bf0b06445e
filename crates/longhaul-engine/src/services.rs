//! The dependencies of the engine: store, clock, models, tools and context providers.
//!
//! The program that embeds the engine passes the implementations in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::id::AgentName;
use longhaul_core::port::auth::AuthStore;
use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::model::Model;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::redact::{NoRedaction, Redact};
use longhaul_core::port::repositories::{NoRepositories, Repositories};
use longhaul_core::port::schedules::ScheduleStore;
use longhaul_core::port::store::{AppendRequest, AppendResult, Store};
use longhaul_core::port::tool::RunClaimId;
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock, Millis};

use crate::agent::config::PerceptionSource;
use crate::agent::{Agent, AgentDirectory};
use crate::background::spend_caps::SpendCaps;
use crate::changes::JournalChangeFeed;
use crate::counters::EngineCounters;
use crate::drive::deltas::ReplyDeltaBroadcast;
use crate::drive::provider_blocks::BlockedProviderCache;
use crate::error::Result;
use crate::id_gen::{IdGenerator, UuidV7Generator};
use crate::notifier::DriverNotifier;
use crate::panics::{guard, with_lock};
use crate::sandboxes::SandboxRegistry;
use crate::tools::registry::{RegisteredTool, ToolRegistry};

/// Error when a model name can't be resolved to a model. The message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveModelError {
    /// A key or a setting of the model is missing.
    #[error("{0}")]
    NotConfigured(String),
    /// The model replays a script, and the script is invalid. No key or setting would help.
    #[error("The script of the scripted model is invalid: {0}")]
    InvalidScript(String),
}

/// Registry of context providers by name. Providers without a name (commands and URLs) are looked
/// up in `fallback`.
#[derive(Debug, Clone)]
pub struct ContextProviderRegistry {
    providers: BTreeMap<String, Arc<dyn ContextProvider>>,
    fallback: Arc<dyn ContextProviders>,
}

impl From<String> for ResolveModelError {
    fn from(message: String) -> Self {
        Self::NotConfigured(message)
    }
}

impl ResolveModelError {
    /// Returns the stable error code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotConfigured(_) => "model_unavailable",
            Self::InvalidScript(_) => "invalid_script",
        }
    }

    /// Returns the error message for a caller who wants to start a run of the agent.
    pub fn message_for_agent(&self, agent: &AgentName) -> String {
        match self {
            Self::NotConfigured(message) => format!("agent `{agent}` has no model: {message}"),
            Self::InvalidScript(_) => self.to_string(),
        }
    }
}

/// Resolves model names to models that can be called.
pub trait ModelResolver: Send + Sync + fmt::Debug {
    /// Returns the model with this name (`provider/model` or alias). If `name` is `None`, returns
    /// the project's default model.
    fn resolve_model_name(&self, name: Option<&str>) -> Result<ResolvedModel, ResolveModelError>;

    /// Returns the name of a model that replaces the `idle_models` (models for `idle_tick` events)
    /// of every agent that sets them. `None` means that each agent's own `idle_models` are used.
    fn idle_tick_model_override(&self) -> Option<String> {
        None
    }

    /// Returns the model for `idle_tick` events (sent when an agent has nothing else to do) of
    /// agents without `idle_models`: the idle model of the provider of the model with this name, or
    /// of the project's default model if the name is `None`. Returns `None` if that provider has no
    /// idle model.
    fn idle_tick_model_of_same_provider(&self, _model_name: Option<&str>) -> Option<String> {
        None
    }
}

/// A model that can be called, with its full name.
#[derive(Debug, Clone)]
pub struct ResolvedModel {
    /// Full name of the model, as `provider/model`.
    pub name: String,
    /// Adapter through which the model is called.
    pub model: Arc<dyn Model>,
}

/// Source of external tools, such as those of MCP servers, under names such as `mcp:github`.
#[async_trait]
pub trait ExternalToolSource: Send + Sync + fmt::Debug {
    /// Returns the tools to which a name in an agent file refers. `None` means that this source
    /// does not handle names of this kind. The error is a message that says what to configure.
    async fn load_tools(
        &self,
        name: &str,
        claim: RunClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>>;

    /// Returns the tools to which a name in an agent file refers, which may depend on the agent.
    /// The default implementation ignores the agent and calls `load_tools`.
    async fn load_tools_for_agent(
        &self,
        _agent: &Agent,
        name: &str,
        claim: RunClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        self.load_tools(name, claim).await
    }

    /// Releases the external tools that were opened only for this claim of a run. Called when the
    /// driver of the claimed run has stopped.
    async fn release_tools(&self, claim: RunClaimId);
}

/// Maximum time to wait until the external tools that were opened for one claim of a run are
/// released.
const RELEASE_TIMEOUT: Millis = Millis::from_secs(10);

/// Releases the external tools that were opened for one claim of a run. On timeout the release is
/// abandoned, so that it holds up no driver.
pub(crate) async fn release_external_tools(services: &Services, claim: RunClaimId) {
    let released = services.tool_source.release_tools(claim);
    if let Err(error) = guard(&*services.clock, RELEASE_TIMEOUT, released).await {
        tracing::warn!(run = %claim.run, "the release of external tools {error}");
    }
}

/// An [`ExternalToolSource`] that has no tools.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoExternalTools;

#[async_trait]
impl ExternalToolSource for NoExternalTools {
    async fn load_tools(
        &self,
        _name: &str,
        _claim: RunClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        None
    }

    async fn release_tools(&self, _claim: RunClaimId) {}
}

/// Finds the context provider that an agent file names, which supplies the current state of what
/// the agent works with.
pub trait ContextProviders: Send + Sync + fmt::Debug {
    /// Returns the context provider that an agent file gives as a command, a URL or a registered
    /// name. The error is a message that says what to configure.
    fn resolve_provider(
        &self,
        source: &PerceptionSource,
    ) -> Result<Arc<dyn ContextProvider>, String>;
}

/// A [`ContextProviders`] that knows no provider.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoContextProviders;

impl ContextProviders for NoContextProviders {
    fn resolve_provider(
        &self,
        _source: &PerceptionSource,
    ) -> Result<Arc<dyn ContextProvider>, String> {
        Err("This worker has no context providers. \
             Start a worker that has the one named in the agent's file."
            .to_owned())
    }
}

/// Services shared by drivers (which execute runs) and handles (through which callers use the
/// engine). Cheap to clone; clones share state.
#[derive(Debug, Clone)]
pub struct Services {
    /// Store of the journals and of the queue of runs that are ready to be claimed.
    pub store: Arc<dyn Store>,
    /// Store of all other records: timers, threads, notes, blobs, ...
    pub records: Arc<dyn RecordStore>,
    /// Store of API keys, sessions and links.
    pub auth: Arc<dyn AuthStore>,
    /// Store of schedules and their firings.
    pub schedules: Arc<dyn ScheduleStore>,
    /// Clock that tells the time and lets drivers wait.
    pub clock: Arc<dyn Clock>,
    /// Generator of new ids and random secrets.
    pub ids: Arc<dyn IdGenerator>,
    /// Resolver of model names to models.
    pub models: Arc<dyn ModelResolver>,
    /// Tools of this process, by name.
    pub tools: Arc<ToolRegistry>,
    /// Source of external tools, such as those of MCP servers.
    pub tool_source: Arc<dyn ExternalToolSource>,
    /// Lookup of the context providers that agent files name. They supply the current state of what
    /// an agent works with.
    pub context_providers: Arc<dyn ContextProviders>,
    /// Redactor that removes secrets from everything that the model reads or the journal stores.
    pub redact: Arc<dyn Redact>,
    /// Broadcast of model output while it is generated.
    pub deltas: ReplyDeltaBroadcast,
    /// Change feed, which notifies subscribers of runs whose journals have grown.
    pub changes: JournalChangeFeed,
    /// Notifier that tells the drivers in this process when their runs have changed.
    pub notifier: DriverNotifier,
    /// Cache of parsed agent definitions, by hash.
    pub definitions: AgentDefinitionCache,
    /// Cache of the model providers that accept no requests for now.
    pub provider_blocks: BlockedProviderCache,
    /// Counters of stuck handlers and stalled runs in this process.
    pub counters: EngineCounters,
    /// Sandbox providers of this process.
    pub sandboxes: SandboxRegistry,
    /// Access to the git repositories that sandboxes contain clones of.
    pub repositories: Arc<dyn Repositories>,
    /// Spend caps of the configuration.
    pub caps: SpendCaps,
    /// Agents of this process and its default policies. Set by [`crate::Longhaul::new`].
    pub agents: AgentDirectory,
}

/// The ports of a store.
#[derive(Debug, Clone)]
pub struct StorePorts {
    /// Journals and the queue of runs.
    pub store: Arc<dyn Store>,
    /// Texts, threads and other records.
    pub records: Arc<dyn RecordStore>,
    /// API keys and links.
    pub auth: Arc<dyn AuthStore>,
    /// Schedules.
    pub schedules: Arc<dyn ScheduleStore>,
}

impl StorePorts {
    /// Returns all ports of one store.
    pub fn new<S: Store + RecordStore + AuthStore + ScheduleStore + 'static>(
        store: Arc<S>,
    ) -> Self {
        Self { records: store.clone(), auth: store.clone(), schedules: store.clone(), store }
    }
}

impl Services {
    /// Creates services that use these ports of a store, without external tools, context providers
    /// or redaction.
    pub fn new(
        ports: StorePorts,
        clock: Arc<dyn Clock>,
        models: Arc<dyn ModelResolver>,
        tools: ToolRegistry,
    ) -> Self {
        Self {
            store: ports.store,
            records: ports.records,
            auth: ports.auth,
            schedules: ports.schedules,
            clock,
            ids: Arc::new(UuidV7Generator),
            models,
            tools: Arc::new(tools),
            tool_source: Arc::new(NoExternalTools),
            context_providers: Arc::new(NoContextProviders),
            redact: Arc::new(NoRedaction),
            deltas: ReplyDeltaBroadcast::default(),
            changes: JournalChangeFeed::default(),
            notifier: DriverNotifier::default(),
            definitions: AgentDefinitionCache::default(),
            provider_blocks: BlockedProviderCache::default(),
            counters: EngineCounters::default(),
            sandboxes: SandboxRegistry::default(),
            repositories: Arc::new(NoRepositories),
            caps: SpendCaps::default(),
            agents: AgentDirectory::default(),
        }
    }

    /// Appends to the journal of a run as an author that is not its driver, and notifies the driver.
    pub(crate) async fn append_and_notify(&self, append: AppendRequest) -> Result<AppendResult> {
        let run = append.run;
        let result = self.store.append_to_journal(append).await?;
        if let AppendResult::Committed { .. } = result {
            self.notifier.notify_run_changed(run);
        }
        Ok(result)
    }

    /// Notifies the subscribers of journals that have grown, until the future is dropped.
    pub async fn notify_subscribers(&self) -> Result<()> {
        self.changes.notify_subscribers(&*self.store, &*self.records, &*self.clock).await
    }
}

/// Maximum number of cached agent definitions. When it is reached, the whole cache is cleared.
const DEFINITIONS_MAX: usize = 1_024;

/// Cache of parsed agent definitions by hash. Definitions are immutable, so entries never become
/// stale.
#[derive(Debug, Clone, Default)]
pub struct AgentDefinitionCache(Arc<Mutex<BTreeMap<Hash, Arc<Agent>>>>);

impl AgentDefinitionCache {
    /// Returns the agent with this definition hash. `None` if the store does not have the
    /// definition or this build can't parse it.
    pub(crate) async fn load_agent(
        &self,
        records: &dyn RecordStore,
        hash: Hash,
    ) -> Result<Option<Arc<Agent>>> {
        if let Some(cached) = with_lock(&self.0, |cached| cached.get(&hash).cloned()) {
            return Ok(Some(cached));
        }
        let Some(bytes) = records.agent_definition(hash).await? else { return Ok(None) };
        let Ok(agent) = Agent::parse_agent_definition(&bytes) else { return Ok(None) };
        let agent = Arc::new(agent);
        with_lock(&self.0, |cached| {
            if cached.len() >= DEFINITIONS_MAX {
                cached.clear();
            }
            cached.insert(hash, Arc::clone(&agent));
        });
        Ok(Some(agent))
    }
}

impl Default for ContextProviderRegistry {
    fn default() -> Self {
        Self::with_fallback(Arc::new(NoContextProviders))
    }
}

impl ContextProviderRegistry {
    /// Creates an empty registry. Context providers without a name (commands and URLs) are looked
    /// up in `fallback`.
    pub fn with_fallback(fallback: Arc<dyn ContextProviders>) -> Self {
        Self { providers: BTreeMap::new(), fallback }
    }

    /// Registers a context provider, replacing an existing provider with the same name.
    pub fn register(&mut self, name: impl Into<String>, provider: Arc<dyn ContextProvider>) {
        self.providers.insert(name.into(), provider);
    }
}

impl ContextProviders for ContextProviderRegistry {
    fn resolve_provider(
        &self,
        source: &PerceptionSource,
    ) -> Result<Arc<dyn ContextProvider>, String> {
        let PerceptionSource::Named(name) = source else {
            return self.fallback.resolve_provider(source);
        };
        self.providers.get(name).cloned().ok_or_else(|| {
            format!(
                "There is no context provider named `{name}` in this program. Register a context \
                 provider of that name, or start a worker that has one."
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use longhaul_core::port::context::{ContextError, ContextRequest, Perception};

    use super::*;

    #[derive(Debug)]
    struct FailingProvider;

    #[async_trait]
    impl ContextProvider for FailingProvider {
        async fn fetch(&self, _: &ContextRequest) -> Result<Perception, ContextError> {
            Err(ContextError::transient("it is dark"))
        }
    }

    #[test]
    fn the_error_names_an_unknown_context_provider() {
        let mut registry = ContextProviderRegistry::default();
        registry.register("mole", Arc::new(FailingProvider));
        assert!(registry.resolve_provider(&PerceptionSource::Named("mole".into())).is_ok());
        let missing =
            registry.resolve_provider(&PerceptionSource::Named("hawk".into())).unwrap_err();
        assert!(missing.contains("`hawk`"), "{missing}");
        assert!(registry.resolve_provider(&PerceptionSource::Url("http://a".into())).is_err());
    }
}
