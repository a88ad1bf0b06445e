//! Replaces `mcp_servers` in a build without the feature `mcp`: every use of an MCP server is an
//! error that names the feature.

use std::borrow::Cow;
use std::sync::Arc;

use longhaul_core::time::Clock;

use crate::assemble::mcp_tools::McpClient;
use crate::config::settings::Config;
use crate::mcp::file::{McpFile, NO_CLIENT};
use crate::mcp::name::FILE_NAME;

/// Returns a client that rejects the use of every MCP server.
pub(crate) fn new_client(_: &Config, file: &McpFile, _: &Arc<dyn Clock>) -> Arc<dyn McpClient> {
    if file.exists() {
        tracing::warn!("the servers of {FILE_NAME} can't be used: {NO_CLIENT}");
    }
    Arc::new(NoMcpServers)
}

/// Returns the text unchanged: without an MCP client there are no login tokens to redact.
pub(crate) const fn redact_tokens(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// Returns the length of a partial login token at the end of the text: always 0, since there are no
/// tokens without an MCP client.
pub(crate) const fn partial_token_suffix_len(_: &str) -> usize {
    0
}

#[derive(Debug)]
struct NoMcpServers;

impl McpClient for NoMcpServers {}
