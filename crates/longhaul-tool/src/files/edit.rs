//! `edit_file`: exact text in a file gives way to another.
//!
//! Never: guesses which place was meant, and never changes the endings of the
//! lines around it.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::{Finding, ToolOutput};
use longhaul_core::id::BadId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};

use crate::ask::{aside, card, typed};
use crate::files::closed::Wish;
use crate::files::text::{FILE_BYTES_MAX, text, too_long};
use crate::files::workspace::{Target, Workspace, hint};
use crate::place::Trouble;

/// How many places are looked at when a call is in doubt.
const PLACES_MAX: usize = 1_000;

/// Edits files.
#[derive(Debug)]
pub(crate) struct EditFile {
    card: ToolCard,
    space: Workspace,
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
    pub(crate) fn new(space: Workspace) -> Result<Self, BadId> {
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
        let mut card = card("edit_file", description, properties, &required)?;
        card.verifies = true;
        Ok(Self { card, space })
    }
}

#[async_trait]
impl Tool for EditFile {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Once
    }

    fn subjects(&self, input: &Value) -> Vec<String> {
        self.space.subjects(input)
    }

    async fn call(&self, input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = typed(&self.card, input)?;
        let space = self.space.clone();
        aside(move || edit(&space, &input)).await
    }

    /// Whether `new` stands where `old` was.
    async fn verify(&self, input: Value, _around: &ToolContext) -> Finding {
        let Ok(input) = typed::<Input>(&self.card, input) else {
            return Finding::NotHappened;
        };
        let space = self.space.clone();
        let looked = aside(move || Ok(look(&space, &input))).await;
        looked.unwrap_or(Finding::Unknown)
    }
}

fn edit(space: &Workspace, input: &Input) -> Result<ToolOutput, ToolFailure> {
    let target = space.target(&input.path, Wish::Write).map_err(refusal)?;
    if input.old.is_empty() {
        return Err(refusal("`old` is empty; give the text to replace"));
    }
    if input.old == input.new {
        return Err(refusal("`old` and `new` are the same text"));
    }
    let said = &target.said;
    let trouble = |trouble| refusal(format!("`{said}` {trouble}{}", hint(&trouble)));
    // Looked at before a desk is made: that would make the folders too.
    let opened = space.open(&target).map_err(trouble)?;
    if let Some(why) = too_long(&opened) {
        return Err(refusal(format!("`{said}` {why}")));
    }
    let desk = space.desk(&target).map_err(trouble)?;
    let before = desk.before(target.file(), FILE_BYTES_MAX);
    let before = before.map_err(trouble)?;
    let mut before = before.ok_or_else(|| trouble(Trouble::Missing))?;
    if before.cut {
        return Err(refusal(format!("`{said}` grew too long meanwhile")));
    }
    if before.is_read_only() {
        return Err(refusal(format!("`{said}` is read-only")));
    }
    let held = text(std::mem::take(&mut before.bytes));
    let held = held.map_err(|why| refusal(format!("`{said}` {why}")))?;
    let (old, new) = fitted(&held, input);
    let count = held.matches(&old).count();
    if count == 0 || count > 1 && !input.all {
        return Err(refusal(miss(&held, input, (said, count))));
    }
    // Counted before it is made: a short `old` and a long `new` multiply.
    let kept = held.len() - count * old.len();
    if count.saturating_mul(new.len()).saturating_add(kept) > FILE_BYTES_MAX {
        let why = format!("`{said}` would be longer than {FILE_BYTES_MAX} bytes");
        return Err(refusal(why));
    }
    let after = held.replace(&old, &new);
    desk.is_still(target.file(), &before)
        .and_then(|()| desk.put(target.file(), after.as_bytes(), Some(&before)))
        .map_err(trouble)?;
    let line = held[..held.find(&old).unwrap_or_default()]
        .matches('\n')
        .count()
        + 1;
    let done = match count {
        1 => format!("Edited `{said}` at line {line}."),
        count => format!("Edited `{said}` in {count} places, the first at line {line}."),
    };
    Ok(ToolOutput::text(done))
}

/// Both texts with the line endings of the file, where it has one sort only:
/// models write `\n` whatever they have read.
fn fitted(held: &str, input: &Input) -> (String, String) {
    let pairs = held.matches("\r\n").count();
    if pairs == 0 || pairs < held.matches('\n').count() {
        return (input.old.clone(), input.new.clone());
    }
    let fit = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
    (fit(&input.old), fit(&input.new))
}

/// What to tell a model whose `old` stands nowhere, or in too many places.
fn miss(held: &str, input: &Input, (said, count): (&str, usize)) -> String {
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

fn look(space: &Workspace, input: &Input) -> Finding {
    // A call with such a path, or without a text to replace, changes nothing.
    let Ok(target) = space.target(&input.path, Wish::Write) else {
        return Finding::NotHappened;
    };
    if input.old.is_empty() || input.old == input.new {
        return Finding::NotHappened;
    }
    let Some(held) = held(space, &target) else {
        return Finding::Unknown;
    };
    let (old, new) = fitted(&held, input);
    match trace(&held, &old, &new) {
        Trace::Made => {
            let said = format!("Edited `{}`: the new text stands there.", target.said);
            Finding::Happened(ToolOutput::text(said))
        }
        Trace::NotMade => Finding::NotHappened,
        Trace::Unclear => Finding::Unknown,
    }
}

fn held(space: &Workspace, target: &Target) -> Option<String> {
    let opened = space.open(target).ok()?;
    let taken = opened.take(FILE_BYTES_MAX).ok()?;
    (!taken.cut).then(|| text(taken.bytes).ok())?
}

/// What a file tells of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trace {
    Made,
    NotMade,
    Unclear,
}

/// Whether `new` stands where `old` was. After an edit every `old` in the file
/// touches a `new`: it is inside of one, or has grown together at its edge, as
/// when of four blank lines three became two. One that does not is proof.
fn trace(held: &str, old: &str, new: &str) -> Trace {
    if !held.contains(old) {
        // Another hand took both away, or nothing was to stand there.
        return match held.contains(new) {
            true => Trace::Made,
            false => Trace::Unclear,
        };
    }
    if new.contains(old) && !held.split(new).any(|between| between.contains(old)) {
        return Trace::Made;
    }
    let touches = |at: usize| {
        let reach = new.len().saturating_sub(1);
        let start = held.ceil_char_boundary(at.saturating_sub(reach));
        let end = held.floor_char_boundary(at + old.len() + reach);
        held.get(start..end).is_some_and(|near| near.contains(new))
    };
    let mut places = held.match_indices(old).take(PLACES_MAX);
    if new.is_empty() || places.any(|(at, _)| !touches(at)) {
        return Trace::NotMade;
    }
    Trace::Unclear
}

fn refusal(why: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(format!("Nothing was edited: {why}."))
}

#[cfg(test)]
mod tests {
    use super::{Trace, trace};

    #[test]
    fn traces_of_an_edit() {
        let check = |held: &str, (old, new): (&str, &str), expected: Trace| {
            assert_eq!(trace(held, old, new), expected, "{held:?} {old:?} {new:?}");
        };
        check("a cat", ("cat", "dog"), Trace::NotMade);
        check("a dog", ("cat", "dog"), Trace::Made);
        check("a cow", ("cat", "dog"), Trace::Unclear);
        check("cat and dog", ("cat", "dog"), Trace::NotMade);
        // Removed, or not.
        check("a ", ("cat", ""), Trace::Made);
        check("a cat", ("cat", ""), Trace::NotMade);
        // Grown: the old text is a part of the new one.
        check("fn a", ("fn a", "/// A\nfn a"), Trace::NotMade);
        check("/// A\nfn a", ("fn a", "/// A\nfn a"), Trace::Made);
        check("/// A\nfn a fn a", ("fn a", "/// A\nfn a"), Trace::NotMade);
        // Shrunk: what is left may have been more before.
        check("a\n\n\nb", ("\n\n\n", "\n\n"), Trace::Unclear);
        check("a\n\nb", ("\n\n\n", "\n\n"), Trace::Made);
        check("aa", ("aa", "a"), Trace::Unclear);
        // At the edges of letters of several bytes.
        check("üüü cat üüü", ("cat", "ü"), Trace::NotMade);
        check("ücatü", ("cat", "üü"), Trace::NotMade);
    }
}
