//! Who looks at the world for agents: programs that are trusted, and addresses
//! through the guarded way out.
//!
//! Never: a program that nobody trusts.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::outbound::{Outbound, Reach};
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::agent::wish::Eye;
use longhaul_engine::ports::Eyes;
use longhaul_tool::context::{CommandEye, UrlEye};

use crate::config::settings::Config;
use crate::trust::decisions::Decisions;
use crate::trust::item::Item;
use crate::trust::sends;

/// So long one look may take.
const LOOK_MAX: Millis = Millis::from_secs(30);

/// Whoever looks in this project.
#[derive(Debug)]
pub struct Lookouts {
    root: PathBuf,
    decisions: Decisions,
    outbound: Arc<dyn Outbound>,
    clock: Arc<dyn Clock>,
}

impl Lookouts {
    /// Those of this project, with this way out.
    pub fn new(config: &Config, outbound: Arc<dyn Outbound>, clock: Arc<dyn Clock>) -> Self {
        Self {
            root: config.root.clone(),
            decisions: Decisions::new(config),
            outbound,
            clock,
        }
    }
}

impl Eyes for Lookouts {
    fn find(&self, eye: &Eye) -> Result<Arc<dyn ContextProvider>, String> {
        match eye {
            Eye::Command(argv) => {
                self.decisions.check(&Item::perception(&self.root, argv))?;
                Ok(Arc::new(CommandEye {
                    argv: argv.clone(),
                    root: self.root.clone(),
                    clock: Arc::clone(&self.clock),
                    timeout: LOOK_MAX,
                }))
            }
            Eye::Url(url) => {
                self.decisions.check(&sends::perception(url))?;
                // A private address is open where `[outbound] allow` names it.
                Ok(Arc::new(UrlEye {
                    url: url.clone(),
                    outbound: Arc::clone(&self.outbound),
                    timeout: LOOK_MAX,
                    reach: Reach::Public,
                }))
            }
            Eye::Named(name) => Err(format!(
                "The context provider `{name}` is part of another program, and this one has \
                 none of that name. Start the program that registers it, or write `command:` or \
                 `url:` into the agent's `perception`."
            )),
        }
    }
}
