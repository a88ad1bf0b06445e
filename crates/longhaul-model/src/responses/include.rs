//! The `include` field of a request: encrypted reasoning, and the values that the user has set.
//!
//! Invariant: no field occurs twice in a request.

use longhaul_core::raw::RawJson;

use crate::json_object::JsonObject;
use crate::settings::{ModelSettings, SettingsError};

/// Value of `include` that requests reasoning in a form that can be sent back. The provider stores
/// nothing, so it can't recognise unencrypted reasoning in the next turn.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// Prefixes of the names of models without reasoning. These models reject a request for encrypted
/// reasoning; all newer models accept it.
const NON_REASONING_MODELS: &[&str] = &["gpt-3", "gpt-4", "chatgpt", "gpt-5-chat"];

/// Removes `include` from the request fields set by the user and returns the value to send.
/// Encrypted reasoning is added to the user's list. If the user has set an empty list or `null`,
/// nothing is requested, for servers that don't support encrypted reasoning.
pub(super) fn take_include(settings: &mut ModelSettings) -> Result<Option<RawJson>, SettingsError> {
    let default_include =
        supports_reasoning(&settings.model).then(|| ENCRYPTED_REASONING.to_owned());
    let fields_json = settings.fields.as_ref().map(RawJson::as_str);
    // Fields that are not an object are rejected later, by the adapter.
    let mut fields = fields_json.and_then(JsonObject::parse).unwrap_or_default();
    for (index, (name, _)) in fields.fields().iter().enumerate() {
        if fields.fields()[..index].iter().any(|(other, _)| other == name) {
            return Err(SettingsError(format!("the field `{name}` of a request is set twice")));
        }
    }
    let Some(include) = fields.take_field("include") else {
        return Ok(default_include.map(|value| RawJson::from_serialize(&[value])));
    };
    settings.fields = fields.to_json();
    let include: Option<Vec<String>> = serde_json::from_str(include.as_str())
        .map_err(|_| SettingsError("the field `include` is not a list of strings".to_owned()))?;
    let Some(mut all) = include.filter(|include| !include.is_empty()) else {
        return Ok(None);
    };
    all.extend(default_include.filter(|value| !all.contains(value)));
    Ok(Some(RawJson::from_serialize(&all)))
}

/// Whether a model may support reasoning, according to its name without a vendor prefix.
fn supports_reasoning(model_name: &str) -> bool {
    let name = model_name.rsplit('/').next().unwrap_or(model_name);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    !NON_REASONING_MODELS.iter().any(|prefix| name.starts_with(prefix))
}
