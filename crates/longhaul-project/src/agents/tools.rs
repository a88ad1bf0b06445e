//! Parses the field `tools`: names of Longhaul's tools, of MCP servers and their tools, and of
//! Claude Code's tools. Unknown names are errors.

use longhaul_core::suggest;

use crate::agents::diagnostics::Diagnostics;
use crate::agents::load_context::{AgentLoadContext, McpUnavailableReason};
use crate::mcp::name::{ALL_SERVERS, MCP_PREFIX, split_mcp_server_and_tool};
use crate::spanned::TableEntry;

/// Pairs of Claude Code's tool name and Longhaul's name for the same tool.
const CLAUDE_TOOL_NAMES: &[(&str, &str)] = &[
    ("Read", "read_file"),
    ("Write", "write_file"),
    ("Edit", "edit_file"),
    ("MultiEdit", "edit_file"),
    ("Bash", "shell"),
    ("Glob", "list_files"),
    ("LS", "list_files"),
    ("Grep", "search_files"),
    ("WebFetch", "http_fetch"),
    ("Task", "run_agent"),
    ("Agent", "run_agent"),
];

/// End of the name of deferred tools, whose schemas the model loads when it needs them.
const DEFERRED_SUFFIX: char = '?';

/// Returns Longhaul's name for a tool of Claude Code or, as in `mcp__server__tool`, of an MCP
/// server. `None` means that the name is not one of Claude Code's.
pub(crate) fn native_tool_name(claude_tool_name: &str) -> Option<String> {
    let mut known = CLAUDE_TOOL_NAMES.iter();
    if let Some((_, native)) = known.find(|(claude_name, _)| *claude_name == claude_tool_name) {
        return Some((*native).to_owned());
    }
    let qualified_name = claude_tool_name.strip_prefix("mcp__")?;
    Some(match qualified_name.split_once("__") {
        Some((server, "*")) => format!("{MCP_PREFIX}{server}"),
        Some((server, tool)) => format!("{MCP_PREFIX}{server}/{tool}"),
        None => format!("{MCP_PREFIX}{qualified_name}"),
    })
}

/// Checks the name of an MCP server or of one of its tools. `None` means that the name is not an
/// MCP name; the error says why an MCP name is invalid.
pub(crate) fn check_name_if_mcp_tool(tool: &str, servers: &[&str]) -> Option<Result<(), String>> {
    let (server, tool_name) = split_mcp_server_and_tool(tool)?;
    if server == ALL_SERVERS && tool_name.is_none() {
        return Some(Ok(()));
    }
    let is_valid_name = |part: &str| {
        let is_name_char = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && part.chars().all(is_name_char)
    };
    if !is_valid_name(server) || !tool_name.is_none_or(is_valid_name) {
        let hint = "write `mcp:SERVER`, `mcp:SERVER/TOOL` or `mcp:*`";
        return Some(Err(format!("`{tool}` is not a valid MCP tool name: {hint}")));
    }
    if servers.is_empty() || servers.contains(&server) {
        return Some(Ok(()));
    }
    Some(Err(suggest::unknown_name_message("MCP server", server, servers)))
}

/// Returns a message that says why the MCP server of this tool is not available. `None` means that
/// the tool is not an MCP tool or that no problem is known.
pub(crate) fn missing_mcp_server_message(tool: &str, ctx: &AgentLoadContext<'_>) -> Option<String> {
    let (server, tool_name) = split_mcp_server_and_tool(tool)?;
    if let Some((_, reason)) = ctx.broken_servers.iter().find(|(broken, _)| *broken == server) {
        return Some(format!("`{tool}` needs the MCP server `{server}`, but {reason}"));
    }
    let reason = match ctx.servers_unavailable? {
        // `mcp:*` is valid in a project without servers.
        McpUnavailableReason::NotConfigured(_) if (server, tool_name) == (ALL_SERVERS, None) => {
            return None;
        }
        McpUnavailableReason::NotConfigured(reason) | McpUnavailableReason::Invalid(reason) => {
            reason
        }
    };
    Some(format!("`{tool}` needs an MCP server, but {reason}"))
}

/// Returns the problem of a tool in an agent that a program defines. A missing MCP server is one, since
/// servers are not checked again later.
pub(crate) fn tool_problem(tool: &str, ctx: &AgentLoadContext<'_>) -> Option<String> {
    name_error(tool, tool, ctx).or_else(|| missing_mcp_server_message(tool, ctx))
}

/// Returns an error message if there is no tool `tool`. The message shows the name that is written
/// in the agent file.
pub(crate) fn name_error(tool: &str, written: &str, ctx: &AgentLoadContext<'_>) -> Option<String> {
    match check_name_if_mcp_tool(tool, ctx.servers) {
        Some(result) => result.err(),
        None if ctx.tools.contains(&tool) => None,
        None => Some(suggest::unknown_name_message("tool", written, ctx.tools)),
    }
}

impl Diagnostics<'_> {
    /// Parses the list of tools of a project agent. Returns all tools, and those of them that are
    /// deferred (the model loads their schemas on demand): those written with `?` at the end.
    pub(crate) fn parse_tools(&mut self, entry: &TableEntry) -> Option<(Vec<String>, Vec<String>)> {
        let ctx = self.ctx;
        let (mut tools, mut deferred) = (Vec::new(), Vec::new());
        for (position, listed_name) in self.texts_with_positions(entry) {
            let name = listed_name.strip_suffix(DEFERRED_SUFFIX).unwrap_or(&listed_name);
            let tool = native_tool_name(name).unwrap_or_else(|| name.to_owned());
            let is_deferred = name != listed_name;
            match name_error(&tool, name, &ctx) {
                Some(message) => self.report_invalid(position, message),
                None if tools.contains(&tool) => {
                    if deferred.contains(&tool) != is_deferred {
                        let message =
                            format!("`{tool}` is listed with and without `?`: remove one");
                        self.report_invalid(position, message);
                    }
                }
                None => {
                    if is_deferred {
                        deferred.push(tool.clone());
                    }
                    if let Some(message) = missing_mcp_server_message(&tool, &ctx) {
                        self.report_missing(position, message);
                    }
                    tools.push(tool);
                }
            }
        }
        Some((tools, deferred))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claude_names_of_mcp_tools_are_converted() {
        let check =
            |wire: &str, name: Option<&str>| assert_eq!(native_tool_name(wire).as_deref(), name);
        check("mcp__github__create_issue", Some("mcp:github/create_issue"));
        check("mcp__github", Some("mcp:github"));
        check("mcp__github__*", Some("mcp:github"));
        check("read_file", None);
    }

    #[test]
    fn servers_missing_from_a_known_list_are_refused() {
        let check = |tool: &str, servers: &[&str], expected: Option<Result<(), &str>>| {
            let expected = expected.map(|expected| expected.map_err(str::to_owned));
            assert_eq!(check_name_if_mcp_tool(tool, servers), expected, "{tool}");
        };
        check("read_file", &[], None);
        check("mcp:github", &[], Some(Ok(())));
        check("mcp:*", &["github"], Some(Ok(())));
        check("mcp:github/x", &["github"], Some(Ok(())));
        let unknown = "unknown MCP server `githup`, did you mean `github`?";
        check("mcp:githup/x", &["github"], Some(Err(unknown)));
        for wrong in ["mcp:", "mcp:/x", "mcp:a/", "mcp:a/b/c", "mcp:a b"] {
            let expected = format!(
                "`{wrong}` is not a valid MCP tool name: write `mcp:SERVER`, `mcp:SERVER/TOOL` or `mcp:*`"
            );
            check(wrong, &[], Some(Err(&expected)));
        }
    }
}
