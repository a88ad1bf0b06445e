//! The texts that a question only names by their hashes, each read once.
//!
//! Never: changes a question. A model knows no blobs, so they are spelled out for it.

use longhaul_core::port::model::Ask;
use longhaul_core::port::shelves::Shelves;
use longhaul_core::raw::{BlobRef, Body};

use crate::error::Error;

/// Prompts and tables that were read.
#[derive(Debug, Default)]
pub(crate) struct Texts(Vec<(BlobRef, Body)>);

impl Texts {
    /// The question with prompt and table as texts.
    pub(crate) async fn spell_out(
        &mut self,
        shelves: &dyn Shelves,
        mut ask: Ask,
    ) -> Result<Ask, Error> {
        for at in [&mut ask.system, &mut ask.tools] {
            if let Body::Blob(named) = *at {
                let found = self.text(shelves, named).await?;
                let lost = || Error::Stuck {
                    run: ask.run,
                    why: format!(
                        "the text {} of its prompt is not in the store, or no text",
                        named.hash
                    ),
                };
                *at = found.ok_or_else(lost)?;
            }
        }
        Ok(ask)
    }

    async fn text(&mut self, shelves: &dyn Shelves, at: BlobRef) -> Result<Option<Body>, Error> {
        if let Some((_, text)) = self.0.iter().find(|(known, _)| *known == at) {
            return Ok(Some(text.clone()));
        }
        let bytes = shelves.blob(at.hash).await?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.map(Body::inline);
        self.0.extend(text.iter().map(|text| (at, text.clone())));
        Ok(text)
    }
}
