//! `read_file`: a text file by lines, each with its number, and a picture as one.
//!
//! Never: more of it than a model can use, and never silent about the rest.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::image::ImageInfo;
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::image_sink::{ImageError, ImageSink};
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::files::protected::Access;
use crate::files::text::{FILE_BYTES_MAX, decode_utf8, is_text, size_error};
use crate::files::workspace::{Workspace, error_hint};
use crate::tool_support::{TIMEOUT, run_blocking};
use crate::typed::TypedTool;

/// The longest answer, in bytes.
const SHOWN_BYTES_MAX: usize = 256 * 1024;
/// So many lines are shown where nobody says how many.
const LINES_DEFAULT: usize = 2_000;
/// Far more lines than a file may have. The schema says it, so that a number which
/// no machine holds is refused in its words.
const NUMBER_MAX: u32 = 1_000_000_000;

/// Reads files.
#[derive(Debug)]
pub(crate) struct ReadFile(pub(crate) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, from the workspace's top, such as `src/main.rs`
    path: String,
    /// The number of the first line to read; 1 unless given
    #[schemars(range(min = 1, max = NUMBER_MAX))]
    offset: Option<usize>,
    /// How many lines to read; 2000 unless given
    #[schemars(range(min = 1, max = NUMBER_MAX))]
    limit: Option<usize>,
}

#[async_trait]
impl TypedTool for ReadFile {
    type Input = Input;
    const NAME: &'static str = "read_file";
    const DESCRIPTION: &'static str = "Reads a text file of the workspace, or shows a picture \
        (PNG, JPEG, GIF or WebP). Every line of a text comes as its number, a tab and its text, \
        so that you can say where something is and read on from there; number and tab are not \
        part of the file. At the end it says how many lines there are.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        self.0.subjects(input)
    }

    async fn call(&self, input: Input, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let (space, easel) = (self.0.clone(), ctx.images.clone());
        run_blocking(move || read(&space, &input, &easel)).await
    }
}

fn read(space: &Workspace, input: &Input, easel: &ImageSink) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("The file was not read: {why}."));
    let target = space.target(&input.path, Access::Read);
    let target = target.map_err(|bad| refuse(bad.to_string()))?;
    let said = &target.display;
    let trouble = |trouble| refuse(format!("`{said}` {trouble}{}", error_hint(&trouble)));
    let opened = space.open(&target).map_err(trouble)?;
    if let Some(why) = size_error(&opened) {
        let way = "search_files does not open them either; ask a person for a part of it";
        return Err(refuse(format!("`{said}` {why}; {way}")));
    }
    // It may have grown since: what is read stays bounded.
    let bytes = opened.read(FILE_BYTES_MAX).map_err(trouble)?.bytes;
    if ImageInfo::has_image_signature(&bytes) && !is_text(&bytes) {
        let whole = ImageInfo::parse(&bytes).ok_or(ImageError::UnsupportedFormat);
        let shown = whole.and_then(|picture| image_output(&picture, bytes, easel));
        return shown
            .map_err(|why| refuse(format!("`{said}` is a picture that can't be shown, as {why}")));
    }
    let text = decode_utf8(bytes).map_err(|why| refuse(format!("`{said}` {why}")))?;
    let offset = input.offset.unwrap_or(1).max(1);
    let limit = input.limit.unwrap_or(LINES_DEFAULT).max(1);
    let page = render_page(&text, offset, limit).map_err(|lines| {
        let lines = line_count_text(lines);
        refuse(format!("`{said}` has {lines}, so there is no line {offset}"))
    })?;
    Ok(ToolOutput::text(page))
}

/// A picture, with a word about it for those who can't see.
fn image_output(
    picture: &ImageInfo,
    bytes: Vec<u8>,
    easel: &ImageSink,
) -> Result<ToolOutput, ImageError> {
    let (kind, size) = (picture.media_type, bytes.len());
    let (width, height) = (picture.width, picture.height);
    let image = easel.add(bytes)?;
    let words = format!("[A picture: {kind}, {width} x {height}, {size} bytes.]");
    Ok(ToolOutput { content: vec![Part::Text(words.into()), Part::Image(image)], full: None })
}

/// The lines from `offset` on, with a last line about the rest; or how many
/// lines there are if that one is not among them.
fn render_page(text: &str, offset: usize, limit: usize) -> Result<String, usize> {
    let lines = text.lines().count();
    if lines == 0 && offset == 1 {
        return Ok("[The file is empty.]".into());
    }
    if offset > lines {
        return Err(lines);
    }
    let mut page = String::new();
    let mut last = offset - 1;
    let mut cut = false;
    for (index, line) in text.lines().enumerate().skip(offset - 1).take(limit) {
        let head = format!("{}\t", index + 1);
        let room = SHOWN_BYTES_MAX.saturating_sub(page.len() + head.len() + 1);
        let is_first = last < offset;
        if line.len() > room && !is_first {
            break;
        }
        // A line that alone is too long is shown in part: else nobody gets past it.
        let shown = &line[..line.floor_char_boundary(room)];
        cut = shown.len() < line.len();
        page.push_str(&head);
        page.push_str(shown);
        page.push('\n');
        last = index + 1;
        if cut {
            break;
        }
    }
    if cut {
        page.push_str(&format!("[Line {last} is longer and was cut. search_files finds what is behind the cut, and shows \
             what is around it.]\n"));
    }
    let of = line_count_text(lines);
    page.push_str(&if last < lines {
        let next = last + 1;
        format!("[Lines {offset} to {last} of {lines}. Read on with offset {next}.]")
    } else if offset == 1 {
        format!("[The whole file: {of}.]")
    } else {
        format!("[Lines {offset} to {last}, the end: the file has {of}.]")
    });
    Ok(page)
}

fn line_count_text(lines: usize) -> String {
    let word = if lines == 1 { "line" } else { "lines" };
    format!("{lines} {word}")
}

#[cfg(test)]
mod tests {
    use super::{NUMBER_MAX, ReadFile, SHOWN_BYTES_MAX, Workspace, render_page};
    use crate::typed::typed;

    fn check(text: &str, (offset, limit): (usize, usize), expected: Result<&str, usize>) {
        let page = render_page(text, offset, limit);
        assert_eq!(page.as_deref().map_err(|lines| *lines), expected, "{text:?}");
    }

    #[test]
    fn every_number_has_a_maximum_in_the_schema() {
        let space = Workspace::new("nowhere".into(), Vec::new());
        let tool = typed(ReadFile(space)).unwrap();
        for name in ["offset", "limit"] {
            let number = &tool.spec().schema["properties"][name];
            assert_eq!(number["type"], "integer");
            assert_eq!(number["maximum"], NUMBER_MAX, "{name}");
        }
    }

    #[test]
    fn a_file_is_read_in_pages() {
        check("", (1, 9), Ok("[The file is empty.]"));
        check("", (2, 9), Err(0));
        check("a", (1, 9), Ok("1\ta\n[The whole file: 1 line.]"));
        check("a\r\n\nb\n", (1, 9), Ok("1\ta\n2\t\n3\tb\n[The whole file: 3 lines.]"));
        check("a\nb\nc", (1, 2), Ok("1\ta\n2\tb\n[Lines 1 to 2 of 3. Read on with offset 3.]"));
        check("a\nb\nc", (3, 2), Ok("3\tc\n[Lines 3 to 3, the end: the file has 3 lines.]"));
        check("a\nb\nc", (4, 2), Err(3));
        check("a\nb\nc", (usize::MAX, usize::MAX), Err(3));
    }

    #[test]
    fn long_and_many_lines_are_truncated() {
        let long = format!("{}\nend", "ü".repeat(SHOWN_BYTES_MAX));
        let first = render_page(&long, 1, 9).unwrap();
        assert!(first.len() < SHOWN_BYTES_MAX + 200);
        assert!(first.ends_with("around it.]\n[Lines 1 to 1 of 2. Read on with offset 2.]"));
        let many = "0123456789\n".repeat(100_000);
        let shown = render_page(&many, 1, usize::MAX).unwrap();
        assert!(shown.len() < SHOWN_BYTES_MAX + 200);
        assert!(shown.contains("of 100000. Read on with offset"));
    }
}
