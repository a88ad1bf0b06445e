//! Loads the script of a scripted model, which lists its replies, from a file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::scripted::error::ScriptError;
use crate::scripted::parse::SCRIPT_BYTES_MAX;
use crate::scripted::script::Script;

impl Script {
    /// Loads and parses the script in this file.
    pub fn load_script_file(path: &Path) -> Result<Self, ScriptError> {
        let origin = path.display().to_string();
        let mut bytes = Vec::new();
        // One byte more than the maximum shows that the file is too large.
        let max_bytes = SCRIPT_BYTES_MAX as u64 + 1;
        let result = File::open(path).and_then(|file| file.take(max_bytes).read_to_end(&mut bytes));
        let to_error =
            |message: String| ScriptError { origin: origin.clone(), position: None, message };
        result.map_err(|error| to_error(format!("the script can't be read: {error}")))?;
        let text = std::str::from_utf8(&bytes);
        // Checked first: truncation inside a character would be reported as invalid UTF-8.
        if bytes.len() > SCRIPT_BYTES_MAX {
            return Err(to_error(format!("the script is larger than {SCRIPT_BYTES_MAX} bytes")));
        }
        let text = text.map_err(|_| to_error("the script is not UTF-8".to_owned()))?;
        Self::parse_yaml(&origin, text)
    }
}
