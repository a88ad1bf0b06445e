//! The tool `remember`, which saves a note for later runs.
//!
//! Invariant: a repeated call does not save the note twice.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::note::{
    AddNoteOutcome, NOTE_BYTES_MAX, NOTE_TAGS_MAX, NOTES_MAX, NewMemoryNote,
};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::PredictedEffects;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::disk_tool::TIMEOUT;
use crate::memory::scope::notes_resource;
use crate::prediction::no_effects;
use crate::typed::TypedTool;

#[derive(Debug)]
pub(crate) struct RememberTool(pub(crate) Arc<dyn RecordStore>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RememberInput {
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
        let note = note.map_err(|error| refuse(error.to_string()))?;
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
