//! `longhaul agents show`: prints an agent as the runtime uses it, with every field that is set.

use clap::Args;
use longhaul_core::duration;
use longhaul_core::policy::gate::{GateRuleAction, GateTimeout};
use longhaul_core::time::Millis;
use longhaul_engine::agent::Agent;
use longhaul_engine::tools::registry::{RegisteredTool, ToolRegistry};
use longhaul_engine::{CHILD_TOOLS, RUN_AGENT};
use longhaul_project::agents::escape;
use longhaul_project::agents::scaffold::quote_yaml_if_needed;
use longhaul_project::spanned;
use serde_json::{Map, Value, json};

use crate::agents::project::ProjectWithAgents;
use crate::{output, sanitize};

/// Approximate number of bytes of a tool's JSON per token.
const BYTES_PER_TOKEN: usize = 4;

/// Fields whose numbers are milliseconds. They are shown as durations.
const DURATION_FIELDS: &[&str] = &[
    "active",
    "after",
    "hard_timeout",
    "initial_delay",
    "keep_open",
    "max_delay",
    "outage",
    "question_timeout",
    "remind",
    "soft_timeout",
    "timeout",
];

/// Arguments of `longhaul agents show`.
#[derive(Debug, Args)]
pub(crate) struct ShowAgentCommand {
    /// Name of the agent
    name: String,
    /// Print the agent as one JSON object
    #[arg(long)]
    json: bool,
}

impl ShowAgentCommand {
    pub(crate) fn run(&self, project: &ProjectWithAgents) -> anyhow::Result<()> {
        let loaded_agent = project.find_agent(&self.name)?;
        let agent = &loaded_agent.agent;
        if self.json {
            let source = loaded_agent.source.as_str();
            let value = json!({
                "version": agent.definition_hash(), "path": loaded_agent.path, "source": source,
                "notes": loaded_agent.notes, "agent": agent,
            });
            return output::print_json(&value);
        }
        let line = |name: &str, text: String| match text.is_empty() {
            true => Ok(()),
            false => output::print_text(&format!(
                "{name:18}{}",
                spanned::escape_control_characters(&text)
            )),
        };
        line("name", agent.name.to_string())?;
        line("file", sanitize::sanitize_line(&loaded_agent.path.display().to_string()))?;
        line("source", loaded_agent.source.as_str().to_owned())?;
        line("version", agent.definition_hash().to_string())?;
        line("tool size", format_tool_tokens(agent, &project.tools))?;
        let gate_timeout = project.config.run_policy_defaults().gate_timeout;
        for (name, value) in shown_fields(agent.clone(), gate_timeout) {
            if let Value::Array(list) = &value
                && list.iter().all(Value::is_object)
            {
                list.iter().try_for_each(|one| line(&name, format_value(&name, one)))?;
            } else if let Value::String(text) = &value {
                line(&name, text.trim_end().to_owned())?;
            } else if name == "output" {
                line(&name, value.to_string())?;
            } else {
                line(&name, format_value(&name, &value))?;
            }
        }
        for note in &loaded_agent.notes {
            line("note", note.clone())?;
        }
        if agent.prompt.is_empty() {
            return Ok(());
        }
        let prompt = escape::unescape_template_syntax(&agent.prompt);
        output::print_text(&format!("\n{}", spanned::escape_control_characters(&prompt)))
    }
}

/// Returns the fields of the agent that are set, except its name and prompt. Gates for which it sets
/// no timeout have `gate_timeout`.
fn shown_fields(mut agent: Agent, gate_timeout: GateTimeout) -> Map<String, Value> {
    for rule in &mut agent.rules {
        if matches!(rule.action, GateRuleAction::Ask(_)) {
            rule.timeout.get_or_insert(gate_timeout);
        }
    }
    if let Some(gate) = &mut agent.result_gate {
        gate.timeout.get_or_insert(gate_timeout);
    }
    if !agent.project_rules.is_empty() {
        agent.project_rules =
            format!("AGENTS.md or CLAUDE.md, {} bytes", agent.project_rules.len());
    }
    agent.prompt.clear();
    let deferred = std::mem::take(&mut agent.deferred_tools);
    for tool in &mut agent.tools {
        if deferred.contains(tool) {
            // As in the agent's file.
            tool.push('?');
        } else if tool == RUN_AGENT {
            tool.push_str(&format!(" (with {})", CHILD_TOOLS.join(", ")));
        }
    }
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&agent) else {
        return Map::new();
    };
    if let Some(Value::Object(limits)) = fields.get_mut("guards") {
        for limit in limits.values_mut().filter(|limit| limit.is_null()) {
            *limit = Value::from("off");
        }
    }
    fields.shift_remove("name");
    fields.retain(|_, value| is_set(value));
    fields
}

/// Whether a value is anything but `null`, empty, or made of such values.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => fields.values().any(is_set),
    }
}

/// Formats the value of the field `name` on one line, as YAML.
fn format_value(name: &str, value: &Value) -> String {
    let join = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| is_set(value));
            let fields = fields.map(|(name, value)| match (name.as_str(), value.as_f64()) {
                ("micro_usd", Some(micros)) => format!("usd: {}", micros / 1e6),
                _ => format!("{name}: {}", format_value(name, value)),
            });
            format!("{{ {} }}", join(fields.collect()))
        }
        Value::Array(list) => {
            format!("[{}]", join(list.iter().map(|value| format_value(name, value)).collect()))
        }
        Value::String(text) => quote_yaml_if_needed(text),
        Value::Number(number) => match number.as_u64() {
            Some(millis) if DURATION_FIELDS.contains(&name) => {
                duration::format_duration(Millis(millis))
            }
            Some(_) | None => number.to_string(),
        },
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

/// Returns how many tokens the agent's tools take in each request, as far as they are known without
/// starting MCP servers.
fn format_tool_tokens(agent: &Agent, tools: &ToolRegistry) -> String {
    let mut bytes = 0;
    let mut unmeasured_tools = Vec::new();
    for name in agent.tools.iter().filter(|name| !agent.deferred_tools.contains(name)) {
        match tools.find_tool(name).map(RegisteredTool::spec) {
            Some(spec) => {
                bytes += name.len() + spec.description.len() + spec.schema.to_string().len();
            }
            None => unmeasured_tools.push(name.as_str()),
        }
    }
    let tokens = bytes.div_ceil(BYTES_PER_TOKEN);
    let deferred_note = match agent.deferred_tools.is_empty() {
        true => "",
        false => " (without the list of deferred tools that find_tools has)",
    };
    let others = match unmeasured_tools.as_slice() {
        _ if agent.tools.is_empty() => return String::new(),
        [] => String::new(),
        names => format!(", and those of {}", names.join(", ")),
    };
    format!("about {tokens} tokens{others}{deferred_note}")
}
