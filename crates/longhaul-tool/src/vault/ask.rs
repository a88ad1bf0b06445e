//! What the three tools share: reading their input, and working off the
//! threads that serve others.
//!
//! Never: touches the disk itself.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use longhaul_core::id::{BadId, ToolName};
use longhaul_core::port::tool::{ToolCard, ToolFailure};
use longhaul_core::time::Millis;

/// How long a call may take: far more than a disk needs.
const TIMEOUT: Millis = Millis::from_secs(60);

/// A card with a schema of these properties, of which so many are required.
pub(crate) fn card(
    name: &str,
    description: &str,
    properties: Value,
    required: &[&str],
) -> Result<ToolCard, BadId> {
    Ok(ToolCard {
        name: ToolName::new(name)?,
        description: description.into(),
        schema: json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }),
        verifies: false,
        in_doubt: None,
        timeout: Some(TIMEOUT),
    })
}

/// The property that names a folder.
pub(crate) fn folder_property(more: &str) -> Value {
    let text = format!("Folder in the vault, such as `Tasks` or `Projects/Alpha`. {more}");
    json!({ "type": "string", "description": text })
}

/// The input as its type, or what is wrong with it.
pub(crate) fn typed<T: DeserializeOwned>(card: &ToolCard, input: Value) -> Result<T, ToolFailure> {
    serde_json::from_value(input).map_err(|wrong| {
        let fields = card.schema["properties"].as_object();
        let fields: Vec<&str> = fields
            .into_iter()
            .flat_map(|fields| fields.keys())
            .map(String::as_str)
            .collect();
        let name = &card.name;
        let fields = fields.join(", ");
        ToolFailure(format!(
            "{name} can't read its input: {wrong}. Call it again with a JSON object of: {fields}."
        ))
    })
}

/// `folder/title`, by which rules know a note.
pub(crate) fn subject(folder: &str, title: &str) -> String {
    if folder.is_empty() {
        title.into()
    } else {
        format!("{folder}/{title}")
    }
}

/// The subject of an input that names a note; of any other the whole input.
pub(crate) fn note_subjects(input: &Value) -> Vec<String> {
    match (input["folder"].as_str(), input["title"].as_str()) {
        (Some(folder), Some(title)) => vec![subject(folder, title)],
        (_, _) => vec![longhaul_core::raw::canonical(input)],
    }
}

/// Does `work` where blocking is allowed.
pub(crate) async fn aside<T, F>(work: F) -> Result<T, ToolFailure>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ToolFailure> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(ToolFailure(
            "The vault stopped in the middle of this call. Read the note, then try again.".into(),
        ))
    })
}
