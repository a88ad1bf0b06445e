//! Errors of MCP servers. Each message includes what the user can do about it.
//!
//! Invariant: an error contains no header value, no environment value and no query string of a URL.

use crate::listing::ToolListing;
use crate::spec::local_tool_name;

/// Why an MCP server or one of its tools can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// The server or the tool is not available, for the reason that the message gives: it does not
    /// exist, must not be started, has disconnected or is closed.
    #[error("{0}")]
    Unavailable(String),
    /// The configuration of the server is invalid.
    #[error(
        "The MCP server `{server}` can't be used as it is configured: {reason}. Fix it in .mcp.json."
    )]
    Config {
        /// Name of the MCP server.
        server: String,
        /// What is invalid in the configuration.
        reason: String,
    },
    /// The server could not be started or reached.
    #[error("The MCP server `{server}` could not be started or reached: {reason}. {hint}")]
    Start {
        /// Name of the MCP server.
        server: String,
        /// Why the server could not be started or reached.
        reason: String,
        /// What the user can do about the failure.
        hint: String,
    },
    /// The server requires a valid login.
    #[error("The MCP server `{server}` needs a valid login: {reason}.")]
    LoginRequired {
        /// Name of the MCP server.
        server: String,
        /// What is wrong with the login, and the command that fixes it.
        reason: String,
        /// Whether a later attempt may succeed without a new login.
        is_transient: bool,
    },
    /// The server failed to start several times in a row.
    #[error(
        "The MCP server `{server}` failed {times} times in a row and is not retried for a while: {reason}. {hint}"
    )]
    RepeatedFailures {
        /// Name of the MCP server.
        server: String,
        /// Number of consecutive failed starts and lost connections.
        times: u32,
        /// Cause of the last failure.
        reason: String,
        /// What the user can do about the failures.
        hint: String,
    },
}

impl McpError {
    pub(super) fn server_not_found(server: &str, known_names: &[String]) -> Self {
        let available = match known_names {
            [] => "no server is configured".to_owned(),
            names => format!("the configured servers are {}", names.join(", ")),
        };
        let server: String = server.escape_debug().take(64).collect();
        Self::Unavailable(format!(
            "There is no MCP server `{server}`: {available}. Add it to .mcp.json, or remove it from \
             the agent's tools."
        ))
    }

    pub(super) fn tool_not_found(server: &str, tool: &str, listing: &ToolListing) -> Self {
        let omission_note = listing.notes.iter().find(|note| note.contains(tool));
        let names = listing.tools.iter().take(NAMES_MAX);
        let names: Vec<&str> =
            names.map(|listed| local_tool_name(server, listed.spec.name.as_str())).collect();
        let available = match (omission_note, names.as_slice()) {
            (Some(note), _) => note.clone(),
            (None, []) => "the server has no tools".to_owned(),
            (None, names) => format!("its tools are {}", names.join(", ")),
        };
        let tool: String = tool.escape_debug().take(128).collect();
        Self::Unavailable(format!(
            "The MCP server `{server}` has no tool `{tool}`: {available}. Name one of them in the \
             agent's tools."
        ))
    }
}

/// Maximum number of server or tool names in a message.
const NAMES_MAX: usize = 40;
