//! Source of the image bytes that messages refer to.
//!
//! Invariant: a missing image never fails a turn. The image is replaced by text.

use async_trait::async_trait;
use longhaul_core::message::ImageRef;

/// A source that the bytes of images are loaded from.
#[async_trait]
pub trait ImageSource: Send + Sync + std::fmt::Debug {
    /// Returns the bytes of an image. `None` means that the image is not available.
    async fn load_image_bytes(&self, image: &ImageRef) -> Option<Vec<u8>>;
}
