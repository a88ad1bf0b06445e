//! Images of a message, base64-encoded for a request.
//!
//! Invariant: only images of supported types and sizes are sent, and no more of them than a request
//! may hold.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::message::{ImageRef, Message, Part, ToolResult};
use longhaul_core::raw::Hash;

use crate::image_source::ImageSource;

/// Media types of the images that providers accept. Images of other types are replaced by text.
const MEDIA_TYPES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Maximum size of an image in bytes, after base64 encoding.
const IMAGE_BYTES_MAX: u64 = 5 * 1024 * 1024;

/// Maximum number of images per request. In requests with more images, some providers accept only
/// small images.
const IMAGES_MAX: usize = 20;

/// Maximum total size in bytes of the images of a request, after base64 encoding. Providers also
/// limit the size of whole requests.
const TOTAL_BYTES_MAX: u64 = 20 * 1024 * 1024;

/// Base64-encoded images by content hash.
#[derive(Debug, Default)]
pub(crate) struct EncodedImages(HashMap<Hash, String>);

impl EncodedImages {
    /// Loads and encodes the images of a message. The given number of images at the start of the
    /// message are not loaded, because they are replaced by text.
    pub(crate) async fn load(&mut self, message: &Message, skip: usize, source: &dyn ImageSource) {
        for image in sendable_images(message).skip(skip) {
            if let Some(bytes) = source.load_image_bytes(image).await {
                self.0.insert(image.blob.hash, STANDARD.encode(bytes));
            }
        }
    }

    /// Returns an image in base64. `None` means that the image can't be sent.
    pub(crate) fn image_base64(&self, image: &ImageRef) -> Option<&str> {
        let data = self.0.get(&image.blob.hash);
        data.map(String::as_str).filter(|_| is_sendable_image(image))
    }
}

pub(crate) fn sendable_images(message: &Message) -> impl Iterator<Item = &ImageRef> {
    let (user_parts, results): (&[Part], &[ToolResult]) = match message {
        Message::User(parts) => (parts, &[]),
        Message::Results(results) => (&[], results),
        Message::Assistant(_) => (&[], &[]),
    };
    let parts = user_parts.iter().chain(results.iter().flat_map(|one| &one.content));
    let images = parts.filter_map(|part| match part {
        Part::Image(image) => Some(image),
        Part::Text(_) => None,
    });
    images.filter(|image| is_sendable_image(image))
}

/// Returns the number of images to drop from the start of a conversation because all images
/// together exceed the limits of a request. Dropped images are replaced by text.
///
/// Images are dropped in steps of half a limit, because each change at the start of a conversation
/// invalidates the provider's prompt cache.
pub(crate) fn dropped_image_count(messages: &[Arc<Message>]) -> usize {
    let images = messages.iter().flat_map(|message| sendable_images(message));
    let sizes: Vec<u64> = images.map(|image| image.blob.size.div_ceil(3) * 4).collect();
    let bytes: u64 = sizes.iter().sum();
    let rounded_excess =
        |value: u64, max: u64| value.saturating_sub(max).div_ceil(max / 2) * (max / 2);
    let excess_count = rounded_excess(sizes.len() as u64, IMAGES_MAX as u64);
    let excess_bytes = rounded_excess(bytes, TOTAL_BYTES_MAX);
    let mut dropped_bytes = 0;
    let is_dropped = |(index, size): &(u64, &u64)| {
        let is_dropped = *index < excess_count || dropped_bytes < excess_bytes;
        dropped_bytes += **size;
        is_dropped
    };
    (0..).zip(&sizes).take_while(is_dropped).count()
}

/// Returns the text that replaces an image that can't be sent.
pub(crate) fn image_placeholder_text(image: &ImageRef) -> String {
    let (kind, size) = (&image.media_type, image.blob.size);
    format!("[image not shown: {kind}, {size} bytes]")
}

fn is_sendable_image(image: &ImageRef) -> bool {
    let is_supported = MEDIA_TYPES.contains(&image.media_type.as_str());
    is_supported && image.blob.size / 3 < IMAGE_BYTES_MAX / 4
}

#[cfg(test)]
mod tests {
    use longhaul_core::raw::BlobRef;

    use super::*;

    fn assert_dropped_image_count(sizes: &[u64], expected: usize) {
        let image_message = |size: &u64| {
            let blob = BlobRef { size: *size, ..BlobRef::for_content(b"") };
            let media_type = "image/png".to_owned();
            Arc::new(Message::User(vec![Part::Image(ImageRef { media_type, blob })]))
        };
        let messages: Vec<Arc<Message>> = sizes.iter().map(image_message).collect();
        assert_eq!(dropped_image_count(&messages), expected, "{sizes:?}");
    }

    #[test]
    fn the_oldest_images_are_dropped_in_steps_of_half_the_limit() {
        assert_dropped_image_count(&[], 0);
        assert_dropped_image_count(&[3; 20], 0);
        assert_dropped_image_count(&[3; 21], 10);
        assert_dropped_image_count(&[3; 30], 10);
        assert_dropped_image_count(&[3; 31], 20);
        // 3 MiB are 4 MiB in base64: five images fit, and images are dropped in steps of 10 MiB.
        let long = 3 * 1024 * 1024;
        assert_dropped_image_count(&[long; 5], 0);
        assert_dropped_image_count(&[long; 6], 3);
        assert_dropped_image_count(&[long; 7], 3);
        assert_dropped_image_count(&[long; 8], 5);
        assert_dropped_image_count(&[3, long, long, long, long, long, 3], 4);
        // Images that can't be sent don't count.
        assert_dropped_image_count(&[u64::MAX / 8; 30], 0);
    }
}
