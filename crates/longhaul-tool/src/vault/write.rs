//! The tool `vault_write`, which creates or updates a note.
//!
//! Invariant: a note is written only if its text can be parsed back, and only over a note that
//! could be read completely.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects};
use longhaul_core::port::tool::ToolContext;
use longhaul_core::time::Clock;

use crate::atomic_write::AtomicWriter;
use crate::disk_tool::{DiskTool, Reason};
use crate::filename_fold::fold_case;
use crate::prediction;
use crate::safe_dir::{FileSnapshot, SafeDir};
use crate::vault::name;
use crate::vault::note::{
    NoteDraft, READ_BYTES_MAX, REPLACE_HINT, TAGS_MAX, note_replacement_error,
};
use crate::vault::note_path::{self, NotePath, folder_as_stored, name_as_stored};

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

impl DiskTool for VaultWriteTool {
    type Input = VaultWriteInput;
    const NAME: &'static str = "vault_write";
    const DESCRIPTION: &'static str = "Writes a Markdown note into the vault. A note of the same \
        folder and title is replaced and keeps its creation date.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const FAILURE: &'static str = "The note was not written";

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        note_path::rule_match_texts(input)
    }

    /// Returns the note before and after the call. The predicted field `updated` has the current
    /// time; the call will write the time at which it runs.
    fn predict_effects(&self, input: VaultWriteInput, ctx: &ToolContext) -> PredictedEffects {
        let draft = parse_draft(input, ctx.run).ok();
        draft.and_then(|draft| self.predict_note(&draft)).unwrap_or_default()
    }

    fn call(&self, input: VaultWriteInput, ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        let (dir, draft) = (&self.dir, parse_draft(input, ctx.run)?);
        let note = NotePath::parse(&draft.folder, &draft.title)?;
        let folder_error = |error| format!("the folder `{}`: {error}", draft.folder);
        let parts = folder_as_stored(dir, &note.folder).map_err(folder_error)?;
        let writer = AtomicWriter::open_and_lock_dir(dir, &parts).map_err(folder_error)?;
        let error = |error| note.fs_error(error);
        let file = dir.open_dir(&parts).and_then(|folder| name_as_stored(&folder, &note.file));
        let file = file.map_err(error)?;
        let before = writer.read_current_file(&file, READ_BYTES_MAX).map_err(error)?;
        let note_path = &note.display;
        let truncation =
            || format!("the note is longer than the {READ_BYTES_MAX} bytes vault_read shows");
        let data_loss_reason = before.as_ref().and_then(|before| {
            note_replacement_error(before).or_else(|| before.is_truncated.then(truncation))
        });
        if let Some(reason) = data_loss_reason {
            let message =
                format!("`{note_path}` can't be replaced: {reason}; a person's text would be lost");
            return Err(format!("{message}: {REPLACE_HINT}").into());
        }
        let content = before.as_ref().map(FileSnapshot::lossy_text);
        let Some(text) = draft.render(content.as_deref(), self.clock.now()) else {
            let message = format!("`{note_path}` already has exactly this content.");
            return Ok(ToolOutput::text(message));
        };
        if !draft.round_trips(&text) {
            return Err("the front matter would be too long; use another title".into());
        }
        writer.replace_file(&file, text.as_bytes(), before.as_ref()).map_err(error)?;
        let verb = if before.is_some() { "Updated" } else { "Created" };
        Ok(ToolOutput::text(format!("{verb} the note `{note_path}`.")))
    }
}

impl VaultWriteTool {
    /// Returns what writing a note would change. `None` if the call would fail, or nothing is
    /// known.
    fn predict_note(&self, draft: &NoteDraft) -> Option<PredictedEffects> {
        let note = NotePath::parse(&draft.folder, &draft.title).ok()?;
        let before = prediction::file_content(note.open(&self.dir))?;
        let now = self.clock.now();
        let text = match &before {
            FileContent::Absent => draft.render(None, now),
            FileContent::Text(text) => draft.render(Some(text), now),
            FileContent::Unknown => return None,
        };
        let after = text.map_or_else(|| before.clone(), FileContent::Text);
        Some(prediction::one_file_change(format!("{}.md", note.display), before, after))
    }
}

fn parse_draft(input: VaultWriteInput, run: RunId) -> Result<NoteDraft, Reason> {
    if input.confidence > 100 {
        return Err("confidence is a number from 0 to 100".into());
    }
    if input.content.len() > CONTENT_BYTES_MAX {
        return Err(format!(
            "the content is longer than {CONTENT_BYTES_MAX} bytes; split it into several notes"
        )
        .into());
    }
    if input.content.contains('\0') {
        return Err("the content contains a NUL character; send text only".into());
    }
    let mut tags: Vec<String> = Vec::new();
    for tag in &input.tags {
        let tag = name::parse_tag(tag)?;
        let folded = fold_case(&tag);
        if !tags.iter().any(|other| fold_case(other) == folded) {
            tags.push(tag);
        }
    }
    if tags.len() > TAGS_MAX {
        return Err(format!("the note has more than {TAGS_MAX} tags; use fewer").into());
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
