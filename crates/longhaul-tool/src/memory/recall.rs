//! The tool `recall`, which searches notes.
//!
//! Invariant: the output is limited, and each note shows when it was written, so that it is not
//! mistaken for a message of a person.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::ResourceKey;
use longhaul_core::note::{MemoryNote, query_words};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::disk_tool::TIMEOUT;
use crate::memory::scope::notes_resource;
use crate::typed::TypedTool;

/// Default number of notes that `recall` shows.
const NOTES_DEFAULT: usize = 10;
/// Maximum number of notes that `recall` shows.
const NOTES_MAX: usize = 50;
/// Maximum number of bytes that `recall` shows.
const SHOWN_BYTES_MAX: usize = 32 * 1_024;

#[derive(Debug)]
pub(crate) struct RecallTool(pub(crate) Arc<dyn RecordStore>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecallInput {
    /// Words to search for; a note matches if it has any of them. Empty for the newest notes
    query: String,
    /// Maximum number of notes; default: 10
    #[schemars(range(min = 1, max = NOTES_MAX))]
    limit: Option<usize>,
}

#[async_trait]
impl TypedTool for RecallTool {
    type Input = RecallInput;
    const NAME: &'static str = "recall";
    const DESCRIPTION: &'static str = "Searches notes that earlier runs saved with `remember` \
        about the same person or topic, best match first.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    async fn call(&self, input: RecallInput, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let RecallInput { query, limit } = input;
        let resource = notes_resource(ctx)?;
        let limit = limit.unwrap_or(NOTES_DEFAULT).clamp(1, NOTES_MAX);
        let notes = self.0.search_notes(&resource, &query, limit).await;
        let notes = notes.map_err(|error| {
            ToolFailure::new(format!("The notes can't be read: {error}. Try again later."))
        })?;
        Ok(ToolOutput::text(render_notes(&notes, &query, &resource)))
    }
}

fn render_notes(notes: &[MemoryNote], query: &str, resource: &ResourceKey) -> String {
    let is_listing = query_words(query).is_empty();
    if notes.is_empty() {
        return match is_listing {
            true => format!("There are no notes about {resource} yet."),
            false => format!(
                "No note about {resource} matches. Try other words, or an empty query \
                 for the newest notes."
            ),
        };
    }
    let order = if is_listing { "the newest" } else { "the best match" };
    let mut text = format!("Notes about {resource}, {order} first:\n");
    for (note, number) in notes.iter().zip(1..) {
        let row = render_note(note, number);
        if text.len() + row.len() > SHOWN_BYTES_MAX && number > 1 {
            let remaining = notes.len() + 1 - number;
            // Writing to a string can't fail.
            let _ = write!(text, "\n{remaining} more are not shown: use a smaller limit.");
            break;
        }
        text.push_str(&row);
    }
    text
}

fn render_note(note: &MemoryNote, number: usize) -> String {
    let at = note.at.to_string();
    let day = at.get(..10).unwrap_or(&at);
    let tags = match note.tags.is_empty() {
        true => String::new(),
        false => format!(" [{}]", note.tags.join(", ")),
    };
    let text = note.text.trim().replace('\n', "\n   ");
    format!("\n{number}. {day}{tags}\n   {text}\n")
}
