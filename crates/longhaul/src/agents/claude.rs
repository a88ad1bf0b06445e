//! Reads the agents that Claude Code has in `.claude/agents`, as they are.
//!
//! Never: refuses one for what it does not know, and never leaves something out
//! in silence. Their prompt is no template: it reaches the model as it stands.

mod loose;

use longhaul_engine::agent::Agent;

use crate::agents::cut;
use crate::agents::files;
use crate::agents::later::{self, SHELL};
use crate::agents::sheet::Sheet;
use crate::agents::shelf::Shelf;
use crate::agents::{tools, verbatim, wishes};
use crate::written::{Content, Entry, Node, Place, yaml};

/// What an agent gets whose file names no tools: those that only read.
const READERS: &[&str] = &["read_file", "list_files", "search_files"];

/// The fields that mean something here.
const KNOWN: &[&str] = &[
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
pub(crate) fn read(
    sheet: &mut Sheet,
    stem: &str,
    bytes: &[u8],
    shelf: &Shelf<'_>,
) -> Option<Option<Agent>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if !bytes.starts_with(b"---") {
        sheet.note("it has no front matter, so it is no agent");
        return None;
    }
    let parts = match cut::cut(bytes) {
        Ok(parts) => parts,
        Err((place, message)) => {
            sheet.fault(place, message);
            return Some(None);
        }
    };
    let fields = Fields(entries(sheet, &parts.front));
    let (place, named) = fields.name(stem);
    let name = match files::name(&named) {
        Ok(name) => name,
        Err(message) => {
            sheet.fault(place, message);
            return Some(None);
        }
    };
    let mut agent = Agent::new(name);
    agent.prompt = verbatim::template(&parts.body);
    fields.fill(sheet, &mut agent, shelf);
    agent.tools = fields.tools(sheet, &agent, shelf);
    fields.tell_unknown(sheet);
    Some(Some(agent))
}

/// The fields of a file, whatever they are.
struct Fields(Vec<Entry>);

impl Fields {
    fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    /// The agent's name, and where it stands; the file's where none does.
    fn name(&self, stem: &str) -> (Place, String) {
        let named = self.get("name");
        let named = named.map(|entry| (entry.node.place, text(&entry.node)));
        named
            .filter(|(_, name)| !name.is_empty())
            .unwrap_or((Place::START, stem.to_owned()))
    }

    /// Everything but name, tools and prompt.
    fn fill(&self, sheet: &mut Sheet, agent: &mut Agent, shelf: &Shelf<'_>) {
        if let Some(entry) = self.get("description") {
            agent.description = text(&entry.node);
        }
        if let Some(entry) = self.get("model") {
            agent.models = model(sheet, &text(&entry.node), shelf);
        }
        if let Some(entry) = self.get("maxTurns").or_else(|| self.get("max_turns")) {
            agent.max_turns = turns(sheet, entry);
        }
        if let Some(entry) = self.get("sandbox") {
            sandbox(sheet, agent, entry);
        }
        let skills = self.get("skills").map(|entry| words(&entry.node));
        for name in skills.into_iter().flatten() {
            match wishes::skill(&name, shelf) {
                Ok(skill) => agent.skills.push(skill),
                Err(why) => sheet.note(format!("`skills`: {why}; left out")),
            }
        }
    }

    /// What it gets, without what it must not have.
    fn tools(&self, sheet: &mut Sheet, agent: &Agent, shelf: &Shelf<'_>) -> Vec<String> {
        let mut granted = granted(sheet, agent, self.get("tools"), shelf);
        if let Some(entry) = self.get("disallowedTools") {
            let words = words(&entry.node);
            // Also where only some calls are forbidden: rules of ours say that better.
            let forbidden: Vec<_> = words.iter().map(|word| Named::of(word).ours).collect();
            granted.retain(|tool| !forbidden.iter().flatten().any(|ours| ours == tool));
            let said = words.join(", ");
            sheet.note(format!("`disallowedTools`: {said} is taken away"));
        }
        granted
    }

    fn tell_unknown(&self, sheet: &mut Sheet) {
        let keys = self.0.iter().map(|entry| entry.key.as_str());
        let unknown = keys.filter(|key| !KNOWN.contains(key));
        let unknown: Vec<String> = unknown.map(|key| format!("`{key}`")).collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            sheet.note(format!("without a meaning here, and ignored: {unknown}"));
        }
    }
}

/// The fields, as YAML or line by line where people wrote it as if it were none.
fn entries(sheet: &mut Sheet, front: &str) -> Vec<Entry> {
    match yaml::read(front) {
        Ok(node) => match node.table() {
            Some(entries) => entries.to_vec(),
            None => loose::read(front),
        },
        Err(malformed) => {
            let place = malformed.place;
            sheet.note(format!(
                "its front matter is no YAML at {place}, and was read line by line"
            ));
            loose::read(front)
        }
    }
}

fn model(sheet: &mut Sheet, named: &str, shelf: &Shelf<'_>) -> Vec<String> {
    let (models, meaning) = if named.is_empty() || named == "inherit" {
        (Vec::new(), "the project's default is asked".to_owned())
    } else if shelf.short_names.contains(&named) {
        (
            vec![named.to_owned()],
            "the short name in `[models]`".to_owned(),
        )
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

fn turns(sheet: &mut Sheet, entry: &Entry) -> Option<u32> {
    let said = text(&entry.node);
    let turns = said.parse().ok().filter(|turns| *turns > 0);
    if turns.is_none() {
        sheet.note(format!(
            "`{}: {said}` is no number of turns, and ignored",
            entry.key
        ));
    }
    turns
}

/// Claude's files have no such field; one that says so wants ours.
fn sandbox(sheet: &mut Sheet, agent: &mut Agent, entry: &Entry) {
    let mut own = Sheet::default();
    let read = wishes::sandbox(&mut own, entry);
    match own.found.first() {
        None => agent.sandbox = read,
        Some(found) => sheet.note(format!("`sandbox` is ignored: {}", found.message)),
    }
}

/// A tool as the file names it.
struct Named {
    ours: Option<String>,
    /// It is limited to some of its calls, as in `Bash(git log:*)`.
    limited: bool,
}

impl Named {
    fn of(word: &str) -> Self {
        let (name, limit) = word.split_once('(').unwrap_or((word, ""));
        let name = name.trim();
        let ours = tools::ours(name).map(str::to_owned);
        Self {
            ours: ours.or_else(|| tools::unwired(name)),
            limited: !limit.is_empty(),
        }
    }
}

/// The tools that it gets of those that it names.
fn granted(
    sheet: &mut Sheet,
    agent: &Agent,
    entry: Option<&Entry>,
    shelf: &Shelf<'_>,
) -> Vec<String> {
    let named = entry.filter(|entry| entry.node.content != Content::Nothing);
    let named = named.map(|entry| words(&entry.node));
    let Some(named) = named.filter(|words| !words.iter().any(|word| word == "*")) else {
        let readers = READERS.iter().filter(|tool| shelf.tools.contains(tool));
        let readers: Vec<String> = readers.map(|tool| (*tool).to_owned()).collect();
        sheet.note(format!(
            "it names no tools of its own, and gets those that only read: {}",
            readers.join(", ")
        ));
        return readers;
    };
    let (mut granted, mut meant): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for word in named {
        match grant(&word, agent, shelf) {
            Ok(tool) => {
                if tool != word {
                    meant.push(format!("`{word}` is {tool}"));
                }
                if let (Some(message), Some(entry)) = (tools::unserved(&tool, shelf), entry) {
                    sheet.lack(entry.node.place, message);
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

fn grant(word: &str, agent: &Agent, shelf: &Shelf<'_>) -> Result<String, String> {
    let named = Named::of(word);
    let ours = named.ours.unwrap_or_else(|| word.to_owned());
    if named.limited {
        return Err(
            "such limits are not known here; write it with rules as agents/NAME.md".to_owned(),
        );
    }
    match tools::mcp_fault(&ours, shelf.servers) {
        Some(None) => return Ok(ours),
        Some(Some(why)) => return Err(why),
        None => {}
    }
    if ours == SHELL && !later::is_unwalled(agent) {
        return Err(
            "commands need a sandbox, which this build can't make yet, or the line \
             `sandbox: { isolation: none }`, which runs them without walls"
                .to_owned(),
        );
    }
    match shelf.tools.contains(&ours.as_str()) {
        true => Ok(ours),
        false if ours == word => Err("nothing here is called so".to_owned()),
        false => Err(format!("this build has no `{ours}`")),
    }
}

/// A value as one text.
fn text(node: &Node) -> String {
    match &node.content {
        Content::Nothing => String::new(),
        Content::Text(text) => text.trim().to_owned(),
        Content::List(_) | Content::Table(_) => words(node).join(", "),
        Content::Flag(flag) => flag.to_string(),
        Content::Whole(whole) => whole.to_string(),
        Content::Real(real) => real.to_string(),
    }
}

/// A value as words: the elements of a list, or what commas part.
fn words(node: &Node) -> Vec<String> {
    let words = match &node.content {
        Content::List(list) => list.iter().map(text).collect(),
        Content::Table(entries) => entries.iter().map(|entry| entry.key.clone()).collect(),
        Content::Text(text) => loose::parted(text),
        Content::Nothing | Content::Flag(_) | Content::Whole(_) | Content::Real(_) => {
            vec![text(node)]
        }
    };
    words
        .into_iter()
        .filter(|word: &String| !word.is_empty())
        .collect()
}
