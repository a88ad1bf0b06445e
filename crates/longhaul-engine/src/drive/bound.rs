//! Shows a long output in part and keeps the whole of it.
//!
//! Never: loses a byte of what it keeps, or cuts a letter in two.

use longhaul_core::change::Blob;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::CallId;
use longhaul_core::message::Part;

/// An output up to here is shown whole.
const SHOWN_BYTES_MAX: usize = 16 * 1024;

/// Of a longer one so much of its beginning and end is shown.
const HEAD_BYTES: usize = 12 * 1024;
const TAIL_BYTES: usize = 3 * 1024;

/// More than this is not kept.
const KEPT_BYTES_MAX: usize = 10 * 1024 * 1024;

/// The output as the model sees it, and the whole of it where that is more.
pub(super) fn bound(call: CallId, output: ToolOutput) -> (ToolOutput, Option<Blob>) {
    let texts = output.content.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image(_) => None,
    });
    let texts: Vec<&str> = texts.collect();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes <= SHOWN_BYTES_MAX || output.full.is_some() {
        return (output, None);
    }
    let whole = texts.join("\n");
    let kept = &whole[..floor(&whole, KEPT_BYTES_MAX)];
    let blob = Blob::new(kept.as_bytes());
    let head = &whole[..floor(&whole, HEAD_BYTES)];
    let tail = &whole[floor(&whole, whole.len() - TAIL_BYTES)..];
    let left_out = whole.len() - head.len() - tail.len();
    let lost = match whole.len() - kept.len() {
        0 => String::new(),
        lost => format!(
            " The {lost} bytes after the first {} were not kept.",
            kept.len()
        ),
    };
    let shown = format!(
        "{head}\n\n[longhaul] {left_out} of {} bytes are left out here. To read on: \
         read_output {{\"call\": \"{call}\", \"offset\": {}}}.{lost}\n\n{tail}",
        whole.len(),
        head.len(),
    );
    let pictures = output
        .content
        .iter()
        .filter(|part| matches!(part, Part::Image(_)));
    let mut content = vec![Part::Text(shown.into())];
    content.extend(pictures.cloned());
    let full = Some(blob.at);
    (ToolOutput { content, full }, Some(blob))
}

/// The last border between letters at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|place| text.is_char_boundary(*place))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: CallId = CallId { turn: 2, index: 1 };

    fn shown(output: &ToolOutput) -> &str {
        match &output.content[0] {
            Part::Text(text) => text,
            Part::Image(_) => panic!("a text"),
        }
    }

    #[test]
    fn a_short_output_is_shown_whole() {
        let output = ToolOutput::text("short");
        assert_eq!(bound(CALL, output.clone()), (output, None));
    }

    #[test]
    fn a_long_output_is_shown_in_part_and_kept_whole() {
        let whole = "ü".repeat(20_000);
        let (output, blob) = bound(CALL, ToolOutput::text(whole.as_str()));
        let blob = blob.expect("it is kept");
        assert_eq!(&*blob.content, whole.as_bytes());
        assert_eq!(output.full, Some(blob.at));
        assert!(shown(&output).len() < SHOWN_BYTES_MAX);
        assert!(shown(&output).contains("read_output {\"call\": \"t2.1\", \"offset\": 12288}"));
    }
}
