//! Whether a file is text, and how much of one is opened at all.
//!
//! Never: shows bytes as if they were letters.

use crate::safe_dir::OpenFile;

/// The longest file that is read, searched or edited, in bytes.
pub(crate) const FILE_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Why these bytes are no text, if they are none.
pub(crate) fn decode_utf8(bytes: Vec<u8>) -> Result<String, String> {
    let size = bytes.len();
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(format!("is UTF-16 ({size} bytes), and only UTF-8 is read"));
    }
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(format!(
            "is a binary file ({size} bytes, with a NUL at byte {at}), so it is not shown"
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("is not UTF-8 text ({size} bytes, wrong at byte {at}), so it is not shown")
    })
}

/// Whether these bytes are text.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// Why this file is too long to be opened, if it is.
pub(crate) fn size_error(opened: &OpenFile) -> Option<String> {
    let size = opened.size;
    (size > FILE_BYTES_MAX as u64).then(|| {
        format!("is {size} bytes long, and files of more than {FILE_BYTES_MAX} are not opened")
    })
}

#[cfg(test)]
mod tests {
    use super::decode_utf8;

    #[test]
    fn text_is_distinguished_from_binary() {
        let check = |bytes: &[u8], expected: &str| {
            let said = decode_utf8(bytes.to_vec()).unwrap_or_else(|why| why);
            assert!(said.contains(expected), "{bytes:?}: {said}");
        };
        check("größer\r\n".as_bytes(), "größer\r\n");
        check(b"", "");
        check(b"\xff\xfea\0", "UTF-16");
        check(b"ab\0", "NUL at byte 2");
        check(b"caf\xe9", "wrong at byte 3");
        check(b"\xed\xa0\x80", "wrong at byte 0");
    }
}
