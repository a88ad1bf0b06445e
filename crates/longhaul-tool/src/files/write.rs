//! `write_file`: makes a file or puts another in its place.
//!
//! Never: half a file. Doing it twice leaves what doing it once leaves.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::files::protected::Access;
use crate::files::workspace::{Workspace, error_hint};
use crate::tool_support::{TIMEOUT, run_blocking};
use crate::typed::TypedTool;

/// The longest content, in bytes.
pub(crate) const CONTENT_BYTES_MAX: usize = 5 * 1024 * 1024;

/// Writes files.
#[derive(Debug)]
pub(crate) struct WriteFile(pub(crate) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, from the workspace's top, such as `src/main.rs`; folders are made
    path: String,
    /// The whole content of the file
    content: String,
}

#[async_trait]
impl TypedTool for WriteFile {
    type Input = Input;
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Writes a whole text file of the workspace, 5 MB at most: \
        makes it, or replaces everything in it. To change a part of a file use edit_file.";
    const CLASS: EffectClass = EffectClass::Keyed;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        self.0.subjects(input)
    }

    async fn call(&self, input: Input, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let space = self.0.clone();
        run_blocking(move || write(&space, &input)).await
    }
}

fn write(space: &Workspace, input: &Input) -> Result<ToolOutput, ToolFailure> {
    let refuse = |why: String| ToolFailure::new(format!("The file was not written: {why}."));
    let bytes = input.content.as_bytes();
    if bytes.len() > CONTENT_BYTES_MAX {
        let why = format!(
            "its content is {} bytes, and {CONTENT_BYTES_MAX} is the most; part it into several files",
            bytes.len()
        );
        return Err(refuse(why));
    }
    let target = space.target(&input.path, Access::Write);
    let target = target.map_err(|bad| refuse(bad.to_string()))?;
    let said = &target.display;
    let trouble = |trouble| refuse(format!("`{said}` {trouble}{}", error_hint(&trouble)));
    let desk = space.writer(&target).map_err(trouble)?;
    let before = desk.read(target.file(), CONTENT_BYTES_MAX);
    let before = before.map_err(trouble)?;
    let count = bytes.len();
    let verb = match &before {
        None => "Created",
        Some(before) if !before.is_truncated && before.bytes == bytes => {
            let said = format!("`{said}` holds exactly this already ({count} bytes).");
            return Ok(ToolOutput::text(said));
        }
        Some(before) if before.is_read_only() => {
            return Err(refuse(format!("`{said}` is read-only")));
        }
        Some(_) => "Replaced",
    };
    let put = desk.write(target.file(), bytes, before.as_ref());
    put.map_err(trouble)?;
    Ok(ToolOutput::text(format!("{verb} `{said}` ({count} bytes).")))
}
