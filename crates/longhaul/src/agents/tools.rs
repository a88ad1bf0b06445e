//! Reads `tools:`: names of ours, those of MCP servers, and those of Claude's files.
//!
//! Never: takes a name that nobody answers to.

use longhaul_core::suggest;

use crate::agents::diagnostics::Diagnostics;
use crate::agents::load_context::{LoadContext, ServersUnavailable};
use crate::mcp::name::ALL_SERVERS;
use crate::spanned::TableEntry;

/// What Claude's files call what we have.
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

/// How a tool of an MCP server begins here.
const MCP_PREFIX: &str = "mcp:";

/// Our name for what Claude's files call so.
pub(crate) fn native_name(name: &str) -> Option<&'static str> {
    let found = CLAUDE_TOOL_NAMES.iter().find(|(theirs, _)| *theirs == name);
    found.map(|(_, ours)| *ours)
}

/// Our name for an MCP tool as it stands on the wire: `mcp__server__tool`.
pub(crate) fn from_wire_name(name: &str) -> Option<String> {
    let rest = name.strip_prefix("mcp__")?;
    Some(match rest.split_once("__") {
        Some((server, "*")) => format!("{MCP_PREFIX}{server}"),
        Some((server, tool)) => format!("{MCP_PREFIX}{server}/{tool}"),
        None => format!("{MCP_PREFIX}{rest}"),
    })
}

/// What is wrong with a name of an MCP server or of its tool; nothing where the
/// name is of another kind, `None` inside where it is fine.
pub(crate) fn mcp_name_error(tool: &str, servers: &[&str]) -> Option<Option<String>> {
    let named = tool.strip_prefix(MCP_PREFIX)?;
    if named == ALL_SERVERS {
        return Some(None);
    }
    let fits = |part: &str| {
        let letter = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && part.chars().all(letter)
    };
    let (server, one) = match named.split_once('/') {
        Some((server, one)) => (server, Some(one)),
        None => (named, None),
    };
    if !fits(server) || !one.is_none_or(fits) {
        let right = "write `mcp:SERVER`, `mcp:SERVER/TOOL` or `mcp:*`";
        return Some(Some(format!("`{tool}` names no MCP server: {right}")));
    }
    if servers.is_empty() || servers.contains(&server) {
        return Some(None);
    }
    Some(Some(suggest::unknown_message("MCP server", server, servers)))
}

/// Why nobody answers to the name of an MCP server, where that is known.
pub(crate) fn missing_server(tool: &str, shelf: &LoadContext<'_>) -> Option<String> {
    let named = tool.strip_prefix(MCP_PREFIX)?;
    let why = match shelf.servers_unavailable? {
        // Every server of a project without any is none.
        ServersUnavailable::NotConfigured(_) if named == ALL_SERVERS => return None,
        ServersUnavailable::NotConfigured(why) | ServersUnavailable::Invalid(why) => why,
    };
    Some(format!("`{tool}` is a tool of an MCP server, and {why}"))
}

/// What is wrong with a name of ours; `named` is how it was written.
pub(crate) fn tool_name_error(tool: &str, named: &str, shelf: &LoadContext<'_>) -> Option<String> {
    match mcp_name_error(tool, shelf.servers) {
        Some(fault) => fault,
        None if shelf.tools.contains(&tool) => None,
        None => Some(suggest::unknown_message("tool", named, shelf.tools)),
    }
}

/// Reads the list of an agent of ours.
pub(crate) fn parse(
    sheet: &mut Diagnostics,
    entry: &TableEntry,
    shelf: &LoadContext<'_>,
) -> Option<Vec<String>> {
    let mut tools: Vec<String> = Vec::new();
    for (place, named) in sheet.texts_with_positions(entry) {
        let tool = match native_name(&named) {
            Some(ours) => ours.to_owned(),
            None => from_wire_name(&named).unwrap_or_else(|| named.clone()),
        };
        match tool_name_error(&tool, &named, shelf) {
            Some(message) => sheet.invalid(place, message),
            None if tools.contains(&tool) => {}
            None => {
                if let Some(message) = missing_server(&tool, shelf) {
                    sheet.missing(place, message);
                }
                tools.push(tool);
            }
        }
    }
    Some(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mcp_tool_has_one_native_name() {
        let check =
            |wire: &str, name: Option<&str>| assert_eq!(from_wire_name(wire).as_deref(), name);
        check("mcp__github__create_issue", Some("mcp:github/create_issue"));
        check("mcp__github", Some("mcp:github"));
        check("mcp__github__*", Some("mcp:github"));
        check("read_file", None);
    }

    #[test]
    fn server_names_are_checked_if_servers_are_known() {
        let check = |tool: &str, servers: &[&str], said: Option<Option<&str>>| {
            let fault = mcp_name_error(tool, servers);
            assert_eq!(fault.as_ref().map(Option::as_deref), said, "{tool}");
        };
        check("read_file", &[], None);
        check("mcp:github", &[], Some(None));
        check("mcp:*", &["github"], Some(None));
        check("mcp:github/x", &["github"], Some(None));
        let unknown = "unknown MCP server `githup`, did you mean `github`?";
        check("mcp:githup/x", &["github"], Some(Some(unknown)));
        for wrong in ["mcp:", "mcp:/x", "mcp:a/", "mcp:a/b/c", "mcp:a b"] {
            let said = format!(
                "`{wrong}` names no MCP server: write `mcp:SERVER`, `mcp:SERVER/TOOL` or `mcp:*`"
            );
            check(wrong, &[], Some(Some(&said)));
        }
    }
}
