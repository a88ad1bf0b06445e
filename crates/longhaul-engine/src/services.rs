//! What the engine works with: the store, the clock, models and tools.
//!
//! Never: a concrete name. Whoever assembles the program hands these in.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use longhaul_core::id::AgentName;
use longhaul_core::port::auth::AuthStore;
use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::model::Model;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::redact::{NoRedaction, Redact};
use longhaul_core::port::store::Store;
use longhaul_core::port::tool::ClaimId;
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock, Millis};

use crate::agent::Agent;
use crate::agent::config::PerceptionSource;
use crate::changes::ChangeFeed;
use crate::deltas::DeltaBroadcast;
use crate::error::Error;
use crate::id_gen::{IdGenerator, UuidV7Generator};
use crate::notifier::DriverNotifier;
use crate::tool_registry::{RegisteredTool, ToolRegistry};

/// Why there is no model, in sentences that say what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Something is to be configured.
    #[error("{0}")]
    NotConfigured(String),
    /// It plays a script, which is broken: no key and no setting helps there.
    #[error("The script can't be played: {0}")]
    InvalidScript(String),
}

impl From<String> for ModelError {
    fn from(sentence: String) -> Self {
        Self::NotConfigured(sentence)
    }
}

impl ModelError {
    /// A word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotConfigured(_) => "no_model",
            Self::InvalidScript(_) => "bad_script",
        }
    }

    /// What is said to whoever wants work of this agent.
    pub fn message_for(&self, agent: &AgentName) -> String {
        match self {
            Self::NotConfigured(sentence) => format!("no model for agent `{agent}`: {sentence}"),
            Self::InvalidScript(_) => self.to_string(),
        }
    }
}

/// Finds the model behind a name.
pub trait ModelResolver: Send + Sync + fmt::Debug {
    /// The model of this name, `provider/model` or short; none named: the
    /// project's own.
    fn resolve(&self, name: Option<&str>) -> Result<ResolvedModel, ModelError>;

    /// The model that runs of idle ticks ask, whatever an agent's file says of them;
    /// none: what it says.
    fn idle_model(&self) -> Option<String> {
        None
    }
}

/// A model under its full name.
#[derive(Debug, Clone)]
pub struct ResolvedModel {
    /// As `provider/model`.
    pub name: String,
    /// The model.
    pub model: Arc<dyn Model>,
}

/// Tools that others bring: those of a server, under names such as `mcp:github`.
#[async_trait]
pub trait ExternalToolSource: Send + Sync + fmt::Debug {
    /// The tools that a name in an agent's file stands for; none: the name is
    /// not of a kind that is supplied. The error is a sentence that says what
    /// to configure.
    async fn load(&self, name: &str, stay: ClaimId) -> Option<Result<Vec<RegisteredTool>, String>>;

    /// The same for this agent, where who asks makes a difference.
    async fn load_for(
        &self,
        _agent: &Agent,
        name: &str,
        stay: ClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        self.load(name, stay).await
    }

    /// A run has let go of everything: what was opened for it alone is closed.
    async fn release(&self, stay: ClaimId);
}

/// So long is waited until what was opened for a stay is closed.
const RELEASE_TIMEOUT: Millis = Millis::from_secs(10);

/// Closes what was opened for a stay. Whoever can't close it in time is left alone
/// with it: nobody else has to wait for that.
pub(crate) async fn release_external_tools(ports: &EngineServices, stay: ClaimId) {
    let clock = &ports.clock;
    let run = stay.run;
    tokio::select! {
        biased;
        gone = AssertUnwindSafe(ports.tool_source.release(stay)).catch_unwind() => {
            if gone.is_err() {
                tracing::error!(%run, "what was opened for it could not be closed: a panic");
            }
        }
        () = clock.sleep(RELEASE_TIMEOUT) => {
            tracing::warn!(%run, "what was opened for it was not closed in 10 s");
        }
    }
}

/// Nobody brings anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoExternalTools;

#[async_trait]
impl ExternalToolSource for NoExternalTools {
    async fn load(
        &self,
        _name: &str,
        _stay: ClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        None
    }

    async fn release(&self, _stay: ClaimId) {}
}

/// Finds who looks at the world for an agent.
pub trait ContextProviders: Send + Sync + fmt::Debug {
    /// Whoever looks this way. The error is a sentence that says what to configure.
    fn resolve(&self, eye: &PerceptionSource) -> Result<Arc<dyn ContextProvider>, String>;
}

/// Nobody looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoContextProviders;

impl ContextProviders for NoContextProviders {
    fn resolve(&self, _eye: &PerceptionSource) -> Result<Arc<dyn ContextProvider>, String> {
        Err("This worker has nobody who could look at the world for an agent. \
             Start one that has."
            .to_owned())
    }
}

/// Everything that drivers and handles share. Clones are the same.
#[derive(Debug, Clone)]
pub struct EngineServices {
    /// The journal and the queue.
    pub store: Arc<dyn Store>,
    /// The rows beside them.
    pub records: Arc<dyn RecordStore>,
    /// Keys and what they gave out.
    pub auth: Arc<dyn AuthStore>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn IdGenerator>,
    /// Models by name.
    pub models: Arc<dyn ModelResolver>,
    /// Tools by name.
    pub tools: Arc<ToolRegistry>,
    /// Tools that others bring.
    pub tool_source: Arc<dyn ExternalToolSource>,
    /// Who looks at the world.
    pub context_providers: Arc<dyn ContextProviders>,
    /// Who takes secrets out of what the model reads and the journal keeps.
    pub redact: Arc<dyn Redact>,
    /// Words as they are spoken.
    pub deltas: DeltaBroadcast,
    /// Whose journal has grown.
    pub changes: ChangeFeed,
    /// Who is driven here.
    pub notifier: DriverNotifier,
    /// Definitions that were read before.
    pub definitions: DefinitionCache,
}

impl EngineServices {
    /// The parts of a program that keeps everything in one store and has nothing but
    /// these: nobody brings tools, looks at the world or knows a secret.
    pub fn minimal<S: Store + RecordStore + AuthStore + 'static>(
        store: Arc<S>,
        clock: Arc<dyn Clock>,
        models: Arc<dyn ModelResolver>,
        tools: ToolRegistry,
    ) -> Self {
        Self {
            records: store.clone(),
            auth: store.clone(),
            store,
            clock,
            ids: Arc::new(UuidV7Generator),
            models,
            tools: Arc::new(tools),
            tool_source: Arc::new(NoExternalTools),
            context_providers: Arc::new(NoContextProviders),
            redact: Arc::new(NoRedaction),
            deltas: DeltaBroadcast::default(),
            changes: ChangeFeed::default(),
            notifier: DriverNotifier::default(),
            definitions: DefinitionCache::default(),
        }
    }
}

/// So many definitions are remembered; then all are forgotten.
const DEFINITIONS_MAX: usize = 1_024;

/// Definitions that were read before. They never change, so they never age.
#[derive(Debug, Clone, Default)]
pub struct DefinitionCache(Arc<Mutex<BTreeMap<Hash, Arc<Agent>>>>);

impl DefinitionCache {
    fn with_entries<T>(&self, use_it: impl FnOnce(&mut BTreeMap<Hash, Arc<Agent>>) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The agent that a run is pinned to; none: the store does not have it, or
    /// it is not one that this build can read.
    pub(crate) async fn load(
        &self,
        shelves: &dyn RecordStore,
        hash: Hash,
    ) -> Result<Option<Arc<Agent>>, Error> {
        if let Some(known) = self.with_entries(|known| known.get(&hash).cloned()) {
            return Ok(Some(known));
        }
        let Some(bytes) = shelves.definition(hash).await? else {
            return Ok(None);
        };
        let Ok(agent) = Agent::parse(&bytes) else {
            return Ok(None);
        };
        let agent = Arc::new(agent);
        self.with_entries(|known| {
            if known.len() >= DEFINITIONS_MAX {
                known.clear();
            }
            known.insert(hash, Arc::clone(&agent));
        });
        Ok(Some(agent))
    }
}
