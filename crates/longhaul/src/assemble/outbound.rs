//! The guarded way out of this project, and the tools that use it.
//!
//! Never: a second way out beside it, or a door that only a stranger's file opens.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;
use longhaul_tool::outbound::{Allowlist, GuardedClient};
use longhaul_tool::{HttpFetch, Location, LogInteraction};

use crate::assemble::trusted_tools::{MessageSender, message_sender};
use crate::config::layer::{self, FileOwner};
use crate::config::schema::LOG_FILE_KEY;
use crate::config::settings::Config;
use crate::config::value::Value;
use crate::trust::decisions::Decisions;
use crate::trust::egress::{self, ALLOW_KEY};

/// Where interactions are logged without a word, in the data folder.
const INTERACTIONS_FILE: &str = "interactions.jsonl";

/// Everything that leaves the project.
#[derive(Debug)]
pub struct OutboundTools {
    /// The way.
    pub client: Arc<GuardedClient>,
    /// The tools that anybody may use.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The one that may have to wait for trust.
    pub sender: MessageSender,
}

impl OutboundTools {
    /// As the settings have it.
    ///
    /// # Errors
    /// A setting does not fit.
    pub fn new(config: &Config, clock: &Arc<dyn Clock>) -> Result<Self, String> {
        // What does not fit is told, be it trusted or not.
        let doors = |allow: &[String]| {
            let doors = Allowlist::new(allow.iter().map(String::as_str), false);
            doors.map_err(|bad| format!("`{ALLOW_KEY}`: {bad}"))
        };
        let mut open = doors(&config.text_list(ALLOW_KEY))?;
        if egress::outbound_item(config)
            .is_some_and(|item| Decisions::new(config).check(&item).is_err())
        {
            open = doors(&user_allow_list(config))?;
        }
        let guarded = Arc::new(GuardedClient::new(open, Arc::clone(clock)));
        let fetch = HttpFetch::new(Arc::clone(&guarded)).map_err(|bad| bad.to_string())?;
        let log = LogInteraction::tool(log_file(config)?, Arc::clone(clock));
        let log = log.map_err(|bad| bad.to_string())?;
        let sender = message_sender(config, clock, &guarded)?;
        let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(fetch), log];
        if sender.project_target.is_none() {
            tools.push(Arc::clone(&sender.tool));
        }
        Ok(Self { client: guarded, tools, sender })
    }
}

/// What the user's own file opens, which a project's file hides.
fn user_allow_list(config: &Config) -> Vec<String> {
    let file = config.user_file.as_ref();
    let layer = file.and_then(|file| layer::load(file, file, FileOwner::User));
    let said = layer.and_then(|mut layer| layer.values.remove(ALLOW_KEY));
    let Some((Value::TextList(allow), _)) = said else {
        return Vec::new();
    };
    allow
}

fn log_file(config: &Config) -> Result<Location, String> {
    let set = config.tool_settings("log_interaction").remove("file");
    match set.as_ref().map(serde_json::Value::as_str) {
        None => Ok(config.data_location().join(INTERACTIONS_FILE)),
        Some(Some(file)) if !file.trim().is_empty() => Ok(config.location(Path::new(file))),
        Some(_) => Err(format!("`{LOG_FILE_KEY}` is no text: write the path of a file")),
    }
}
