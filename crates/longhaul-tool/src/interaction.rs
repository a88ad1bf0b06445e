//! The tool `log_interaction`, which appends a line about an interaction, such as a question or a
//! reminder to a person, to a log file that people read.
//!
//! Invariant: a call adds at most one line, however often it is repeated.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis};

use crate::jsonl::JsonLinesFile;
use crate::location::FileLocation;
use crate::safe_dir::FsError;
use crate::tool_support::{TIMEOUT, run_on_blocking_thread};
use crate::typed::{TypedTool, TypedToolError, typed};

const SUMMARY_LENGTH_MAX: usize = 4_000;
const KIND_LENGTH_MAX: usize = 64;
const DETAILS_BYTES_MAX: usize = 64 * 1024;
/// Kind that is logged for an interaction for which the model gave no kind.
const DEFAULT_KIND: &str = "note";

/// The tool `log_interaction`, which appends a line about an interaction, such as a question to a
/// person, to a log file that people read.
#[derive(Debug)]
pub struct LogInteractionTool {
    log: JsonLinesFile,
    clock: Arc<dyn Clock>,
}

/// Input of the tool `log_interaction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogInteractionInput {
    /// What happened, in a sentence or two
    #[schemars(length(min = 1, max = SUMMARY_LENGTH_MAX))]
    summary: String,
    /// Kind of interaction in one word, such as `question` or `reminder`; default: `note`
    #[schemars(length(min = 1, max = KIND_LENGTH_MAX))]
    kind: Option<String>,
    /// Any further data, at most 64 KB of JSON
    details: Option<Value>,
}

impl LogInteractionTool {
    /// Creates the tool, which logs to this JSON lines file. The file is created with the first
    /// line.
    pub fn new_tool(
        file: impl Into<FileLocation>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<dyn Tool>, TypedToolError> {
        let lines = JsonLinesFile::new(file.into());
        typed(Self { log: lines, clock })
    }
}

#[async_trait]
impl TypedTool for LogInteractionTool {
    type Input = LogInteractionInput;
    const NAME: &'static str = "log_interaction";
    const DESCRIPTION: &'static str = "Writes a line about an interaction to the log that \
        people read. It is kept permanently; nobody is notified.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    fn rule_match_texts_from_json(&self, input: &Value) -> Vec<String> {
        vec![normalized_interaction_kind(input["kind"].as_str())]
    }

    async fn call(
        &self,
        input: LogInteractionInput,
        ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let input = validate_interaction(input)?;
        let line = json!({
            "key": ctx.idempotency_key,
            "run": ctx.run,
            "call": ctx.call,
            "at": self.clock.now(),
            "kind": normalized_interaction_kind(input.kind.as_deref()),
            "summary": input.summary,
            "details": input.details,
            "thread": ctx.thread,
            "resource": ctx.resource,
            // The only injected value that is logged: the others may be secrets.
            "recipient": ctx.context.get("recipient"),
        });
        let (lines, key) = (self.log.clone(), ctx.idempotency_key.clone());
        run_on_blocking_thread(move || {
            append_line_once_per_key(&lines, &key, &line).map_err(|error| {
                let path = lines.display_path();
                interaction_failure(format!("the log `{path}` can't be written: {error}"))
            })
        })
        .await?;
        Ok(ToolOutput::text("The interaction was logged."))
    }
}

/// Appends a line to the file unless it already has a line with this key.
fn append_line_once_per_key(lines: &JsonLinesFile, key: &str, line: &Value) -> Result<(), FsError> {
    let locked_file = lines.lock_or_create_file()?;
    match locked_file.find_lines_by_key(key)?.lines.is_empty() {
        true => locked_file.append_json_line(line),
        false => Ok(()),
    }
}

fn normalized_interaction_kind(text: Option<&str>) -> String {
    match text.map(str::trim) {
        None | Some("") => DEFAULT_KIND.to_owned(),
        Some(kind) => kind.to_owned(),
    }
}

fn validate_interaction(input: LogInteractionInput) -> Result<LogInteractionInput, ToolFailure> {
    if input.summary.trim().is_empty() {
        return Err(interaction_failure("the summary is empty".into()));
    }
    let too_long = |text: &str, max: usize| text.chars().nth(max).is_some();
    if too_long(&input.summary, SUMMARY_LENGTH_MAX) {
        let reason = format!("the summary is longer than {SUMMARY_LENGTH_MAX} characters");
        return Err(interaction_failure(reason));
    }
    if too_long(input.kind.as_deref().unwrap_or_default(), KIND_LENGTH_MAX) {
        let reason =
            format!("`kind` is longer than {KIND_LENGTH_MAX} characters; use a single word");
        return Err(interaction_failure(reason));
    }
    let details = input.details.as_ref().map(|details| details.to_string().len());
    if details.is_some_and(|bytes| bytes > DETAILS_BYTES_MAX) {
        let reason =
            format!("the details are longer than {DETAILS_BYTES_MAX} bytes; log a summary");
        return Err(interaction_failure(reason));
    }
    Ok(input)
}

fn interaction_failure(reason: String) -> ToolFailure {
    ToolFailure::new(format!("The interaction was not logged: {reason}."))
}
