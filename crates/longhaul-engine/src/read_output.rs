//! `read_output`: pages through a result that was too long to be shown whole.
//!
//! Never: shows another run's results.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::Event;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, IdError, RunId, Seq, ToolName};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::{ReadRequest, Store};
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::run_env::READ_OUTPUT;

/// So much is shown at once.
const SHOWN_BYTES: usize = 12 * 1024;

/// So many matching lines are shown.
const LINES_MAX: usize = 200;

/// No result is so long, and every program can write this number exactly.
const OFFSET_MAX: u64 = (1 << 53) - 1;

const PAGE_SIZE: usize = 500;

/// Pages through long results.
#[derive(Debug)]
pub struct ReadOutput {
    spec: ToolSpec,
    store: Arc<dyn Store>,
    records: Arc<dyn RecordStore>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    call: CallId,
    #[serde(default)]
    offset: usize,
    grep: Option<String>,
}

impl ReadOutput {
    /// The tool over this store.
    pub fn new(store: Arc<dyn Store>, shelves: Arc<dyn RecordStore>) -> Result<Self, IdError> {
        let properties = json!({
            "call": {
                "type": "string",
                "pattern": "^t[0-9]{1,9}\\.[0-9]{1,5}$",
                "description": "The call, as the cut result names it, such as `t3.1`",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "maximum": OFFSET_MAX,
                "description": "From this byte on",
            },
            "grep": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200,
                "description": "Only the lines that hold this text, with their numbers",
            },
        });
        Ok(Self {
            spec: ToolSpec {
                name: ToolName::new(READ_OUTPUT)?,
                description: "Reads on in the result of an earlier call that was shown only in \
                    part, from a byte on, or the lines that hold a text."
                    .to_owned(),
                schema: json!({
                    "type": "object",
                    "properties": properties,
                    "required": ["call"],
                    "additionalProperties": false,
                }),
                can_verify: false,
                in_doubt: None,
                timeout: None,
            },
            store,
            records: shelves,
        })
    }

    /// The result of a call as far as it is kept.
    async fn find_output(&self, run: RunId, call: CallId) -> Result<ToolOutput, ToolFailure> {
        let mut after = Seq::START;
        loop {
            let ask = ReadRequest { run, after, limit: PAGE_SIZE };
            let page = self.store.read(ask).await.map_err(read_failure)?;
            let Some(last) = page.entries.last() else {
                return Err(ToolFailure::new(format!("there is no result of a call {call} yet")));
            };
            after = last.seq;
            let found = page.entries.into_iter().find_map(|entry| output_of(entry.event, call));
            if let Some(output) = found {
                return Ok(output);
            }
        }
    }

    async fn text(&self, run: RunId, call: CallId) -> Result<String, ToolFailure> {
        let output = self.find_output(run, call).await?;
        let Some(full) = output.full else {
            let texts = output.content.iter().filter_map(Part::text);
            return Ok(texts.collect::<Vec<_>>().join("\n"));
        };
        let bytes = self.records.blob(full.hash).await.map_err(read_failure)?;
        let bytes = bytes.ok_or_else(|| ToolFailure::new("the result is no longer kept"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn read_failure(error: longhaul_core::port::store::StoreError) -> ToolFailure {
    ToolFailure::new(format!("the result can't be read: {error}"))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only the ends of calls hold results")]
fn output_of(event: Event, wanted: CallId) -> Option<ToolOutput> {
    match event {
        Event::ToolCompleted(ended) | Event::ToolFailed(ended) | Event::ToolInterrupted(ended)
            if ended.call == wanted =>
        {
            Some(ended.output)
        }
        _ => None,
    }
}

#[async_trait]
impl Tool for ReadOutput {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Pure
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = serde_json::from_value(input)
            .map_err(|why| ToolFailure::new(format!("the input can't be read: {why}")))?;
        let text = self.text(around.run, input.call).await?;
        let shown = match &input.grep {
            None => page(&text, input.offset),
            Some(wanted) => matching_lines(&text, wanted),
        };
        Ok(ToolOutput::text(shown))
    }
}

/// A piece of the text, whole letters only, and where it goes on.
fn page(text: &str, offset: usize) -> String {
    if offset >= text.len() {
        return match text.len() {
            0 => "[longhaul] The result is empty: it has 0 bytes.".to_owned(),
            bytes => format!(
                "[longhaul] Nothing stands at offset {offset}: the result has {bytes} bytes. Read \
                 with an offset below {bytes}."
            ),
        };
    }
    let from = text.ceil_char_boundary(offset);
    let to = text.ceil_char_boundary(from.saturating_add(SHOWN_BYTES).min(text.len()));
    let piece = &text[from..to];
    if to == text.len() {
        return format!("{piece}\n\n[longhaul] This is the end, byte {to}.");
    }
    format!(
        "{piece}\n\n[longhaul] Bytes {from} to {to} of {}. Read on with offset {to}.",
        text.len()
    )
}

/// The lines that hold a text, with their numbers.
fn matching_lines(text: &str, wanted: &str) -> String {
    let mut shown = String::new();
    let mut found = 0;
    for (number, line) in text.lines().enumerate() {
        if !line.contains(wanted) {
            continue;
        }
        found += 1;
        if found <= LINES_MAX && shown.len() < SHOWN_BYTES {
            let line: String = line.chars().take(500).collect();
            shown.push_str(&format!("{}: {line}\n", number + 1));
        }
    }
    format!("{shown}\n[longhaul] {found} lines hold `{wanted}`.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_pages_join_to_the_full_output() {
        let text = "äbc\n".repeat(6_000);
        let mut read = String::new();
        let mut offset = 0;
        loop {
            let shown = page(&text, offset);
            let (piece, note) = shown.rsplit_once("\n\n[longhaul] ").expect("a note");
            read.push_str(piece);
            match note.rsplit_once("offset ") {
                Some((_, next)) => offset = next.trim_end_matches('.').parse().expect("a number"),
                None => break,
            }
        }
        assert_eq!(read, text);
    }

    #[test]
    fn an_offset_past_the_end_reports_the_length() {
        let far = usize::try_from(OFFSET_MAX).unwrap();
        for (text, offset, said) in [
            ("", 0, "[longhaul] The result is empty: it has 0 bytes."),
            (
                "abc",
                3,
                "[longhaul] Nothing stands at offset 3: the result has 3 bytes. Read with an offset below 3.",
            ),
            (
                "ä",
                far,
                "[longhaul] Nothing stands at offset 9007199254740991: the result has 2 bytes. Read with an offset below 2.",
            ),
            // Not a whole letter: it begins with the next one.
            ("äb", 1, "b\n\n[longhaul] This is the end, byte 3."),
        ] {
            assert_eq!(page(text, offset), said);
        }
    }

    #[test]
    fn search_results_have_line_numbers() {
        assert_eq!(
            matching_lines("a\nbe\nce", "e"),
            "2: be\n3: ce\n\n[longhaul] 2 lines hold `e`."
        );
    }
}
