//! Pictures by their bytes: of which kind they are, and how large they are drawn.
//!
//! Never: decodes one, or believes what it is called.

/// What the first bytes of a picture say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// One of the kinds that models look at, such as `image/png`.
    pub media_type: &'static str,
    /// How wide it is, in pixels.
    pub width: u32,
    /// How high it is, in pixels.
    pub height: u32,
}

impl ImageInfo {
    /// Whether these bytes begin as a picture does, whole or not.
    pub fn has_image_signature(bytes: &[u8]) -> bool {
        let marks: [&[u8]; 4] = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a"];
        let webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
        webp || marks.iter().any(|mark| bytes.starts_with(mark))
    }

    /// What these bytes are; none: no PNG, JPEG, GIF or WebP, or one whose end is
    /// missing, as of a file that somebody is still writing.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (media_type, (width, height)) = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            ("image/png", png(bytes)?)
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            ("image/jpeg", jpeg(bytes)?)
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            ("image/gif", (read_le(bytes, 6, 2)?, read_le(bytes, 8, 2)?))
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12)? == b"WEBP" {
            ("image/webp", webp(bytes)?)
        } else {
            return None;
        };
        has_end_marker(bytes, media_type).then_some(Self { media_type, width, height })
    }
}

/// Whether a picture has its end. Some programs write a little behind it.
fn has_end_marker(bytes: &[u8], media_type: &str) -> bool {
    let tail = &bytes[bytes.len().saturating_sub(END_MARKER_BYTES)..];
    match media_type {
        "image/png" => tail.windows(4).any(|mark| mark == b"IEND"),
        "image/jpeg" => tail.windows(2).any(|mark| mark == b"\xff\xd9"),
        "image/gif" => tail.iter().rfind(|byte| **byte != 0) == Some(&b';'),
        _ => read_le(bytes, 4, 4).is_some_and(|size| u64::from(size) + 8 <= bytes.len() as u64),
    }
}

/// So far from the last byte the end of a picture may be.
const END_MARKER_BYTES: usize = 64 * 1024;

/// A number whose last byte comes first.
fn read_le(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let digits = bytes.get(at..at.checked_add(count)?)?;
    let number = digits.iter().rev();
    Some(number.fold(0, |number, digit| number << 8 | u32::from(*digit)))
}

/// A number whose first byte comes first.
fn read_be(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let digits = bytes.get(at..at.checked_add(count)?)?;
    let number = digits.iter();
    Some(number.fold(0, |number, digit| number << 8 | u32::from(*digit)))
}

fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    let first = bytes.get(12..16)?;
    (first == b"IHDR").then_some(())?;
    Some((read_be(bytes, 16, 4)?, read_be(bytes, 20, 4)?))
}

/// The size stands in the first frame, behind any number of other segments.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        (*bytes.get(at)? == 0xff).then_some(())?;
        match *bytes.get(at + 1)? {
            // Filled up before the mark itself.
            0xff => at += 1,
            // Marks that have no segment.
            0x01 | 0xd0..=0xd8 => at += 2,
            // The picture begins or ends, and nobody has said how large it is.
            0xd9 | 0xda => return None,
            // Tables, which stand among the numbers of the frames.
            mark @ 0xc0..=0xcf if !matches!(mark, 0xc4 | 0xc8 | 0xcc) => {
                return Some((read_be(bytes, at + 7, 2)?, read_be(bytes, at + 5, 2)?));
            }
            _ => {
                let length = usize::try_from(read_be(bytes, at + 2, 2)?).ok()?;
                at = at.checked_add(2)?.checked_add(length.max(2))?;
            }
        }
    }
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8X" => Some((read_le(bytes, 24, 3)? + 1, read_le(bytes, 27, 3)? + 1)),
        b"VP8L" if *bytes.get(20)? == 0x2f => {
            let both = read_le(bytes, 21, 4)?;
            Some(((both & 0x3fff) + 1, (both >> 14 & 0x3fff) + 1))
        }
        b"VP8 " if bytes.get(23..26)? == b"\x9d\x01\x2a" => {
            let side = |at| Some(read_le(bytes, at, 2)? & 0x3fff);
            Some((side(26)?, side(28)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expect: Option<(&str, u32, u32)>) {
        let seen = ImageInfo::parse(bytes);
        let seen = seen.map(|seen| (seen.media_type, seen.width, seen.height));
        assert_eq!(seen, expect, "{bytes:02x?}");
        // A picture that is cut off anywhere is none.
        for end in 0..bytes.len() {
            assert_eq!(ImageInfo::parse(&bytes[..end]), None, "{end}: {bytes:02x?}");
        }
    }

    #[test]
    fn image_types_and_sizes_are_read_from_the_bytes() {
        check(
            b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x01\x02\0\0\0\x03\0\0\0\0IEND",
            Some(("image/png", 258, 3)),
        );
        check(b"\x89PNG\r\n\x1a\n\0\0\0\x0dTEXT\0\0\0\x01\0\0\0\x01IEND", None);
        check(b"GIF89a\x02\x01\x03\0;", Some(("image/gif", 258, 3)));
        check(b"GIF88a\x02\x01\x03\0;", None);
        check(
            b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x11\x08\0\x03\x01\x02\xff\xd9",
            Some(("image/jpeg", 258, 3)),
        );
        check(b"\xff\xd8\xff\xe0\0\x04ab\xff\xda\0\x02\xff\xd9", None);
        check(b"\xff\xd8\xff\xe0\0\0\0\0", None);
        check(
            b"RIFF\x16\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x01\x01\0\x02\0\0",
            Some(("image/webp", 258, 3)),
        );
        check(b"RIFF\x11\0\0\0WEBPVP8L\0\0\0\0\x2f\x01\x81\0\0", Some(("image/webp", 258, 3)));
        check(
            b"RIFF\x16\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x02\x01\x03\0",
            Some(("image/webp", 258, 3)),
        );
        check(b"RIFF\0\0\0\0WAVEfmt ", None);
        check(b"<svg xmlns='http://www.w3.org/2000/svg'/>", None);
        check(b"", None);
    }
}
