//! `remember`: writes a note down for later runs.
//!
//! Never: the same note twice. A call that is repeated finds what it wrote.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::BadId;
use longhaul_core::note::{NOTE_BYTES_MAX, NOTE_TAGS_MAX, NOTES_MAX, NewNote, Noted};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::shelves::Shelves;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};

use crate::ask::{card, typed};
use crate::memory::whose::whose;

/// Writes notes.
#[derive(Debug)]
pub(crate) struct Remember {
    card: ToolCard,
    shelves: Arc<dyn Shelves>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    text: String,
    #[serde(default)]
    tags: Vec<String>,
}

impl Remember {
    /// The tool over these notes.
    pub(crate) fn new(shelves: Arc<dyn Shelves>) -> Result<Self, BadId> {
        let properties = json!({
            "text": {
                "type": "string",
                "minLength": 1,
                "maxLength": NOTE_BYTES_MAX,
                "description": "One fact, in words that make sense on their own later",
            },
            "tags": {
                "type": "array",
                "items": { "type": "string" },
                "maxItems": NOTE_TAGS_MAX,
                "description": "Words to find it by",
            },
        });
        let description = "Writes a note down that outlives this run: a preference, a decision, \
            a fact that will be needed again. Later runs about the same person or thing find it \
            with `recall`. Never write down a password or a key.";
        Ok(Self {
            card: card("remember", description, properties, &["text"])?,
            shelves,
        })
    }
}

#[async_trait]
impl Tool for Remember {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Keyed
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let Input { text, tags } = typed(&self.card, input)?;
        let resource = whose(around)?;
        let refuse = |why: String| ToolFailure::new(format!("The note was not kept: {why}."));
        let note = NewNote::new(around.key.clone(), text, tags, Some(around.run));
        let note = note.map_err(|bad| refuse(bad.to_string()))?;
        let noted = self.shelves.remember(&resource, note).await;
        match noted.map_err(|error| refuse(error.to_string()))? {
            Noted::Kept(id) | Noted::Known(id) => Ok(ToolOutput::text(format!(
                "Noted as {id}, about {resource}."
            ))),
            Noted::Full => Err(refuse(format!(
                "{NOTES_MAX} notes about {resource} are kept already, and only people remove any \
                 (longhaul memory forget)"
            ))),
        }
    }
}
