//! Detection of text files, and the size limit of files.

use crate::disk_tool::Reason;
use crate::safe_dir::OpenFile;

/// Maximum size of a file that is read, searched or edited, in bytes.
pub(crate) const FILE_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Decodes bytes as text. The error says why they are not text.
pub(crate) fn decode_utf8(bytes: Vec<u8>) -> Result<String, String> {
    let size = bytes.len();
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(format!("the file is UTF-16 ({size} bytes); only UTF-8 is supported"));
    }
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(format!("the file is binary ({size} bytes, with a NUL at byte {at})"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("the file is not UTF-8 text ({size} bytes, invalid at byte {at})")
    })
}

/// Returns whether these bytes are UTF-8 text.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// Reads a whole text file.
pub(crate) fn read_text(file: OpenFile) -> Result<String, Reason> {
    check_file_size(&file)?;
    let snapshot = file.read_snapshot(FILE_BYTES_MAX)?;
    if snapshot.is_truncated {
        return Err("the file has become too long meanwhile".into());
    }
    Ok(decode_utf8(snapshot.bytes)?)
}

/// Checks that a file is not too long to be read.
pub(crate) fn check_file_size(file: &OpenFile) -> Result<(), String> {
    let size = file.size;
    if size > FILE_BYTES_MAX as u64 {
        return Err(format!(
            "the file has {size} bytes, but the maximum is {FILE_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::decode_utf8;

    #[test]
    fn text_is_distinguished_from_binary() {
        let check = |bytes: &[u8], expected: &str| {
            let result = decode_utf8(bytes.to_vec()).unwrap_or_else(|error| error);
            assert!(result.contains(expected), "{bytes:?}: {result}");
        };
        check("größer\r\n".as_bytes(), "größer\r\n");
        check(b"", "");
        check(b"\xff\xfea\0", "UTF-16");
        check(b"ab\0", "NUL at byte 2");
        check(b"caf\xe9", "invalid at byte 3");
        check(b"\xed\xa0\x80", "invalid at byte 0");
    }
}
