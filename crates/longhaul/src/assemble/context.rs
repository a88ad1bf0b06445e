//! Who looks at the world for agents: programs that are trusted, and addresses
//! through the guarded way out.
//!
//! Never: a program that nobody trusts.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::outbound::{NetworkScope, Outbound};
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::agent::config::PerceptionSource;
use longhaul_engine::services::ContextProviders;
use longhaul_tool::context::{CommandContextProvider, HttpContextProvider};

use crate::config::settings::Config;
use crate::trust::decisions::Decisions;
use crate::trust::egress;
use crate::trust::item::TrustItem;

/// So long one look may take.
const FETCH_TIMEOUT: Millis = Millis::from_secs(30);

/// Whoever looks in this project.
#[derive(Debug)]
pub struct ProjectContextProviders {
    root: PathBuf,
    decisions: Decisions,
    outbound: Arc<dyn Outbound>,
    clock: Arc<dyn Clock>,
}

impl ProjectContextProviders {
    /// Those of this project, with this way out.
    pub fn new(config: &Config, outbound: Arc<dyn Outbound>, clock: Arc<dyn Clock>) -> Self {
        Self { root: config.root.clone(), decisions: Decisions::new(config), outbound, clock }
    }
}

impl ContextProviders for ProjectContextProviders {
    fn resolve(&self, eye: &PerceptionSource) -> Result<Arc<dyn ContextProvider>, String> {
        match eye {
            PerceptionSource::Command(argv) => {
                self.decisions.check(&TrustItem::perception(&self.root, argv))?;
                Ok(Arc::new(CommandContextProvider {
                    argv: argv.clone(),
                    root: self.root.clone(),
                    clock: Arc::clone(&self.clock),
                    timeout: FETCH_TIMEOUT,
                }))
            }
            PerceptionSource::Url(url) => {
                self.decisions.check(&egress::perception_item(url))?;
                // A private address is open where `[outbound] allow` names it.
                Ok(Arc::new(HttpContextProvider {
                    url: url.clone(),
                    outbound: Arc::clone(&self.outbound),
                    timeout: FETCH_TIMEOUT,
                    reach: NetworkScope::Public,
                }))
            }
            PerceptionSource::Named(name) => Err(format!(
                "The context provider `{name}` is part of another program, and this one has \
                 none of that name. Start the program that registers it, or write `command:` or \
                 `url:` into the agent's `perception`."
            )),
        }
    }
}
