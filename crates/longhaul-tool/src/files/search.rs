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

use crate::files::glob::Glob;
use crate::files::path::joined;
use crate::files::protected::Access;
use crate::files::text::{FILE_BYTES_MAX, decode_utf8, size_error};
use crate::files::walk::{Walk, WalkControl, WalkEntry};
use crate::files::workspace::{Workspace, error_hint};
use crate::safe_dir::{FsError, OpenFile};
use crate::tool_support::{TIMEOUT, run_blocking};
use crate::typed::TypedTool;

/// How many lines are shown.
const SHOWN_MAX: usize = 200;
/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1_000;
/// The largest automaton, in bytes: with the bound on lines it bounds the time.
const REGEX_BYTES_MAX: usize = 512 * 1024;
/// The largest one that goes through a line of any length.
const SMALL_REGEX_BYTES_MAX: usize = 128 * 1024;
/// How much of a line a larger one goes through, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// After so many bytes the time is looked at.
const CHECK_BYTES: usize = 64 * 1024;
/// How much of a line is shown, in characters, and how much before the find.
const LINE_CHARS_MAX: usize = 240;
const LEAD_CHARS_MAX: usize = 80;
/// What is said of a line that is shown in part and has more behind that.
const MORE_MATCHES: &str = " [found again behind this, in the same line]";

/// Searches files.
#[derive(Debug)]
pub(crate) struct SearchFiles {
    pub(crate) workspace: Workspace,
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
        self.workspace.subjects(input)
    }

    async fn call(&self, input: Input, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let (space, clock) = (self.workspace.clone(), Arc::clone(&self.clock));
        run_blocking(move || search(&space, &input, clock)).await
    }
}

fn search(
    space: &Workspace,
    input: &Input,
    clock: Arc<dyn Clock>,
) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("Nothing was searched: {why}."));
    let (needle, plain) = compile(&input.pattern).map_err(refuse)?;
    let start = input.path.as_deref().unwrap_or_default();
    let parts = space.parts(start, Access::Read);
    let parts = parts.map_err(|bad| refuse(bad.to_string()))?;
    // Models send an empty text for what they leave out.
    let glob = input.glob.as_deref().filter(|glob| !glob.is_empty());
    let glob = glob.map(Glob::new).transpose().map_err(refuse)?;
    let mut hunt = SearchState {
        pattern: needle,
        lines: Vec::new(),
        searched_files: 0,
        skipped_files: 0,
        partial_lines: 0,
        has_more: false,
        is_timed_out: false,
    };
    let mut walk = Walk::new(space, glob.as_ref(), clock);
    let walked = walk.run(&parts, true, &mut |walk, met| hunt.visit(walk, met));
    let walked = match walked {
        // Not a folder: a file is searched by itself, whatever the glob says.
        Err(FsError::NotRegular) if !parts.is_empty() => space
            .target(start, Access::Read)
            .map_err(|bad| refuse(bad.to_string()))
            .map(|target| space.open(&target))?
            .map(|opened| {
                hunt.search_file(&walk, &joined(&parts), opened);
            }),
        walked => walked,
    };
    let said = joined(&parts);
    walked.map_err(|trouble| refuse(format!("`{said}` {trouble}{}", error_hint(&trouble))))?;
    let mut notes = walk.notes();
    notes.extend(plain);
    Ok(ToolOutput::text(hunt.into_text(notes)))
}

/// The pattern, and a word about it where it is none and was taken for plain text.
fn compile(text: &str) -> Result<(Pattern, Option<String>), String> {
    if text.is_empty() {
        return Err("the pattern is empty".into());
    }
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("the pattern is longer than {PATTERN_BYTES_MAX} bytes"));
    }
    match Pattern::new(text) {
        Ok(needle) => Ok((needle, None)),
        Err(regex::Error::CompiledTooBig(_)) => {
            Err("the pattern is too large; use smaller counts in `{}`".into())
        }
        Err(_) => {
            let note = "The pattern is no regular expression and was searched as plain text.";
            let needle =
                Pattern::new(&regex::escape(text)).map_err(|_| "the pattern is too large")?;
            Ok((needle, Some(note.into())))
        }
    }
}

/// What is searched for.
#[derive(Debug)]
struct Pattern {
    regex: Regex,
    /// Small enough for a line of any length.
    is_small: bool,
}

impl Pattern {
    fn new(text: &str) -> Result<Self, regex::Error> {
        let build = |size: usize| {
            let mut builder = RegexBuilder::new(text);
            let limits = builder.size_limit(size).dfa_size_limit(4 * REGEX_BYTES_MAX);
            limits.build()
        };
        match build(SMALL_REGEX_BYTES_MAX) {
            Err(regex::Error::CompiledTooBig(_)) => {
                Ok(Self { regex: build(REGEX_BYTES_MAX)?, is_small: false })
            }
            built => built.map(|regex| Self { regex, is_small: true }),
        }
    }

    /// How much of this line is searched, in bytes.
    fn searched_len(&self, line: &str) -> usize {
        match self.is_small {
            true => line.len(),
            false => line.floor_char_boundary(LINE_BYTES_MAX),
        }
    }

    /// Where it is found first, from this byte of the line on.
    fn find(&self, line: &str, from: usize) -> Option<usize> {
        let reach = self.searched_len(line);
        let found = self.regex.find_at(&line[..reach], from.min(reach))?;
        // An end at the cut may be no end: `$` would fit there.
        let is_sure = found.end() < reach || reach == line.len();
        is_sure.then_some(found.start())
    }
}

/// What is searched for, and what was found.
#[derive(Debug)]
struct SearchState {
    pattern: Pattern,
    lines: Vec<String>,
    searched_files: usize,
    skipped_files: usize,
    /// Lines that were searched only in part.
    partial_lines: usize,
    has_more: bool,
    is_timed_out: bool,
}

impl SearchState {
    fn visit(&mut self, walk: &Walk<'_>, met: &WalkEntry<'_>) -> WalkControl {
        if met.kind != FileType::RegularFile {
            return WalkControl::Continue;
        }
        match met.folder.open_known(met.name) {
            Ok(opened) => self.search_file(walk, &met.path, opened),
            // Removed since, swapped for a link, or not ours to read.
            Err(_) => {
                self.skipped_files += 1;
                WalkControl::Continue
            }
        }
    }

    fn search_file(&mut self, walk: &Walk<'_>, path: &str, opened: OpenFile) -> WalkControl {
        let long = size_error(&opened).is_some();
        let taken = (!long).then(|| opened.read(FILE_BYTES_MAX).ok()).flatten();
        let Some(held) = taken.and_then(|taken| decode_utf8(taken.bytes).ok()) else {
            self.skipped_files += 1;
            return WalkControl::Continue;
        };
        self.searched_files += 1;
        let mut unchecked = 0;
        for (index, line) in held.lines().enumerate() {
            // The walk itself looks at the time only between files.
            unchecked += line.len() + 1;
            if unchecked > CHECK_BYTES {
                unchecked = 0;
                self.is_timed_out = walk.is_timed_out();
            }
            if self.is_timed_out {
                return WalkControl::Stop;
            }
            let Some(found) = self.pattern.find(line, 0) else {
                self.partial_lines += usize::from(self.pattern.searched_len(line) < line.len());
                continue;
            };
            if self.lines.len() == SHOWN_MAX {
                self.has_more = true;
                return WalkControl::Stop;
            }
            let (shown, end) = excerpt(line, found);
            let again = end < line.len() && self.pattern.find(line, end).is_some();
            let again = if again { MORE_MATCHES } else { "" };
            self.lines.push(format!("{path}:{}: {shown}{again}", index + 1));
        }
        WalkControl::Continue
    }

    fn into_text(self, notes: Vec<String>) -> String {
        let mut lines = self.lines;
        let files = self.searched_files;
        if lines.is_empty() {
            lines.push(format!("[Nothing was found in {files} files.]"));
        }
        if self.has_more {
            lines.push(format!(
                "[There is more: only the first {SHOWN_MAX} lines are shown; narrow it by pattern, path or glob.]"
            ));
        }
        if self.is_timed_out {
            lines.push("[There is more: the time was over; narrow it by path or glob.]".into());
        }
        if self.skipped_files > 0 {
            let count = self.skipped_files;
            lines.push(format!("[Not searched, as they are no text or too long: {count}.]"));
        }
        if self.partial_lines > 0 {
            let count = self.partial_lines;
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
fn excerpt(line: &str, at: usize) -> (String, usize) {
    let lead = line[..at].chars().rev().take(LEAD_CHARS_MAX);
    let start = at - lead.map(char::len_utf8).sum::<usize>();
    let is_short = line.chars().nth(LINE_CHARS_MAX).is_none();
    let start = if is_short { 0 } else { start };
    let letters = line[start..].chars().take(LINE_CHARS_MAX);
    let end = start + letters.map(char::len_utf8).sum::<usize>();
    let shown = &line[start..end];
    let before = if start > 0 { "..." } else { "" };
    let after = if end < line.len() { "..." } else { "" };
    (format!("{before}{shown}{after}"), end)
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, compile, excerpt};

    #[test]
    fn search_patterns_match_lines() {
        let check = |text: &str, line: &str, expected: &str| {
            let said = match compile(text) {
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
    fn long_lines_are_shown_around_the_match() {
        assert_eq!(excerpt("short", 3), ("short".into(), 5));
        let long = format!("{}needle{}", "ü".repeat(300), "é".repeat(300));
        let (shown, end) = excerpt(&long, 600);
        assert_eq!(&long[end..], "é".repeat(300 - 154));
        assert!(shown.starts_with("...ü") && shown.ends_with("é..."));
        assert!(shown.contains("needle") && shown.chars().count() == 246);
    }

    #[test]
    fn a_large_pattern_is_matched_across_chunks() {
        let far = "b".repeat(LINE_BYTES_MAX) + "needle";
        let check = |text: &str, line: &str, lean: bool, expected: Option<usize>| {
            let (needle, _) = compile(text).unwrap();
            assert_eq!(needle.is_small, lean, "{text}");
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
