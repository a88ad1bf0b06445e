//! Three tools that do nothing but leave a line in a file: one of each class,
//! so that anybody can count what really happened under crashes.
//!
//! Never: reads the file, or knows whether a line stands there already. Whoever
//! doubts the journal counts the lines.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{IdError, ToolName};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::{Clock, Millis};
use serde::Deserialize;
use serde_json::{Value, json};

/// The longest a call may be told to take.
const DELAY_MAX: Millis = Millis::from_secs(60);

/// A tool that leaves a line.
#[derive(Debug)]
struct CrashProbe {
    spec: ToolSpec,
    class: EffectClass,
    path: Arc<Path>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    note: String,
    #[serde(default)]
    delay_ms: u64,
}

/// `probe_read` (pure), `probe_write` (keyed) and `probe_send` (once), which
/// all write to this file.
pub fn tools(
    file: impl Into<PathBuf>,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Arc<dyn Tool>>, IdError> {
    let file: Arc<Path> = file.into().into();
    let tool = |name, class| -> Result<Arc<dyn Tool>, IdError> {
        Ok(Arc::new(CrashProbe {
            spec: probe_spec(name)?,
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

fn probe_spec(name: &str) -> Result<ToolSpec, IdError> {
    Ok(ToolSpec {
        name: ToolName::new(name)?,
        description: "Leaves a line with this note in the witness file. For crash tests.".into(),
        schema: json!({
            "type": "object",
            "properties": {
                "note": { "type": "string", "maxLength": 1_000 },
                "delay_ms": { "type": "integer", "minimum": 0, "maximum": DELAY_MAX.0 },
            },
            "required": ["note"],
            "additionalProperties": false,
        }),
        can_verify: false,
        in_doubt: None,
        timeout: Some(Millis::from_secs(2 * 60)),
    })
}

#[async_trait]
impl Tool for CrashProbe {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    fn subjects(&self, input: &Value) -> Vec<String> {
        let note = input.get("note").and_then(Value::as_str);
        note.map(str::to_owned).into_iter().collect()
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input =
            serde_json::from_value(input).map_err(|why| ToolFailure::new(why.to_string()))?;
        // Half before the deed and half after it, so that a crash finds both.
        let half = Millis(input.delay_ms / 2);
        self.clock.sleep(half).await;
        let line = json!({
            "tool": self.spec.name,
            "run": around.run,
            "call": around.call,
            "key": around.idempotency_key,
            "epoch": around.epoch,
            "note": input.note,
        });
        append_line(&self.path, &format!("{line}\n")).map_err(|why| {
            ToolFailure::new(format!("{} can't be written: {why}", self.path.display()))
        })?;
        self.clock.sleep(half).await;
        Ok(ToolOutput::text(format!("left a line: {}", input.note)))
    }
}

/// One write call for the whole line: other processes write before or after it. A process that is
/// killed may leave a part of the line where it crosses the end of a page.
fn append_line(file: &Path, line: &str) -> std::io::Result<()> {
    let mut file = File::options().create(true).append(true).open(file)?;
    file.write_all(line.as_bytes())
}
