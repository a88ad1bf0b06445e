//! Helpers that predict what a tool call would change. A prediction reads files but changes
//! nothing.

use longhaul_core::policy::effect_facts::{
    COMPARED_BYTES_MAX, FileContent, PredictedEffects, PredictedFileChange,
};

use crate::files::text::decode_utf8;
use crate::safe_dir::{FsError, OpenFile};

/// Returns the content of a file that was opened for a prediction. `None` if nothing is known about
/// it, such as a file without read permission.
pub(crate) fn file_content(opened: Result<OpenFile, FsError>) -> Option<FileContent> {
    let file = match opened {
        Ok(file) => file,
        Err(FsError::NotFound) => return Some(FileContent::Absent),
        Err(_) => return None,
    };
    if file.size > COMPARED_BYTES_MAX as u64 {
        return Some(FileContent::Unknown);
    }
    let snapshot = file.read_snapshot(COMPARED_BYTES_MAX).ok()?;
    let text = (!snapshot.is_truncated).then(|| decode_utf8(snapshot.bytes));
    Some(text.and_then(Result::ok).map_or(FileContent::Unknown, FileContent::Text))
}

/// Returns the predicted effects of a tool call that writes one file and contacts no host.
pub(crate) fn one_file_change(
    path: String,
    before: FileContent,
    after: FileContent,
) -> PredictedEffects {
    let is_new = before == FileContent::Absent;
    PredictedEffects {
        undo: is_new.then(|| format!("delete {path}")),
        files: Some(vec![PredictedFileChange { path, before, after }]),
        ..no_effects()
    }
}

/// Returns the predicted effects of a tool call that changes no file and contacts no host.
pub(crate) fn no_effects() -> PredictedEffects {
    PredictedEffects {
        files: Some(Vec::new()),
        network: Some(Vec::new()),
        ..PredictedEffects::default()
    }
}
