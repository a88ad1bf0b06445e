//! The texts that a question only names by their hashes, each read once.
//!
//! Never: changes a question. A model knows no blobs, so they are spelled out for it.

use longhaul_core::port::model::ModelRequest;
use longhaul_core::port::records::RecordStore;
use longhaul_core::raw::{BlobRef, StoredText};

use crate::error::Error;

/// Prompts and tables that were read.
#[derive(Debug, Default)]
pub(crate) struct BlobTextCache(Vec<(BlobRef, StoredText)>);

impl BlobTextCache {
    /// The question with prompt and table as texts.
    pub(crate) async fn inline_blobs(
        &mut self,
        shelves: &dyn RecordStore,
        mut ask: ModelRequest,
    ) -> Result<ModelRequest, Error> {
        for at in [&mut ask.system, &mut ask.tools] {
            if let StoredText::Blob(named) = *at {
                let found = self.load_text(shelves, named).await?;
                let lost = || Error::Internal {
                    run: ask.run,
                    reason: format!(
                        "the text {} of its prompt is not in the store, or no text",
                        named.hash
                    ),
                };
                *at = found.ok_or_else(lost)?;
            }
        }
        Ok(ask)
    }

    async fn load_text(
        &mut self,
        shelves: &dyn RecordStore,
        at: BlobRef,
    ) -> Result<Option<StoredText>, Error> {
        if let Some((_, text)) = self.0.iter().find(|(known, _)| *known == at) {
            return Ok(Some(text.clone()));
        }
        let bytes = shelves.blob(at.hash).await?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.map(StoredText::inline);
        self.0.extend(text.iter().map(|text| (at, text.clone())));
        Ok(text)
    }
}
