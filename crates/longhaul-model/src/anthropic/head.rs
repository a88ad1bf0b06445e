//! The part of a request that stays the same through a run: prompt, tools and
//! what the user has set.
//!
//! Never: a field that nobody asked for, or another spelling of a tool's schema.

use longhaul_core::raw::{Body, RawJson};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::anthropic::ids;
use crate::anthropic::spell;
use crate::anthropic::talk::MARK;
use crate::fields::Fields;

/// The fields that are ours to fill.
const OURS: &[&str] = &[
    "model",
    "max_tokens",
    "messages",
    "stream",
    "system",
    "tools",
];

/// A row of the table of tools.
#[derive(Debug, Deserialize)]
struct Row<'a> {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(borrow)]
    schema: &'a RawValue,
}

/// The head of the requests of a run.
#[derive(Debug)]
pub(super) struct Head {
    system: Body,
    tools: Body,
    text: Vec<u8>,
}

impl Head {
    /// Writes the head of this prompt and this table.
    pub(super) fn new(system: &Body, tools: &Body, set: Option<&RawJson>) -> Result<Self, String> {
        let mut text = Vec::new();
        if let Some(set) = set.and_then(spell::inside).filter(|set| !set.is_empty()) {
            text.push(b',');
            text.extend_from_slice(set.as_bytes());
        }
        let prompt = words(system, "prompt")?;
        if !prompt.trim().is_empty() {
            text.extend_from_slice(br#","system":["#);
            spell::words_block(&mut text, prompt);
            mark(&mut text);
            text.push(b']');
        }
        let table: Vec<Row<'_>> = serde_json::from_str(words(tools, "table of tools")?)
            .map_err(|bad| format!("the table of tools can't be read: {bad}"))?;
        if !table.is_empty() {
            text.extend_from_slice(br#","tools":["#);
            for (place, row) in table.iter().enumerate() {
                if place > 0 {
                    text.push(b',');
                }
                row.write(&mut text);
            }
            mark(&mut text);
            text.push(b']');
        }
        Ok(Self {
            system: system.clone(),
            tools: tools.clone(),
            text,
        })
    }

    /// Whether it is the head of this prompt and this table.
    pub(super) fn is_of(&self, system: &Body, tools: &Body) -> bool {
        self.system == *system && self.tools == *tools
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }
}

impl Row<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"name":"#);
        spell::text(out, &ids::name(&self.name));
        if !self.description.is_empty() {
            out.extend_from_slice(br#","description":"#);
            spell::text(out, &self.description);
        }
        out.extend_from_slice(br#","input_schema":"#);
        out.extend_from_slice(schema(self.schema.get()).as_bytes());
        out.push(b'}');
    }
}

/// A schema as it is; only one that does not say that it wants an object, as the
/// provider demands, is made to say so.
fn schema(raw: &str) -> String {
    let says = |fields: &Fields| fields.get("type").is_some();
    match Fields::read(raw) {
        Some(fields) if says(&fields) => raw.to_owned(),
        Some(mut fields) => {
            fields.set("type", RawJson::of(&"object"));
            fields
                .raw()
                .map_or_else(|| raw.to_owned(), |made| made.as_str().to_owned())
        }
        None => raw.to_owned(),
    }
}

/// Marks the object that was just written.
fn mark(out: &mut Vec<u8>) {
    if out.pop().is_some() {
        out.extend_from_slice(MARK);
        out.push(b'}');
    }
}

fn words<'a>(body: &'a Body, what: &str) -> Result<&'a str, String> {
    match body {
        Body::Inline(text) => Ok(text),
        Body::Blob(_) => Err(format!("the {what} is not spelled out")),
    }
}

/// Whether these are fields that a user may set.
pub(super) fn check(set: &RawJson) -> Result<(), String> {
    let fields = Fields::read(set.as_str()).ok_or("the request's own fields are no object")?;
    match OURS.iter().find(|name| fields.get(name).is_some()) {
        Some(name) => Err(format!("the field `{name}` of a request can't be set")),
        None => Ok(()),
    }
}
