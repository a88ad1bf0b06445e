//! The pictures of a message, ready to be sent.
//!
//! Never: a picture that no provider looks at, one that is too long, or more of
//! them than a request may hold.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::message::{ImageRef, Message, Part, ToolResult};
use longhaul_core::raw::Hash;

use crate::image_source::ImageSource;

/// The kinds of picture that are looked at.
const MEDIA_TYPES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// The longest picture that is taken, as base64.
const IMAGE_BYTES_MAX: u64 = 5 * 1024 * 1024;

/// So many pictures are shown in one request; of more, some providers look only at
/// small ones.
const IMAGES_MAX: usize = 20;

/// So long they may be together, as base64: whole requests are bounded as well.
const TOTAL_BYTES_MAX: u64 = 20 * 1024 * 1024;

/// Pictures by their hash, as base64.
#[derive(Debug, Default)]
pub(crate) struct EncodedImages(HashMap<Hash, String>);

impl EncodedImages {
    /// Gets the pictures that a message shows, but for the first ones, which have
    /// faded.
    pub(crate) async fn load(&mut self, message: &Message, faded: usize, from: &dyn ImageSource) {
        for image in images_in(message).skip(faded) {
            if let Some(bytes) = from.bytes(image).await {
                self.0.insert(image.blob.hash, STANDARD.encode(bytes));
            }
        }
    }

    /// A picture as base64; none: it can't be shown.
    pub(crate) fn base64(&self, image: &ImageRef) -> Option<&str> {
        let data = self.0.get(&image.blob.hash);
        data.map(String::as_str).filter(|_| is_sendable(image))
    }
}

/// How many pictures a message has that could be shown.
pub(crate) fn image_count(message: &Message) -> usize {
    images_in(message).count()
}

fn images_in(message: &Message) -> impl Iterator<Item = &ImageRef> {
    let (said, results): (&[Part], &[ToolResult]) = match message {
        Message::User(parts) => (parts, &[]),
        Message::Results(results) => (&[], results),
        Message::Assistant(_) => (&[], &[]),
    };
    let parts = said.iter().chain(results.iter().flat_map(|one| &one.content));
    let images = parts.filter_map(|part| match part {
        Part::Image(image) => Some(image),
        Part::Text(_) => None,
    });
    images.filter(|image| is_sendable(image))
}

/// How many pictures at the beginning of a conversation have faded: they are told
/// of in words, as all of them together are more than a request may hold. They fade
/// by the half of that at once: each time, what a provider has cached is lost.
pub(crate) fn dropped_count(messages: &[Arc<Message>]) -> usize {
    let all = messages.iter().flat_map(|message| images_in(message));
    let sizes: Vec<u64> = all.map(|image| image.blob.size.div_ceil(3) * 4).collect();
    let bytes: u64 = sizes.iter().sum();
    let over = |is: u64, max: u64| is.saturating_sub(max).div_ceil(max / 2) * (max / 2);
    let by_count = over(sizes.len() as u64, IMAGES_MAX as u64);
    let by_bytes = over(bytes, TOTAL_BYTES_MAX);
    let mut gone = 0;
    let fades = |(place, size): &(u64, &u64)| {
        let fades = *place < by_count || gone < by_bytes;
        gone += **size;
        fades
    };
    (0..).zip(&sizes).take_while(fades).count()
}

/// What a model is told in the place of a picture that can't be shown.
pub(crate) fn placeholder_text(image: &ImageRef) -> String {
    let (kind, size) = (&image.media_type, image.blob.size);
    format!("[a picture that can't be shown: {kind}, {size} bytes]")
}

fn is_sendable(image: &ImageRef) -> bool {
    let known = MEDIA_TYPES.contains(&image.media_type.as_str());
    known && image.blob.size / 3 < IMAGE_BYTES_MAX / 4
}

#[cfg(test)]
mod tests {
    use longhaul_core::raw::BlobRef;

    use super::*;

    fn check(sizes: &[u64], expect: usize) {
        let shown = |size: &u64| {
            let blob = BlobRef { size: *size, ..BlobRef::for_content(b"") };
            let media_type = "image/png".to_owned();
            Arc::new(Message::User(vec![Part::Image(ImageRef { media_type, blob })]))
        };
        let messages: Vec<Arc<Message>> = sizes.iter().map(shown).collect();
        assert_eq!(dropped_count(&messages), expect, "{sizes:?}");
    }

    #[test]
    fn the_oldest_images_are_dropped_by_half_a_request() {
        check(&[], 0);
        check(&[3; 20], 0);
        check(&[3; 21], 10);
        check(&[3; 30], 10);
        check(&[3; 31], 20);
        // 3 MiB are 4 as base64: five fit, and go by three.
        let long = 3 * 1024 * 1024;
        check(&[long; 5], 0);
        check(&[long; 6], 3);
        check(&[long; 7], 3);
        check(&[long; 8], 5);
        check(&[3, long, long, long, long, long, 3], 4);
        // What can't be shown takes no room.
        check(&[u64::MAX / 8; 30], 0);
    }
}
