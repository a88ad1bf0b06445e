//! Source of the image bytes that messages refer to.
//!
//! Invariant: a missing image never fails a turn. The image is replaced by text.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::message::ImageRef;
use longhaul_core::port::records::RecordStore;

/// A source that the bytes of images are loaded from.
#[async_trait]
pub trait ImageSource: Send + Sync + std::fmt::Debug {
    /// Returns the bytes of an image. `None` means that the image is not available.
    async fn load_image_bytes(&self, image: &ImageRef) -> Option<Vec<u8>>;
}

/// Maximum size in bytes of an image that is read from the store. No provider accepts larger images, and the limit bounds
/// memory use.
const IMAGE_BYTES_MAX: u64 = 20 * 1024 * 1024;

/// Source of images that reads them from the store.
#[derive(Debug)]
pub struct StoreImageSource(pub Arc<dyn RecordStore>);

#[async_trait]
impl ImageSource for StoreImageSource {
    async fn load_image_bytes(&self, image: &ImageRef) -> Option<Vec<u8>> {
        if image.blob.size > IMAGE_BYTES_MAX {
            return None;
        }
        self.0.blob(image.blob.hash).await.ok().flatten()
    }
}
