//! Interface between the MCP client and the rest of the program. It hides the MCP protocol.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{RunClaimId, Tool};
use longhaul_core::time::Millis;

/// Client for MCP servers, which are identified by name.
#[async_trait]
pub trait McpClient: Send + Sync + std::fmt::Debug {
    /// Returns the tools of a server, or only the tool with this name. The error is a short reason.
    async fn list_server_tools(
        &self,
        server: &str,
        tool: Option<&str>,
        claim: RunClaimId,
    ) -> Result<Vec<Arc<dyn Tool>>, String>;

    /// Connects to a server and returns its description.
    async fn check_server(&self, server_name: &str) -> Result<McpServerReport, McpCheckError>;

    /// Closes the connections that were opened only for this claim (a worker's exclusive right to
    /// drive a run).
    async fn close_connections_of_run_claim(&self, claim: RunClaimId);

    /// Closes the connections to all servers.
    async fn close_all_connections(&self);

    /// Waits until operations that must not be interrupted, such as token refreshes, have ended.
    /// The wait has a time limit.
    async fn wait_for_token_refreshes(&self);
}

/// Description of an MCP server, as the server reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerReport {
    pub name: String,
    pub version: String,
    /// MCP protocol version that was negotiated with the server.
    pub protocol: String,
    /// Tools that the MCP server offers.
    pub tools: Vec<McpReportedTool>,
    /// Remarks about the MCP server that are not errors.
    pub notes: Vec<String>,
    /// Time it took to connect to the MCP server and list its tools.
    pub duration: Millis,
}

/// Reason why an MCP server could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpCheckError {
    /// Short reason why the check failed.
    pub message: String,
    /// Whether a person must log in to the server first. Then a retry does not help.
    pub needs_login: bool,
}

/// A tool as its MCP server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpReportedTool {
    /// Name of the tool as agent files write it.
    pub name: String,
    /// Effect class of the tool's calls: whether they may be repeated after a crash.
    pub class: EffectClass,
}
