//! Three tools for crash tests, one of each effect class. A call only appends a line to a file, so
//! that the calls that really took effect can be counted.
//!
//! Invariant: the tools never read the file, so the count is independent of the journal.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::{Clock, Millis};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::typed::{TypedToolError, parse_input, tool_spec};

/// Maximum delay that a call may request.
const DELAY_MAX: Millis = Millis::from_secs(60);
const DESCRIPTION: &str = "Appends a line with this note to the crash probe file. For crash tests.";

/// A test tool whose calls append a line to a file.
#[derive(Debug)]
struct CrashTestTool {
    spec: ToolSpec,
    class: EffectClass,
    path: Arc<Path>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CrashTestToolInput {
    #[schemars(length(max = 1_000))]
    note: String,
    #[schemars(range(max = DELAY_MAX.0))]
    delay_ms: Option<u64>,
}

/// Returns the tools `probe_read` (effect class pure: no side effects), `probe_write` (keyed:
/// idempotent) and `probe_send` (once: must not be repeated). All of them append to this file.
pub fn crash_test_tools(
    file: impl Into<PathBuf>,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Arc<dyn Tool>>, TypedToolError> {
    let file: Arc<Path> = file.into().into();
    let tool = |name, class| -> Result<Arc<dyn Tool>, TypedToolError> {
        Ok(Arc::new(CrashTestTool {
            spec: ToolSpec {
                timeout: Some(Millis::from_secs(2 * 60)),
                ..tool_spec::<CrashTestToolInput>(name, DESCRIPTION)?
            },
            class,
            path: Arc::clone(&file),
            clock: Arc::clone(clock),
        }))
    };
    Ok(vec![
        tool("probe_read", EffectClass::Pure)?,
        tool("probe_write", EffectClass::Keyed)?,
        tool("probe_send", EffectClass::Once)?,
    ])
}

#[async_trait]
impl Tool for CrashTestTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        let note = input.get("note").and_then(Value::as_str);
        note.map(str::to_owned).into_iter().collect()
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: CrashTestToolInput = parse_input(&self.spec, input)?;
        // Half of the delay before the write and half after it, so that crashes hit both sides.
        let half = Millis(input.delay_ms.unwrap_or_default() / 2);
        self.clock.sleep(half).await;
        let line = json!({
            "tool": self.spec.name,
            "run": ctx.run,
            "call": ctx.call,
            "key": ctx.idempotency_key,
            "epoch": ctx.epoch,
            "note": input.note,
        });
        let file = File::options().create(true).append(true).open(&self.path);
        // One write call, so that lines of other processes don't mix with this one. A killed process
        // may leave a partial line that ends at a page boundary.
        let result = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        result.map_err(|error| {
            ToolFailure::new(format!("{} can't be written: {error}", self.path.display()))
        })?;
        self.clock.sleep(half).await;
        Ok(ToolOutput::text(format!("appended a line: {}", input.note)))
    }
}
