//! Loads system prompts and tool tables (lists of tool definitions) that are stored as blobs, each
//! of them only once.
//!
//! A [`ModelRequest`] may refer to blobs, but model adapters need the text.

use longhaul_core::port::model::ModelRequest;
use longhaul_core::port::records::RecordStore;
use longhaul_core::raw::{BlobRef, StoredText};

use crate::error::{Error, Result};

/// Cache of texts that were loaded from blobs.
#[derive(Debug, Default)]
pub(crate) struct BlobTextCache(Vec<(BlobRef, StoredText)>);

impl BlobTextCache {
    /// Replaces references to blobs in the system prompt and the tool table (list of tool
    /// definitions) of a request with the texts of the blobs.
    pub(crate) async fn inline_request_blobs(
        &mut self,
        records: &dyn RecordStore,
        request: &mut ModelRequest,
    ) -> Result<()> {
        for at in [&mut request.system, &mut request.tools] {
            if let StoredText::Blob(blob_ref) = *at {
                let text = self.load_blob_text(records, blob_ref).await?;
                let missing_blob = || Error::Internal {
                    run: request.run,
                    reason: format!(
                        "the blob {} of its prompt or tool table is missing in the store, or is not UTF-8",
                        blob_ref.hash
                    ),
                };
                *at = text.ok_or_else(missing_blob)?;
            }
        }
        Ok(())
    }

    async fn load_blob_text(
        &mut self,
        records: &dyn RecordStore,
        reference: BlobRef,
    ) -> Result<Option<StoredText>> {
        if let Some((_, text)) = self.0.iter().find(|(blob_ref, _)| *blob_ref == reference) {
            return Ok(Some(text.clone()));
        }
        let bytes = records.blob(reference.hash).await?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.map(StoredText::new_inline);
        self.0.extend(text.iter().map(|text| (reference, text.clone())));
        Ok(text)
    }
}
