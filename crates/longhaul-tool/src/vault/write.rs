//! The tool `vault_write`, which creates or updates a note.
//!
//! Invariant: a note is written only if its text can be parsed back, and only over a note that
//! could be read completely.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects};
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::atomic_write::AtomicWriter;
use crate::filename_fold::fold_file_name_case;
use crate::prediction;
use crate::safe_dir::{FileSnapshot, SafeDir};
use crate::tool_support::{TIMEOUT, predict_on_blocking_thread, run_on_blocking_thread};
use crate::typed::TypedTool;
use crate::vault::note::{NoteDraft, TAGS_MAX, note_replacement_error};
use crate::vault::read::{READ_BYTES_MAX, REPLACE_HINT};
use crate::vault::{locate, name, note_input};

/// Maximum length of the content of a note in bytes. With its front matter, the note can be read
/// back completely.
const CONTENT_BYTES_MAX: usize = 200 * 1024;

#[derive(Debug)]
pub(crate) struct VaultWriteTool {
    pub(crate) dir: SafeDir,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VaultWriteInput {
    /// Folder in the vault, such as `Tasks` or `Projects/Alpha`. Created if missing; empty for the
    /// vault itself.
    folder: String,
    /// The note's name, without `.md` and without / \ : * ? " < > | # ^ [ ]
    title: String,
    /// The whole note in Markdown, without front matter
    content: String,
    /// Tags of the note: words without spaces, such as `to-do`
    #[schemars(length(max = TAGS_MAX))]
    tags: Vec<String>,
    /// How certain you are of the content, in percent
    #[schemars(range(max = 100))]
    confidence: u8,
}

#[async_trait]
impl TypedTool for VaultWriteTool {
    type Input = VaultWriteInput;
    const NAME: &'static str = "vault_write";
    const DESCRIPTION: &'static str = "Writes a Markdown note into the vault. A note of the same \
        folder and title is replaced and keeps its creation date.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    fn rule_match_texts_from_json(&self, input: &Value) -> Vec<String> {
        note_input::note_input_rule_match_texts(input)
    }

    /// Returns the note before and after the call. The predicted field `updated` has the current
    /// time; the call will write the time at which it runs.
    async fn predict_effects(&self, input: VaultWriteInput, ctx: &ToolContext) -> PredictedEffects {
        let Ok(draft) = parse_draft(input, ctx.run) else {
            return PredictedEffects::default();
        };
        let (dir, now) = (self.dir.clone(), self.clock.now());
        predict_on_blocking_thread(move || {
            predict_note_write(&dir, &draft, now).unwrap_or_default()
        })
        .await
    }

    async fn call(
        &self,
        input: VaultWriteInput,
        ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let draft = parse_draft(input, ctx.run)?;
        let (dir, now) = (self.dir.clone(), self.clock.now());
        run_on_blocking_thread(move || write_note(&dir, &draft, now)).await
    }
}

fn parse_draft(input: VaultWriteInput, run: RunId) -> Result<NoteDraft, ToolFailure> {
    if input.confidence > 100 {
        return Err(note_write_failure("confidence is a number from 0 to 100"));
    }
    if input.content.len() > CONTENT_BYTES_MAX {
        return Err(note_write_failure(format!(
            "the content is longer than {CONTENT_BYTES_MAX} bytes; split it into several notes"
        )));
    }
    if input.content.contains('\0') {
        return Err(note_write_failure("the content contains a NUL character; send text only"));
    }
    let mut tags: Vec<String> = Vec::new();
    for tag in &input.tags {
        let tag = name::parse_tag(tag).map_err(note_write_failure)?;
        let folded = fold_file_name_case(&tag);
        if !tags.iter().any(|other| fold_file_name_case(other) == folded) {
            tags.push(tag);
        }
    }
    if tags.len() > TAGS_MAX {
        let reason = format!("the note has more than {TAGS_MAX} tags; use fewer");
        return Err(note_write_failure(reason));
    }
    Ok(NoteDraft {
        title: name::normalize_nfc(&input.title),
        folder: name::normalize_nfc(&input.folder),
        tags,
        confidence: input.confidence,
        content: input.content,
        run,
    })
}

fn write_note(dir: &SafeDir, draft: &NoteDraft, now: Timestamp) -> Result<ToolOutput, ToolFailure> {
    let note_path = note_input::note_rule_match_text(&draft.folder, &draft.title);
    let parts = name::parse_note_folder(&draft.folder).map_err(note_write_failure)?;
    let file = name::note_file_name(&draft.title).map_err(note_write_failure)?;
    let folder_error =
        |error| note_write_failure(format!("the folder `{}`: {error}", draft.folder));
    let parts = locate::path_parts_as_stored_on_disk(dir, &parts).map_err(folder_error)?;
    let writer = AtomicWriter::open_and_lock_dir(dir, &parts).map_err(folder_error)?;
    let error = |error| {
        note_write_failure(format!(
            "`{note_path}`: {}",
            note_input::strip_md_suffix_in_wrong_case_error(error)
        ))
    };
    let file = dir
        .open_dir(&parts)
        .and_then(|folder| locate::entry_name_as_stored_on_disk(&folder, &file))
        .map_err(error)?;
    let before = writer.read_current_file(&file, READ_BYTES_MAX).map_err(error)?;
    if let Some(reason) = before.as_ref().and_then(note_data_loss_reason) {
        let message =
            format!("`{note_path}` can't be replaced: {reason}; a person's text would be lost");
        return Err(note_write_failure(format!("{message}: {REPLACE_HINT}")));
    }
    let content = before.as_ref().map(FileSnapshot::lossy_text);
    let text = draft.render_updated_note(content.as_deref(), now);
    let Some(text) = text else {
        let message = format!("`{note_path}` already has exactly this content.");
        return Ok(ToolOutput::text(message));
    };
    if !draft.equals_note_parsed_from(&text) {
        let reason = "the front matter would be too long; use another title";
        return Err(note_write_failure(reason));
    }
    writer.replace_file(&file, text.as_bytes(), before.as_ref()).map_err(error)?;
    let verb = if before.is_some() { "Updated" } else { "Created" };
    Ok(ToolOutput::text(format!("{verb} the note `{note_path}`.")))
}

/// Returns what writing a note would change. `None` if the call would fail, or nothing is known.
fn predict_note_write(
    dir: &SafeDir,
    draft: &NoteDraft,
    now: Timestamp,
) -> Option<PredictedEffects> {
    let parts = name::parse_note_folder(&draft.folder).ok()?;
    let file = name::note_file_name(&draft.title).ok()?;
    let parts = locate::path_parts_as_stored_on_disk(dir, &parts).ok()?;
    let opened = dir.open_dir(&parts).and_then(|folder| {
        folder.open_file(&locate::entry_name_as_stored_on_disk(&folder, &file)?)
    });
    let before = prediction::read_file_content(opened)?;
    let text = match &before {
        FileContent::Absent => draft.render_updated_note(None, now),
        FileContent::Text(text) => draft.render_updated_note(Some(text), now),
        FileContent::Unknown => return None,
    };
    let after = text.map_or_else(|| before.clone(), FileContent::Text);
    let note_path = note_input::note_rule_match_text(&draft.folder, &draft.title);
    Some(prediction::effects_of_one_file_change(format!("{note_path}.md"), before, after))
}

/// Returns why replacing the existing note would lose data. `None` if nothing would be lost.
fn note_data_loss_reason(before: &FileSnapshot) -> Option<String> {
    let truncation_reason =
        || format!("the note is longer than the {READ_BYTES_MAX} bytes vault_read shows");
    note_replacement_error(before).or_else(|| before.is_truncated.then(truncation_reason))
}

fn note_write_failure(reason: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(format!("The note was not written: {reason}."))
}
