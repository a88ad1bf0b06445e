//! Where a call puts up the pictures that it wants to show.
//!
//! Never: a picture that its bytes don't prove to be one, or more than a model
//! looks at.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::change::Blob;
use crate::image::ImageInfo;
use crate::message::ImageRef;

/// The pictures of one call. They are stored in the commit that holds its result,
/// as far as the result names them. Clones are the same.
#[derive(Clone, Default)]
pub struct ImageSink(Arc<Mutex<Vec<Blob>>>);

impl ImageSink {
    /// So many pictures a call may show.
    pub const IMAGES_MAX: usize = 8;

    /// So long one may be, in bytes: what providers take, before it is spelled in
    /// letters, which is longer.
    pub const BYTES_MAX: usize = 3_750_000;

    /// So long all of them may be together.
    pub const TOTAL_BYTES_MAX: usize = 12_000_000;

    /// So wide and so high one may be: a provider refuses the whole conversation
    /// for a larger one, now and ever after.
    pub const SIDE_MAX: u32 = 8_000;

    /// Puts up a picture. What comes back is to be named in the call's output.
    pub fn add(&self, bytes: Vec<u8>) -> Result<ImageRef, ImageError> {
        let Some(picture) = ImageInfo::parse(&bytes) else {
            return Err(ImageError::UnsupportedFormat);
        };
        let (width, height) = (picture.width, picture.height);
        let sides = 1..=Self::SIDE_MAX;
        if !sides.contains(&width) || !sides.contains(&height) {
            return Err(ImageError::InvalidDimensions { width, height });
        }
        if bytes.len() > Self::BYTES_MAX {
            return Err(ImageError::TooLarge(bytes.len()));
        }
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = shown.iter().map(|blob| blob.content.len()).sum();
        if shown.len() >= Self::IMAGES_MAX || all + bytes.len() > Self::TOTAL_BYTES_MAX {
            return Err(ImageError::TooMany);
        }
        let blob = Blob::new(bytes);
        let at = blob.blob_ref;
        shown.push(blob);
        Ok(ImageRef { media_type: picture.media_type.to_owned(), blob: at })
    }

    /// Takes down all of them.
    pub fn drain(&self) -> Vec<Blob> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ImageSink {
    /// Bytes are nothing to read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ImageSink")
    }
}

/// Why a picture is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is something else, one of a kind that nobody looks at, or cut off.
    #[error("it is no whole PNG, JPEG, GIF or WebP")]
    UnsupportedFormat,
    /// It is drawn too large, or as nothing.
    #[error("it is {width} x {height} pixels, and 1 to {} are shown", ImageSink::SIDE_MAX)]
    InvalidDimensions {
        /// How wide it is.
        width: u32,
        /// How high it is.
        height: u32,
    },
    /// It has too many bytes.
    #[error("it has {0} bytes, and at most {max} are shown", max = ImageSink::BYTES_MAX)]
    TooLarge(usize),
    /// There are too many, or all together are too long.
    #[error(
        "a call shows at most {} pictures of {} bytes in all",
        ImageSink::IMAGES_MAX,
        ImageSink::TOTAL_BYTES_MAX
    )]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture as far as its first bytes tell, so long.
    fn gif(side: u16, length: usize) -> Vec<u8> {
        let mut bytes = b"GIF89a".to_vec();
        bytes.extend_from_slice(&side.to_le_bytes());
        bytes.extend_from_slice(&side.to_le_bytes());
        bytes.resize(length - 1, 0);
        bytes.push(b';');
        bytes
    }

    #[test]
    fn added_images_are_drained_in_order() {
        let easel = ImageSink::default();
        let same = easel.clone();
        let shown = same.add(gif(3, 40)).unwrap();
        assert_eq!(shown.media_type, "image/gif");
        let taken = easel.drain();
        assert_eq!(taken, [Blob::new(gif(3, 40))]);
        assert_eq!(taken[0].blob_ref, shown.blob);
        assert_eq!(easel.drain(), []);
    }

    #[test]
    fn every_image_limit_is_enforced_and_named() {
        let check = |bytes: Vec<u8>, expect: ImageError| {
            assert_eq!(ImageSink::default().add(bytes), Err(expect));
        };
        let sides = |side: u32| ImageError::InvalidDimensions { width: side, height: side };
        check(b"%PDF-1.7".to_vec(), ImageError::UnsupportedFormat);
        check(gif(0, 40), sides(0));
        check(gif(8_001, 40), sides(8_001));
        let long = ImageSink::BYTES_MAX + 1;
        check(gif(3, long), ImageError::TooLarge(long));
        let easel = ImageSink::default();
        for _ in 0..ImageSink::IMAGES_MAX {
            easel.add(gif(8_000, 40)).unwrap();
        }
        assert_eq!(easel.add(gif(3, 40)), Err(ImageError::TooMany));
        let easel = ImageSink::default();
        for _ in 0..3 {
            easel.add(gif(3, ImageSink::BYTES_MAX)).unwrap();
        }
        assert_eq!(easel.add(gif(3, ImageSink::BYTES_MAX)), Err(ImageError::TooMany));
    }
}
