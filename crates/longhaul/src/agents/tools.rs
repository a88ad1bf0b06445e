//! Reads `tools:`: names of ours, those of MCP servers, and those of Claude's files.
//!
//! Never: takes a name that nobody answers to.

use longhaul_core::suggest;

use crate::agents::sheet::Sheet;
use crate::agents::shelf::{Shelf, Unserved};
use crate::mcp::name::EVERY;
use crate::written::Entry;

/// What Claude's files call what we have.
const CLAUDE: &[(&str, &str)] = &[
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
const MCP: &str = "mcp:";

/// Our name for what Claude's files call so.
pub(crate) fn ours(name: &str) -> Option<&'static str> {
    let found = CLAUDE.iter().find(|(theirs, _)| *theirs == name);
    found.map(|(_, ours)| *ours)
}

/// Our name for an MCP tool as it stands on the wire: `mcp__server__tool`.
pub(crate) fn unwired(name: &str) -> Option<String> {
    let rest = name.strip_prefix("mcp__")?;
    Some(match rest.split_once("__") {
        Some((server, "*")) => format!("{MCP}{server}"),
        Some((server, tool)) => format!("{MCP}{server}/{tool}"),
        None => format!("{MCP}{rest}"),
    })
}

/// What is wrong with a name of an MCP server or of its tool; nothing where the
/// name is of another kind, `None` inside where it is fine.
pub(crate) fn mcp_fault(tool: &str, servers: &[&str]) -> Option<Option<String>> {
    let named = tool.strip_prefix(MCP)?;
    if named == EVERY {
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
    Some(Some(suggest::unknown("MCP server", server, servers)))
}

/// Why nobody answers to the name of an MCP server, where that is known.
pub(crate) fn unserved(tool: &str, shelf: &Shelf<'_>) -> Option<String> {
    let named = tool.strip_prefix(MCP)?;
    let why = match shelf.unserved? {
        // Every server of a project without any is none.
        Unserved::Unnamed(_) if named == EVERY => return None,
        Unserved::Unnamed(why) | Unserved::Broken(why) => why,
    };
    Some(format!("`{tool}` is a tool of an MCP server, and {why}"))
}

/// What is wrong with a name of ours; `named` is how it was written.
pub(crate) fn fault(tool: &str, named: &str, shelf: &Shelf<'_>) -> Option<String> {
    match mcp_fault(tool, shelf.servers) {
        Some(fault) => fault,
        None if shelf.tools.contains(&tool) => None,
        None => Some(suggest::unknown("tool", named, shelf.tools)),
    }
}

/// Reads the list of an agent of ours.
pub(crate) fn read(sheet: &mut Sheet, entry: &Entry, shelf: &Shelf<'_>) -> Option<Vec<String>> {
    let mut tools: Vec<String> = Vec::new();
    for (place, named) in sheet.placed_texts(entry) {
        let tool = match ours(&named) {
            Some(ours) => ours.to_owned(),
            None => unwired(&named).unwrap_or_else(|| named.clone()),
        };
        match fault(&tool, &named, shelf) {
            Some(message) => sheet.fault(place, message),
            None if tools.contains(&tool) => {}
            None => {
                if let Some(message) = unserved(&tool, shelf) {
                    sheet.lack(place, message);
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
    fn a_tool_of_a_server_has_one_name_here() {
        let check = |wire: &str, name: Option<&str>| assert_eq!(unwired(wire).as_deref(), name);
        check("mcp__github__create_issue", Some("mcp:github/create_issue"));
        check("mcp__github", Some("mcp:github"));
        check("mcp__github__*", Some("mcp:github"));
        check("read_file", None);
    }

    #[test]
    fn servers_are_known_or_not_asked_about() {
        let check = |tool: &str, servers: &[&str], said: Option<Option<&str>>| {
            let fault = mcp_fault(tool, servers);
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
