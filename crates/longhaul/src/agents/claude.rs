//! Reads the agents that Claude Code has in `.claude/agents`, as they are.
//!
//! Never: refuses one for what it does not know, and never leaves something out
//! in silence. Their prompt is no template: it reaches the model as it stands.

mod lenient;

use longhaul_engine::agent::Agent;

use crate::agents::diagnostics::Diagnostics;
use crate::agents::files;
use crate::agents::load_context::LoadContext;
use crate::agents::shell_check::{self, SHELL_TOOL};
use crate::agents::split;
use crate::agents::{escape, runtime_fields, tools};
use crate::spanned::{Node, NodeValue, Position, TableEntry, yaml};

/// What an agent gets whose file names no tools: those that only read.
const READ_ONLY_TOOLS: &[&str] = &["read_file", "list_files", "search_files"];

/// The fields that mean something here.
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

/// Reads a file; `stem` is its name without `.md`. Nothing where the file has no
/// front matter, and so is no agent; nothing inside where it can't be used.
pub(crate) fn parse(
    sheet: &mut Diagnostics,
    stem: &str,
    bytes: &[u8],
    shelf: &LoadContext<'_>,
) -> Option<Option<Agent>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if !bytes.starts_with(b"---") {
        sheet.note("it has no front matter, so it is no agent");
        return None;
    }
    let parts = match split::split_file(bytes) {
        Ok(parts) => parts,
        Err((place, message)) => {
            sheet.invalid(place, message);
            return Some(None);
        }
    };
    let fields = ClaudeFields(parse_entries(sheet, &parts.front_matter));
    let (place, named) = fields.agent_name(stem);
    let name = match files::parse_name(&named) {
        Ok(name) => name,
        Err(message) => {
            sheet.invalid(place, message);
            return Some(None);
        }
    };
    let mut agent = Agent::new(name);
    agent.prompt = escape::escape(&parts.body);
    fields.apply(sheet, &mut agent, shelf);
    agent.tools = fields.granted_tools(sheet, &agent, shelf);
    fields.note_unknown(sheet);
    Some(Some(agent))
}

/// The fields of a file, whatever they are.
struct ClaudeFields(Vec<TableEntry>);

impl ClaudeFields {
    fn get(&self, key: &str) -> Option<&TableEntry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    /// The agent's name, and where it stands; the file's where none does.
    fn agent_name(&self, stem: &str) -> (Position, String) {
        let named = self.get("name");
        let named = named.map(|entry| (entry.node.position, node_text(&entry.node)));
        named.filter(|(_, name)| !name.is_empty()).unwrap_or((Position::START, stem.to_owned()))
    }

    /// Everything but name, tools and prompt.
    fn apply(&self, sheet: &mut Diagnostics, agent: &mut Agent, shelf: &LoadContext<'_>) {
        if let Some(entry) = self.get("description") {
            agent.description = node_text(&entry.node);
        }
        if let Some(entry) = self.get("model") {
            agent.models = parse_model(sheet, &node_text(&entry.node), shelf);
        }
        if let Some(entry) = self.get("maxTurns").or_else(|| self.get("max_turns")) {
            agent.max_turns = parse_max_turns(sheet, entry);
        }
        if let Some(entry) = self.get("sandbox") {
            parse_sandbox(sheet, agent, entry);
        }
        let skills = self.get("skills").map(|entry| node_items(&entry.node));
        for name in skills.into_iter().flatten() {
            match runtime_fields::find_skill(&name, shelf) {
                Ok(skill) => agent.skills.push(skill),
                Err(why) => sheet.note(format!("`skills`: {why}; left out")),
            }
        }
    }

    /// What it gets, without what it must not have.
    fn granted_tools(
        &self,
        sheet: &mut Diagnostics,
        agent: &Agent,
        shelf: &LoadContext<'_>,
    ) -> Vec<String> {
        let mut granted = named_tools(sheet, agent, self.get("tools"), shelf);
        if let Some(entry) = self.get("disallowedTools") {
            let words = node_items(&entry.node);
            // Also where only some calls are forbidden: rules of ours say that better.
            let forbidden: Vec<_> =
                words.iter().map(|word| ClaudeTool::parse(word).native_name).collect();
            granted.retain(|tool| !forbidden.iter().flatten().any(|ours| ours == tool));
            let said = words.join(", ");
            sheet.note(format!("`disallowedTools`: {said} is taken away"));
        }
        granted
    }

    fn note_unknown(&self, sheet: &mut Diagnostics) {
        let keys = self.0.iter().map(|entry| entry.key.as_str());
        let unknown = keys.filter(|key| !KNOWN_FIELDS.contains(key));
        let unknown: Vec<String> = unknown.map(|key| format!("`{key}`")).collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            sheet.note(format!("without a meaning here, and ignored: {unknown}"));
        }
    }
}

/// The fields, as YAML or line by line where people wrote it as if it were none.
fn parse_entries(sheet: &mut Diagnostics, front: &str) -> Vec<TableEntry> {
    match yaml::parse(front) {
        Ok(node) => match node.table() {
            Some(entries) => entries.to_vec(),
            None => lenient::parse(front),
        },
        Err(malformed) => {
            let place = malformed.position;
            sheet
                .note(format!("its front matter is no YAML at {place}, and was read line by line"));
            lenient::parse(front)
        }
    }
}

fn parse_model(sheet: &mut Diagnostics, named: &str, shelf: &LoadContext<'_>) -> Vec<String> {
    let (models, meaning) = if named.is_empty() || named == "inherit" {
        (Vec::new(), "the project's default is asked".to_owned())
    } else if shelf.short_names.contains(&named) {
        (vec![named.to_owned()], "the short name in `[models]`".to_owned())
    } else if named.contains('/') {
        return vec![named.to_owned()];
    } else if named.starts_with("claude-") {
        let full = format!("anthropic/{named}");
        (vec![full.clone()], format!("`{full}` is asked"))
    } else {
        let way = format!("`[models]` has no `{named}`, so the project's default is asked");
        (Vec::new(), way)
    };
    sheet.note(format!("`model: {named}`: {meaning}"));
    models
}

fn parse_max_turns(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<u32> {
    let said = node_text(&entry.node);
    let turns = said.parse().ok().filter(|turns| *turns > 0);
    if turns.is_none() {
        sheet.note(format!("`{}: {said}` is no number of turns, and ignored", entry.key));
    }
    turns
}

/// Claude's files have no such field; one that says so wants ours.
fn parse_sandbox(sheet: &mut Diagnostics, agent: &mut Agent, entry: &TableEntry) {
    let mut own = Diagnostics::default();
    let read = runtime_fields::parse_sandbox(&mut own, entry);
    match own.problems.first() {
        None => agent.sandbox = read,
        Some(found) => sheet.note(format!("`sandbox` is ignored: {}", found.message)),
    }
}

/// A tool as the file names it.
struct ClaudeTool {
    native_name: Option<String>,
    /// It is limited to some of its calls, as in `Bash(git log:*)`.
    is_limited: bool,
}

impl ClaudeTool {
    fn parse(word: &str) -> Self {
        let (name, limit) = word.split_once('(').unwrap_or((word, ""));
        let name = name.trim();
        let ours = tools::native_name(name).map(str::to_owned);
        Self {
            native_name: ours.or_else(|| tools::from_wire_name(name)),
            is_limited: !limit.is_empty(),
        }
    }
}

/// The tools that it gets of those that it names.
fn named_tools(
    sheet: &mut Diagnostics,
    agent: &Agent,
    entry: Option<&TableEntry>,
    shelf: &LoadContext<'_>,
) -> Vec<String> {
    let named = entry.filter(|entry| entry.node.value != NodeValue::Null);
    let named = named.map(|entry| node_items(&entry.node));
    let Some(named) = named.filter(|words| !words.iter().any(|word| word == "*")) else {
        let readers = READ_ONLY_TOOLS.iter().filter(|tool| shelf.tools.contains(tool));
        let readers: Vec<String> = readers.map(|tool| (*tool).to_owned()).collect();
        sheet.note(format!(
            "it names no tools of its own, and gets those that only read: {}",
            readers.join(", ")
        ));
        return readers;
    };
    let (mut granted, mut meant): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for word in named {
        match grant_tool(&word, agent, shelf) {
            Ok(tool) => {
                if tool != word {
                    meant.push(format!("`{word}` is {tool}"));
                }
                if let (Some(message), Some(entry)) = (tools::missing_server(&tool, shelf), entry) {
                    sheet.missing(entry.node.position, message);
                }
                if !granted.contains(&tool) {
                    granted.push(tool);
                }
            }
            Err(why) => sheet.note(format!("`tools`: `{word}` is left out: {why}")),
        }
    }
    if !meant.is_empty() {
        sheet.note(format!("`tools`: {}", meant.join(", ")));
    }
    granted
}

fn grant_tool(word: &str, agent: &Agent, shelf: &LoadContext<'_>) -> Result<String, String> {
    let named = ClaudeTool::parse(word);
    let ours = named.native_name.unwrap_or_else(|| word.to_owned());
    if named.is_limited {
        return Err(
            "such limits are not known here; write it with rules as agents/NAME.md".to_owned()
        );
    }
    match tools::mcp_name_error(&ours, shelf.servers) {
        Some(None) => return Ok(ours),
        Some(Some(why)) => return Err(why),
        None => {}
    }
    if ours == SHELL_TOOL && !shell_check::is_unsandboxed(agent) {
        return Err("commands need a sandbox, which this build can't make yet, or the line \
             `sandbox: { isolation: none }`, which runs them without walls"
            .to_owned());
    }
    match shelf.tools.contains(&ours.as_str()) {
        true => Ok(ours),
        false if ours == word => Err("nothing here is called so".to_owned()),
        false => Err(format!("this build has no `{ours}`")),
    }
}

/// A value as one text.
fn node_text(node: &Node) -> String {
    match &node.value {
        NodeValue::Null => String::new(),
        NodeValue::Text(text) => text.trim().to_owned(),
        NodeValue::List(_) | NodeValue::Table(_) => node_items(node).join(", "),
        NodeValue::Boolean(flag) => flag.to_string(),
        NodeValue::Integer(whole) => whole.to_string(),
        NodeValue::Float(real) => real.to_string(),
    }
}

/// A value as words: the elements of a list, or what commas part.
fn node_items(node: &Node) -> Vec<String> {
    let words = match &node.value {
        NodeValue::List(list) => list.iter().map(node_text).collect(),
        NodeValue::Table(entries) => entries.iter().map(|entry| entry.key.clone()).collect(),
        NodeValue::Text(text) => lenient::split_commas(text),
        NodeValue::Null | NodeValue::Boolean(_) | NodeValue::Integer(_) | NodeValue::Float(_) => {
            vec![node_text(node)]
        }
    };
    words.into_iter().filter(|word: &String| !word.is_empty()).collect()
}
