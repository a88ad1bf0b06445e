//! What a request asks for beside the reply: sealed thoughts, and what the user wants.
//!
//! Never: the same field twice in a request.

use longhaul_core::raw::RawJson;

use crate::json_object::JsonObject;
use crate::settings::{Settings, SettingsError};

/// Thoughts that can be sent back. The provider keeps nothing of ours, so a
/// thought that came without its seal is unknown to it in the next turn.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// Models that do not think, by the beginning of their names. They refuse a
/// request that asks for seals; all newer ones take it.
const NON_REASONING_MODELS: &[&str] = &["gpt-3", "gpt-4", "chatgpt", "gpt-5-chat"];

/// Takes `include` out of the user's fields, and says what to ask for. The
/// user's list gets ours behind it; an empty one or `null` means that nothing is
/// asked for, which helps with a server that does not know of seals.
pub(super) fn take_include(settings: &mut Settings) -> Result<Option<RawJson>, SettingsError> {
    let ours = supports_reasoning(&settings.model).then(|| ENCRYPTED_REASONING.to_owned());
    let set = settings.fields.as_ref().map(RawJson::as_str);
    // What is no object is refused with the other fields.
    let Some(mut fields) = set.and_then(JsonObject::parse) else {
        return Ok(ours.map(|ours| RawJson::from_serialize(&[ours])));
    };
    reject_duplicates(&fields)?;
    let Some(wanted) = fields.take("include") else {
        return Ok(ours.map(|ours| RawJson::from_serialize(&[ours])));
    };
    settings.fields = fields.to_raw();
    let wanted: Option<Vec<String>> = serde_json::from_str(wanted.as_str())
        .map_err(|_| SettingsError("the field `include` is no list of names".to_owned()))?;
    let Some(mut all) = wanted.filter(|wanted| !wanted.is_empty()) else {
        return Ok(None);
    };
    if let Some(ours) = ours.filter(|ours| !all.contains(ours)) {
        all.push(ours);
    }
    Ok(Some(RawJson::from_serialize(&all)))
}

fn reject_duplicates(fields: &JsonObject) -> Result<(), SettingsError> {
    let mut pairs = fields.clone().into_pairs();
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    match pairs.windows(2).find(|two| two[0].0 == two[1].0) {
        Some(two) => {
            Err(SettingsError(format!("the field `{}` of a request is set twice", two[0].0)))
        }
        None => Ok(()),
    }
}

/// Whether a model may think, by its name without a maker before it.
fn supports_reasoning(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    !NON_REASONING_MODELS.iter().any(|known| name.starts_with(known))
}
