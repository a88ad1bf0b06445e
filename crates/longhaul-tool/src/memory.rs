//! The memory tools: notes about a resource (a person or thing) that later runs can find.
//!
//! Invariant: a run accesses only the notes of its own resource. The runtime sets the resource, not
//! the model. A repeated call does not save a note twice. What is shown is limited, and each note
//! shows when it was written, so that it is not mistaken for a message of a person.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::ResourceKey;
use longhaul_core::note::{
    AddNoteOutcome, MemoryNote, NOTE_BYTES_MAX, NOTE_TAGS_MAX, NOTES_MAX, NewMemoryNote,
    query_words,
};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::PredictedEffects;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::disk_tool::TIMEOUT;
use crate::prediction::no_effects;
use crate::typed::{TypedTool, TypedToolError, typed};

/// Default number of notes that `recall` shows.
const SHOWN_DEFAULT: usize = 10;
/// Maximum number of notes that `recall` shows.
const SHOWN_MAX: usize = 50;
/// Maximum number of bytes that `recall` shows.
const SHOWN_BYTES_MAX: usize = 32 * 1_024;

/// Names of the memory tools.
pub const NAMES: [&str; 2] = ["remember", "recall"];

/// Returns `remember` and `recall` for the notes in this store.
pub fn memory_tools(store: Arc<dyn RecordStore>) -> Result<Vec<Arc<dyn Tool>>, TypedToolError> {
    Ok(vec![typed(RememberTool(store.clone()))?, typed(RecallTool(store))?])
}

/// Returns the scope of a run's notes: the run's resource (the person or thing that the notes are
/// about), or else its thread (the conversation that successive runs share).
fn notes_resource(ctx: &ToolContext) -> Result<ResourceKey, ToolFailure> {
    if let Some(resource) = &ctx.resource {
        return Ok(resource.clone());
    }
    let thread = ctx.thread.as_ref();
    let resource_key = thread.and_then(|thread| ResourceKey::new(thread.as_str()).ok());
    resource_key.ok_or_else(|| {
        ToolFailure::new(
            "This run has no memory, because it has no resource and no thread. Continue without it, \
             and tell the user to start the run with --resource NAME or --thread NAME if notes \
             should be saved.",
        )
    })
}

#[derive(Debug)]
struct RecallTool(Arc<dyn RecordStore>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecallInput {
    /// Words to search for; a note matches if it has any of them. Empty for the newest notes
    query: String,
    /// Maximum number of notes; default: 10
    #[schemars(range(min = 1, max = SHOWN_MAX))]
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
        let limit = limit.unwrap_or(SHOWN_DEFAULT).clamp(1, SHOWN_MAX);
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

#[derive(Debug)]
struct RememberTool(Arc<dyn RecordStore>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RememberInput {
    /// One fact, in words that make sense on their own later
    #[schemars(length(min = 1, max = NOTE_BYTES_MAX))]
    text: String,
    /// Keywords to find the note by
    #[schemars(length(max = NOTE_TAGS_MAX))]
    tags: Option<Vec<String>>,
}

#[async_trait]
impl TypedTool for RememberTool {
    type Input = RememberInput;
    const NAME: &'static str = "remember";
    const DESCRIPTION: &'static str = "Saves a note beyond this run: a preference, \
        a decision, a fact that will be needed again. Later runs about the same person or topic \
        find it with `recall`. Never save a password or a key.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    async fn predict_effects(&self, _input: RememberInput, _ctx: &ToolContext) -> PredictedEffects {
        PredictedEffects {
            undo: Some("longhaul memory forget NOTE, with the id in the result".into()),
            ..no_effects()
        }
    }

    async fn call(
        &self,
        input: RememberInput,
        ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let resource = notes_resource(ctx)?;
        let refuse =
            |reason: String| ToolFailure::new(format!("The note was not saved: {reason}."));
        let tags = input.tags.unwrap_or_default();
        let note = NewMemoryNote::new(ctx.idempotency_key.clone(), input.text, tags, Some(ctx.run));
        let note = note.map_err(refuse)?;
        let result = self.0.add_note(&resource, note).await;
        match result.map_err(|error| refuse(error.to_string()))? {
            AddNoteOutcome::Stored(id) | AddNoteOutcome::Existing(id) => {
                Ok(ToolOutput::text(format!("The note was saved as {id}, about {resource}.")))
            }
            AddNoteOutcome::Full => Err(refuse(format!(
                "there are already {NOTES_MAX} notes about {resource}, and only people can delete some \
                 (longhaul memory forget)"
            ))),
        }
    }
}
