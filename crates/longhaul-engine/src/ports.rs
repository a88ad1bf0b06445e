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
use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::keyring::Keyring;
use longhaul_core::port::model::Model;
use longhaul_core::port::redact::{NoSecrets, Redact};
use longhaul_core::port::shelves::Shelves;
use longhaul_core::port::store::Store;
use longhaul_core::port::tool::Stay;
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock, Millis};

use crate::agent::Agent;
use crate::agent::wish::Eye;
use crate::error::Error;
use crate::feed::Feed;
use crate::mint::{Mint, UuidMint};
use crate::nudge::Nudges;
use crate::tail::Tail;
use crate::toolbox::{Equipped, Toolbox};

/// Why there is no model, in sentences that say what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoModel {
    /// Something is to be configured.
    #[error("{0}")]
    Unset(String),
    /// It plays a script, which is broken: no key and no setting helps there.
    #[error("The script can't be played: {0}")]
    BrokenScript(String),
}

impl From<String> for NoModel {
    fn from(sentence: String) -> Self {
        Self::Unset(sentence)
    }
}

impl NoModel {
    /// A word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unset(_) => "no_model",
            Self::BrokenScript(_) => "bad_script",
        }
    }

    /// What is said to whoever wants work of this agent.
    pub fn said_of(&self, agent: &AgentName) -> String {
        match self {
            Self::Unset(sentence) => format!("no model for agent `{agent}`: {sentence}"),
            Self::BrokenScript(_) => self.to_string(),
        }
    }
}

/// Finds the model behind a name.
pub trait Models: Send + Sync + fmt::Debug {
    /// The model of this name, `provider/model` or short; none named: the
    /// project's own.
    fn find(&self, name: Option<&str>) -> Result<Found, NoModel>;

    /// The model that runs of idle ticks ask, whatever an agent's file says of them;
    /// none: what it says.
    fn idle(&self) -> Option<String> {
        None
    }
}

/// A model under its full name.
#[derive(Debug, Clone)]
pub struct Found {
    /// As `provider/model`.
    pub name: String,
    /// The model.
    pub model: Arc<dyn Model>,
}

/// Tools that others bring: those of a server, under names such as `mcp:github`.
#[async_trait]
pub trait Supplies: Send + Sync + fmt::Debug {
    /// The tools that a name in an agent's file stands for; none: the name is
    /// not of a kind that is supplied. The error is a sentence that says what
    /// to configure.
    async fn find(&self, name: &str, stay: Stay) -> Option<Result<Vec<Equipped>, String>>;

    /// The same for this agent, where who asks makes a difference.
    async fn find_for(
        &self,
        _agent: &Agent,
        name: &str,
        stay: Stay,
    ) -> Option<Result<Vec<Equipped>, String>> {
        self.find(name, stay).await
    }

    /// A run has let go of everything: what was opened for it alone is closed.
    async fn let_go(&self, stay: Stay);
}

/// So long is waited until what was opened for a stay is closed.
const LET_GO_TIMEOUT: Millis = Millis::from_secs(10);

/// Closes what was opened for a stay. Whoever can't close it in time is left alone
/// with it: nobody else has to wait for that.
pub(crate) async fn let_go(ports: &Ports, stay: Stay) {
    let clock = &ports.clock;
    let run = stay.run;
    tokio::select! {
        biased;
        gone = AssertUnwindSafe(ports.supplies.let_go(stay)).catch_unwind() => {
            if gone.is_err() {
                tracing::error!(%run, "what was opened for it could not be closed: a panic");
            }
        }
        () = clock.sleep(LET_GO_TIMEOUT) => {
            tracing::warn!(%run, "what was opened for it was not closed in 10 s");
        }
    }
}

/// Nobody brings anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSupplies;

#[async_trait]
impl Supplies for NoSupplies {
    async fn find(&self, _name: &str, _stay: Stay) -> Option<Result<Vec<Equipped>, String>> {
        None
    }

    async fn let_go(&self, _stay: Stay) {}
}

/// Finds who looks at the world for an agent.
pub trait Eyes: Send + Sync + fmt::Debug {
    /// Whoever looks this way. The error is a sentence that says what to configure.
    fn find(&self, eye: &Eye) -> Result<Arc<dyn ContextProvider>, String>;
}

/// Nobody looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEyes;

impl Eyes for NoEyes {
    fn find(&self, _eye: &Eye) -> Result<Arc<dyn ContextProvider>, String> {
        Err(
            "This worker has nobody who could look at the world for an agent. \
             Start one that has."
                .to_owned(),
        )
    }
}

/// Everything that drivers and handles share. Clones are the same.
#[derive(Debug, Clone)]
pub struct Ports {
    /// The journal and the queue.
    pub store: Arc<dyn Store>,
    /// The rows beside them.
    pub shelves: Arc<dyn Shelves>,
    /// Keys and what they gave out.
    pub keyring: Arc<dyn Keyring>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub mint: Arc<dyn Mint>,
    /// Models by name.
    pub models: Arc<dyn Models>,
    /// Tools by name.
    pub tools: Arc<Toolbox>,
    /// Tools that others bring.
    pub supplies: Arc<dyn Supplies>,
    /// Who looks at the world.
    pub eyes: Arc<dyn Eyes>,
    /// Who takes secrets out of what the model reads and the journal keeps.
    pub redact: Arc<dyn Redact>,
    /// Words as they are spoken.
    pub feed: Feed,
    /// Whose journal has grown.
    pub tail: Tail,
    /// Who is driven here.
    pub nudges: Nudges,
    /// Definitions that were read before.
    pub definitions: Definitions,
}

impl Ports {
    /// The parts of a program that keeps everything in one store and has nothing but
    /// these: nobody brings tools, looks at the world or knows a secret.
    pub fn plain<S: Store + Shelves + Keyring + 'static>(
        store: Arc<S>,
        clock: Arc<dyn Clock>,
        models: Arc<dyn Models>,
        tools: Toolbox,
    ) -> Self {
        Self {
            shelves: store.clone(),
            keyring: store.clone(),
            store,
            clock,
            mint: Arc::new(UuidMint),
            models,
            tools: Arc::new(tools),
            supplies: Arc::new(NoSupplies),
            eyes: Arc::new(NoEyes),
            redact: Arc::new(NoSecrets),
            feed: Feed::default(),
            tail: Tail::default(),
            nudges: Nudges::default(),
            definitions: Definitions::default(),
        }
    }
}

/// So many definitions are remembered; then all are forgotten.
const DEFINITIONS_MAX: usize = 1_024;

/// Definitions that were read before. They never change, so they never age.
#[derive(Debug, Clone, Default)]
pub struct Definitions(Arc<Mutex<BTreeMap<Hash, Arc<Agent>>>>);

impl Definitions {
    fn with<T>(&self, use_it: impl FnOnce(&mut BTreeMap<Hash, Arc<Agent>>) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The agent that a run is pinned to; none: the store does not have it, or
    /// it is not one that this build can read.
    pub(crate) async fn read(
        &self,
        shelves: &dyn Shelves,
        hash: Hash,
    ) -> Result<Option<Arc<Agent>>, Error> {
        if let Some(known) = self.with(|known| known.get(&hash).cloned()) {
            return Ok(Some(known));
        }
        let Some(bytes) = shelves.definition(hash).await? else {
            return Ok(None);
        };
        let Ok(agent) = Agent::read(&bytes) else {
            return Ok(None);
        };
        let agent = Arc::new(agent);
        self.with(|known| {
            if known.len() >= DEFINITIONS_MAX {
                known.clear();
            }
            known.insert(hash, Arc::clone(&agent));
        });
        Ok(Some(agent))
    }
}
