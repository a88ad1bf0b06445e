//! `search_files`: the lines that a regular expression finds.
//!
//! Never: an expression that takes more than linear time, a file that is no
//! text, or silence about what was not searched.

use std::sync::Arc;

use async_trait::async_trait;
use regex::{Regex, RegexBuilder};
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::BadId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::time::Clock;

use crate::ask::{aside, card, typed};
use crate::files::closed::Wish;
use crate::files::glob::Glob;
use crate::files::path::joined;
use crate::files::text::{FILE_BYTES_MAX, text, too_long};
use crate::files::walk::{Go, Met, Walk};
use crate::files::workspace::{Workspace, hint};
use crate::place::{Opened, Trouble};

/// How many lines are shown.
const SHOWN_MAX: usize = 200;
/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1_000;
/// The largest automaton, in bytes: with the bound on lines it bounds the time.
const SIZE_MAX: usize = 512 * 1024;
/// How much of a line is searched, in bytes.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// After so many bytes the time is looked at.
const CHECK_BYTES: usize = 64 * 1024;
/// How much of a line is shown, in characters, and how much before the find.
const LINE_SHOWN_MAX: usize = 240;
const LEAD_SHOWN_MAX: usize = 80;

/// Searches files.
#[derive(Debug)]
pub(crate) struct SearchFiles {
    card: ToolCard,
    space: Workspace,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
}

impl SearchFiles {
    /// The tool over this workspace.
    pub(crate) fn new(space: Workspace, clock: Arc<dyn Clock>) -> Result<Self, BadId> {
        let properties = json!({
            "pattern": {
                "type": "string",
                "description": "A regular expression for one line, such as `fn \\w+_file` or \
                    `(?i)todo`; without look-around and backreferences. Plain text is fine too.",
            },
            "path": {
                "type": "string",
                "description": "A folder or a file, from the workspace's top; everything unless given",
            },
            "glob": {
                "type": "string",
                "description": "Only files that fit, such as `*.rs` or `src/**/*.md`",
            },
        });
        let description = "Searches the text files of the workspace and shows the lines found as \
            `path:line: text`, 200 at most.";
        Ok(Self {
            card: card("search_files", description, properties, &["pattern"])?,
            space,
            clock,
        })
    }
}

#[async_trait]
impl Tool for SearchFiles {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Pure
    }

    /// The folder or file; `.` stands for the whole workspace.
    fn subjects(&self, input: &Value) -> Vec<String> {
        self.space.subjects(input)
    }

    async fn call(&self, input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = typed(&self.card, input)?;
        let (space, clock) = (self.space.clone(), Arc::clone(&self.clock));
        aside(move || search(&space, &input, clock)).await
    }
}

fn search(
    space: &Workspace,
    input: &Input,
    clock: Arc<dyn Clock>,
) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("Nothing was searched: {why}."));
    let (regex, plain) = pattern(&input.pattern).map_err(refuse)?;
    let start = input.path.as_deref().unwrap_or_default();
    let parts = space.parts(start, Wish::Read);
    let parts = parts.map_err(|bad| refuse(bad.to_string()))?;
    // Models send an empty text for what they leave out.
    let glob = input.glob.as_deref().filter(|glob| !glob.is_empty());
    let glob = glob.map(Glob::new).transpose().map_err(refuse)?;
    let mut hunt = Hunt {
        regex,
        lines: Vec::new(),
        searched: 0,
        passed_over: 0,
        more: false,
        late: false,
    };
    let mut walk = Walk::new(space, glob.as_ref(), clock);
    let walked = walk.go(&parts, true, &mut |walk, met| hunt.visit(walk, met));
    let walked = match walked {
        // Not a folder: a file is searched by itself, whatever the glob says.
        Err(Trouble::Strange) if !parts.is_empty() => space
            .target(start, Wish::Read)
            .map_err(|bad| refuse(bad.to_string()))
            .map(|target| space.open(&target))?
            .map(|opened| {
                hunt.file(&walk, &joined(&parts), opened);
            }),
        walked => walked,
    };
    let said = joined(&parts);
    walked.map_err(|trouble| refuse(format!("`{said}` {trouble}{}", hint(&trouble))))?;
    let mut notes = walk.notes();
    notes.extend(plain);
    Ok(ToolOutput::text(hunt.answer(notes)))
}

/// The pattern, and a word about it where it is none and was taken for plain text.
fn pattern(text: &str) -> Result<(Regex, Option<String>), String> {
    if text.is_empty() {
        return Err("the pattern is empty".into());
    }
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!(
            "the pattern is longer than {PATTERN_BYTES_MAX} bytes"
        ));
    }
    let build = |text: &str| {
        let mut builder = RegexBuilder::new(text);
        builder
            .size_limit(SIZE_MAX)
            .dfa_size_limit(4 * SIZE_MAX)
            .build()
    };
    match build(text) {
        Ok(regex) => Ok((regex, None)),
        Err(regex::Error::CompiledTooBig(_)) => {
            Err("the pattern is too large; use smaller counts in `{}`".into())
        }
        Err(_) => {
            let note = "The pattern is no regular expression and was searched as plain text.";
            let regex = build(&regex::escape(text)).map_err(|_| "the pattern is too large")?;
            Ok((regex, Some(note.into())))
        }
    }
}

/// What is searched for, and what was found.
#[derive(Debug)]
struct Hunt {
    regex: Regex,
    lines: Vec<String>,
    searched: usize,
    passed_over: usize,
    more: bool,
    late: bool,
}

impl Hunt {
    fn visit(&mut self, walk: &Walk<'_>, met: &Met<'_>) -> Go {
        if met.kind != FileType::RegularFile {
            return Go::On;
        }
        match met.folder.open_known(met.name) {
            Ok(opened) => self.file(walk, &met.path, opened),
            // Removed since, swapped for a link, or not ours to read.
            Err(_) => {
                self.passed_over += 1;
                Go::On
            }
        }
    }

    fn file(&mut self, walk: &Walk<'_>, path: &str, opened: Opened) -> Go {
        let long = too_long(&opened).is_some();
        let taken = (!long).then(|| opened.take(FILE_BYTES_MAX).ok()).flatten();
        let Some(held) = taken.and_then(|taken| text(taken.bytes).ok()) else {
            self.passed_over += 1;
            return Go::On;
        };
        self.searched += 1;
        let mut unchecked = 0;
        for (index, line) in held.lines().enumerate() {
            let line = &line[..line.floor_char_boundary(LINE_BYTES_MAX)];
            // The walk itself looks at the time only between files.
            unchecked += line.len() + 1;
            if unchecked > CHECK_BYTES {
                unchecked = 0;
                self.late = walk.is_late();
            }
            if self.late {
                return Go::Stop;
            }
            let Some(found) = self.regex.find(line) else {
                continue;
            };
            if self.lines.len() == SHOWN_MAX {
                self.more = true;
                return Go::Stop;
            }
            let shown = around(line, found.start());
            self.lines.push(format!("{path}:{}: {shown}", index + 1));
        }
        Go::On
    }

    fn answer(self, notes: Vec<String>) -> String {
        let mut lines = self.lines;
        let files = self.searched;
        if lines.is_empty() {
            lines.push(format!("[Nothing was found in {files} files.]"));
        }
        if self.more {
            lines.push(format!(
                "[There is more: only the first {SHOWN_MAX} lines are shown; narrow it by pattern, path or glob.]"
            ));
        }
        if self.late {
            lines.push("[There is more: the time was over; narrow it by path or glob.]".into());
        }
        if self.passed_over > 0 {
            let count = self.passed_over;
            lines.push(format!(
                "[Not searched, as they are no text or too long: {count}.]"
            ));
        }
        lines.extend(notes.iter().map(|note| format!("[{note}]")));
        lines.join("\n")
    }
}

/// The part of the line around this byte.
fn around(line: &str, at: usize) -> String {
    let lead = line[..at].chars().rev().take(LEAD_SHOWN_MAX);
    let start = at - lead.map(char::len_utf8).sum::<usize>();
    let start = if line.chars().count() <= LINE_SHOWN_MAX {
        0
    } else {
        start
    };
    let mut letters = line[start..].chars();
    let shown: String = letters.by_ref().take(LINE_SHOWN_MAX).collect();
    let before = if start > 0 { "..." } else { "" };
    let after = if letters.next().is_some() { "..." } else { "" };
    format!("{before}{shown}{after}")
}

#[cfg(test)]
mod tests {
    use super::{around, pattern};

    #[test]
    fn patterns() {
        let check = |text: &str, line: &str, expected: &str| {
            let said = match pattern(text) {
                Ok((regex, note)) => format!("{} {note:?}", regex.is_match(line)),
                Err(why) => why,
            };
            assert!(said.contains(expected), "{text:?}: {said}");
        };
        check(r"fn \w+_file", "pub fn read_file", "true None");
        check("(?i)GRÖSSE", "größe Grösse", "true None");
        check("call(", "a call(b)", "true Some(\"The pattern is no");
        check("(?=a)", "(?=a)", "true Some");
        check(r"(\w{500}){500}", "", "too large");
        check("", "", "is empty");
        check(&"a".repeat(1_001), "", "longer than");
        check("(a*)*b", &"a".repeat(16_000), "false None");
    }

    #[test]
    fn long_lines_are_shown_around_the_find() {
        assert_eq!(around("short", 3), "short");
        let long = format!("{}needle{}", "ü".repeat(300), "é".repeat(300));
        let shown = around(&long, 600);
        assert!(shown.starts_with("...ü") && shown.ends_with("é..."));
        assert!(shown.contains("needle") && shown.chars().count() == 246);
    }
}
