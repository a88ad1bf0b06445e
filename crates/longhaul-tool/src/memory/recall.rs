//! `recall`: finds notes by their words.
//!
//! Never: more of them than a model can use, and never as words of a person's:
//! each note says when it was written.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::ResourceKey;
use longhaul_core::note::{Note, query_words};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::memory::scope::memory_scope;
use crate::tool_support::TIMEOUT;
use crate::typed::TypedTool;

/// So many notes are shown unless it is said otherwise.
const NOTES_DEFAULT: usize = 10;
/// So many notes are shown at most.
const NOTES_MAX: usize = 50;
/// So many bytes are shown at most.
const SHOWN_BYTES_MAX: usize = 32 * 1_024;

/// Finds notes.
#[derive(Debug)]
pub(crate) struct Recall(pub(crate) Arc<dyn RecordStore>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Words to look for; any of them is enough. Empty for the newest notes
    query: String,
    /// So many notes at most, 10 unless set
    #[schemars(range(min = 1, max = NOTES_MAX))]
    limit: Option<usize>,
}

#[async_trait]
impl TypedTool for Recall {
    type Input = Input;
    const NAME: &'static str = "recall";
    const DESCRIPTION: &'static str = "Finds notes that earlier runs wrote down with `remember` \
        about the same person or thing, the best match first.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    async fn call(&self, input: Input, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let Input { query, limit } = input;
        let resource = memory_scope(ctx)?;
        let limit = limit.unwrap_or(NOTES_DEFAULT).clamp(1, NOTES_MAX);
        let found = self.0.search_notes(&resource, &query, limit).await;
        let found = found.map_err(|error| {
            ToolFailure::new(format!("The notes can't be read: {error}. Try again later."))
        })?;
        Ok(ToolOutput::text(render_notes(&found, &query, &resource)))
    }
}

fn render_notes(found: &[Note], query: &str, resource: &ResourceKey) -> String {
    let lists = query_words(query).is_empty();
    if found.is_empty() {
        return match lists {
            true => format!("There are no notes about {resource} yet."),
            false => format!(
                "No note about {resource} has any of these words. Try others, or an empty query \
                 for the newest notes."
            ),
        };
    }
    let order = if lists { "the newest" } else { "the best match" };
    let mut told = format!("Notes about {resource}, {order} first:\n");
    for (note, number) in found.iter().zip(1..) {
        let row = render_note(note, number);
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

fn render_note(note: &Note, number: usize) -> String {
    let at = note.at.to_string();
    let day = at.get(..10).unwrap_or(&at);
    let tags = match note.tags.is_empty() {
        true => String::new(),
        false => format!(" [{}]", note.tags.join(", ")),
    };
    let text = note.text.trim().replace('\n', "\n   ");
    format!("\n{number}. {day}{tags}\n   {text}\n")
}
