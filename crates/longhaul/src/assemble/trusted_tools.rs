//! The tool that sends messages, as the project's settings have it.
//!
//! Never: hands a message to a program of a stranger's, or writes outside the
//! project because the project says so.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::tool::{ClaimId, Tool};
use longhaul_core::time::Clock;
use longhaul_engine::agent::Agent;
use longhaul_engine::services::ExternalToolSource;
use longhaul_engine::tool_registry::RegisteredTool;
use longhaul_tool::message::{DeliveryTarget, MessageConfig, SendMessage};
use longhaul_tool::outbound::GuardedClient;

use crate::assemble::mcp_tools::McpTools;
use crate::config::schema::DELIVER_KEY;
use crate::config::settings::Config;
use crate::trust::decisions::Decisions;
use crate::trust::egress;
use crate::trust::item::TrustItem;
use crate::trust::items::{self, SEND_MESSAGE_TOOL, SHELL_TOOL};

/// Where deliveries are written down, in the data folder.
const DELIVERY_LOG_FILE: &str = "deliveries.jsonl";

/// Where messages go without a word, in the data folder.
const OUTBOX_FILE: &str = "outbox.jsonl";

/// The tool, and what has to be trusted before it is used.
#[derive(Debug, Clone)]
pub struct MessageSender {
    /// The tool.
    pub tool: Arc<dyn Tool>,
    /// Where the project's own file would have messages go.
    pub project_target: Option<DeliveryTarget>,
}

/// The tool that this project's settings describe. The error says what does not fit.
pub(crate) fn message_sender(
    config: &Config,
    clock: &Arc<dyn Clock>,
    out: &Arc<GuardedClient>,
) -> Result<MessageSender, String> {
    let data = config.data_location();
    let set = config.tool_settings(SEND_MESSAGE_TOOL).remove("deliver");
    let deliver = match set.as_ref().map(serde_json::Value::as_str) {
        None => DeliveryTarget::File(data.join(OUTBOX_FILE)),
        Some(Some(text)) => match text.parse().map_err(|bad| format!("`{DELIVER_KEY}`: {bad}"))? {
            DeliveryTarget::File(file) => DeliveryTarget::File(config.location(&file.path())),
            other @ (DeliveryTarget::Command(_) | DeliveryTarget::Webhook(_)) => other,
        },
        Some(None) => return Err(format!("`{DELIVER_KEY}` is no text: write `file:PATH`")),
    };
    let messages = MessageConfig {
        target: deliver,
        log: data.join(DELIVERY_LOG_FILE),
        root: config.root.clone(),
        allow_private: false,
    };
    let tool = SendMessage::new(messages, Arc::clone(clock), Arc::clone(out));
    Ok(MessageSender {
        tool: Arc::new(tool.map_err(|bad| bad.to_string())?),
        project_target: egress::project_delivery_target(config),
    })
}

/// The servers' tools, the one that runs commands, and the sender where it waits
/// for trust.
#[derive(Debug)]
pub struct TrustGatedTools {
    mcp_tools: Arc<McpTools>,
    sender: MessageSender,
    shell: Arc<dyn Tool>,
    root: PathBuf,
    decisions: Decisions,
}

impl TrustGatedTools {
    /// What is handed out only to those who may have it.
    pub fn new(
        config: &Config,
        served: Arc<McpTools>,
        sender: MessageSender,
        shell: Arc<dyn Tool>,
    ) -> Self {
        Self {
            mcp_tools: served,
            sender,
            shell,
            root: config.root.clone(),
            decisions: Decisions::new(config),
        }
    }

    /// What this tool waits for, as it stands now; none: it is not withheld.
    fn gated_tool(&self, name: &str, asks: Option<&Agent>) -> Option<(&Arc<dyn Tool>, TrustItem)> {
        match name {
            // Only to an agent: it is what a person has looked at.
            SHELL_TOOL => Some((&self.shell, items::shell_item(asks?))),
            SEND_MESSAGE_TOOL => {
                let deliver = self.sender.project_target.as_ref()?;
                let item = egress::delivery_item(&self.root, deliver)?;
                Some((&self.sender.tool, item))
            }
            _ => None,
        }
    }
}

impl TrustGatedTools {
    /// The tool, if what it waits for is trusted.
    fn tool_if_trusted(
        &self,
        (tool, item): (&Arc<dyn Tool>, TrustItem),
    ) -> Result<Vec<RegisteredTool>, String> {
        self.decisions.check(&item)?;
        let tool = RegisteredTool::new(Arc::clone(tool)).map_err(|bad| bad.to_string())?;
        Ok(vec![tool])
    }
}

#[async_trait]
impl ExternalToolSource for TrustGatedTools {
    async fn load(&self, name: &str, stay: ClaimId) -> Option<Result<Vec<RegisteredTool>, String>> {
        match self.gated_tool(name, None) {
            Some(held) => Some(self.tool_if_trusted(held)),
            None => ExternalToolSource::load(&*self.mcp_tools, name, stay).await,
        }
    }

    async fn load_for(
        &self,
        agent: &Agent,
        name: &str,
        stay: ClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        match self.gated_tool(name, Some(agent)) {
            Some(held) => Some(self.tool_if_trusted(held)),
            None => ExternalToolSource::load(&*self.mcp_tools, name, stay).await,
        }
    }

    async fn release(&self, stay: ClaimId) {
        self.mcp_tools.release(stay).await;
    }
}
