//! `recall`: finds notes by their words.
//!
//! Never: more of them than a model can use, and never as words of a person's:
//! each note says when it was written.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{BadId, ResourceKey};
use longhaul_core::note::{Note, words};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::shelves::Shelves;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};

use crate::ask::{card, typed};
use crate::memory::whose::whose;

/// So many notes are shown unless it is said otherwise.
const NOTES: usize = 10;
/// So many notes are shown at most.
const NOTES_MAX: usize = 50;
/// So many bytes are shown at most.
const SHOWN_BYTES_MAX: usize = 32 * 1_024;

/// Finds notes.
#[derive(Debug)]
pub(crate) struct Recall {
    card: ToolCard,
    shelves: Arc<dyn Shelves>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    query: String,
    #[serde(default)]
    limit: Option<usize>,
}

impl Recall {
    /// The tool over these notes.
    pub(crate) fn new(shelves: Arc<dyn Shelves>) -> Result<Self, BadId> {
        let properties = json!({
            "query": {
                "type": "string",
                "description": "Words to look for; any of them is enough. Empty for the newest notes",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": NOTES_MAX,
                "description": format!("So many notes at most, {NOTES} unless set"),
            },
        });
        let description = "Finds notes that earlier runs wrote down with `remember` about the \
            same person or thing, the best match first.";
        Ok(Self {
            card: card("recall", description, properties, &["query"])?,
            shelves,
        })
    }
}

#[async_trait]
impl Tool for Recall {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Pure
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let Input { query, limit } = typed(&self.card, input)?;
        let resource = whose(around)?;
        let limit = limit.unwrap_or(NOTES).clamp(1, NOTES_MAX);
        let found = self.shelves.recall(&resource, &query, limit).await;
        let found = found.map_err(|error| {
            ToolFailure::new(format!(
                "The notes can't be read: {error}. Try again later."
            ))
        })?;
        Ok(ToolOutput::text(told(&found, &query, &resource)))
    }
}

fn told(found: &[Note], query: &str, resource: &ResourceKey) -> String {
    let lists = words(query).is_empty();
    if found.is_empty() {
        return match lists {
            true => format!("There are no notes about {resource} yet."),
            false => format!(
                "No note about {resource} has any of these words. Try others, or an empty query \
                 for the newest notes."
            ),
        };
    }
    let order = if lists {
        "the newest"
    } else {
        "the best match"
    };
    let mut told = format!("Notes about {resource}, {order} first:\n");
    for (note, number) in found.iter().zip(1..) {
        let row = row(note, number);
        if told.len() + row.len() > SHOWN_BYTES_MAX && number > 1 {
            let left = found.len() + 1 - number;
            // Writing to a text can't fail.
            let _ = write!(told, "\n{left} more are not shown: ask for fewer at once.");
            break;
        }
        told.push_str(&row);
    }
    told
}

fn row(note: &Note, number: usize) -> String {
    let at = note.at.to_string();
    let day = at.get(..10).unwrap_or(&at);
    let tags = match note.tags.is_empty() {
        true => String::new(),
        false => format!(" [{}]", note.tags.join(", ")),
    };
    let text = note.text.trim().replace('\n', "\n   ");
    format!("\n{number}. {day}{tags}\n   {text}\n")
}
