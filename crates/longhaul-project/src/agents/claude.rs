//! Parses agent files of Claude Code in `.claude/agents`. The files need no changes.
//!
//! Unknown fields do not make a file invalid, and every ignored field is reported in a note. The
//! prompt is not a template: it reaches the model verbatim.

mod lenient;

use longhaul_core::slug::slugify;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::check::SHELL_TOOL;

use crate::agents::diagnostics::Diagnostics;
use crate::agents::load_context::AgentLoadContext;
use crate::agents::problem::ProblemKind;
use crate::agents::{escape, files, runtime_fields, tools};
use crate::spanned::{Node, NodeValue, Position, TableEntry, yaml};

/// Tools of a Claude Code agent whose file names no tools: the read-only tools.
const READ_ONLY_TOOLS: &[&str] = &["read_file", "list_files", "search_files"];

/// Fields of Claude Code's agent files that Longhaul supports.
const KNOWN_FIELDS: &[&str] = &[
    "name",
    "description",
    "tools",
    "disallowedTools",
    "model",
    "maxTurns",
    "max_turns",
    "skills",
    "sandbox",
];

/// Parses a Claude Code agent file; `stem` is the file's name without `.md`. The outer `None` means
/// that the file has no front matter and is not an agent; the inner `None` means that the file is
/// invalid.
pub(crate) fn parse_claude_agent(
    diagnostics: &mut Diagnostics<'_>,
    stem: &str,
    bytes: &[u8],
) -> Option<Option<Agent>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if !bytes.starts_with(b"---") {
        diagnostics.add_note("it has no front matter, so it is not an agent");
        return None;
    }
    let parts = match files::split_agent_file(bytes) {
        Ok(parts) => parts,
        Err((position, message)) => {
            diagnostics.report_invalid(position, message);
            return Some(None);
        }
    };
    let fields = ClaudeAgentFields(diagnostics.parse_front_matter_entries(&parts.front_matter));
    let (position, name_text) = fields.position_and_agent_name(stem);
    // Names in Claude Code may have spaces. Then the name is made from the file's name.
    let derived_name =
        || files::parse_agent_name(stem).or_else(|_| files::parse_agent_name(&slugify(stem)));
    let name = match files::parse_agent_name(&name_text)
        .or_else(|error| derived_name().map_err(|_| error))
    {
        Ok(name) => name,
        Err(message) => {
            diagnostics.report_invalid(position, message);
            return Some(None);
        }
    };
    if name.as_str() != name_text {
        diagnostics.replaced_name = Some(name_text);
    }
    let mut agent = Agent::new(name);
    agent.prompt = escape::escape_template_syntax(&parts.body);
    fields.set_agent_fields(diagnostics, &mut agent);
    agent.tools = fields.granted_tool_names(diagnostics, &agent);
    fields.add_unknown_field_notes(diagnostics);
    Some(Some(agent))
}

/// All fields of a Claude Code agent file, supported or not.
struct ClaudeAgentFields(Vec<TableEntry>);

impl ClaudeAgentFields {
    fn find_field(&self, key: &str) -> Option<&TableEntry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    /// Returns the agent's name and the position of the name. Without a `name` field the agent is
    /// named like the file.
    fn position_and_agent_name(&self, file_stem: &str) -> (Position, String) {
        let name_field = self.find_field("name");
        let name_field = name_field.map(|entry| (entry.node.position, node_to_text(&entry.node)));
        name_field
            .filter(|(_, name)| !name.is_empty())
            .unwrap_or((Position::START, file_stem.to_owned()))
    }

    /// Sets all fields of the agent except name, tools and prompt.
    fn set_agent_fields(&self, diagnostics: &mut Diagnostics<'_>, agent: &mut Agent) {
        if let Some(entry) = self.find_field("description") {
            agent.description = node_to_text(&entry.node);
        }
        if let Some(entry) = self.find_field("model") {
            agent.models = diagnostics.convert_claude_model_name(&node_to_text(&entry.node));
            for model in &agent.models {
                diagnostics.report_unusable_model(entry.node.position, model);
            }
        }
        if let Some(entry) = self.find_field("maxTurns").or_else(|| self.find_field("max_turns")) {
            let text = node_to_text(&entry.node);
            agent.max_turns = text.parse().ok().filter(|turns| *turns > 0);
            if agent.max_turns.is_none() {
                let key = &entry.key;
                diagnostics.add_note(format!(
                    "`{key}: {text}` is not a valid number of turns and is ignored"
                ));
            }
        }
        // Longhaul adds this field to Claude Code's format.
        if let Some(entry) = self.find_field("sandbox") {
            let mut sandbox_diagnostics = Diagnostics::new(diagnostics.ctx, &diagnostics.path);
            let sandbox = sandbox_diagnostics.parse_sandbox(entry);
            match sandbox_diagnostics.problems.iter().find(|one| one.kind != ProblemKind::Missing) {
                None => {
                    agent.sandbox = sandbox;
                    diagnostics.problems.append(&mut sandbox_diagnostics.problems);
                }
                Some(problem) => {
                    diagnostics.add_note(format!("`sandbox` is ignored: {}", problem.message));
                }
            }
        }
        let skills = self.find_field("skills").map(|entry| node_to_text_items(&entry.node));
        for name in skills.into_iter().flatten() {
            match runtime_fields::find_skill(&name, &diagnostics.ctx) {
                Ok(skill) => agent.skills.push(skill),
                Err(reason) => {
                    diagnostics.add_note(format!("`skills`: {reason}; this skill is left out"))
                }
            }
        }
    }

    /// Returns the tools that the field `tools` lists, without those that `disallowedTools` lists.
    fn granted_tool_names(&self, diagnostics: &mut Diagnostics<'_>, agent: &Agent) -> Vec<String> {
        let mut granted = diagnostics.resolve_tool_list(agent, self.find_field("tools"));
        if let Some(entry) = self.find_field("disallowedTools") {
            let disallowed = node_to_text_items(&entry.node);
            // A tool is removed even if only some of its calls are disallowed: approval rules
            // express such limits better.
            let forbidden = disallowed.iter().map(|name| split_limit(name).0);
            let forbidden: Vec<String> = forbidden.filter_map(tools::native_tool_name).collect();
            granted.retain(|tool| !forbidden.contains(tool));
            let names = disallowed.join(", ");
            diagnostics.add_note(format!("`disallowedTools` removes {names}"));
        }
        granted
    }

    fn add_unknown_field_notes(&self, diagnostics: &mut Diagnostics) {
        let keys = self.0.iter().map(|entry| entry.key.as_str());
        let unknown = keys.filter(|key| !KNOWN_FIELDS.contains(key));
        let unknown: Vec<String> = unknown.map(|key| format!("`{key}`")).collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            diagnostics.add_note(format!("unknown fields are ignored: {unknown}"));
        }
    }
}

impl Diagnostics<'_> {
    /// Parses the front matter as YAML, or line by line if it is not valid YAML.
    fn parse_front_matter_entries(&mut self, front_matter: &str) -> Vec<TableEntry> {
        match yaml::parse(front_matter) {
            Ok(node) => match node.as_table() {
                Some(entries) => entries.to_vec(),
                None => lenient::parse_fields_leniently(front_matter),
            },
            Err(error) => {
                let position = error.position;
                self.add_note(format!(
                    "its front matter is not valid YAML at {position} and was parsed line by line"
                ));
                lenient::parse_fields_leniently(front_matter)
            }
        }
    }

    fn convert_claude_model_name(&mut self, model_name: &str) -> Vec<String> {
        let (models, note) = if model_name.is_empty() || model_name == "inherit" {
            (Vec::new(), "the project's default model is used".to_owned())
        } else if self.ctx.short_names.contains(&model_name) {
            (vec![model_name.to_owned()], "the short name in `[models]`".to_owned())
        } else if model_name.contains('/') {
            return vec![model_name.to_owned()];
        } else if model_name.starts_with("claude-") {
            let model = format!("anthropic/{model_name}");
            let note = format!("the model `{model}` is used");
            (vec![model], note)
        } else {
            let note =
                format!("`[models]` has no `{model_name}`, so the project's default model is used");
            (Vec::new(), note)
        };
        self.add_note(format!("`model: {model_name}`: {note}"));
        models
    }

    /// Resolves the names in the field `tools` to the tools that the agent gets: the read-only tools if
    /// none are listed. A name that can't be resolved is left out with a note.
    fn resolve_tool_list(&mut self, agent: &Agent, entry: Option<&TableEntry>) -> Vec<String> {
        let ctx = self.ctx;
        let listed = entry.filter(|entry| entry.node.value != NodeValue::Null);
        let listed = listed.map(|entry| (entry.node.position, node_to_text_items(&entry.node)));
        let listed = listed.filter(|(_, names)| !names.iter().any(|name| name == "*"));
        let Some((position, tool_names)) = listed else {
            let read_only_tools = READ_ONLY_TOOLS.iter().filter(|tool| ctx.tools.contains(tool));
            let read_only_tools: Vec<String> = read_only_tools.map(ToString::to_string).collect();
            self.add_note(format!(
                "no tools are listed, so the agent gets the read-only ones: {}",
                read_only_tools.join(", ")
            ));
            return read_only_tools;
        };
        let (mut granted, mut mappings): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for claude_name in tool_names {
            match resolve_tool(&claude_name, agent, &ctx) {
                Ok(tool) => {
                    if tool != claude_name {
                        mappings.push(format!("`{claude_name}` maps to {tool}"));
                    }
                    if let Some(message) = tools::missing_mcp_server_message(&tool, &ctx) {
                        self.report_missing(position, message);
                    }
                    if !granted.contains(&tool) {
                        granted.push(tool);
                    }
                }
                Err(reason) => {
                    self.add_note(format!("`tools`: `{claude_name}` is left out: {reason}"))
                }
            }
        }
        if !mappings.is_empty() {
            self.add_note(format!("`tools`: {}", mappings.join(", ")));
        }
        granted
    }
}

/// Splits off the limit of a tool of which the file allows only some calls, as in
/// `Bash(git log:*)`.
fn split_limit(listed_name: &str) -> (&str, &str) {
    let (name, limit) = listed_name.split_once('(').unwrap_or((listed_name, ""));
    (name.trim(), limit)
}

fn resolve_tool(name: &str, agent: &Agent, ctx: &AgentLoadContext<'_>) -> Result<String, String> {
    let (claude_name, limit) = split_limit(name);
    let native_name = tools::native_tool_name(claude_name);
    let longhaul_name = native_name.unwrap_or_else(|| name.to_owned());
    if !limit.is_empty() {
        return Err("such limits are not supported; define the agent with rules in agents/NAME.md"
            .to_owned());
    }
    if let Some(result) = tools::check_name_if_mcp_tool(&longhaul_name, ctx.servers) {
        return result.map(|()| longhaul_name);
    }
    if longhaul_name == SHELL_TOOL && agent.sandbox.is_none() {
        return Err("commands need a sandbox: add the line `sandbox: { provider: local }`, or \
             `sandbox: { isolation: none }`, which runs them unsandboxed"
            .to_owned());
    }
    match ctx.tools.contains(&longhaul_name.as_str()) {
        true => Ok(longhaul_name),
        false if longhaul_name == name => Err("unknown tool".to_owned()),
        false => Err(format!("this build has no tool `{longhaul_name}`")),
    }
}

/// Converts a YAML value to one text. The elements of a list are joined with commas.
fn node_to_text(node: &Node) -> String {
    match &node.value {
        NodeValue::Null => String::new(),
        NodeValue::Text(text) => text.trim().to_owned(),
        NodeValue::List(_) | NodeValue::Table(_) => node_to_text_items(node).join(", "),
        NodeValue::Boolean(flag) => flag.to_string(),
        NodeValue::Integer(integer) => integer.to_string(),
        NodeValue::Float(float) => float.to_string(),
    }
}

/// Splits a YAML value into items: the elements of a list, or the parts of a text between commas.
fn node_to_text_items(node: &Node) -> Vec<String> {
    let items = match &node.value {
        NodeValue::List(list) => list.iter().map(node_to_text).collect(),
        NodeValue::Table(entries) => entries.iter().map(|entry| entry.key.clone()).collect(),
        NodeValue::Text(text) => lenient::split_at_outer_commas(text),
        NodeValue::Null | NodeValue::Boolean(_) | NodeValue::Integer(_) | NodeValue::Float(_) => {
            vec![node_to_text(node)]
        }
    };
    items.into_iter().filter(|item: &String| !item.is_empty()).collect()
}
