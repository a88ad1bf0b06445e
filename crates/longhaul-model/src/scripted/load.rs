//! Brings a script in from its file.
//!
//! Never: reads more of a file than a script may have.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::scripted::error::ScriptError;
use crate::scripted::parse::SCRIPT_BYTES_MAX;
use crate::scripted::script::Script;

impl Script {
    /// Reads the script in this file.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let origin = path.display().to_string();
        let mut bytes = Vec::new();
        // One byte more than fits is enough to see that it does not.
        let most = SCRIPT_BYTES_MAX as u64 + 1;
        let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
        let wrong =
            |message: String| ScriptError { origin: origin.clone(), position: None, message };
        read.map_err(|error| wrong(format!("the script can't be read: {error}")))?;
        let text = std::str::from_utf8(&bytes);
        // A cut in the middle of a letter is about the length, not about the letter.
        if bytes.len() > SCRIPT_BYTES_MAX {
            return Err(wrong(format!("a script has at most {SCRIPT_BYTES_MAX} bytes")));
        }
        let text = text.map_err(|_| wrong("the script is not text in UTF-8".to_owned()))?;
        Self::parse(&origin, text)
    }
}
