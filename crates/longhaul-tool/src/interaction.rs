//! The tool `log_interaction`, which appends a line about an interaction, such as a question or a
//! reminder to a person, to a log file that people read.
//!
//! Invariant: a call adds at most one line, however often it is repeated.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::time::Clock;

use crate::disk_tool::{DiskTool, Reason, disk_tool};
use crate::jsonl::JsonLinesFile;
use crate::location::FileLocation;
use crate::safe_dir::FsError;
use crate::typed::TypedToolError;

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
pub(crate) struct LogInteractionInput {
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
        disk_tool(Self { log: JsonLinesFile::new(file.into()), clock })
    }
}

impl DiskTool for LogInteractionTool {
    type Input = LogInteractionInput;
    const NAME: &'static str = "log_interaction";
    const DESCRIPTION: &'static str = "Writes a line about an interaction to the log that \
        people read. It is kept permanently; nobody is notified.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const FAILURE: &'static str = "The interaction was not logged";

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        vec![interaction_kind(input["kind"].as_str())]
    }

    fn call(&self, input: LogInteractionInput, ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        validate_interaction(&input)?;
        let line = json!({
            "key": ctx.idempotency_key,
            "run": ctx.run,
            "call": ctx.call,
            "at": self.clock.now(),
            "kind": interaction_kind(input.kind.as_deref()),
            "summary": input.summary,
            "details": input.details,
            "thread": ctx.thread,
            "resource": ctx.resource,
            // The only injected value that is logged: the others may be secrets.
            "recipient": ctx.context.get("recipient"),
        });
        let append = || -> Result<(), FsError> {
            let log = self.log.lock_or_create()?;
            match log.lines_with_key(&ctx.idempotency_key)?.is_empty() {
                true => log.append(&line),
                false => Ok(()),
            }
        };
        append().map_err(|error| {
            format!("the log `{}` can't be written: {error}", self.log.display_path())
        })?;
        Ok(ToolOutput::text("The interaction was logged."))
    }
}

fn interaction_kind(kind: Option<&str>) -> String {
    kind.map(str::trim).filter(|kind| !kind.is_empty()).unwrap_or(DEFAULT_KIND).to_owned()
}

fn validate_interaction(input: &LogInteractionInput) -> Result<(), String> {
    let too_long = |text: &str, max: usize| text.chars().nth(max).is_some();
    let details = input.details.as_ref().map_or(0, |details| details.to_string().len());
    if input.summary.trim().is_empty() {
        Err("the summary is empty".into())
    } else if too_long(&input.summary, SUMMARY_LENGTH_MAX) {
        Err(format!("the summary is longer than {SUMMARY_LENGTH_MAX} characters"))
    } else if too_long(input.kind.as_deref().unwrap_or_default(), KIND_LENGTH_MAX) {
        Err(format!("`kind` is longer than {KIND_LENGTH_MAX} characters; use a single word"))
    } else if details > DETAILS_BYTES_MAX {
        Err(format!("the details are longer than {DETAILS_BYTES_MAX} bytes; log a summary"))
    } else {
        Ok(())
    }
}
