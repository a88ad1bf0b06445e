//! Sink for images that a tool call returns.
//!
//! Invariant: the sink accepts only complete images of supported formats, within the limits of
//! model providers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::change::Blob;
use crate::image::ImageInfo;
use crate::message::ImageRef;

/// Images that one tool call returns. Images that the call's result refers to are stored together
/// with the result. Cheap to clone; clones share the images.
#[derive(Clone, Default)]
pub struct ImageSink(Arc<Mutex<Vec<Blob>>>);

impl ImageSink {
    /// Maximum number of images per tool call.
    pub const IMAGES_MAX: usize = 8;

    /// Maximum size of one image in bytes. Providers limit the size in Base64, which is larger.
    pub const BYTES_MAX: usize = 3_750_000;

    /// Maximum size of all images of a call in bytes.
    pub const TOTAL_BYTES_MAX: usize = 12_000_000;

    /// Maximum width and height of an image in pixels. A provider rejects the whole conversation
    /// because of one larger image, in this request and in all later requests.
    pub const SIDE_MAX: u32 = 8_000;

    /// Adds an image. The returned reference must be included in the call's output.
    pub fn add(&self, bytes: Vec<u8>) -> Result<ImageRef, ImageError> {
        let Some(info) = ImageInfo::parse(&bytes) else {
            return Err(ImageError::UnsupportedFormat);
        };
        let (width, height) = (info.width, info.height);
        let sides = 1..=Self::SIDE_MAX;
        if !sides.contains(&width) || !sides.contains(&height) {
            return Err(ImageError::InvalidDimensions { width, height });
        }
        if bytes.len() > Self::BYTES_MAX {
            return Err(ImageError::TooLarge(bytes.len()));
        }
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total_bytes: usize = images.iter().map(|blob| blob.content.len()).sum();
        if images.len() >= Self::IMAGES_MAX || total_bytes + bytes.len() > Self::TOTAL_BYTES_MAX {
            return Err(ImageError::TooMany);
        }
        let blob = Blob::new(bytes);
        let at = blob.blob_ref;
        images.push(blob);
        Ok(ImageRef { media_type: info.media_type.to_owned(), blob: at })
    }

    /// Removes all images from the sink and returns them.
    pub fn drain(&self) -> Vec<Blob> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ImageSink {
    /// Formats the sink without the image data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ImageSink")
    }
}

/// Reason why an image was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The data is not an image, has an unsupported format or is truncated.
    #[error("the data is not a complete PNG, JPEG, GIF or WebP")]
    UnsupportedFormat,
    /// The image is empty or too large in pixels.
    #[error(
        "the image is {width} x {height} pixels, but each side must have 1 to {} pixels",
        ImageSink::SIDE_MAX
    )]
    InvalidDimensions { width: u32, height: u32 },
    /// The image has too many bytes.
    #[error("the image has {0} bytes, but at most {max} are allowed", max = ImageSink::BYTES_MAX)]
    TooLarge(usize),
    /// The call has too many images, or they are too large in total.
    #[error(
        "a tool call may return at most {} images with {} bytes in total",
        ImageSink::IMAGES_MAX,
        ImageSink::TOTAL_BYTES_MAX
    )]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a GIF image with the given width and height, padded to `length` bytes.
    fn gif_image(side: u16, length: usize) -> Vec<u8> {
        let mut bytes = b"GIF89a".to_vec();
        bytes.extend_from_slice(&side.to_le_bytes());
        bytes.extend_from_slice(&side.to_le_bytes());
        bytes.resize(length - 1, 0);
        bytes.push(b';');
        bytes
    }

    #[test]
    fn added_images_are_drained_in_order() {
        let sink = ImageSink::default();
        let second_handle = sink.clone();
        let added = second_handle.add(gif_image(3, 40)).unwrap();
        assert_eq!(added.media_type, "image/gif");
        let images = sink.drain();
        assert_eq!(images, [Blob::new(gif_image(3, 40))]);
        assert_eq!(images[0].blob_ref, added.blob);
        assert_eq!(sink.drain(), []);
    }

    #[test]
    fn every_image_limit_is_enforced_and_named() {
        let check = |bytes: Vec<u8>, expect: ImageError| {
            assert_eq!(ImageSink::default().add(bytes), Err(expect));
        };
        let sides = |side: u32| ImageError::InvalidDimensions { width: side, height: side };
        check(b"%PDF-1.7".to_vec(), ImageError::UnsupportedFormat);
        check(gif_image(0, 40), sides(0));
        check(gif_image(8_001, 40), sides(8_001));
        let long = ImageSink::BYTES_MAX + 1;
        check(gif_image(3, long), ImageError::TooLarge(long));
        let sink = ImageSink::default();
        for _ in 0..ImageSink::IMAGES_MAX {
            sink.add(gif_image(8_000, 40)).unwrap();
        }
        assert_eq!(sink.add(gif_image(3, 40)), Err(ImageError::TooMany));
        let sink = ImageSink::default();
        for _ in 0..3 {
            sink.add(gif_image(3, ImageSink::BYTES_MAX)).unwrap();
        }
        assert_eq!(sink.add(gif_image(3, ImageSink::BYTES_MAX)), Err(ImageError::TooMany));
    }
}
