//! Reads the images of conversations from the store. Images that are too large for all providers
//! are left out.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::message::ImageRef;
use longhaul_core::port::records::RecordStore;

use crate::image_source::ImageSource;

/// Maximum size of an image in bytes. No provider accepts larger images, and the limit bounds
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
