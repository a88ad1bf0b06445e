//! The tool `search_files`, which finds lines that match a regular expression.
//!
//! Invariant: matching takes linear time, binary files are skipped, and the output says what was
//! not searched.

use std::ops::ControlFlow;
use std::path::PathBuf;

use regex::{Regex, RegexBuilder};
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::ToolContext;

use crate::disk_tool::{DiskTool, Reason};
use crate::files::glob::Glob;
use crate::files::path::join_parts;
use crate::files::protected::PathAccess;
use crate::files::text::read_text;
use crate::files::walk::{FolderWalk, WalkEntry};
use crate::files::workspace::{Workspace, fs_error_message};
use crate::safe_dir::{FsError, OpenFile};

/// Maximum number of matching lines that are shown.
const SHOWN_MAX: usize = 200;
/// Maximum length of a search pattern in bytes.
const PATTERN_BYTES_MAX: usize = 1_000;
/// Maximum size of the compiled pattern in bytes. Together with the limit on the length of lines,
/// it limits the search time.
const REGEX_BYTES_MAX: usize = 512 * 1024;
/// Maximum size of a compiled pattern that is matched against lines of any length.
const SMALL_REGEX_BYTES_MAX: usize = 128 * 1024;
/// Number of bytes of a line that are searched if the compiled pattern is larger than
/// `SMALL_REGEX_BYTES_MAX`.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Number of searched bytes between two checks of the timeout.
const CHECK_BYTES: usize = 64 * 1024;
/// Maximum number of characters shown of a matching line.
const LINE_CHARS_MAX: usize = 240;
/// Maximum number of characters shown before the match in a line that is truncated.
const LEAD_CHARS_MAX: usize = 80;
/// Note after a truncated line that has more matches.
const MORE_MATCHES: &str = " [more matches in the rest of this line]";

#[derive(Debug)]
pub(crate) struct SearchFilesTool(pub(crate) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchFilesInput {
    /// A regular expression for one line, such as `fn \w+_file` or `(?i)todo`; without look-around
    /// and backreferences. Plain text works too.
    pattern: String,
    /// A folder or a file, relative to the top of the workspace; default: everything
    path: Option<String>,
    /// Search only files that match this glob, such as `*.rs` or `src/**/*.md`
    glob: Option<String>,
}

impl DiskTool for SearchFilesTool {
    type Input = SearchFilesInput;
    const NAME: &'static str = "search_files";
    const DESCRIPTION: &'static str = "Searches the text files of the workspace and shows the \
        matching lines as `path:line: text`, at most 200; of a long line it shows the text around the \
        first match.";
    const CLASS: EffectClass = EffectClass::Pure;
    const FAILURE: &'static str = "Nothing was searched";

    fn in_sandbox(&self, work_folder: PathBuf) -> Option<Self> {
        Some(Self(self.0.in_sandbox(work_folder)))
    }

    /// Returns the folder or file as the text that approval rules match; `.` means the whole
    /// workspace.
    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        self.0.rule_match_texts(input)
    }

    fn call(&self, input: SearchFilesInput, _ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        let (pattern, pattern_note) = compile_pattern(&input.pattern)?;
        let start = input.path.unwrap_or_default();
        let parts = self.0.parse_accessible_path(&start, PathAccess::Read)?;
        let glob = Glob::parse_optional(input.glob.as_deref())?;
        let mut search = SearchState {
            pattern,
            lines: Vec::new(),
            searched_files: 0,
            skipped_files: 0,
            partial_lines: 0,
            has_more: false,
            is_timed_out: false,
        };
        let mut walk = FolderWalk::new(&self.0, glob.as_ref());
        let mut result =
            walk.visit_entries(&parts, true, &mut |walk, entry| search.visit_entry(walk, entry));
        if let Err(FsError::NotRegular) = result
            && !parts.is_empty()
        {
            // Not a folder: a single file is searched whatever the glob is.
            let target = self.0.checked_file_path(&start, PathAccess::Read)?;
            let file = self.0.open_file(&target);
            result = file.map(|file| _ = search.search_file(&walk, &target.display, file));
        }
        result.map_err(|error| fs_error_message(&join_parts(&parts), &error))?;
        let notes =
            walk.omission_notes().into_iter().chain(pattern_note.map(|note| format!("[{note}]")));
        Ok(ToolOutput::text(search.into_result_text(notes)))
    }
}

/// Compiles the search pattern. A pattern that is not a valid regular expression is searched as
/// plain text, and the returned note says so. `None` means that there is no note.
fn compile_pattern(text: &str) -> Result<(SearchPattern, Option<String>), String> {
    if text.is_empty() {
        return Err("the pattern is empty".into());
    }
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("the pattern is longer than {PATTERN_BYTES_MAX} bytes"));
    }
    match SearchPattern::new(text) {
        Ok(pattern) => Ok((pattern, None)),
        Err(regex::Error::CompiledTooBig(_)) => {
            Err("the pattern is too large; use smaller counts in `{}`".into())
        }
        Err(_) => {
            let pattern =
                SearchPattern::new(&regex::escape(text)).map_err(|_| "the pattern is too large")?;
            let note =
                "The pattern is not a valid regular expression; it was searched as plain text.";
            Ok((pattern, Some(note.into())))
        }
    }
}

/// A compiled search pattern.
#[derive(Debug)]
struct SearchPattern {
    regex: Regex,
    /// Whether the pattern is small enough to be matched against lines of any length.
    is_small: bool,
}

impl SearchPattern {
    fn new(pattern_text: &str) -> Result<Self, regex::Error> {
        let build = |size: usize| {
            let mut builder = RegexBuilder::new(pattern_text);
            let limits = builder.size_limit(size).dfa_size_limit(4 * REGEX_BYTES_MAX);
            limits.build()
        };
        match build(SMALL_REGEX_BYTES_MAX) {
            Err(regex::Error::CompiledTooBig(_)) => {
                Ok(Self { regex: build(REGEX_BYTES_MAX)?, is_small: false })
            }
            result => result.map(|regex| Self { regex, is_small: true }),
        }
    }

    /// Returns how many bytes of this line are searched with the pattern.
    fn searched_byte_count(&self, line: &str) -> usize {
        match self.is_small {
            true => line.len(),
            false => line.floor_char_boundary(LINE_BYTES_MAX),
        }
    }

    /// Returns the byte position of the first match at or after byte `start_byte` of the line.
    /// `None` means that there is no match.
    fn find_match(&self, line: &str, start_byte: usize) -> Option<usize> {
        let searched_len = self.searched_byte_count(line);
        let matched = self.regex.find_at(&line[..searched_len], start_byte.min(searched_len))?;
        // A match that ends at the cut may be wrong: `$` would match there.
        let is_certain = matched.end() < searched_len || searched_len == line.len();
        is_certain.then_some(matched.start())
    }
}

/// State of a search through files.
#[derive(Debug)]
struct SearchState {
    pattern: SearchPattern,
    lines: Vec<String>,
    searched_files: usize,
    skipped_files: usize,
    /// Number of lines that were searched only in part.
    partial_lines: usize,
    has_more: bool,
    is_timed_out: bool,
}

impl SearchState {
    fn visit_entry(&mut self, walk: &FolderWalk<'_>, entry: &WalkEntry<'_>) -> ControlFlow<()> {
        if entry.kind != FileType::RegularFile {
            return ControlFlow::Continue(());
        }
        match entry.folder.open_listed_file(entry.name) {
            Ok(file) => self.search_file(walk, &entry.path, file),
            // Removed since, replaced by a symbolic link, or not readable.
            Err(_) => {
                self.skipped_files += 1;
                ControlFlow::Continue(())
            }
        }
    }

    fn search_file(
        &mut self,
        walk: &FolderWalk<'_>,
        path: &str,
        file: OpenFile,
    ) -> ControlFlow<()> {
        let Ok(content) = read_text(file) else {
            self.skipped_files += 1;
            return ControlFlow::Continue(());
        };
        self.searched_files += 1;
        let mut unchecked_bytes = 0;
        for (index, line) in content.lines().enumerate() {
            // The walk itself checks the timeout only between files.
            unchecked_bytes += line.len() + 1;
            if unchecked_bytes > CHECK_BYTES {
                unchecked_bytes = 0;
                self.is_timed_out = walk.is_timed_out();
            }
            if self.is_timed_out {
                return ControlFlow::Break(());
            }
            let Some(match_start) = self.pattern.find_match(line, 0) else {
                self.partial_lines +=
                    usize::from(self.pattern.searched_byte_count(line) < line.len());
                continue;
            };
            if self.lines.len() == SHOWN_MAX {
                self.has_more = true;
                return ControlFlow::Break(());
            }
            let (text, end) = excerpt(line, match_start);
            let has_more = end < line.len() && self.pattern.find_match(line, end).is_some();
            let more_note = if has_more { MORE_MATCHES } else { "" };
            self.lines.push(format!("{path}:{}: {text}{more_note}", index + 1));
        }
        ControlFlow::Continue(())
    }

    fn into_result_text(self, notes: impl Iterator<Item = String>) -> String {
        let mut lines = self.lines;
        if lines.is_empty() {
            lines.push(format!("[No match in {} files.]", self.searched_files));
        }
        let own_notes = [
            self.has_more.then(|| {
                format!(
                    "[There is more: only the first {SHOWN_MAX} lines are shown; narrow the search by pattern, path or glob.]"
                )
            }),
            self.is_timed_out.then(|| {
                "[There may be more: the search timed out; narrow it by path or glob.]".to_owned()
            }),
            (self.skipped_files > 0).then(|| {
                let count = self.skipped_files;
                format!("[Files not searched because they are binary, unreadable or too long: {count}.]")
            }),
            (self.partial_lines > 0).then(|| {
                let count = self.partial_lines;
                format!(
                    "[Searched only up to byte {LINE_BYTES_MAX} because the pattern is large: {count} long \
                     lines. A smaller pattern is matched against whole lines.]"
                )
            }),
        ];
        lines.extend(own_notes.into_iter().flatten().chain(notes));
        lines.join("\n")
    }
}

/// Returns the part of the line around the match at byte `match_start`, and the byte of the line at
/// which that part ends.
fn excerpt(line: &str, match_start: usize) -> (String, usize) {
    let leading_chars = line[..match_start].chars().rev().take(LEAD_CHARS_MAX);
    let start = match_start - leading_chars.map(char::len_utf8).sum::<usize>();
    let is_short = line.chars().nth(LINE_CHARS_MAX).is_none();
    let start = if is_short { 0 } else { start };
    let chars = line[start..].chars().take(LINE_CHARS_MAX);
    let end = start + chars.map(char::len_utf8).sum::<usize>();
    let text = &line[start..end];
    let start_ellipsis = if start > 0 { "..." } else { "" };
    let end_ellipsis = if end < line.len() { "..." } else { "" };
    (format!("{start_ellipsis}{text}{end_ellipsis}"), end)
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, compile_pattern, excerpt};

    #[test]
    fn search_patterns_match_lines() {
        let check = |text: &str, line: &str, expected: &str| {
            let result = match compile_pattern(text) {
                Ok((pattern, note)) => {
                    format!("{} {note:?}", pattern.find_match(line, 0).is_some())
                }
                Err(error) => error,
            };
            assert!(result.contains(expected), "{text:?}: {result}");
        };
        check(r"fn \w+_file", "pub fn read_file", "true None");
        check("(?i)GRÖSSE", "größe Grösse", "true None");
        check("call(", "a call(b)", "true Some(\"The pattern is not a valid");
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
        let (text, end) = excerpt(&long, 600);
        assert_eq!(&long[end..], "é".repeat(300 - 154));
        assert!(text.starts_with("...ü") && text.ends_with("é..."));
        assert!(text.contains("needle") && text.chars().count() == 246);
    }

    #[test]
    fn a_large_pattern_is_matched_across_chunks() {
        let long_line = "b".repeat(LINE_BYTES_MAX) + "needle";
        let assert_match_start = |text: &str, line: &str, is_small: bool, start: Option<usize>| {
            let (pattern, _) = compile_pattern(text).unwrap();
            assert_eq!(pattern.is_small, is_small, "{text}");
            assert_eq!(pattern.find_match(line, 0), start, "{text}");
        };
        assert_match_start("needle$", &long_line, true, Some(LINE_BYTES_MAX));
        assert_match_start("b$", &long_line, true, None);
        let assert_large_pattern_match = |pattern_end: &str, line: &str, start: Option<usize>| {
            let large_pattern = format!(r"\w{{8}}xx|{pattern_end}");
            assert_match_start(&large_pattern, line, false, start);
        };
        assert_large_pattern_match("b$", &long_line, None);
        assert_large_pattern_match("needle", &long_line, None);
        assert_large_pattern_match("^bb", &long_line, Some(0));
        assert_large_pattern_match("b$", "aab", Some(2));
    }
}
