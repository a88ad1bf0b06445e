//! Generates the text of a new agent file, from scratch or from another agent. The caller checks
//! and writes the text.

use std::fmt::Write as _;

use crate::agents::loaded_agents::LoadedAgent;
use longhaul_engine::agent::check;

/// Tools of a new agent if none are named: the read-only tools.
const DEFAULT_TOOLS: &[&str] = &["list_files", "search_files", "read_file"];

/// Values for the file of a new agent.
#[derive(Debug, Clone, Default)]
pub struct AgentScaffold {
    pub name: String,
    /// Model of the new agent. `None` means the model of the copied agent, or the project's
    /// default.
    pub model: Option<String>,
    /// Tools of the new agent. `None` means the tools of the copied agent, or the read-only tools.
    pub tools: Option<Vec<String>>,
}

impl AgentScaffold {
    /// Renders a new agent file with an example line for each common field.
    pub fn render_new_agent(&self) -> String {
        let name = &self.name;
        let model = match &self.model {
            Some(model) => format!("model: {}", quote_yaml_if_needed(model)),
            None => "# model: anthropic/claude-sonnet-5-5   # or a short name of [models]; a list means fallbacks".to_owned(),
        };
        let tools: Vec<String> = match &self.tools {
            Some(tools) => tools.clone(),
            None => DEFAULT_TOOLS.iter().map(|tool| (*tool).to_owned()).collect(),
        };
        let tools = format_yaml_list(&tools);
        format!(
            r#"---
name: {name}
description: Purpose of the agent in one sentence.
{model}
tools: {tools}
# max_turns: 40                        # maximum number of turns of a run
# budget: {{ usd: 2, active_time: 30m }}
# approve:                             # the first match wins; calls without a matching rule are allowed
#   - {{ tool: write_file, match: "docs/*", allow: true }}
#   - {{ tool: write_file, ask: "Write this file?", timeout: 24h, on_timeout: reject }}
# approve_result: true                 # a person must approve the final answer
# skills: ["*"]                        # all of skills/, or a list of names
# keep_open: 1h                        # stays open for further messages
---
You are {name}. Describe here its role, how it works, and when it is done.

The task is the first message. The prompt may include it as well: {{{{ input }}}}
"#
        )
    }

    /// Renders a copy of the project agent file `source_text`, with the name of the new agent, and
    /// with its model and tools if they are set here.
    pub fn render_agent_copy(&self, source_text: &str) -> String {
        let mut text = set_front_matter_field(source_text, "name", &self.name);
        if let Some(model) = &self.model {
            text = set_front_matter_field(&text, "model", &quote_yaml_if_needed(model));
        }
        if let Some(tools) = &self.tools {
            text = set_front_matter_field(&text, "tools", &format_yaml_list(tools));
        }
        text
    }

    /// Renders a project agent file from an agent of `.claude/agents`.
    pub fn render_claude_agent(&self, claude_agent: &LoadedAgent) -> String {
        let agent = &claude_agent.agent;
        let mut front_matter = format!("name: {}\n", self.name);
        let mut add_field = |key: &str, value: String| {
            _ = writeln!(front_matter, "{key}: {value}");
        };
        if !agent.description.is_empty() {
            add_field("description", quote_yaml_if_needed(&agent.description));
        }
        let models = match &self.model {
            Some(model) => vec![model.clone()],
            None => agent.models.clone(),
        };
        match models.as_slice() {
            [] => {}
            [model] => add_field("model", quote_yaml_if_needed(model)),
            models => add_field("model", format_yaml_list(models)),
        }
        add_field("tools", format_yaml_list(self.tools.as_ref().unwrap_or(&agent.tools)));
        if let Some(turns) = agent.max_turns {
            add_field("max_turns", turns.to_string());
        }
        if !agent.skills.is_empty() {
            let names: Vec<String> = agent.skills.iter().map(|one| one.name.clone()).collect();
            add_field("skills", format_yaml_list(&names));
        }
        if check::is_unsandboxed(agent) {
            add_field("sandbox", "{ isolation: none }".to_owned());
        }
        let notes =
            claude_agent.notes.iter().map(|note| format!("# {}\n", note.replace('\n', " ")));
        let notes: String = notes.collect();
        format!(
            "---\n# from {}\n{notes}{front_matter}---\n{}\n",
            claude_agent.path.display(),
            agent.prompt.trim_end()
        )
    }
}

/// Returns the text as a plain YAML scalar if that is unambiguous, else as a JSON string.
pub fn quote_yaml_if_needed(text: &str) -> String {
    let is_plain_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let starts_alphabetic = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_keyword = ["true", "false", "null"].contains(&text);
    match starts_alphabetic && text.chars().all(is_plain_char) && !is_keyword {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
    }
}

fn format_yaml_list(texts: &[String]) -> String {
    let texts = texts.iter().map(|text| match text.starts_with("mcp:") {
        true => text.clone(),
        false => quote_yaml_if_needed(text),
    });
    format!("[{}]", texts.collect::<Vec<_>>().join(", "))
}

/// Returns the text of an agent file with a new value for a key of its front matter.
fn set_front_matter_field(text: &str, key: &str, value: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let line = format!("{key}: {value}");
    let is_fence = |line: &String| line.trim_end() == "---";
    let Some(end) = lines.iter().skip(1).position(is_fence).map(|at| at + 1) else {
        return text.to_owned();
    };
    let is_key = |line: &String| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'));
    match lines[..end].iter().position(is_key) {
        None => lines.insert(1, line),
        Some(at) => {
            let is_continuation =
                |line: &&String| line.starts_with([' ', '\t']) || line.starts_with("- ");
            let continuation_count = lines[at + 1..end].iter().take_while(is_continuation).count();
            lines.splice(at..=at + continuation_count, [line]);
        }
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_a_front_matter_field_keeps_the_other_fields() {
        let check = |text: &str, key: &str, expected: &str| {
            assert_eq!(set_front_matter_field(text, key, "x"), expected, "{key}");
        };
        let file = "---\nname: a # old\ntools:\n  - b\n- c\nend: 1\n---\nname: body\n";
        check(file, "name", "---\nname: x\ntools:\n  - b\n- c\nend: 1\n---\nname: body\n");
        check(file, "tools", "---\nname: a # old\ntools: x\nend: 1\n---\nname: body\n");
        check(file, "model", &file.replacen("---\n", "---\nmodel: x\n", 1));
        check("---\r\n---\r\nHi", "name", "---\nname: x\n---\nHi\n");
        check("no fence", "name", "no fence");
    }

    #[test]
    fn yaml_text_is_quoted_if_necessary() {
        for (text, expected) in [
            ("anthropic/claude-3.5", "anthropic/claude-3.5"),
            ("a: b", "\"a: b\""),
            ("true", "\"true\""),
            ("7", "\"7\""),
            ("say \"hi\"\n", r#""say \"hi\"\n""#),
        ] {
            assert_eq!(quote_yaml_if_needed(text), expected);
        }
    }
}
