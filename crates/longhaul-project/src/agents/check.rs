//! Warnings about an agent whose file is valid. They do not prevent the use of the agent.

use longhaul_core::glob;
use longhaul_engine::RUN_AGENT;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::ChildRunsConfig;
use longhaul_tool::SANDBOX_TOOLS;

use crate::mcp::name::split_mcp_server_and_tool;

/// Returns the warnings about an agent. `is_once_tool` returns for a tool name whether a call of
/// the tool must not be repeated, or `None` if that is unknown.
pub fn agent_warnings(agent: &Agent, is_once_tool: impl Fn(&str) -> Option<bool>) -> Vec<String> {
    let mut notes = Vec::new();
    if agent.prompt.is_empty() {
        notes.push("the agent has no prompt: write one below the front matter".to_owned());
    }
    // Nothing outside of a sandbox without network is changed by its commands.
    let is_contained = agent.sandbox_config().is_some_and(|sandbox| sandbox.network.is_empty());
    for tool in agent.tools.iter().filter(|tool| !(is_contained && *tool == "shell")) {
        let is_once = is_once_tool(tool);
        let may_be_once = is_once.unwrap_or(true) && !is_declared_repeatable(agent, tool);
        let has_rule = agent.rules.iter().any(|rule| rule_glob_applies_to_tool(&rule.tool, tool));
        if may_be_once && !has_rule {
            let server = split_mcp_server_and_tool(tool).filter(|_| is_once.is_none());
            let reason = match server {
                Some((server, _)) => format!(
                    "can't be undone, unless the server says otherwise to `longhaul mcp check \
                     {server}`,"
                ),
                None => "can't be undone".to_owned(),
            };
            notes.push(format!(
                "calls of `{tool}` {reason} and no rule covers them: add \
                 `{{ tool: {tool}, ask: \"...\" }}` or `{{ tool: {tool}, allow: true }}` to `approve`"
            ));
        }
    }
    for rule in &agent.rules {
        if !agent.tools.iter().any(|tool| rule_glob_applies_to_tool(&rule.tool, tool)) {
            let suggestion = longhaul_core::suggest::most_similar_name(
                &rule.tool,
                agent.tools.iter().map(String::as_str),
            );
            let suggestion = suggestion.map(|suggestion| format!(", did you mean `{suggestion}`?"));
            let suggestion = suggestion.unwrap_or_default();
            notes.push(format!(
                "a rule names the tool `{}`, which the agent does not have{suggestion}",
                rule.tool
            ));
        }
    }
    for effect in agent.effects.iter().filter(|effect| effect.key.is_some()) {
        if !agent.tools.iter().any(|tool| rule_glob_applies_to_tool(&effect.tool, tool)) {
            notes.push(format!(
                "`effects` has a key for the tool `{}`, which the agent does not have",
                effect.tool
            ));
        }
    }
    if agent.children != ChildRunsConfig::default()
        && !agent.tools.iter().any(|tool| tool == RUN_AGENT)
    {
        notes.push(
            "`children` has no effect: the agent does not have the tool `run_agent`".to_owned(),
        );
    }
    let works_in_sandbox = |tool: &String| SANDBOX_TOOLS.contains(&tool.as_str());
    if agent.sandbox.is_some() && !agent.tools.iter().any(works_in_sandbox) {
        notes.push("`sandbox` has no effect: the agent has no tool that works in it".to_owned());
    }
    if agent.tools.iter().any(|tool| split_mcp_server_and_tool(tool).is_some()) {
        notes.push(
            "the MCP servers of the agent run outside any sandbox: see them with `longhaul mcp`"
                .to_owned(),
        );
    }
    notes
}

/// Whether an approval rule with this tool glob applies to the tool, or to one of the
/// tools of the MCP server.
fn rule_glob_applies_to_tool(tool_glob: &str, tool_or_server: &str) -> bool {
    let is_tool_of_server =
        tool_glob.strip_prefix(tool_or_server).is_some_and(|rest| rest.starts_with('/'));
    matches_glob(tool_glob, tool_or_server)
        || split_mcp_server_and_tool(tool_or_server).is_some() && is_tool_of_server
}

/// Whether the agent's `effects` declare that every call of this tool may be repeated.
fn is_declared_repeatable(agent: &Agent, tool_name: &str) -> bool {
    let mut classes = agent.effects.iter().filter_map(|effect| Some((effect, effect.class?)));
    let first = classes.find(|(effect, _)| matches_glob(&effect.tool, tool_name));
    first.is_some_and(|(effect, class)| effect.match_glob.is_none() && class.may_repeat())
}

fn matches_glob(tool_glob: &str, tool_name: &str) -> bool {
    glob::matches(tool_glob, tool_name).unwrap_or(false)
}
