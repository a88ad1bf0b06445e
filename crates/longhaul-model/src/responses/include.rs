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
    reject_duplicate_fields(&fields)?;
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

fn reject_duplicate_fields(fields: &JsonObject) -> Result<(), SettingsError> {
    let mut pairs = fields.clone().into_fields();
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    match pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            Err(SettingsError(format!("the field `{}` of a request is set twice", pair[0].0)))
        }
        None => Ok(()),
    }
}

/// Whether a model may support reasoning, according to its name without a vendor prefix.
fn supports_reasoning(model_name: &str) -> bool {
    let name = model_name.rsplit('/').next().unwrap_or(model_name);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    !NON_REASONING_MODELS.iter().any(|prefix| name.starts_with(prefix))
}
