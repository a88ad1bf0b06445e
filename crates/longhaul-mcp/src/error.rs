//! What can be wrong with a server, in words that say what helps.
//!
//! Never: holds a header, a value of the environment, or the query of an address.

use crate::listing::Listing;

/// What is wrong with a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// No server of that name is configured.
    #[error(
        "There is no MCP server `{server}`: {has}. Add it to .mcp.json, or take its name out of the agent's tools."
    )]
    NoServer {
        /// Which was asked for.
        server: String,
        /// What there is instead.
        has: String,
    },
    /// The server has no such tool.
    #[error(
        "The MCP server `{server}` has no tool `{tool}`: {has}. Name one of them in the agent's tools."
    )]
    NoTool {
        /// Which server.
        server: String,
        /// Which tool was asked for.
        tool: String,
        /// What there is instead, or why it was left out.
        has: String,
    },
    /// What is configured can't be used.
    #[error(
        "The MCP server `{server}` can't be used as it is configured: {why}. Mend it in .mcp.json."
    )]
    Config {
        /// Which server.
        server: String,
        /// What is wrong.
        why: String,
    },
    /// It could not be started or reached.
    #[error("The MCP server `{server}` could not be started or reached: {why}. {helps}")]
    Start {
        /// Which server.
        server: String,
        /// What happened.
        why: String,
        /// What helps.
        helps: String,
    },
    /// Somebody has to log in there first.
    #[error("The MCP server `{server}` does not let us in: {why}.")]
    Login {
        /// Which server.
        server: String,
        /// What it wants, and which command helps.
        why: String,
        /// It may be otherwise the next time, though nobody logs in.
        passes: bool,
    },
    /// It was tried several times in a row.
    #[error(
        "The MCP server `{server}` failed {times} times in a row and is left alone for a while: {why}. {helps}"
    )]
    KeepsFailing {
        /// Which server.
        server: String,
        /// How often.
        times: u32,
        /// What happened last.
        why: String,
        /// What helps.
        helps: String,
    },
    /// It was there, and did not do what it should.
    #[error(
        "The MCP server `{server}` broke off: {why}. Look at it with `longhaul mcp check {server}`."
    )]
    Lost {
        /// Which server.
        server: String,
        /// What happened.
        why: String,
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
    pub(super) fn no_server(server: &str, names: &[String]) -> Self {
        let has = match names {
            [] => "none is configured".to_owned(),
            names => format!("there is {}", names.join(", ")),
        };
        let server = server.escape_debug().take(64).collect();
        Self::NoServer { server, has }
    }

    pub(super) fn no_tool(server: &str, tool: &str, listing: &Listing) -> Self {
        let left_out = listing.notes.iter().find(|note| note.contains(tool));
        let lead = crate::spec::tool_name(server, "");
        let names = listing.tools.iter().map(|offered| {
            let name = offered.card.name.as_str();
            name.strip_prefix(&lead).unwrap_or(name)
        });
        let names: Vec<&str> = names.take(NAMES_MAX).collect();
        let has = match (left_out, names.as_slice()) {
            (Some(note), _) => note.clone(),
            (None, []) => "it has none at all".to_owned(),
            (None, names) => format!("it has {}", names.join(", ")),
        };
        Self::NoTool {
            server: server.to_owned(),
            tool: tool.escape_debug().take(128).collect(),
            has,
        }
    }

    /// Whether another manner of greeting could help.
    pub(super) const fn may_be_manner(&self) -> bool {
        matches!(self, Self::Start { .. })
    }
}

/// So many names are listed in a message.
const NAMES_MAX: usize = 40;
