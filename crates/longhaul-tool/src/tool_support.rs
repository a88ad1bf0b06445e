//! Helpers for the built-in tools: tool specs, parsing of input, and blocking work.

use serde::de::DeserializeOwned;
use serde_json::Value;

use longhaul_core::id::IdError;
use longhaul_core::policy::effect_facts::PredictedEffects;
use longhaul_core::port::tool::{ToolFailure, ToolSpec};
use longhaul_core::time::Millis;

/// Default timeout of a call of a built-in tool. It is far longer than disk access takes.
pub(crate) const TIMEOUT: Option<Millis> = Some(Millis::from_secs(60));

/// Creates the spec of a tool whose input has these properties, some of them required.
pub(crate) fn tool_spec_with_properties(
    name: &str,
    description: &str,
    properties: Value,
    required: &[&str],
) -> Result<ToolSpec, IdError> {
    let spec = ToolSpec::with_input_properties(name, description, properties, required)?;
    Ok(ToolSpec { timeout: TIMEOUT, ..spec })
}

/// Parses the input of a tool call. The error says what is wrong with the input.
pub(crate) fn deserialize_tool_input<T: DeserializeOwned>(
    spec: &ToolSpec,
    input: Value,
) -> Result<T, ToolFailure> {
    serde_json::from_value(input).map_err(|error| {
        let fields = spec.schema["properties"].as_object();
        let fields: Vec<&str> =
            fields.into_iter().flat_map(|fields| fields.keys()).map(String::as_str).collect();
        let name = &spec.name;
        let fields = fields.join(", ");
        ToolFailure::new(format!(
            "{name} can't read its input: {error}. Call it again with a JSON object of: {fields}."
        ))
    })
}

/// Runs the closure `work` on a thread that may block.
pub(crate) async fn run_on_blocking_thread<T, F>(work: F) -> Result<T, ToolFailure>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ToolFailure> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(ToolFailure::with_possible_effect(
            "This call was interrupted. Check the current state, then try again.",
        ))
    })
}

/// Runs the closure `predict` on a thread that may block. If the closure panics, the returned
/// effects are unknown.
pub(crate) async fn predict_on_blocking_thread(
    predict: impl FnOnce() -> PredictedEffects + Send + 'static,
) -> PredictedEffects {
    tokio::task::spawn_blocking(predict).await.unwrap_or_default()
}
