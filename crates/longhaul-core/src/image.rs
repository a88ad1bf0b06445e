//! Image formats and dimensions, determined from the file content without decoding it.

/// Properties of an image, read from its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// Media type of the image, such as `image/png`.
    pub media_type: &'static str,
    /// Width of the image in pixels.
    pub width: u32,
    /// Height of the image in pixels.
    pub height: u32,
}

impl ImageInfo {
    /// Returns the media type of the image format that the bytes start like, even if they are
    /// truncated. `None` if they start like no supported format.
    pub fn media_type(bytes: &[u8]) -> Option<&'static str> {
        if bytes.starts_with(b"RIFF") && bytes.get(8..12)? == b"WEBP" {
            return Some("image/webp");
        }
        let signatures: [(&[u8], &str); 4] = [
            (b"\x89PNG\r\n\x1a\n", "image/png"),
            (b"\xff\xd8\xff", "image/jpeg"),
            (b"GIF87a", "image/gif"),
            (b"GIF89a", "image/gif"),
        ];
        let found = signatures.iter().find(|(signature, _)| bytes.starts_with(signature));
        found.map(|(_, media_type)| *media_type)
    }

    /// Parses the header of an image. Returns `None` if the bytes are not a PNG, JPEG, GIF or WebP
    /// image, or if the end of the file is missing, for example because it is still being written.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let media_type = Self::media_type(bytes)?;
        let (width, height) = match media_type {
            "image/png" => png_size(bytes)?,
            "image/jpeg" => jpeg_size(bytes)?,
            "image/gif" => (read_little_endian(bytes, 6, 2)?, read_little_endian(bytes, 8, 2)?),
            _ => webp_size(bytes)?,
        };
        has_end_marker(bytes, media_type).then_some(Self { media_type, width, height })
    }
}

/// Returns whether the end marker of the image is present. Some programs append a few bytes after
/// the end marker.
fn has_end_marker(bytes: &[u8], media_type: &str) -> bool {
    let tail = &bytes[bytes.len().saturating_sub(END_MARKER_BYTES)..];
    match media_type {
        "image/png" => tail.windows(4).any(|marker| marker == b"IEND"),
        "image/jpeg" => tail.windows(2).any(|marker| marker == b"\xff\xd9"),
        "image/gif" => tail.iter().rfind(|byte| **byte != 0) == Some(&b';'),
        _ => read_little_endian(bytes, 4, 4)
            .is_some_and(|size| u64::from(size) + 8 <= bytes.len() as u64),
    }
}

/// Maximum distance of the end marker from the last byte of the file, in bytes.
const END_MARKER_BYTES: usize = 64 * 1024;

/// Reads a little-endian number with the given length in bytes at the given offset. `None` if there
/// are too few bytes.
fn read_little_endian(bytes: &[u8], offset: usize, byte_count: usize) -> Option<u32> {
    let digits = bytes.get(offset..offset.checked_add(byte_count)?)?;
    let number = digits.iter().rev();
    Some(number.fold(0, |number, digit| number << 8 | u32::from(*digit)))
}

/// Reads a big-endian number with the given length in bytes at the given offset. `None` if there
/// are too few bytes.
fn read_big_endian(bytes: &[u8], offset: usize, byte_count: usize) -> Option<u32> {
    let digits = bytes.get(offset..offset.checked_add(byte_count)?)?;
    let number = digits.iter();
    Some(number.fold(0, |number, digit| number << 8 | u32::from(*digit)))
}

/// Returns width and height of a PNG image. `None` if its header is invalid or truncated.
fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let first = bytes.get(12..16)?;
    (first == b"IHDR").then_some(())?;
    Some((read_big_endian(bytes, 16, 4)?, read_big_endian(bytes, 20, 4)?))
}

/// Returns width and height of a JPEG image from its first frame header, which may follow any
/// number of other segments. `None` if there is no complete frame header.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        (*bytes.get(at)? == 0xff).then_some(())?;
        match *bytes.get(at + 1)? {
            // Fill byte before the marker.
            0xff => at += 1,
            // Markers without a segment.
            0x01 | 0xd0..=0xd8 => at += 2,
            // The image data starts or ends before a frame header.
            0xd9 | 0xda => return None,
            // Frame headers. The excluded values are tables in the same range.
            marker @ 0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                return Some((
                    read_big_endian(bytes, at + 7, 2)?,
                    read_big_endian(bytes, at + 5, 2)?,
                ));
            }
            _ => {
                let length = usize::try_from(read_big_endian(bytes, at + 2, 2)?).ok()?;
                at = at.checked_add(2)?.checked_add(length.max(2))?;
            }
        }
    }
}

/// Returns width and height of a WebP image. `None` if its header is invalid or truncated.
fn webp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8X" => {
            Some((read_little_endian(bytes, 24, 3)? + 1, read_little_endian(bytes, 27, 3)? + 1))
        }
        b"VP8L" if *bytes.get(20)? == 0x2f => {
            let packed_size = read_little_endian(bytes, 21, 4)?;
            Some(((packed_size & 0x3fff) + 1, (packed_size >> 14 & 0x3fff) + 1))
        }
        b"VP8 " if bytes.get(23..26)? == b"\x9d\x01\x2a" => {
            let side = |at| Some(read_little_endian(bytes, at, 2)? & 0x3fff);
            Some((side(26)?, side(28)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_image_info(bytes: &[u8], expect: Option<(&str, u32, u32)>) {
        let info = ImageInfo::parse(bytes);
        let info = info.map(|info| (info.media_type, info.width, info.height));
        assert_eq!(info, expect, "{bytes:02x?}");
        // A truncated image is rejected, wherever it ends.
        for end in 0..bytes.len() {
            assert_eq!(ImageInfo::parse(&bytes[..end]), None, "{end}: {bytes:02x?}");
        }
    }

    #[test]
    fn image_types_and_sizes_are_read_from_the_bytes() {
        assert_image_info(
            b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x01\x02\0\0\0\x03\0\0\0\0IEND",
            Some(("image/png", 258, 3)),
        );
        assert_image_info(b"\x89PNG\r\n\x1a\n\0\0\0\x0dTEXT\0\0\0\x01\0\0\0\x01IEND", None);
        assert_image_info(b"GIF89a\x02\x01\x03\0;", Some(("image/gif", 258, 3)));
        assert_image_info(b"GIF88a\x02\x01\x03\0;", None);
        assert_image_info(
            b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x11\x08\0\x03\x01\x02\xff\xd9",
            Some(("image/jpeg", 258, 3)),
        );
        assert_image_info(b"\xff\xd8\xff\xe0\0\x04ab\xff\xda\0\x02\xff\xd9", None);
        assert_image_info(b"\xff\xd8\xff\xe0\0\0\0\0", None);
        assert_image_info(
            b"RIFF\x16\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x01\x01\0\x02\0\0",
            Some(("image/webp", 258, 3)),
        );
        assert_image_info(
            b"RIFF\x11\0\0\0WEBPVP8L\0\0\0\0\x2f\x01\x81\0\0",
            Some(("image/webp", 258, 3)),
        );
        assert_image_info(
            b"RIFF\x16\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x02\x01\x03\0",
            Some(("image/webp", 258, 3)),
        );
        assert_image_info(b"RIFF\0\0\0\0WAVEfmt ", None);
        assert_image_info(b"<svg xmlns='http://www.w3.org/2000/svg'/>", None);
        assert_image_info(b"", None);
    }
}
