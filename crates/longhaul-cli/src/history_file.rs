//! The file in `--history`: the earlier conversation with which a run starts.

use std::io::Read as _;
use std::path::Path;

use longhaul_api::history::{HISTORY_BYTES_MAX, parse_history};
use longhaul_core::message::Message;

use crate::error::CliError;

/// Value of `--history` that stands for stdin instead of a file.
const STDIN: &str = "-";

/// Reads an earlier conversation from a file, or from stdin. Fails if the file is `-` but stdin
/// already provides the task's input.
pub(crate) fn read_history_file(file: &Path, is_stdin_used: bool) -> anyhow::Result<Vec<Message>> {
    let history_error =
        |reason: String| CliError::usage_error(format!("--history {}: {reason}", file.display()));
    if is_stdin_used && file == Path::new(STDIN) {
        let reason = "stdin is used for the input already: put one of them in a file";
        return Err(history_error(reason.to_owned()).into());
    }
    let bytes = read_history_bytes(file)
        .map_err(|error| history_error(format!("can't be read: {error}")))?;
    Ok(parse_history(&bytes).map_err(|error| history_error(error.to_string()))?)
}

/// Reads at most one byte more than is allowed, so that a file that is too long is detected.
fn read_history_bytes(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let max = HISTORY_BYTES_MAX as u64 + 1;
    if file == Path::new(STDIN) {
        std::io::stdin().lock().take(max).read_to_end(&mut bytes)?;
    } else {
        let file = std::fs::File::open(file)?;
        file.take(max).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
