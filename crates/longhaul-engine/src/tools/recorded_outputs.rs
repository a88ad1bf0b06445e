//! Reads the recorded outputs of tool calls, and replaces references to them in the inputs of later
//! calls.
//!
//! Invariants: a reference is resolved only within its own run, only to the output of a completed
//! call, and the resolved input has a maximum size.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::environment::ChildEnded;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, RunId, Seq};
use longhaul_core::message::Part;
use longhaul_core::output_reference::{OUTPUT_MEMBER, OutputReference, PREVIEW_BYTES_MAX};
use longhaul_core::policy::effect_key::EffectKeyState;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::redact::Redact;
use longhaul_core::port::store::{JournalReadRequest, Store, StoreError};
use longhaul_core::raw::Hash;
use longhaul_core::status::RunOutcome;
use longhaul_run::original_result;
use serde_json::Value;

/// Maximum number of references to outputs of earlier calls in the input of one call.
const REFERENCES_MAX: usize = 16;

/// Maximum total size in bytes of the values that replace the references in the input of one call.
const VALUES_BYTES_MAX: usize = 4 * 1024 * 1024;

const PAGE_SIZE: usize = 500;

/// Reads recorded outputs of tool calls from a store.
#[derive(Debug, Clone)]
pub(crate) struct OutputReader {
    store: Arc<dyn Store>,
    records: Arc<dyn RecordStore>,
}

/// Why the references to outputs of earlier calls, in the input of a tool call, can't be replaced
/// by these outputs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReferenceError {
    /// A reference to the output of an earlier call can't be replaced by that output. The text is a
    /// message for the model.
    #[error("{0}")]
    Invalid(String),
    /// The store can't be read.
    #[error("the outputs of earlier calls can't be read: {0}")]
    Store(#[from] StoreError),
}

/// The output of a tool call, found in the journal of a run.
pub(crate) struct JournaledOutput {
    output: ToolOutput,
    /// Whether the call, or its child run in the background, completed.
    is_completed: bool,
    /// Whether the call was not made, because another call with the same effect key (the key of an
    /// effect that happens at most once over all runs) had completed. The text of the output then
    /// begins with a note about that call.
    is_duplicate: bool,
}

/// A reference to the output of an earlier call, found in the input of a call.
struct FoundReference {
    at: String,
    call: CallId,
    path: Option<String>,
}

impl OutputReader {
    pub(crate) fn new(store: Arc<dyn Store>, records: Arc<dyn RecordStore>) -> Self {
        Self { store, records }
    }

    /// Returns the output of a tool call from the journal of the run, and its complete text as far
    /// as that is stored. `None` if the journal contains no output of the call.
    pub(crate) async fn read_tool_output(
        &self,
        run: RunId,
        call: CallId,
    ) -> Result<Option<(JournaledOutput, Option<String>)>, StoreError> {
        let Some(found) = self.find_journaled_output(run, call).await? else { return Ok(None) };
        let text = match found.output.full {
            None => {
                let texts: Vec<_> = found.output.content.iter().filter_map(Part::text).collect();
                Some(texts.join("\n"))
            }
            Some(full) => {
                let bytes = self.records.blob(full.hash).await?;
                bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            }
        };
        Ok(Some((found, text)))
    }

    /// Returns the output of a call. The output of a call that started a child run in the background
    /// is that of the child, once the child has ended.
    async fn find_journaled_output(
        &self,
        run: RunId,
        call: CallId,
    ) -> Result<Option<JournaledOutput>, StoreError> {
        let mut after = Seq::START;
        let (mut child, mut started, mut is_duplicate) = (None, None, false);
        loop {
            let request = JournalReadRequest { run, after, limit: PAGE_SIZE };
            let page = self.store.read_journal(request).await?;
            let Some(last) = page.entries.last() else { return Ok(started) };
            after = last.seq;
            for entry in page.entries {
                if let Event::ChildStarted(start) = &entry.event
                    && start.call == Some(call)
                    && start.background
                {
                    child = Some(start.child);
                }
                if let Event::ChildEnded(ended) = &entry.event
                    && Some(ended.child) == child
                {
                    return Ok(Some(child_output(ended)));
                }
                if let Event::ToolKeyTaken(taken) = &entry.event
                    && taken.call == call
                {
                    is_duplicate = taken.state == EffectKeyState::Done;
                }
                match output_from_event(entry.event, call) {
                    Some(found) if child.is_some() => {
                        started = Some(JournaledOutput { is_completed: false, ..found });
                    }
                    Some(found) => return Ok(Some(JournaledOutput { is_duplicate, ..found })),
                    None => {}
                }
            }
        }
    }

    /// Replaces the references to outputs of earlier calls, in the input of a tool call, by these
    /// outputs or parts of them. Also returns the replaced references.
    pub(crate) async fn resolve_output_references(
        &self,
        run: RunId,
        mut input: Value,
        redact: &dyn Redact,
    ) -> Result<(Value, Vec<OutputReference>), ReferenceError> {
        let mut found = Vec::new();
        find_output_refs(&input, String::new(), &mut found).map_err(ReferenceError::Invalid)?;
        if found.len() > REFERENCES_MAX {
            let reason = format!("the input has more than {REFERENCES_MAX} references to outputs");
            return Err(ReferenceError::Invalid(reason));
        }
        let (mut texts, mut resolved) = (BTreeMap::new(), Vec::with_capacity(found.len()));
        let mut remaining_bytes = VALUES_BYTES_MAX;
        for reference in found {
            let call = reference.call;
            let invalid = |reason: String| invalid_reference_error(&reference, &reason);
            if let Entry::Vacant(new) = texts.entry(call) {
                let text = self.read_referenced_output(run, call).await?.map_err(invalid)?;
                new.insert(redact.redact(&text).into_owned());
            }
            let value = value_at_path(&texts[&call], reference.path.as_deref()).map_err(invalid)?;
            let content = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            remaining_bytes = remaining_bytes.checked_sub(content.len()).ok_or_else(|| {
                invalid(format!("the referenced outputs have more than {VALUES_BYTES_MAX} bytes"))
            })?;
            if let Some(place) = input.pointer_mut(&reference.at) {
                *place = value;
            }
            resolved.push(to_output_reference(reference, &content));
        }
        Ok((input, resolved))
    }

    /// Returns the output text that replaces a reference to this call. The inner error is a message
    /// for the model.
    async fn read_referenced_output(
        &self,
        run: RunId,
        call: CallId,
    ) -> Result<Result<String, String>, StoreError> {
        Ok(match self.read_tool_output(run, call).await? {
            None => Err(format!(
                "the call {call} has no recorded output; refer to a call of an earlier turn of this run"
            )),
            Some((found, _)) if !found.is_completed => {
                Err(format!("the call {call} has not completed, so it has no output to pass on"))
            }
            Some((found, text)) => {
                let text = if found.is_duplicate { text.and_then(original_result) } else { text };
                text.ok_or_else(|| format!("the output of {call} is no longer stored"))
            }
        })
    }
}

fn invalid_reference_error(reference: &FoundReference, reason: &str) -> ReferenceError {
    let input_path = if reference.at.is_empty() { "/" } else { &reference.at };
    ReferenceError::Invalid(format!(
        "the reference to an output at `{input_path}` is invalid: {reason}"
    ))
}

/// Checks, for a call that is about to start, that the outputs to which it refers are the same as
/// when rules and people checked the call. The error is a message for the model.
pub(crate) fn check_references_unchanged(
    original: &[OutputReference],
    resolved: &[OutputReference],
) -> Result<(), String> {
    let is_seen =
        |one: &&OutputReference| original.iter().any(|other| one.has_same_place_and_value(other));
    match resolved.iter().find(|one| !is_seen(one)) {
        None => Ok(()),
        Some(OutputReference { at, call, .. }) => Err(format!(
            "the call was not made: the output of {call} at `{at}` is not the one that was checked \
             when you made the call; make the call again"
        )),
    }
}

fn to_output_reference(reference: FoundReference, content: &str) -> OutputReference {
    let FoundReference { at, call, path } = reference;
    let preview = content[..content.floor_char_boundary(PREVIEW_BYTES_MAX)].to_owned();
    let hash = Hash::digest(content.as_bytes());
    OutputReference { at, call, path, bytes: content.len() as u64, hash, preview }
}

/// Returns the value that replaces a reference to an output: the whole text of the output, or the
/// value at `json_pointer` in an output that is JSON.
fn value_at_path(output_text: &str, json_pointer: Option<&str>) -> Result<Value, String> {
    let Some(json_pointer) = json_pointer else { return Ok(Value::String(output_text.to_owned())) };
    let json: Value = serde_json::from_str(output_text)
        .map_err(|_| "the output is not JSON; leave out `path` to pass on its text".to_owned())?;
    let value = json.pointer(json_pointer);
    value.cloned().ok_or_else(|| format!("the output has nothing at the path `{json_pointer}`"))
}

/// Collects the references to outputs of earlier calls in a value. An object is such a reference if
/// its member `$output` is a text.
fn find_output_refs(
    value: &Value,
    input_path: String,
    found: &mut Vec<FoundReference>,
) -> Result<(), String> {
    match value {
        Value::Object(fields) => match fields.get(OUTPUT_MEMBER) {
            Some(Value::String(call)) => {
                let path = fields.get("path");
                let is_valid = fields.len() == 1 + usize::from(path.is_some())
                    && path.is_none_or(Value::is_string);
                let (Ok(call), true) = (call.parse(), is_valid) else {
                    return Err(format!(
                        "the reference to an output at `{input_path}` is invalid: write \
                         {{\"{OUTPUT_MEMBER}\": \"t3.1\"}}, with an optional `path` such as \"/body\""
                    ));
                };
                let path = path.and_then(Value::as_str).map(str::to_owned);
                found.push(FoundReference { at: input_path, call, path });
                Ok(())
            }
            Some(_) | None => fields.iter().try_for_each(|(name, field)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                find_output_refs(field, format!("{input_path}/{name}"), found)
            }),
        },
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            find_output_refs(item, format!("{input_path}/{index}"), found)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Returns the output of a child run that has ended.
fn child_output(ended: &ChildEnded) -> JournaledOutput {
    let (text, is_completed) = match &ended.outcome {
        RunOutcome::Completed(output) => (&output.text, true),
        RunOutcome::Failed(error) => (&error.message, false),
        RunOutcome::Cancelled(reason) => (reason, false),
    };
    let output = ToolOutput { full: ended.full, ..ToolOutput::text(text.as_str()) };
    JournaledOutput { output, is_completed, is_duplicate: false }
}

/// Returns the output of the call if this event ends the call.
#[expect(clippy::wildcard_enum_match_arm, reason = "only events that end a call have results")]
fn output_from_event(event: Event, call: CallId) -> Option<JournaledOutput> {
    let is_completed = matches!(event, Event::ToolCompleted(_));
    match event {
        Event::ToolCompleted(ended) | Event::ToolFailed(ended) | Event::ToolInterrupted(ended)
            if ended.call == call =>
        {
            Some(JournaledOutput { output: ended.output, is_completed, is_duplicate: false })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reference_fields(input: &Value) -> Result<Vec<(String, String, Option<String>)>, String> {
        let mut found = Vec::new();
        find_output_refs(input, String::new(), &mut found)?;
        Ok(found.into_iter().map(|one| (one.at, one.call.to_string(), one.path)).collect())
    }

    #[test]
    fn references_are_found_anywhere_in_an_input() {
        let input = json!({
            "a/b": [1, { "$output": "t3.1", "path": "/body" }],
            "c": { "$output": "t1.2" },
            "plain": { "$output": { "x": { "$output": 7 } } },
        });
        let expected = [
            ("/a~1b/1".to_owned(), "t3.1".to_owned(), Some("/body".to_owned())),
            ("/c".to_owned(), "t1.2".to_owned(), None),
        ];
        assert_eq!(reference_fields(&input).unwrap(), expected);
        for input in [
            json!({ "$output": "t3" }),
            json!([{ "$output": "t3.1", "offset": 1 }]),
            json!({ "$output": "t3.1", "path": 1 }),
        ] {
            assert!(reference_fields(&input).unwrap_err().contains("is invalid: write"), "{input}");
        }
    }

    #[test]
    fn a_reference_whose_value_has_changed_is_reported() {
        let reference = |at: &str, content: &str| {
            let call = CallId { turn: 1, index: 1 };
            to_output_reference(FoundReference { at: at.to_owned(), call, path: None }, content)
        };
        let original = [reference("/a", "one"), reference("/b", "two")];
        assert_eq!(check_references_unchanged(&original, &original), Ok(()));
        // A person has removed a reference.
        assert_eq!(check_references_unchanged(&original, &original[1..]), Ok(()));
        for other in [reference("/a", "two"), reference("/c", "one")] {
            let error = check_references_unchanged(&original, &[other]).unwrap_err();
            assert!(error.contains("is not the one that was checked"), "{error}");
        }
    }

    #[test]
    fn a_path_selects_a_value_of_a_json_output() {
        let text = r#"{"body": {"items": [1, "two"]}}"#;
        assert_eq!(value_at_path(text, None), Ok(json!(text)));
        assert_eq!(value_at_path(text, Some("")), Ok(json!({ "body": { "items": [1, "two"] } })));
        assert_eq!(value_at_path(text, Some("/body/items/1")), Ok(json!("two")));
        let missing = value_at_path(text, Some("/nothing")).unwrap_err();
        assert_eq!(missing, "the output has nothing at the path `/nothing`");
        assert!(value_at_path("no JSON", Some("/a")).unwrap_err().contains("is not JSON"));
    }
}
