//! Truncates long tool outputs for the model and stores the full output and its images as blobs.
//!
//! Invariants: text is cut at character boundaries, every referenced image is stored in the same
//! commit, and the model is told what was left out.

use std::borrow::Cow;

use longhaul_core::change::Blob;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::CallId;
use longhaul_core::message::Part;
use longhaul_core::raw::RawJson;
use longhaul_run::state::control::ARTIFACTS_MAX;

/// Maximum size in bytes of a tool output that the model sees in full.
const SHOWN_BYTES_MAX: usize = 16 * 1024;

/// Size in bytes of the beginning (head) that the model sees of a longer output.
const HEAD_BYTES: usize = 12 * 1024;
/// Size in bytes of the end (tail) that the model sees of a longer output.
const TAIL_BYTES: usize = 3 * 1024;

/// Maximum size in bytes of a stored tool output. Of a longer output only the beginning and the end
/// are stored.
const STORED_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Maximum size in bytes of an artifact of a tool call.
const ARTIFACT_BYTES_MAX: usize = 64 * 1024;

/// Maximum size in bytes of all artifacts of a run. They are part of its checkpoints and its last
/// event.
const ARTIFACTS_BYTES_MAX: usize = 1024 * 1024;

/// Number and size of the artifacts (such as references to files that tools created) that a run may
/// still get.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArtifactQuota {
    count: usize,
    bytes: usize,
}

impl ArtifactQuota {
    /// Returns the quota that remains for a run that already has these artifacts.
    pub(super) fn remaining_after_artifacts(artifacts: &[RawJson]) -> Self {
        let bytes: usize = artifacts.iter().map(|artifact| artifact.as_str().len()).sum();
        Self {
            count: ARTIFACTS_MAX.saturating_sub(artifacts.len()),
            bytes: ARTIFACTS_BYTES_MAX.saturating_sub(bytes),
        }
    }

    /// Returns whether the artifact fits into the quota. If it does, reduces the quota by it.
    fn try_reserve_for_artifact(&mut self, artifact: &RawJson) -> bool {
        let bytes = artifact.as_str().len();
        let fits = self.count > 0 && bytes <= self.bytes.min(ARTIFACT_BYTES_MAX);
        if fits {
            self.count -= 1;
            self.bytes -= bytes;
        }
        fits
    }
}

/// Returns the output as the model sees it, and the blobs to store: the full text if it was
/// truncated, and the images that the output refers to. Artifacts above the quota are left out.
pub(super) fn truncate_tool_output(
    call: CallId,
    mut output: ToolOutput,
    images: Vec<Blob>,
    quota: &mut ArtifactQuota,
) -> (ToolOutput, Vec<Blob>) {
    let artifacts = output.artifacts.len();
    output.artifacts.retain(|artifact| quota.try_reserve_for_artifact(artifact));
    let left_out = artifacts - output.artifacts.len();
    if left_out > 0 {
        let note = format!(
            "[longhaul] Artifacts that were left out: {left_out}. An artifact may have \
             {ARTIFACT_BYTES_MAX} bytes, and all artifacts of a run {ARTIFACTS_BYTES_MAX} bytes; a \
             run may have {ARTIFACTS_MAX} artifacts."
        );
        output.content.push(Part::Text(note.into()));
    }
    let mut stored = Vec::new();
    for part in &mut output.content {
        if let Part::Image(image) = part {
            match images.iter().find(|blob| blob.blob_ref == image.blob) {
                Some(blob) if stored.contains(blob) => {}
                Some(blob) => stored.push(blob.clone()),
                None => *part = Part::Text("(an image that was not attached)".into()),
            }
        }
    }
    let (output, full_text) = truncate_output(call, output);
    stored.extend(full_text);
    (output, stored)
}

/// Returns the output with a long text truncated, and the full text as a blob to be stored. `None`
/// means that the text was not truncated.
pub(crate) fn truncate_output(call: CallId, output: ToolOutput) -> (ToolOutput, Option<Blob>) {
    let texts = output.content.iter().filter_map(Part::text);
    let texts: Vec<&str> = texts.collect();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes <= SHOWN_BYTES_MAX || output.full.is_some() {
        return (output, None);
    }
    let full_text = texts.join("\n");
    let (stored, storage_note) = truncate_for_storage(&full_text);
    let blob = Blob::new(stored.as_bytes());
    let head = &full_text[..full_text.floor_char_boundary(HEAD_BYTES)];
    let tail = &full_text[full_text.floor_char_boundary(full_text.len() - TAIL_BYTES)..];
    let left_out = stored.len() - head.len() - tail.len();
    let excerpt = format!(
        "{head}\n\n[longhaul] {left_out} of {} stored bytes are left out here.{storage_note} To \
         read more: read_output {{\"call\": \"{call}\", \"offset\": {}}}. To pass the whole result on \
         to another tool: {{\"$output\": \"{call}\"}} as a value of its input.\n\n{tail}",
        stored.len(),
        head.len(),
    );
    let images = output.content.iter().filter(|part| matches!(part, Part::Image(_)));
    let mut content = vec![Part::Text(excerpt.into())];
    content.extend(images.cloned());
    let full = Some(blob.blob_ref);
    (ToolOutput { content, full, ..output }, Some(blob))
}

/// Returns the part of a tool output that is stored, and a sentence that tells the model what was
/// discarded. The sentence is empty if the output is stored in full.
fn truncate_for_storage(full_text: &str) -> (Cow<'_, str>, String) {
    if full_text.len() <= STORED_BYTES_MAX {
        return (Cow::Borrowed(full_text), String::new());
    }
    let half = STORED_BYTES_MAX / 2;
    let first = &full_text[..full_text.floor_char_boundary(half)];
    let last = &full_text[full_text.floor_char_boundary(full_text.len() - half)..];
    let omitted = full_text.len() - first.len() - last.len();
    let stored = format!("{first}\n\n[longhaul] {omitted} bytes were discarded here.\n\n{last}");
    let note = format!(
        " The output had {} bytes: the first {} and the last {} are stored, the {omitted} between \
         them were discarded.",
        full_text.len(),
        first.len(),
        last.len()
    );
    (Cow::Owned(stored), note)
}

/// Returns the first characters of a text, with `...` if the text has more.
pub(crate) fn first_chars(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::message::ImageRef;

    use super::*;

    const CALL: CallId = CallId { turn: 2, index: 1 };

    /// Truncates the output of a call of a run that has no artifacts yet.
    fn truncate_output_of_run_without_artifacts(
        output: ToolOutput,
        images: Vec<Blob>,
    ) -> (ToolOutput, Vec<Blob>) {
        truncate_tool_output(
            CALL,
            output,
            images,
            &mut ArtifactQuota::remaining_after_artifacts(&[]),
        )
    }

    fn first_output_text(output: &ToolOutput) -> &str {
        match &output.content[0] {
            Part::Text(text) => text,
            Part::Image(_) => panic!("expected a text"),
        }
    }

    #[test]
    fn a_short_output_is_not_truncated() {
        let output = ToolOutput::text("short");
        assert_eq!(
            truncate_output_of_run_without_artifacts(output.clone(), Vec::new()),
            (output, Vec::new())
        );
    }

    #[test]
    fn a_long_output_is_truncated_for_the_model_and_stored_whole() {
        let whole = "ü".repeat(20_000);
        let (output, blobs) =
            truncate_output_of_run_without_artifacts(ToolOutput::text(whole.as_str()), Vec::new());
        let [blob] = &blobs[..] else {
            panic!("one blob is stored");
        };
        assert_eq!(&*blob.content, whole.as_bytes());
        assert_eq!(output.full, Some(blob.blob_ref));
        assert!(first_output_text(&output).len() < SHOWN_BYTES_MAX);
        assert!(
            first_output_text(&output)
                .contains("read_output {\"call\": \"t2.1\", \"offset\": 12288}")
        );
    }

    #[test]
    fn only_images_of_the_output_are_stored_and_only_stored_images_are_shown() {
        let image = |blob: &Blob| {
            Part::Image(ImageRef { media_type: "image/png".into(), blob: blob.blob_ref })
        };
        let (attached, unattached) = (Blob::new(*b"shown"), Blob::new(*b"unsaid"));
        let missing = Blob::new(*b"missing");
        let whole = "x".repeat(SHOWN_BYTES_MAX + 1);
        let content =
            vec![Part::Text(whole.into()), image(&attached), image(&missing), image(&attached)];
        let output = ToolOutput { content, ..ToolOutput::default() };
        let (output, blobs) =
            truncate_output_of_run_without_artifacts(output, vec![unattached, attached.clone()]);
        let full = output.full.expect("the full output is stored");
        let stored: Vec<_> = blobs.iter().map(|blob| blob.blob_ref).collect();
        assert_eq!(stored, [attached.blob_ref, full]);
        assert_eq!(output.content[1..], [image(&attached), image(&attached)]);
        assert!(first_output_text(&output).ends_with("not attached)"));
    }

    #[test]
    fn artifacts_above_the_limits_of_a_run_are_left_out_with_a_note() {
        let artifacts = |bytes: usize, count: usize| {
            // The quotation marks of the JSON text count.
            vec![RawJson::from_serialize(&"x".repeat(bytes - 2)); count]
        };
        let full = ARTIFACTS_BYTES_MAX / ARTIFACT_BYTES_MAX;
        for (earlier, new, kept) in [
            (vec![], artifacts(ARTIFACT_BYTES_MAX, 1), 1),
            (vec![], artifacts(ARTIFACT_BYTES_MAX + 1, 1), 0),
            (vec![], artifacts(ARTIFACT_BYTES_MAX, full + 3), full),
            (artifacts(ARTIFACT_BYTES_MAX, full - 1), artifacts(ARTIFACT_BYTES_MAX, 2), 1),
            (vec![], artifacts(10, ARTIFACTS_MAX + 1), ARTIFACTS_MAX),
            (artifacts(10, ARTIFACTS_MAX - 1), artifacts(10, 2), 1),
        ] {
            let left_out = new.len() - kept;
            let output = ToolOutput { artifacts: new, ..ToolOutput::text("done") };
            let mut quota = ArtifactQuota::remaining_after_artifacts(&earlier);
            let (output, _) = truncate_tool_output(CALL, output, Vec::new(), &mut quota);
            assert_eq!(output.artifacts.len(), kept);
            let note = format!("Artifacts that were left out: {left_out}.");
            let notes = output.content.iter().filter_map(Part::text);
            let notes = notes.filter(|text| text.contains(&note)).count();
            assert_eq!(notes, usize::from(left_out > 0), "{note}");
        }
    }

    #[test]
    fn an_output_above_the_storage_limit_keeps_head_and_tail_and_says_so() {
        let full_output = format!("first {} last", "ü".repeat(6 * 1024 * 1024));
        let (output, blobs) = truncate_output_of_run_without_artifacts(
            ToolOutput::text(full_output.as_str()),
            Vec::new(),
        );
        let stored = String::from_utf8(blobs.first().expect("a stored blob").content.to_vec())
            .expect("UTF-8");
        assert!(stored.starts_with("first ") && stored.ends_with(" last"));
        assert!(stored.contains("\n\n[longhaul] 2097162 bytes were discarded here.\n\n"));
        let text = first_output_text(&output);
        assert!(text.starts_with("first ") && text.ends_with(" last"));
        let size_note = format!("The output had {} bytes: the first ", full_output.len());
        assert!(text.contains(&size_note), "{}", &text[12_000..13_000]);
        let marker = format!(" of {} stored bytes are left out here.", stored.len());
        assert!(text.contains(&marker));
    }
}
