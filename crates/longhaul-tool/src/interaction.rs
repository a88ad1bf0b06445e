//! `log_interaction`: a line for people about what an agent did with somebody.
//!
//! Never: two lines for one call, however often it is begun.

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
use crate::location::Location;
use crate::safe_dir::FsError;
use crate::tool_support::{TIMEOUT, run_blocking};
use crate::typed::{TypedTool, TypedToolError, typed};

const SUMMARY_LENGTH_MAX: usize = 4_000;
const KIND_LENGTH_MAX: usize = 64;
const DETAILS_BYTES_MAX: usize = 64 * 1024;
/// What an interaction is that nobody gave a kind.
const DEFAULT_KIND: &str = "note";

/// Logs interactions.
#[derive(Debug)]
pub struct LogInteraction {
    log: JsonLinesFile,
    clock: Arc<dyn Clock>,
}

/// What the model says of an interaction.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// What happened, in a sentence or two
    #[schemars(length(min = 1, max = SUMMARY_LENGTH_MAX))]
    summary: String,
    /// One word for it, such as `question` or `reminder`; `note` unless given
    #[schemars(length(min = 1, max = KIND_LENGTH_MAX))]
    kind: Option<String>,
    /// Whatever else belongs to it, 64 KB of JSON at most
    details: Option<Value>,
}

impl LogInteraction {
    /// The tool over this file of JSON lines, which is made with the first one.
    pub fn tool(
        file: impl Into<Location>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<dyn Tool>, TypedToolError> {
        let lines = JsonLinesFile::new(file.into());
        typed(Self { log: lines, clock })
    }
}

#[async_trait]
impl TypedTool for LogInteraction {
    type Input = Input;
    const NAME: &'static str = "log_interaction";
    const DESCRIPTION: &'static str = "Writes a line about an interaction into the log that \
        people read. It is kept for good; nobody is told by it.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        vec![normalized_kind(input["kind"].as_str())]
    }

    async fn call(&self, input: Input, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input = validated(input)?;
        let line = json!({
            "key": around.idempotency_key,
            "run": around.run,
            "call": around.call,
            "at": self.clock.now(),
            "kind": normalized_kind(input.kind.as_deref()),
            "summary": input.summary,
            "details": input.details,
            "thread": around.thread,
            "resource": around.resource,
            // Of what is injected only this: the rest may be secrets.
            "recipient": around.context.get("recipient"),
        });
        let (lines, key) = (self.log.clone(), around.idempotency_key.clone());
        run_blocking(move || {
            append_once(&lines, &key, &line).map_err(|why| {
                let path = lines.path();
                failure(format!("the log `{path}` {why}"))
            })
        })
        .await?;
        Ok(ToolOutput::text("The interaction was logged."))
    }
}

/// Adds a line, unless one of this key stands there.
fn append_once(lines: &JsonLinesFile, key: &str, line: &Value) -> Result<(), FsError> {
    let held = lines.lock()?;
    match held.find_key(key)?.lines.is_empty() {
        true => held.append(line),
        false => Ok(()),
    }
}

fn normalized_kind(said: Option<&str>) -> String {
    match said.map(str::trim) {
        None | Some("") => DEFAULT_KIND.to_owned(),
        Some(kind) => kind.to_owned(),
    }
}

fn validated(input: Input) -> Result<Input, ToolFailure> {
    if input.summary.trim().is_empty() {
        return Err(failure("its summary says nothing".into()));
    }
    let too_long = |text: &str, most: usize| text.chars().nth(most).is_some();
    if too_long(&input.summary, SUMMARY_LENGTH_MAX) {
        let why = format!("its summary is longer than {SUMMARY_LENGTH_MAX} letters");
        return Err(failure(why));
    }
    if too_long(input.kind.as_deref().unwrap_or_default(), KIND_LENGTH_MAX) {
        let why = format!("its kind is longer than {KIND_LENGTH_MAX} letters; one word will do");
        return Err(failure(why));
    }
    let details = input.details.as_ref().map(|details| details.to_string().len());
    if details.is_some_and(|bytes| bytes > DETAILS_BYTES_MAX) {
        let why = format!("its details are longer than {DETAILS_BYTES_MAX} bytes; log the gist");
        return Err(failure(why));
    }
    Ok(input)
}

fn failure(why: String) -> ToolFailure {
    ToolFailure::new(format!("The interaction was not logged: {why}."))
}
