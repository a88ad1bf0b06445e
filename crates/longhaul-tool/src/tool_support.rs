//! What the tools on disk share: their cards, reading their input, and working
//! off the threads that serve others.
//!
//! Never: touches the disk itself.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use longhaul_core::id::{IdError, ToolName};
use longhaul_core::port::tool::{ToolFailure, ToolSpec};
use longhaul_core::time::Millis;

/// How long a call may take: far more than a disk needs.
pub(crate) const TIMEOUT: Option<Millis> = Some(Millis::from_secs(60));

/// A card with a schema of these properties, of which so many are required.
pub(crate) fn tool_spec(
    name: &str,
    description: &str,
    properties: Value,
    required: &[&str],
) -> Result<ToolSpec, IdError> {
    Ok(ToolSpec {
        name: ToolName::new(name)?,
        description: description.into(),
        schema: json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }),
        can_verify: false,
        in_doubt: None,
        timeout: TIMEOUT,
    })
}

/// The input as its type, or what is wrong with it.
pub(crate) fn parse_input<T: DeserializeOwned>(
    card: &ToolSpec,
    input: Value,
) -> Result<T, ToolFailure> {
    serde_json::from_value(input).map_err(|wrong| {
        let fields = card.schema["properties"].as_object();
        let fields: Vec<&str> =
            fields.into_iter().flat_map(|fields| fields.keys()).map(String::as_str).collect();
        let name = &card.name;
        let fields = fields.join(", ");
        ToolFailure::new(format!(
            "{name} can't read its input: {wrong}. Call it again with a JSON object of: {fields}."
        ))
    })
}

/// Does `work` where blocking is allowed.
pub(crate) async fn run_blocking<T, F>(work: F) -> Result<T, ToolFailure>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ToolFailure> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(ToolFailure::new(
            "This call stopped in its middle. Read what is there now, then try again.",
        ))
    })
}
