//! Context providers of a project (sources of data about the outside world): trusted commands, and
//! URLs that are fetched through an HTTP client that connects only to allowed addresses.
//!
//! Invariant: a command is not run before a person has trusted it.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::outbound::{NetworkScope, OutboundHttpClient};
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::agent::config::PerceptionSource;
use longhaul_engine::services::ContextProviders;
use longhaul_tool::command::Command;
use longhaul_tool::context::{CommandContextProvider, HttpContextProvider};

use crate::config::settings::Config;
use crate::trust::decisions::TrustDecisions;
use crate::trust::item::TrustItem;
use crate::trust::items;

/// Timeout of one request to the URL of a context provider (a source of data about the outside
/// world).
const FETCH_TIMEOUT: Millis = Millis::from_secs(30);

/// The context providers (commands and URLs that describe the outside world to agents) of a
/// project.
#[derive(Debug)]
pub struct ProjectContextProviders {
    root: PathBuf,
    decisions: TrustDecisions,
    outbound: Arc<dyn OutboundHttpClient>,
    clock: Arc<dyn Clock>,
}

impl ProjectContextProviders {
    /// Creates the context providers of a project. `outbound` is the HTTP client that fetches URLs.
    pub fn from_config(
        config: &Config,
        outbound: Arc<dyn OutboundHttpClient>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { root: config.root.clone(), decisions: TrustDecisions::new(config), outbound, clock }
    }
}

impl ContextProviders for ProjectContextProviders {
    fn resolve_provider(
        &self,
        source: &PerceptionSource,
    ) -> Result<Arc<dyn ContextProvider>, String> {
        match source {
            PerceptionSource::Command(argv) => {
                self.decisions
                    .check_trusted(&TrustItem::for_perception_command(&self.root, argv))?;
                Ok(Arc::new(CommandContextProvider {
                    command: Command {
                        timeout: FETCH_TIMEOUT,
                        ..Command::new(argv.clone(), &self.root)
                    },
                    clock: Arc::clone(&self.clock),
                }))
            }
            PerceptionSource::Url(url) => {
                self.decisions.check_trusted(&items::perception_url_trust_item(url))?;
                // A private address is allowed only if `[outbound] allow` lists it.
                Ok(Arc::new(HttpContextProvider {
                    url: url.clone(),
                    outbound: Arc::clone(&self.outbound),
                    timeout: FETCH_TIMEOUT,
                    reach: NetworkScope::Public,
                }))
            }
            PerceptionSource::Named(name) => Err(format!(
                "The context provider `{name}` is not registered in \
                 this program. Start the program that registers it, or set `command:` or \
                 `url:` in the agent's `perception`."
            )),
        }
    }
}
