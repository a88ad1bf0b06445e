//! `search_files`: the lines that a regular expression finds.
//!
//! Never: an expression that takes more than linear time, a file that is no
//! text, or silence about what was not searched.

use std::sync::Arc;

use async_trait::async_trait;
use regex::{Regex, RegexBuilder};
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis};

use crate::ask::{TIMEOUT, aside};
use crate::files::closed::Wish;
use crate::files::glob::Glob;
use crate::files::path::joined;
use crate::files::text::{FILE_BYTES_MAX, text, too_long};
use crate::files::walk::{Go, Met, Walk};
use crate::files::workspace::{Workspace, hint};
use crate::place::{Opened, Trouble};
use crate::typed::TypedTool;

/// How many lines are shown.
const SHOWN_MAX: usize = 200;
/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1_000;
/// The largest automaton, in bytes: with the bound on lines it bounds the time.
const SIZE_MAX: usize = 512 * 1024;
/// The largest one that goes through a line of any length.
const LEAN_SIZE_MAX: usize = 128 * 1024;
/// How much of a line a larger one goes through, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// After so many bytes the time is looked at.
const CHECK_BYTES: usize = 64 * 1024;
/// How much of a line is shown, in characters, and how much before the find.
const LINE_SHOWN_MAX: usize = 240;
const LEAD_SHOWN_MAX: usize = 80;
/// What is said of a line that is shown in part and has more behind that.
const AGAIN: &str = " [found again behind this, in the same line]";

/// Searches files.
#[derive(Debug)]
pub(crate) struct SearchFiles {
    pub(crate) space: Workspace,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// A regular expression for one line, such as `fn \w+_file` or `(?i)todo`; without
    /// look-around and backreferences. Plain text is fine too.
    pattern: String,
    /// A folder or a file, from the workspace's top; everything unless given
    path: Option<String>,
    /// Only files that fit, such as `*.rs` or `src/**/*.md`
    glob: Option<String>,
}

#[async_trait]
impl TypedTool for SearchFiles {
    type Input = Input;
    const NAME: &'static str = "search_files";
    const DESCRIPTION: &'static str = "Searches the text files of the workspace and shows the \
        lines found as `path:line: text`, 200 at most; of a long line it shows what is around the \
        first find.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    /// The folder or file; `.` stands for the whole workspace.
    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        self.space.subjects(input)
    }

    async fn call(&self, input: Input, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
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
    let (needle, plain) = pattern(&input.pattern).map_err(refuse)?;
    let start = input.path.as_deref().unwrap_or_default();
    let parts = space.parts(start, Wish::Read);
    let parts = parts.map_err(|bad| refuse(bad.to_string()))?;
    // Models send an empty text for what they leave out.
    let glob = input.glob.as_deref().filter(|glob| !glob.is_empty());
    let glob = glob.map(Glob::new).transpose().map_err(refuse)?;
    let mut hunt = Hunt {
        needle,
        lines: Vec::new(),
        searched: 0,
        passed_over: 0,
        cut: 0,
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
fn pattern(text: &str) -> Result<(Needle, Option<String>), String> {
    if text.is_empty() {
        return Err("the pattern is empty".into());
    }
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!(
            "the pattern is longer than {PATTERN_BYTES_MAX} bytes"
        ));
    }
    match Needle::new(text) {
        Ok(needle) => Ok((needle, None)),
        Err(regex::Error::CompiledTooBig(_)) => {
            Err("the pattern is too large; use smaller counts in `{}`".into())
        }
        Err(_) => {
            let note = "The pattern is no regular expression and was searched as plain text.";
            let needle =
                Needle::new(&regex::escape(text)).map_err(|_| "the pattern is too large")?;
            Ok((needle, Some(note.into())))
        }
    }
}

/// What is searched for.
#[derive(Debug)]
struct Needle {
    regex: Regex,
    /// Small enough for a line of any length.
    lean: bool,
}

impl Needle {
    fn new(text: &str) -> Result<Self, regex::Error> {
        let build = |size: usize| {
            let mut builder = RegexBuilder::new(text);
            let limits = builder.size_limit(size).dfa_size_limit(4 * SIZE_MAX);
            limits.build()
        };
        match build(LEAN_SIZE_MAX) {
            Err(regex::Error::CompiledTooBig(_)) => Ok(Self {
                regex: build(SIZE_MAX)?,
                lean: false,
            }),
            built => built.map(|regex| Self { regex, lean: true }),
        }
    }

    /// How much of this line is searched, in bytes.
    fn reach(&self, line: &str) -> usize {
        match self.lean {
            true => line.len(),
            false => line.floor_char_boundary(LINE_BYTES_MAX),
        }
    }

    /// Where it is found first, from this byte of the line on.
    fn find(&self, line: &str, from: usize) -> Option<usize> {
        let reach = self.reach(line);
        let found = self.regex.find_at(&line[..reach], from.min(reach))?;
        // An end at the cut may be no end: `$` would fit there.
        let is_sure = found.end() < reach || reach == line.len();
        is_sure.then_some(found.start())
    }
}

/// What is searched for, and what was found.
#[derive(Debug)]
struct Hunt {
    needle: Needle,
    lines: Vec<String>,
    searched: usize,
    passed_over: usize,
    /// Lines that were searched only in part.
    cut: usize,
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
            // The walk itself looks at the time only between files.
            unchecked += line.len() + 1;
            if unchecked > CHECK_BYTES {
                unchecked = 0;
                self.late = walk.is_late();
            }
            if self.late {
                return Go::Stop;
            }
            let Some(found) = self.needle.find(line, 0) else {
                self.cut += usize::from(self.needle.reach(line) < line.len());
                continue;
            };
            if self.lines.len() == SHOWN_MAX {
                self.more = true;
                return Go::Stop;
            }
            let (shown, end) = around(line, found);
            let again = end < line.len() && self.needle.find(line, end).is_some();
            let again = if again { AGAIN } else { "" };
            self.lines
                .push(format!("{path}:{}: {shown}{again}", index + 1));
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
        if self.cut > 0 {
            let count = self.cut;
            lines.push(format!(
                "[Searched only up to byte {LINE_BYTES_MAX}, as the pattern is large: {count} long \
                 lines. A smaller pattern is searched in all of a line.]"
            ));
        }
        lines.extend(notes.iter().map(|note| format!("[{note}]")));
        lines.join("\n")
    }
}

/// The part of the line around this byte, and where that part ends.
fn around(line: &str, at: usize) -> (String, usize) {
    let lead = line[..at].chars().rev().take(LEAD_SHOWN_MAX);
    let start = at - lead.map(char::len_utf8).sum::<usize>();
    let is_short = line.chars().nth(LINE_SHOWN_MAX).is_none();
    let start = if is_short { 0 } else { start };
    let letters = line[start..].chars().take(LINE_SHOWN_MAX);
    let end = start + letters.map(char::len_utf8).sum::<usize>();
    let shown = &line[start..end];
    let before = if start > 0 { "..." } else { "" };
    let after = if end < line.len() { "..." } else { "" };
    (format!("{before}{shown}{after}"), end)
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, around, pattern};

    #[test]
    fn patterns() {
        let check = |text: &str, line: &str, expected: &str| {
            let said = match pattern(text) {
                Ok((needle, note)) => format!("{} {note:?}", needle.find(line, 0).is_some()),
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
        assert_eq!(around("short", 3), ("short".into(), 5));
        let long = format!("{}needle{}", "ü".repeat(300), "é".repeat(300));
        let (shown, end) = around(&long, 600);
        assert_eq!(&long[end..], "é".repeat(300 - 154));
        assert!(shown.starts_with("...ü") && shown.ends_with("é..."));
        assert!(shown.contains("needle") && shown.chars().count() == 246);
    }

    #[test]
    fn a_large_pattern_ends_at_no_cut() {
        let far = "b".repeat(LINE_BYTES_MAX) + "needle";
        let check = |text: &str, line: &str, lean: bool, expected: Option<usize>| {
            let (needle, _) = pattern(text).unwrap();
            assert_eq!(needle.lean, lean, "{text}");
            assert_eq!(needle.find(line, 0), expected, "{text}");
        };
        let large = r"\w{8}";
        check("needle$", &far, true, Some(LINE_BYTES_MAX));
        check("b$", &far, true, None);
        check(&format!("{large}xx|b$"), &far, false, None);
        check(&format!("{large}xx|needle"), &far, false, None);
        check(&format!("{large}xx|^bb"), &far, false, Some(0));
        check(&format!("{large}xx|b$"), "aab", false, Some(2));
    }
}
