//! The tool `read_file`: a text file with line numbers, or an image.
//!
//! Invariant: the output is limited and says how much is left.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::image::ImageInfo;
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::PredictedEffects;
use longhaul_core::port::image_sink::ImageError;
use longhaul_core::port::tool::ToolContext;

use crate::disk_tool::{DiskTool, Reason};
use crate::files::protected::PathAccess;
use crate::files::text::{FILE_BYTES_MAX, check_file_size, decode_utf8, is_text};
use crate::files::workspace::Workspace;

/// Maximum length of the tool's output in bytes.
const SHOWN_BYTES_MAX: usize = 256 * 1024;
/// Default number of lines that are read.
const LINES_DEFAULT: usize = 2_000;
/// Maximum line number in the input, far more than a file may have. The maximum is in the schema,
/// so that a number that is too large for an integer type is rejected with a clear message.
const NUMBER_MAX: u32 = 1_000_000_000;

/// The tool `read_file`, which reads a text file or an image.
#[derive(Debug)]
pub(crate) struct ReadFileTool(pub(crate) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFileInput {
    /// The file, relative to the top of the workspace, such as `src/main.rs`
    path: String,
    /// The number of the first line to read; default: 1
    #[schemars(range(min = 1, max = NUMBER_MAX))]
    offset: Option<usize>,
    /// How many lines to read; default: 2000
    #[schemars(range(min = 1, max = NUMBER_MAX))]
    limit: Option<usize>,
}

impl DiskTool for ReadFileTool {
    type Input = ReadFileInput;
    const NAME: &'static str = "read_file";
    const DESCRIPTION: &'static str = "Reads a text file of the workspace, or shows an image \
        (PNG, JPEG, GIF or WebP). Every line of a text is shown as its number, a tab and its text, \
        so that you can refer to lines and continue from there; number and tab are not \
        part of the file. The last line says how many lines there are.";
    const CLASS: EffectClass = EffectClass::Pure;
    const FAILURE: &'static str = "The file was not read";

    fn in_sandbox(&self, work_folder: PathBuf) -> Option<Self> {
        Some(Self(self.0.in_sandbox(work_folder)))
    }

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        self.0.rule_match_texts(input)
    }

    fn predict_effects(&self, input: ReadFileInput, _ctx: &ToolContext) -> PredictedEffects {
        self.0.effects_without_change(&input.path, PathAccess::Read)
    }

    fn call(&self, input: ReadFileInput, ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        let target = self.0.checked_file_path(&input.path, PathAccess::Read)?;
        let file = self.0.open_file(&target).map_err(|error| target.fs_error(error))?;
        check_file_size(&file).map_err(|reason| {
            let hint =
                "search_files does not open such files either; ask a person for a part of it";
            target.error(format!("{reason}; {hint}"))
        })?;
        // The file may have grown since, so the read is still limited.
        let snapshot = file.read_snapshot(FILE_BYTES_MAX);
        let bytes = snapshot.map_err(|error| target.fs_error(error))?.bytes;
        let display_path = &target.display;
        if ImageInfo::media_type(&bytes).is_some() && !is_text(&bytes) {
            let (info, size) = (ImageInfo::parse(&bytes), bytes.len());
            let info = info.ok_or(ImageError::UnsupportedFormat);
            let image = info.and_then(|info| Ok((ctx.images.add(bytes)?, info)));
            let (image, ImageInfo { media_type, width, height, .. }) = image.map_err(|error| {
                format!("`{display_path}` is an image that can't be shown: {error}")
            })?;
            let text = format!("[Image: {media_type}, {width} x {height}, {size} bytes.]");
            let content = vec![Part::Text(text.into()), Part::Image(image)];
            return Ok(ToolOutput { content, ..ToolOutput::default() });
        }
        let text = decode_utf8(bytes).map_err(|reason| target.error(reason))?;
        let offset = input.offset.unwrap_or(1).max(1);
        let limit = input.limit.unwrap_or(LINES_DEFAULT).max(1);
        let page = page(&text, offset, limit).map_err(|lines| {
            let lines = line_count_text(lines);
            format!("`{display_path}` has {lines}, so there is no line {offset}")
        })?;
        Ok(ToolOutput::text(page))
    }
}

/// Returns the lines from `offset` on, followed by a line that says how much is left. The error is
/// the number of lines in the file if `offset` is beyond them.
fn page(text: &str, offset: usize, limit: usize) -> Result<String, usize> {
    let lines = text.lines().count();
    if lines == 0 && offset == 1 {
        return Ok("[The file is empty.]".into());
    }
    if offset > lines {
        return Err(lines);
    }
    let mut page = String::new();
    let mut last = offset - 1;
    let mut is_truncated = false;
    for (index, line) in text.lines().enumerate().skip(offset - 1).take(limit) {
        let head = format!("{}\t", index + 1);
        let max_len = SHOWN_BYTES_MAX.saturating_sub(page.len() + head.len() + 1);
        let is_first = last < offset;
        if line.len() > max_len && !is_first {
            break;
        }
        // A single line that is too long is truncated, because otherwise nothing after it could be
        // read.
        let excerpt = &line[..line.floor_char_boundary(max_len)];
        is_truncated = excerpt.len() < line.len();
        page.push_str(&head);
        page.push_str(excerpt);
        page.push('\n');
        last = index + 1;
        if is_truncated {
            break;
        }
    }
    if is_truncated {
        page.push_str(&format!("[Line {last} is longer and was truncated. search_files also finds text in the rest of it, and shows \
             the text around it.]\n"));
    }
    let line_count = line_count_text(lines);
    page.push_str(&if last < lines {
        let next = last + 1;
        format!("[Lines {offset} to {last} of {lines}. Continue with offset {next}.]")
    } else if offset == 1 {
        format!("[The whole file: {line_count}.]")
    } else {
        format!("[Lines {offset} to {last}, the end: the file has {line_count}.]")
    });
    Ok(page)
}

fn line_count_text(lines: usize) -> String {
    let noun = if lines == 1 { "line" } else { "lines" };
    format!("{lines} {noun}")
}

#[cfg(test)]
mod tests {
    use super::{SHOWN_BYTES_MAX, page};

    fn check_file_page(text: &str, (offset, limit): (usize, usize), expected: Result<&str, usize>) {
        let page = page(text, offset, limit);
        assert_eq!(page.as_deref().map_err(|lines| *lines), expected, "{text:?}");
    }

    #[test]
    fn a_file_is_read_in_pages() {
        check_file_page("", (1, 9), Ok("[The file is empty.]"));
        check_file_page("", (2, 9), Err(0));
        check_file_page("a", (1, 9), Ok("1\ta\n[The whole file: 1 line.]"));
        check_file_page("a\r\n\nb\n", (1, 9), Ok("1\ta\n2\t\n3\tb\n[The whole file: 3 lines.]"));
        check_file_page(
            "a\nb\nc",
            (1, 2),
            Ok("1\ta\n2\tb\n[Lines 1 to 2 of 3. Continue with offset 3.]"),
        );
        check_file_page(
            "a\nb\nc",
            (3, 2),
            Ok("3\tc\n[Lines 3 to 3, the end: the file has 3 lines.]"),
        );
        check_file_page("a\nb\nc", (4, 2), Err(3));
        check_file_page("a\nb\nc", (usize::MAX, usize::MAX), Err(3));
    }

    #[test]
    fn long_and_many_lines_are_truncated() {
        let long = format!("{}\nend", "ü".repeat(SHOWN_BYTES_MAX));
        let first = page(&long, 1, 9).unwrap();
        assert!(first.len() < SHOWN_BYTES_MAX + 200);
        assert!(first.ends_with("around it.]\n[Lines 1 to 1 of 2. Continue with offset 2.]"));
        let many = "0123456789\n".repeat(100_000);
        let second = page(&many, 1, usize::MAX).unwrap();
        assert!(second.len() < SHOWN_BYTES_MAX + 200);
        assert!(second.contains("of 100000. Continue with offset"));
    }
}
