//! What a person should know of an agent though nothing is wrong with its file.
//!
//! Never: keeps an agent from being used.

use longhaul_engine::agent::Agent;
use wildmatch::WildMatch;

use crate::agents::shell_check::SHELL_TOOL;
use crate::mcp::name::parse_tool_name;

/// The notes on an agent; `is_once` says of a tool whether its calls must not
/// be repeated, none where it is not known.
pub fn notes(agent: &Agent, is_once: impl Fn(&str) -> Option<bool>) -> Vec<String> {
    let mut notes = Vec::new();
    if agent.prompt.is_empty() {
        notes.push("it has no prompt: write one below the front matter".to_owned());
    }
    for tool in &agent.tools {
        let once = is_once(tool).unwrap_or(true) && !is_declared_repeatable(agent, tool);
        let ruled = agent.rules.iter().any(|rule| rule_applies_to(&rule.tool, tool));
        if once && !ruled {
            notes.push(format!(
                "`{tool}` can't be taken back and no rule speaks of it: add \
                 `{{ tool: {tool}, ask: \"...\" }}` or `{{ tool: {tool}, allow: true }}` to `approve`"
            ));
        }
    }
    for rule in &agent.rules {
        if !agent.tools.iter().any(|tool| rule_applies_to(&rule.tool, tool)) {
            let near =
                longhaul_core::suggest::closest(&rule.tool, agent.tools.iter().map(String::as_str));
            let near = near.map(|near| format!(", did you mean `{near}`?"));
            let near = near.unwrap_or_default();
            notes.push(format!("a rule speaks of `{}`, which it does not have{near}", rule.tool));
        }
    }
    if agent.sandbox.is_some() && !agent.tools.iter().any(|tool| tool == SHELL_TOOL) {
        notes.push("its `sandbox` is for commands, and it has no tool that runs any".to_owned());
    }
    if agent.tools.iter().any(|tool| parse_tool_name(tool).is_some()) {
        notes.push(
            "its MCP servers run outside any sandbox: look at them with `longhaul mcp`".to_owned(),
        );
    }
    notes
}

/// Whether a rule speaks of a tool, or of one of a server's tools.
fn rule_applies_to(glob: &str, tool: &str) -> bool {
    let part = glob.strip_prefix(tool).is_some_and(|rest| rest.starts_with('/'));
    matches_glob(glob, tool) || parse_tool_name(tool).is_some() && part
}

/// Whether the agent itself says that every call of this tool may be repeated.
fn is_declared_repeatable(agent: &Agent, tool: &str) -> bool {
    let first = agent.effects.iter().find(|effect| matches_glob(&effect.tool, tool));
    first.is_some_and(|effect| effect.subject.is_none() && effect.class.may_repeat())
}

fn matches_glob(glob: &str, tool: &str) -> bool {
    WildMatch::new(glob).matches(tool)
}
