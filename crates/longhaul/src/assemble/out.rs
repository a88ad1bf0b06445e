//! The guarded way out of this project, and the tools that use it.
//!
//! Never: a second way out beside it, or a door that only a stranger's file opens.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;
use longhaul_tool::outbound::{Doors, Guarded};
use longhaul_tool::{HttpFetch, Location, LogInteraction};

use crate::assemble::sender::{Sender, sender};
use crate::config::key::LOG_FILE;
use crate::config::layer::{self, Owner};
use crate::config::settings::Config;
use crate::config::value::Value;
use crate::trust::decisions::Decisions;
use crate::trust::sends::{self, ALLOW};

/// Where interactions are logged without a word, in the data folder.
const INTERACTIONS: &str = "interactions.jsonl";

/// Everything that leaves the project.
#[derive(Debug)]
pub struct Out {
    /// The way.
    pub guarded: Arc<Guarded>,
    /// The tools that anybody may use.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The one that may have to wait for trust.
    pub sender: Sender,
}

impl Out {
    /// As the settings have it.
    ///
    /// # Errors
    /// A setting does not fit.
    pub fn new(config: &Config, clock: &Arc<dyn Clock>) -> Result<Self, String> {
        // What does not fit is told, be it trusted or not.
        let doors = |allow: &[String]| {
            let doors = Doors::new(allow.iter().map(String::as_str), false);
            doors.map_err(|bad| format!("`{ALLOW}`: {bad}"))
        };
        let mut open = doors(&config.texts(ALLOW))?;
        if sends::outbound(config).is_some_and(|item| Decisions::new(config).check(&item).is_err())
        {
            open = doors(&yours(config))?;
        }
        let guarded = Arc::new(Guarded::new(open, Arc::clone(clock)));
        let fetch = HttpFetch::new(Arc::clone(&guarded)).map_err(|bad| bad.to_string())?;
        let log = LogInteraction::tool(log_file(config)?, Arc::clone(clock));
        let log = log.map_err(|bad| bad.to_string())?;
        let sender = sender(config, clock, &guarded)?;
        let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(fetch), log];
        if sender.deliver.is_none() {
            tools.push(Arc::clone(&sender.tool));
        }
        Ok(Self {
            guarded,
            tools,
            sender,
        })
    }
}

/// What the user's own file opens, which a project's file hides.
fn yours(config: &Config) -> Vec<String> {
    let file = config.user_file.as_ref();
    let layer = file.and_then(|file| layer::read(file, file, Owner::User));
    let said = layer.and_then(|mut layer| layer.values.remove(ALLOW));
    let Some((Value::Texts(allow), _)) = said else {
        return Vec::new();
    };
    allow
}

fn log_file(config: &Config) -> Result<Location, String> {
    let set = config.tool("log_interaction").remove("file");
    match set.as_ref().map(serde_json::Value::as_str) {
        None => Ok(config.data_location().join(INTERACTIONS)),
        Some(Some(file)) if !file.trim().is_empty() => Ok(config.location(Path::new(file))),
        Some(_) => Err(format!("`{LOG_FILE}` is no text: write the path of a file")),
    }
}
