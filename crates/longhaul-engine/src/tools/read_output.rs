//! The tool `read_output`, with which the model pages through results that were truncated.
//!
//! Invariant: a run can only read its own results.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::Store;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::drive::run_env::READ_OUTPUT;
use crate::tools::recorded_outputs::OutputReader;

/// Maximum number of bytes of a tool result that one call of `read_output` returns.
const SHOWN_BYTES: usize = 12 * 1024;

/// Maximum number of matching lines that one search in a tool result returns.
const LINES_MAX: usize = 200;

/// Maximum value of the parameter `offset`. It exceeds the size of every result and is exact in
/// every JSON number type.
const OFFSET_MAX: u64 = (1 << 53) - 1;

/// The tool `read_output`, with which the model reads truncated results.
#[derive(Debug)]
pub struct ReadOutputTool {
    spec: ToolSpec,
    outputs: OutputReader,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadOutputInput {
    call: CallId,
    #[serde(default)]
    offset: usize,
    grep: Option<String>,
}

impl ReadOutputTool {
    pub fn new(store: Arc<dyn Store>, records: Arc<dyn RecordStore>) -> Self {
        let properties = json!({
            "call": {
                "type": "string",
                "pattern": "^t[0-9]{1,9}\\.[0-9]{1,5}$",
                "description": "Id of the call, as given in the truncated result, such as `t3.1`",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "maximum": OFFSET_MAX,
                "description": "Byte offset to start at",
            },
            "grep": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200,
                "description": "Return only lines that contain this text, with line numbers",
            },
        });
        let description = "Reads more of the truncated result of an earlier call, from a byte \
                     offset, or only the lines that contain a text. To pass a result on to \
                     another tool without reading it, write {\"$output\": \"t3.1\"} instead of \
                     the value in the input of that tool; add \"path\": \"/body\" for a part of a \
                     JSON result. The tool gets the result as you read it, for example with line \
                     numbers.";
        Self {
            spec: ToolSpec::with_input_properties(READ_OUTPUT, description, properties, &["call"]),
            outputs: OutputReader::new(store, records),
        }
    }

    async fn load_output_text(&self, run: RunId, call: CallId) -> Result<String, ToolFailure> {
        let output = self.outputs.read_tool_output(run, call).await;
        let (_, text) = output
            .map_err(|error| ToolFailure::new(format!("the result can't be read: {error}")))?
            .ok_or_else(|| ToolFailure::new(format!("the call {call} has no result yet")))?;
        text.ok_or_else(|| ToolFailure::new("the result is no longer stored"))
    }
}

#[async_trait]
impl Tool for ReadOutputTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Pure
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: ReadOutputInput = serde_json::from_value(input)
            .map_err(|error| ToolFailure::new(format!("the input is invalid: {error}")))?;
        let text = self.load_output_text(ctx.run, input.call).await?;
        let excerpt = match &input.grep {
            None => format_output_page(&text, input.offset),
            Some(needle) => matching_lines(&text, needle),
        };
        Ok(ToolOutput::text(excerpt))
    }
}

/// Returns one page of a tool result, cut at character boundaries, with the offset of the next
/// page.
fn format_output_page(text: &str, offset: usize) -> String {
    if offset >= text.len() {
        return match text.len() {
            0 => "[longhaul] The result is empty: it has 0 bytes.".to_owned(),
            bytes => format!(
                "[longhaul] There is nothing at offset {offset}: the result has {bytes} bytes. Read \
                 with an offset below {bytes}."
            ),
        };
    }
    let from = text.ceil_char_boundary(offset);
    let end = text.ceil_char_boundary(from.saturating_add(SHOWN_BYTES).min(text.len()));
    let piece = &text[from..end];
    if end == text.len() {
        return format!("{piece}\n\n[longhaul] End of the result at byte {end}.");
    }
    format!(
        "{piece}\n\n[longhaul] Bytes {from} to {end} of {}. Read on with offset {end}.",
        text.len()
    )
}

/// Returns the lines of a tool result that contain `needle`, with their line numbers.
fn matching_lines(text: &str, needle: &str) -> String {
    let mut output = String::new();
    let mut match_count = 0;
    for (number, line) in text.lines().enumerate() {
        if !line.contains(needle) {
            continue;
        }
        match_count += 1;
        if match_count <= LINES_MAX && output.len() < SHOWN_BYTES {
            let line: String = line.chars().take(500).collect();
            output.push_str(&format!("{}: {line}\n", number + 1));
        }
    }
    let lines_contain = if match_count == 1 { "line contains" } else { "lines contain" };
    format!("{output}\n[longhaul] {match_count} {lines_contain} `{needle}`.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_pages_join_to_the_full_output() {
        let text = "äbc\n".repeat(6_000);
        let mut output = String::new();
        let mut offset = 0;
        loop {
            let shown_page = format_output_page(&text, offset);
            let (piece, note) = shown_page.rsplit_once("\n\n[longhaul] ").expect("a note");
            output.push_str(piece);
            match note.rsplit_once("offset ") {
                Some((_, next)) => offset = next.trim_end_matches('.').parse().expect("a number"),
                None => break,
            }
        }
        assert_eq!(output, text);
    }

    #[test]
    fn an_offset_past_the_end_reports_the_output_length() {
        let max_offset = usize::try_from(OFFSET_MAX).unwrap();
        for (text, offset, expected) in [
            ("", 0, "[longhaul] The result is empty: it has 0 bytes."),
            (
                "abc",
                3,
                "[longhaul] There is nothing at offset 3: the result has 3 bytes. Read with an offset below 3.",
            ),
            (
                "ä",
                max_offset,
                "[longhaul] There is nothing at offset 9007199254740991: the result has 2 bytes. Read with an offset below 2.",
            ),
            // An offset inside a character is moved to the next one.
            ("äb", 1, "b\n\n[longhaul] End of the result at byte 3."),
        ] {
            assert_eq!(format_output_page(text, offset), expected);
        }
    }

    #[test]
    fn search_results_have_line_numbers() {
        assert_eq!(
            matching_lines("a\nbe\nce", "e"),
            "2: be\n3: ce\n\n[longhaul] 2 lines contain `e`."
        );
    }
}
