//! The guarded HTTP client of a project, the tools that use it, and the source of all tools that a
//! person must trust before agents use them.
//!
//! Invariant: agents have no other way to send requests, and the allowlist in an untrusted project
//! file is not used. Without trust, a message is not passed to a program that the project names, and
//! not written outside the project.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::tool::{RunClaimId, Tool};
use longhaul_core::time::Clock;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::check::SHELL_TOOL;
use longhaul_engine::services::ExternalToolSource;
use longhaul_engine::tools::registry::RegisteredTool;
use longhaul_tool::message::{DeliveryTarget, SendMessageConfig, SendMessageTool};
use longhaul_tool::outbound::{Allowlist, GuardedHttpClient};
use longhaul_tool::{FileLocation, HttpFetchTool, LogInteractionTool};

use crate::assemble::mcp_tools::McpTools;
use crate::config::load::{self, ConfigFileScope};
use crate::config::schema::{DELIVER_KEY, LOG_FILE_KEY};
use crate::config::settings::Config;
use crate::trust::decisions::TrustDecisions;
use crate::trust::items::{self, ALLOW_KEY, SEND_MESSAGE_TOOL};

/// Name of the log file of delivered messages, in the project's data folder.
const DELIVERY_LOG_FILE: &str = "deliveries.jsonl";

/// Name of the file to which messages are delivered by default, in the project's data folder.
const OUTBOX_FILE: &str = "outbox.jsonl";

/// The tool that sends messages, and its delivery target if a person must trust that first.
#[derive(Debug, Clone)]
pub struct MessageToolWithTarget {
    /// The tool `send_message`.
    pub tool: Arc<dyn Tool>,
    /// Delivery target that the project itself sets, so that a person must trust it. `None` means
    /// that no trust is needed.
    pub project_target: Option<DeliveryTarget>,
}

/// Creates the tool `send_message` from the project's settings. The error describes the invalid
/// setting.
pub(crate) fn create_send_message_tool(
    config: &Config,
    clock: &Arc<dyn Clock>,
    client: &Arc<GuardedHttpClient>,
) -> Result<MessageToolWithTarget, String> {
    let data = config.data_folder_location();
    let deliver = match config.text(DELIVER_KEY).map(str::parse::<DeliveryTarget>) {
        None => DeliveryTarget::File(data.join(OUTBOX_FILE)),
        Some(Ok(DeliveryTarget::File(file))) => {
            DeliveryTarget::File(config.resolve_configured_path(&file.path()))
        }
        Some(target) => target.map_err(|error| format!("`{DELIVER_KEY}`: {error}"))?,
    };
    let messages = SendMessageConfig {
        target: deliver,
        log: data.join(DELIVERY_LOG_FILE),
        root: config.root.clone(),
        allow_private: false,
    };
    let tool = SendMessageTool::new(messages, Arc::clone(clock), Arc::clone(client));
    Ok(MessageToolWithTarget {
        tool: Arc::new(tool.map_err(|error| error.to_string())?),
        project_target: items::project_delivery_target(config),
    })
}

/// Source of the tools that a person must trust before agents use them: the tools of MCP servers,
/// the shell tool, and the message tool if the project sets its target.
#[derive(Debug)]
pub struct TrustCheckedTools {
    mcp_tools: Arc<McpTools>,
    sender: MessageToolWithTarget,
    shell: Arc<dyn Tool>,
    root: PathBuf,
    decisions: TrustDecisions,
}

impl TrustCheckedTools {
    /// Creates the tools that a person must trust before a run can use them.
    pub fn new(
        config: &Config,
        mcp_tools: Arc<McpTools>,
        sender: MessageToolWithTarget,
        shell: Arc<dyn Tool>,
    ) -> Self {
        Self {
            mcp_tools,
            sender,
            shell,
            root: config.root.clone(),
            decisions: TrustDecisions::new(config),
        }
    }

    /// Returns the tool with this name if a person has trusted it. Otherwise the error says how to
    /// trust it. A name of neither the shell tool nor the message tool is that of an MCP tool.
    async fn load_trusted_tools(
        &self,
        agent: Option<&Agent>,
        name: &str,
        claim_id: RunClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        let (tool, item) = match name {
            SHELL_TOOL if !items::needs_trust_for_shell(agent?) => (&self.shell, None),
            // Only for an agent, since a person approves the agent together with its shell access.
            SHELL_TOOL => (&self.shell, Some(items::shell_trust_item(agent?))),
            SEND_MESSAGE_TOOL => {
                let target = self.sender.project_target.as_ref()?;
                (&self.sender.tool, Some(items::delivery_trust_item(&self.root, target)?))
            }
            _ => return ExternalToolSource::load_tools(&*self.mcp_tools, name, claim_id).await,
        };
        let check = item.map_or(Ok(()), |item| self.decisions.check_trusted(&item));
        Some(check.and_then(|()| {
            let tool = RegisteredTool::from_tool(Arc::clone(tool));
            Ok(vec![tool.map_err(|error| error.to_string())?])
        }))
    }
}

#[async_trait]
impl ExternalToolSource for TrustCheckedTools {
    async fn load_tools(
        &self,
        name: &str,
        claim_id: RunClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        self.load_trusted_tools(None, name, claim_id).await
    }

    async fn load_tools_for_agent(
        &self,
        agent: &Agent,
        name: &str,
        claim_id: RunClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        self.load_trusted_tools(Some(agent), name, claim_id).await
    }

    async fn release_tools(&self, claim_id: RunClaimId) {
        self.mcp_tools.release_tools(claim_id).await;
    }
}

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
        if items::outbound_trust_item(config)
            .is_some_and(|item| TrustDecisions::new(config).check_trusted(&item).is_err())
        {
            allowed_hosts = allowlist(&user_allowlist(config))?;
        }
        let client = Arc::new(GuardedHttpClient::new(allowed_hosts, Arc::clone(clock)));
        let fetch = HttpFetchTool::new(Arc::clone(&client)).map_err(|error| error.to_string())?;
        let log = LogInteractionTool::new_tool(interaction_log_file(config), Arc::clone(clock));
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
    let layer = file.and_then(|file| load::load_layer(file, file, ConfigFileScope::User));
    let allow_value = layer.and_then(|mut layer| layer.values.remove(ALLOW_KEY));
    allow_value.map(|(allow, _)| allow.to_text_list()).unwrap_or_default()
}

fn interaction_log_file(config: &Config) -> FileLocation {
    match config.text(LOG_FILE_KEY) {
        None => config.data_folder_location().join(INTERACTIONS_FILE),
        Some(file) => config.resolve_configured_path(Path::new(file)),
    }
}
