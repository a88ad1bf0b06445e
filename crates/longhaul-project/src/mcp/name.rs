//! Name of the MCP configuration file, and the names of MCP tools in agent files.

/// Name of the MCP configuration file in the project's folder.
pub const FILE_NAME: &str = ".mcp.json";

/// Prefix of MCP names in an agent file: `mcp:SERVER` or `mcp:SERVER/TOOL`.
pub const MCP_PREFIX: &str = "mcp:";

/// Server name that means all MCP servers, as in `mcp:*`.
pub const ALL_SERVERS: &str = "*";

/// Splits an MCP name of an agent file into the server and, if named, the tool. `None` means that
/// the name is not an MCP name.
pub fn split_mcp_server_and_tool(mcp_name: &str) -> Option<(&str, Option<&str>)> {
    let rest = mcp_name.strip_prefix(MCP_PREFIX)?;
    Some(match rest.split_once('/') {
        Some((server, tool)) => (server, Some(tool)),
        None => (rest, None),
    })
}
