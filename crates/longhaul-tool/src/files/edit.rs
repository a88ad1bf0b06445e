//! `edit_file`: exact text in a file gives way to another.
//!
//! Never: guesses which place was meant, and never changes the endings of the
//! lines around it.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::IdError;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};

use crate::files::protected::Access;
use crate::files::text::{FILE_BYTES_MAX, decode_utf8, size_error};
use crate::files::workspace::{Target, Workspace, error_hint};
use crate::safe_dir::FsError;
use crate::tool_support::{parse_input, run_blocking, tool_spec};

/// How many places are looked at when a call is in doubt.
const MATCHES_MAX: usize = 1_000;

/// Edits files.
#[derive(Debug)]
pub(crate) struct EditFile {
    spec: ToolSpec,
    workspace: Workspace,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: String,
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

impl EditFile {
    /// The tool over this workspace.
    pub(crate) fn new(space: Workspace) -> Result<Self, IdError> {
        let properties = json!({
            "path": {
                "type": "string",
                "description": "The file, from the workspace's top, such as `src/main.rs`",
            },
            "old": {
                "type": "string",
                "description": "The text to replace, exactly as it stands in the file with its \
                    spaces and line breaks, without the line numbers of read_file",
            },
            "new": { "type": "string", "description": "The text that takes its place; empty to remove it" },
            "all": {
                "type": "boolean",
                "description": "Replace every place where `old` stands; otherwise it must stand in one place only",
            },
        });
        let description = "Replaces exact text in a file of the workspace. Read the file first, \
            and give in `old` enough of the lines around for it to stand only once.";
        let required = ["path", "old", "new"];
        let mut card = tool_spec("edit_file", description, properties, &required)?;
        card.can_verify = true;
        Ok(Self { spec: card, workspace: space })
    }
}

#[async_trait]
impl Tool for EditFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Once
    }

    fn subjects(&self, input: &Value) -> Vec<String> {
        self.workspace.subjects(input)
    }

    async fn call(&self, input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = parse_input(&self.spec, input)?;
        let space = self.workspace.clone();
        run_blocking(move || edit(&space, &input)).await
    }

    /// Whether `new` stands where `old` was.
    async fn verify(&self, input: Value, _around: &ToolContext) -> VerifyOutcome {
        let Ok(input) = parse_input::<Input>(&self.spec, input) else {
            return VerifyOutcome::NotHappened;
        };
        let space = self.workspace.clone();
        let looked = run_blocking(move || Ok(verify_edit(&space, &input))).await;
        looked.unwrap_or(VerifyOutcome::Unknown)
    }
}

fn edit(space: &Workspace, input: &Input) -> Result<ToolOutput, ToolFailure> {
    let target = space.target(&input.path, Access::Write).map_err(failure)?;
    if input.old.is_empty() {
        return Err(failure("`old` is empty; give the text to replace"));
    }
    if input.old == input.new {
        return Err(failure("`old` and `new` are the same text"));
    }
    let said = &target.display;
    let trouble = |trouble| failure(format!("`{said}` {trouble}{}", error_hint(&trouble)));
    // Looked at before a desk is made: that would make the folders too.
    let opened = space.open(&target).map_err(trouble)?;
    if let Some(why) = size_error(&opened) {
        return Err(failure(format!("`{said}` {why}")));
    }
    let desk = space.writer(&target).map_err(trouble)?;
    let before = desk.read(target.file(), FILE_BYTES_MAX);
    let before = before.map_err(trouble)?;
    let mut before = before.ok_or_else(|| trouble(FsError::NotFound))?;
    if before.is_truncated {
        return Err(failure(format!("`{said}` grew too long meanwhile")));
    }
    if before.is_read_only() {
        return Err(failure(format!("`{said}` is read-only")));
    }
    let held = decode_utf8(std::mem::take(&mut before.bytes));
    let held = held.map_err(|why| failure(format!("`{said}` {why}")))?;
    let (old, new) = with_file_line_endings(&held, input);
    let count = held.matches(&old).count();
    if count == 0 || count > 1 && !input.all {
        return Err(failure(no_match_message(&held, input, (said, count))));
    }
    // Counted before it is made: a short `old` and a long `new` multiply.
    let kept = held.len() - count * old.len();
    if count.saturating_mul(new.len()).saturating_add(kept) > FILE_BYTES_MAX {
        let why = format!("`{said}` would be longer than {FILE_BYTES_MAX} bytes");
        return Err(failure(why));
    }
    let after = held.replace(&old, &new);
    desk.check_unchanged(target.file(), &before)
        .and_then(|()| desk.write(target.file(), after.as_bytes(), Some(&before)))
        .map_err(trouble)?;
    let line = held[..held.find(&old).unwrap_or_default()].matches('\n').count() + 1;
    let done = match count {
        1 => format!("Edited `{said}` at line {line}."),
        count => format!("Edited `{said}` in {count} places, the first at line {line}."),
    };
    Ok(ToolOutput::text(done))
}

/// Both texts with the line endings of the file, where it has one sort only:
/// models write `\n` whatever they have read.
fn with_file_line_endings(held: &str, input: &Input) -> (String, String) {
    let pairs = held.matches("\r\n").count();
    if pairs == 0 || pairs < held.matches('\n').count() {
        return (input.old.clone(), input.new.clone());
    }
    let fit = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
    (fit(&input.old), fit(&input.new))
}

/// What to tell a model whose `old` stands nowhere, or in too many places.
fn no_match_message(held: &str, input: &Input, (said, count): (&str, usize)) -> String {
    if count > 1 {
        return format!(
            "`old` stands in {count} places of `{said}`; give more of the lines around it, or set \
             `all` to replace every one"
        );
    }
    let is_numbered = |line: &str| {
        let number = line.split_once('\t').map(|(number, _)| number);
        number.is_some_and(|number| number.trim().parse::<usize>().is_ok())
    };
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let loose = squeezed(&input.old);
    let mend = if input.old.lines().all(is_numbered) {
        "leave out the line numbers of read_file and the tabs after them"
    } else if !input.new.is_empty() && held.contains(&input.new) {
        "the file holds `new` already"
    } else if !loose.is_empty() && squeezed(held).contains(&loose) {
        "it does with other spaces or line breaks: read the file and copy them exactly"
    } else {
        "read the file and copy the text exactly"
    };
    format!("`old` stands nowhere in `{said}`; {mend}")
}

fn verify_edit(space: &Workspace, input: &Input) -> VerifyOutcome {
    // A call with such a path, or without a text to replace, changes nothing.
    let Ok(target) = space.target(&input.path, Access::Write) else {
        return VerifyOutcome::NotHappened;
    };
    if input.old.is_empty() || input.old == input.new {
        return VerifyOutcome::NotHappened;
    }
    let Some(held) = read_text(space, &target) else {
        return VerifyOutcome::Unknown;
    };
    let (old, new) = with_file_line_endings(&held, input);
    match find_evidence(&held, &old, &new) {
        EditEvidence::Applied => {
            let said = format!("Edited `{}`: the new text stands there.", target.display);
            VerifyOutcome::Happened(ToolOutput::text(said))
        }
        EditEvidence::NotApplied => VerifyOutcome::NotHappened,
        EditEvidence::Unclear => VerifyOutcome::Unknown,
    }
}

fn read_text(space: &Workspace, target: &Target) -> Option<String> {
    let opened = space.open(target).ok()?;
    let taken = opened.read(FILE_BYTES_MAX).ok()?;
    (!taken.is_truncated).then(|| decode_utf8(taken.bytes).ok())?
}

/// What a file tells of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EditEvidence {
    Applied,
    NotApplied,
    Unclear,
}

/// Whether `new` stands where `old` was. After an edit every `old` in the file
/// touches a `new`: it is inside of one, or has grown together at its edge, as
/// when of four blank lines three became two. One that does not is proof.
fn find_evidence(held: &str, old: &str, new: &str) -> EditEvidence {
    if !held.contains(old) {
        // Another hand took both away, or nothing was to stand there.
        return match held.contains(new) {
            true => EditEvidence::Applied,
            false => EditEvidence::Unclear,
        };
    }
    if new.contains(old) && !held.split(new).any(|between| between.contains(old)) {
        return EditEvidence::Applied;
    }
    let touches = |at: usize| {
        let reach = new.len().saturating_sub(1);
        let start = held.ceil_char_boundary(at.saturating_sub(reach));
        let end = held.floor_char_boundary(at + old.len() + reach);
        held.get(start..end).is_some_and(|near| near.contains(new))
    };
    let mut places = held.match_indices(old).take(MATCHES_MAX);
    if new.is_empty() || places.any(|(at, _)| !touches(at)) {
        return EditEvidence::NotApplied;
    }
    EditEvidence::Unclear
}

fn failure(why: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(format!("Nothing was edited: {why}."))
}

#[cfg(test)]
mod tests {
    use super::{EditEvidence, find_evidence};

    #[test]
    fn traces_of_an_edit_are_recognized() {
        let check = |held: &str, (old, new): (&str, &str), expected: EditEvidence| {
            assert_eq!(find_evidence(held, old, new), expected, "{held:?} {old:?} {new:?}");
        };
        check("a cat", ("cat", "dog"), EditEvidence::NotApplied);
        check("a dog", ("cat", "dog"), EditEvidence::Applied);
        check("a cow", ("cat", "dog"), EditEvidence::Unclear);
        check("cat and dog", ("cat", "dog"), EditEvidence::NotApplied);
        // Removed, or not.
        check("a ", ("cat", ""), EditEvidence::Applied);
        check("a cat", ("cat", ""), EditEvidence::NotApplied);
        // Grown: the old text is a part of the new one.
        check("fn a", ("fn a", "/// A\nfn a"), EditEvidence::NotApplied);
        check("/// A\nfn a", ("fn a", "/// A\nfn a"), EditEvidence::Applied);
        check("/// A\nfn a fn a", ("fn a", "/// A\nfn a"), EditEvidence::NotApplied);
        // Shrunk: what is left may have been more before.
        check("a\n\n\nb", ("\n\n\n", "\n\n"), EditEvidence::Unclear);
        check("a\n\nb", ("\n\n\n", "\n\n"), EditEvidence::Applied);
        check("aa", ("aa", "a"), EditEvidence::Unclear);
        // At the edges of letters of several bytes.
        check("üüü cat üüü", ("cat", "ü"), EditEvidence::NotApplied);
        check("ücatü", ("cat", "üü"), EditEvidence::NotApplied);
    }
}
