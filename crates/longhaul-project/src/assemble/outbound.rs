//! The guarded HTTP client of a project, which connects only to allowed addresses, and the tools
//! that use it.
//!
//! Invariant: agents have no other way to send requests, and the allowlist in an untrusted project
//! file is not used.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;
use longhaul_tool::outbound::{Allowlist, GuardedHttpClient};
use longhaul_tool::{FileLocation, HttpFetchTool, LogInteractionTool};

use crate::assemble::trusted_tools::{MessageToolWithTarget, create_send_message_tool};
use crate::config::layer::{self, ConfigFileScope};
use crate::config::schema::LOG_FILE_KEY;
use crate::config::settings::Config;
use crate::trust::decisions::TrustDecisions;
use crate::trust::egress::{self, ALLOW_KEY};

/// Default path of the file to which the tool `log_interaction` appends, relative to the data
/// folder.
const INTERACTIONS_FILE: &str = "interactions.jsonl";

/// The HTTP client of a project and the tools that send or log data.
#[derive(Debug)]
pub struct OutboundTools {
    /// HTTP client that connects only to allowed addresses.
    pub client: Arc<GuardedHttpClient>,
    /// Tools that agents may use without a trust decision of a person.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The tool that sends messages. A person may have to trust its delivery target first.
    pub sender: MessageToolWithTarget,
}

impl OutboundTools {
    /// Creates the HTTP client and the tools from the project's settings.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn new(config: &Config, clock: &Arc<dyn Clock>) -> Result<Self, String> {
        // An invalid setting is reported whether it is trusted or not.
        let allowlist = |allow: &[String]| {
            let allowlist = Allowlist::new(allow.iter().map(String::as_str), false);
            allowlist.map_err(|error| format!("`{ALLOW_KEY}`: {error}"))
        };
        let mut allowed_hosts = allowlist(&config.text_list(ALLOW_KEY))?;
        if egress::outbound_trust_item(config)
            .is_some_and(|item| TrustDecisions::new(config).check_trusted(&item).is_err())
        {
            allowed_hosts = allowlist(&user_allowlist(config))?;
        }
        let client = Arc::new(GuardedHttpClient::new(allowed_hosts, Arc::clone(clock)));
        let fetch = HttpFetchTool::new(Arc::clone(&client)).map_err(|error| error.to_string())?;
        let log = LogInteractionTool::new_tool(interaction_log_file(config)?, Arc::clone(clock));
        let log = log.map_err(|error| error.to_string())?;
        let sender = create_send_message_tool(config, clock, &client)?;
        let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(fetch), log];
        if sender.project_target.is_none() {
            tools.push(Arc::clone(&sender.tool));
        }
        Ok(Self { client, tools, sender })
    }
}

/// Returns the outbound allowlist of the user's own settings file. In the effective settings, the
/// list of the project replaces it.
fn user_allowlist(config: &Config) -> Vec<String> {
    let file = config.user_file.as_ref();
    let layer = file.and_then(|file| layer::load_config_layer(file, file, ConfigFileScope::User));
    let allow_value = layer.and_then(|mut layer| layer.values.remove(ALLOW_KEY));
    allow_value.map(|(allow, _)| allow.to_text_list()).unwrap_or_default()
}

fn interaction_log_file(config: &Config) -> Result<FileLocation, String> {
    let file_setting = config.tool_settings("log_interaction").remove("file");
    match file_setting.as_ref().map(serde_json::Value::as_str) {
        None => Ok(config.data_folder_location().join(INTERACTIONS_FILE)),
        Some(Some(file)) if !file.trim().is_empty() => {
            Ok(config.resolve_configured_path(Path::new(file)))
        }
        Some(_) => Err(format!("`{LOG_FILE_KEY}` must be a string: write a file path")),
    }
}
