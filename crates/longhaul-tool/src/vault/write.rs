//! `vault_write`: makes a note or updates it in place.
//!
//! Never: writes a note that it could not read back, or over one that nobody could
//! have read whole.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::atomic_write::AtomicWriter;
use crate::filename_fold::fold_case;
use crate::safe_dir::{FileSnapshot, SafeDir};
use crate::tool_support::{TIMEOUT, run_blocking};
use crate::typed::TypedTool;
use crate::vault::note::{NoteDraft, TAGS_MAX, replace_error};
use crate::vault::read::{READ_BYTES_MAX, REPLACE_HINT};
use crate::vault::{locate, name, note_input};

/// The longest content, in bytes: with its front matter it is read back whole.
const CONTENT_BYTES_MAX: usize = 200 * 1024;

/// Makes notes and updates them.
#[derive(Debug)]
pub(crate) struct VaultWrite {
    pub(crate) dir: SafeDir,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Folder in the vault, such as `Tasks` or `Projects/Alpha`. Made when missing; empty for
    /// the vault itself.
    folder: String,
    /// The note's name, without `.md` and without / \ : * ? " < > | # ^ [ ]
    title: String,
    /// The whole note in Markdown, without front matter
    content: String,
    /// Words without spaces, such as `to-do`
    #[schemars(length(max = TAGS_MAX))]
    tags: Vec<String>,
    /// How sure you are of the content, in percent
    #[schemars(range(max = 100))]
    confidence: u8,
}

#[async_trait]
impl TypedTool for VaultWrite {
    type Input = Input;
    const NAME: &'static str = "vault_write";
    const DESCRIPTION: &'static str = "Writes a Markdown note into the vault. A note of the same \
        folder and title is replaced, and keeps the date of its creation.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        note_input::note_subjects(input)
    }

    async fn call(&self, input: Input, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let draft = parse_draft(input, ctx.run)?;
        let (place, now) = (self.dir.clone(), self.clock.now());
        run_blocking(move || write(&place, &draft, now)).await
    }
}

fn parse_draft(input: Input, run: RunId) -> Result<NoteDraft, ToolFailure> {
    if input.confidence > 100 {
        return Err(failure("confidence is a number from 0 to 100"));
    }
    if input.content.len() > CONTENT_BYTES_MAX {
        return Err(failure(format!(
            "its content is longer than {CONTENT_BYTES_MAX} bytes; split it into several notes"
        )));
    }
    if input.content.contains('\0') {
        return Err(failure("its content holds a NUL character; send text only"));
    }
    let mut tags: Vec<String> = Vec::new();
    for tag in &input.tags {
        let tag = name::parse_tag(tag).map_err(failure)?;
        let folded = fold_case(&tag);
        if !tags.iter().any(|known| fold_case(known) == folded) {
            tags.push(tag);
        }
    }
    if tags.len() > TAGS_MAX {
        let why = format!("it has more than {TAGS_MAX} tags; keep the best");
        return Err(failure(why));
    }
    Ok(NoteDraft {
        title: name::nfc(&input.title),
        folder: name::nfc(&input.folder),
        tags,
        confidence: input.confidence,
        content: input.content,
        run,
    })
}

fn write(place: &SafeDir, draft: &NoteDraft, now: Timestamp) -> Result<ToolOutput, ToolFailure> {
    let subject = note_input::subject(&draft.folder, &draft.title);
    let parts = name::parse_folder(&draft.folder).map_err(failure)?;
    let file = name::note_file(&draft.title).map_err(failure)?;
    let closed = |trouble| failure(format!("the folder `{}` {trouble}", draft.folder));
    let parts = locate::existing_parts(place, &parts).map_err(closed)?;
    let desk = AtomicWriter::open(place, &parts).map_err(closed)?;
    let trouble = |trouble| failure(format!("`{subject}` {}", note_input::with_title(trouble)));
    let file = place
        .open_dir(&parts)
        .and_then(|folder| locate::existing_name(&folder, &file))
        .map_err(trouble)?;
    let before = desk.read(&file, READ_BYTES_MAX).map_err(trouble)?;
    if let Some(fault) = before.as_ref().and_then(loss_reason) {
        let why = format!("`{subject}` is there and {fault}; what a person wrote would get lost");
        return Err(failure(format!("{why}: {REPLACE_HINT}")));
    }
    let said = before.as_ref().map(FileSnapshot::text);
    let text = draft.render_over(said.as_deref(), now);
    let Some(text) = text else {
        let said = format!("`{subject}` says exactly this already.");
        return Ok(ToolOutput::text(said));
    };
    if !draft.is_read_back_from(&text) {
        let why = "its front matter would be too long; write a note of another title";
        return Err(failure(why));
    }
    desk.write(&file, text.as_bytes(), before.as_ref()).map_err(trouble)?;
    let verb = if before.is_some() { "Updated" } else { "Created" };
    Ok(ToolOutput::text(format!("{verb} the note `{subject}`.")))
}

/// What would get lost with the note that stands there.
fn loss_reason(before: &FileSnapshot) -> Option<String> {
    let long = || format!("is longer than the {READ_BYTES_MAX} bytes that vault_read shows");
    replace_error(before).or_else(|| before.is_truncated.then(long))
}

fn failure(why: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(format!("The note was not written: {why}."))
}
