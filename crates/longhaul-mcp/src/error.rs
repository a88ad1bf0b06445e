//! What can be wrong with a server, in words that say what helps.
//!
//! Never: holds a header, a value of the environment, or the query of an address.

use crate::listing::Listing;

/// What is wrong with a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// No server of that name is configured.
    #[error(
        "There is no MCP server `{server}`: {available}. Add it to .mcp.json, or take its name out of the agent's tools."
    )]
    ServerNotFound {
        /// Which was asked for.
        server: String,
        /// What there is instead.
        available: String,
    },
    /// The server has no such tool.
    #[error(
        "The MCP server `{server}` has no tool `{tool}`: {available}. Name one of them in the agent's tools."
    )]
    ToolNotFound {
        /// Which server.
        server: String,
        /// Which tool was asked for.
        tool: String,
        /// What there is instead, or why it was left out.
        available: String,
    },
    /// What is configured can't be used.
    #[error(
        "The MCP server `{server}` can't be used as it is configured: {reason}. Mend it in .mcp.json."
    )]
    Config {
        /// Which server.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// It could not be started or reached.
    #[error("The MCP server `{server}` could not be started or reached: {reason}. {hint}")]
    Start {
        /// Which server.
        server: String,
        /// What happened.
        reason: String,
        /// What helps.
        hint: String,
    },
    /// Somebody has to log in there first.
    #[error("The MCP server `{server}` does not let us in: {reason}.")]
    LoginRequired {
        /// Which server.
        server: String,
        /// What it wants, and which command helps.
        reason: String,
        /// It may be otherwise the next time, though nobody logs in.
        is_transient: bool,
    },
    /// It was tried several times in a row.
    #[error(
        "The MCP server `{server}` failed {times} times in a row and is left alone for a while: {reason}. {hint}"
    )]
    RepeatedFailures {
        /// Which server.
        server: String,
        /// How often.
        times: u32,
        /// What happened last.
        reason: String,
        /// What helps.
        hint: String,
    },
    /// It was there, and did not do what it should.
    #[error(
        "The MCP server `{server}` broke off: {reason}. Look at it with `longhaul mcp check {server}`."
    )]
    Disconnected {
        /// Which server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// This worker has closed its servers.
    #[error(
        "The MCP server `{server}` is closed: this worker or this run is ending. Start it anew."
    )]
    Closed {
        /// Which server.
        server: String,
    },
}

impl McpError {
    pub(super) fn server_not_found(server: &str, names: &[String]) -> Self {
        let available = match names {
            [] => "none is configured".to_owned(),
            names => format!("there is {}", names.join(", ")),
        };
        let server = server.escape_debug().take(64).collect();
        Self::ServerNotFound { server, available }
    }

    pub(super) fn tool_not_found(server: &str, tool: &str, listing: &Listing) -> Self {
        let left_out = listing.notes.iter().find(|note| note.contains(tool));
        let lead = crate::spec::tool_name(server, "");
        let names = listing.tools.iter().map(|offered| {
            let name = offered.spec.name.as_str();
            name.strip_prefix(&lead).unwrap_or(name)
        });
        let names: Vec<&str> = names.take(NAMES_MAX).collect();
        let available = match (left_out, names.as_slice()) {
            (Some(note), _) => note.clone(),
            (None, []) => "it has none at all".to_owned(),
            (None, names) => format!("it has {}", names.join(", ")),
        };
        Self::ToolNotFound {
            server: server.to_owned(),
            tool: tool.escape_debug().take(128).collect(),
            available,
        }
    }

    /// Whether another manner of greeting could help.
    pub(super) const fn may_be_handshake_mode(&self) -> bool {
        matches!(self, Self::Start { .. })
    }
}

/// So many names are listed in a message.
const NAMES_MAX: usize = 40;
