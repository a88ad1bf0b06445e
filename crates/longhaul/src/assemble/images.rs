//! The pictures of conversations, from where the store keeps them.
//!
//! Never: a picture that no provider would take.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::message::ImageRef;
use longhaul_core::port::records::RecordStore;
use longhaul_model::image_source::ImageSource;

/// No provider takes a larger one, and memory is not endless.
const BYTES_MAX: u64 = 20 * 1024 * 1024;

/// The store's pictures.
#[derive(Debug)]
pub(crate) struct StoreImageSource(pub(crate) Arc<dyn RecordStore>);

#[async_trait]
impl ImageSource for StoreImageSource {
    async fn bytes(&self, image: &ImageRef) -> Option<Vec<u8>> {
        if image.blob.size > BYTES_MAX {
            return None;
        }
        self.0.blob(image.blob.hash).await.ok().flatten()
    }
}
