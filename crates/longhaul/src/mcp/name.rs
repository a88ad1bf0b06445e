//! How the file and the tools of its servers are called.
//!
//! Never: looks whether there is such a thing.

/// The file's name, in the project's folder.
pub const FILE_NAME: &str = ".mcp.json";

/// How a tool of a server is named in an agent's file: `mcp:SERVER` or
/// `mcp:SERVER/TOOL`.
pub const MCP_PREFIX: &str = "mcp:";

/// What stands for every server: `mcp:*`.
pub const ALL_SERVERS: &str = "*";

/// The server, and maybe the tool, that a name in an agent's file means; none:
/// it is no name of this kind.
pub fn parse_tool_name(name: &str) -> Option<(&str, Option<&str>)> {
    let rest = name.strip_prefix(MCP_PREFIX)?;
    Some(match rest.split_once('/') {
        Some((server, tool)) => (server, Some(tool)),
        None => (rest, None),
    })
}
