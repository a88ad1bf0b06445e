//! The pictures of conversations, from where the store keeps them.
//!
//! Never: a picture that no provider would take.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::message::ImageRef;
use longhaul_core::port::shelves::Shelves;
use longhaul_model::pictures::Pictures;

/// No provider takes a larger one, and memory is not endless.
const BYTES_MAX: u64 = 20 * 1024 * 1024;

/// The store's pictures.
#[derive(Debug)]
pub(crate) struct Album(pub(crate) Arc<dyn Shelves>);

#[async_trait]
impl Pictures for Album {
    async fn bytes(&self, image: &ImageRef) -> Option<Vec<u8>> {
        if image.blob.size > BYTES_MAX {
            return None;
        }
        self.0.blob(image.blob.hash).await.ok().flatten()
    }
}
