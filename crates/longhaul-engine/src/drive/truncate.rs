//! Shows a long output in part and keeps the whole of it, with its pictures.
//!
//! Never: loses a byte of what it keeps, cuts a letter in two, names a picture that
//! is not kept in the same commit, or is silent about what is lost.

use std::borrow::Cow;

use longhaul_core::change::Blob;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::CallId;
use longhaul_core::message::Part;

/// An output up to here is shown whole.
const SHOWN_BYTES_MAX: usize = 16 * 1024;

/// Of a longer one so much of its beginning and end is shown.
const HEAD_BYTES: usize = 12 * 1024;
const TAIL_BYTES: usize = 3 * 1024;

/// More than this is not kept: of a longer one the beginning and the end are.
const STORED_BYTES_MAX: usize = 10 * 1024 * 1024;

/// The output as the model sees it, and what it names: the whole of it where that
/// is more, and those of these pictures that it shows.
pub(super) fn truncate_output(
    call: CallId,
    mut output: ToolOutput,
    pictures: Vec<Blob>,
) -> (ToolOutput, Vec<Blob>) {
    let mut kept = Vec::new();
    for part in &mut output.content {
        if let Part::Image(image) = part {
            match pictures.iter().find(|blob| blob.blob_ref == image.blob) {
                Some(blob) if kept.contains(blob) => {}
                Some(blob) => kept.push(blob.clone()),
                None => *part = Part::Text("(a picture that was not handed over)".into()),
            }
        }
    }
    let (output, whole) = truncate_text(call, output);
    kept.extend(whole);
    (output, kept)
}

fn truncate_text(call: CallId, output: ToolOutput) -> (ToolOutput, Option<Blob>) {
    let texts = output.content.iter().filter_map(Part::text);
    let texts: Vec<&str> = texts.collect();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes <= SHOWN_BYTES_MAX || output.full.is_some() {
        return (output, None);
    }
    let whole = texts.join("\n");
    let (kept, lost) = truncate_stored(&whole);
    let blob = Blob::new(kept.as_bytes());
    let head = &whole[..whole.floor_char_boundary(HEAD_BYTES)];
    let tail = &whole[whole.floor_char_boundary(whole.len() - TAIL_BYTES)..];
    let left_out = kept.len() - head.len() - tail.len();
    let shown = format!(
        "{head}\n\n[longhaul] {left_out} of {} bytes that are kept are left out here.{lost} To \
         read on: read_output {{\"call\": \"{call}\", \"offset\": {}}}.\n\n{tail}",
        kept.len(),
        head.len(),
    );
    let pictures = output.content.iter().filter(|part| matches!(part, Part::Image(_)));
    let mut content = vec![Part::Text(shown.into())];
    content.extend(pictures.cloned());
    let full = Some(blob.blob_ref);
    (ToolOutput { content, full }, Some(blob))
}

/// What is kept of a text, and what is to be said of the rest.
fn truncate_stored(whole: &str) -> (Cow<'_, str>, String) {
    if whole.len() <= STORED_BYTES_MAX {
        return (Cow::Borrowed(whole), String::new());
    }
    let half = STORED_BYTES_MAX / 2;
    let first = &whole[..whole.floor_char_boundary(half)];
    let last = &whole[whole.floor_char_boundary(whole.len() - half)..];
    let lost = whole.len() - first.len() - last.len();
    let kept = format!("{first}\n\n[longhaul] {lost} bytes are lost here.\n\n{last}");
    let words = format!(
        " There were {} in all: the first {} and the last {} are kept, the {lost} between them \
         are lost.",
        whole.len(),
        first.len(),
        last.len()
    );
    (Cow::Owned(kept), words)
}

#[cfg(test)]
mod tests {
    use longhaul_core::message::ImageRef;

    use super::*;

    const CALL: CallId = CallId { turn: 2, index: 1 };

    fn text_of(output: &ToolOutput) -> &str {
        match &output.content[0] {
            Part::Text(text) => text,
            Part::Image(_) => panic!("a text"),
        }
    }

    #[test]
    fn a_short_output_is_not_truncated() {
        let output = ToolOutput::text("short");
        assert_eq!(truncate_output(CALL, output.clone(), Vec::new()), (output, Vec::new()));
    }

    #[test]
    fn a_long_output_is_truncated_for_the_model_and_stored_whole() {
        let whole = "ü".repeat(20_000);
        let (output, blobs) = truncate_output(CALL, ToolOutput::text(whole.as_str()), Vec::new());
        let [blob] = &blobs[..] else {
            panic!("it is kept");
        };
        assert_eq!(&*blob.content, whole.as_bytes());
        assert_eq!(output.full, Some(blob.blob_ref));
        assert!(text_of(&output).len() < SHOWN_BYTES_MAX);
        assert!(text_of(&output).contains("read_output {\"call\": \"t2.1\", \"offset\": 12288}"));
    }

    #[test]
    fn only_images_of_the_output_are_stored_and_only_stored_images_are_shown() {
        let image = |blob: &Blob| {
            Part::Image(ImageRef { media_type: "image/png".into(), blob: blob.blob_ref })
        };
        let (shown, unsaid) = (Blob::new(*b"shown"), Blob::new(*b"unsaid"));
        let missing = Blob::new(*b"missing");
        let whole = "x".repeat(SHOWN_BYTES_MAX + 1);
        let content = vec![Part::Text(whole.into()), image(&shown), image(&missing), image(&shown)];
        let output = ToolOutput { content, full: None };
        let (output, blobs) = truncate_output(CALL, output, vec![unsaid, shown.clone()]);
        let full = output.full.expect("it is long");
        let kept: Vec<_> = blobs.iter().map(|blob| blob.blob_ref).collect();
        assert_eq!(kept, [shown.blob_ref, full]);
        assert_eq!(output.content[1..], [image(&shown), image(&shown)]);
        assert!(text_of(&output).ends_with("not handed over)"));
    }

    #[test]
    fn an_output_above_the_storage_limit_keeps_head_and_tail_and_says_so() {
        let whole = format!("first {} last", "ü".repeat(6 * 1024 * 1024));
        let (output, blobs) = truncate_output(CALL, ToolOutput::text(whole.as_str()), Vec::new());
        let kept =
            String::from_utf8(blobs.first().expect("it is kept").content.to_vec()).expect("a text");
        assert!(kept.starts_with("first ") && kept.ends_with(" last"));
        assert!(kept.contains("\n\n[longhaul] 2097162 bytes are lost here.\n\n"));
        let shown = text_of(&output);
        assert!(shown.starts_with("first ") && shown.ends_with(" last"));
        let all = format!("There were {} in all: the first ", whole.len());
        assert!(shown.contains(&all), "{}", &shown[12_000..13_000]);
        let of = format!(" of {} bytes that are kept are left out here.", kept.len());
        assert!(shown.contains(&of));
    }
}
