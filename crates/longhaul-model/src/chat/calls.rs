//! Collects the tool calls of a streamed reply. Servers identify calls by index, by ID or by name,
//! and send them in fragments or complete.
//!
//! Invariant: memory is used only for calls that are received, never for gaps between indexes.

use std::collections::BTreeMap;

use longhaul_core::message::ToolCall;
use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;

use crate::decode_error::{DecodeError, Decoded};
use crate::json_object::{JsonObject, StreamedFieldFragments};
use crate::lenient_json::{
    check_tool_call_count, is_non_empty_json_value, parse_lenient_u64, parse_tool_arguments,
};

/// Builder for the tool calls of a reply, with all calls received so far.
#[derive(Debug, Default)]
pub(super) struct ToolCallsBuilder {
    calls: Vec<PartialToolCall>,
    /// Maps the provider's call index to the position in `calls`. A new call with the same index
    /// replaces the old entry.
    call_by_index: BTreeMap<u64, usize>,
}

/// A tool call that may still receive fragments.
#[derive(Debug, Default)]
struct PartialToolCall {
    id: String,
    name: String,
    /// Arguments of the tool call, if the server sent a JSON value instead of JSON text.
    input: Option<RawJson>,
    /// Arguments of the tool call as JSON text, collected from fragments.
    json: String,
    deferred: StreamedFieldFragments,
}

/// A fragment of a tool call, as received in one event.
#[derive(Debug, Default)]
struct ToolCallFragment {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Option<RawJson>,
    extra: JsonObject,
}

impl ToolCallsBuilder {
    /// Applies a JSON list of tool calls, from a delta or from a complete message. In a complete
    /// message every entry is a new call. Returns the number of bytes received.
    pub(super) fn apply_tool_calls(&mut self, calls_json: &str, is_complete: bool) -> Decoded<u64> {
        let calls_json = match calls_json.starts_with('{') {
            // Some servers send a single call instead of a list.
            true => format!("[{calls_json}]"),
            false => calls_json.to_owned(),
        };
        let pieces: Vec<&RawValue> = serde_json::from_str(&calls_json)
            .map_err(DecodeError::invalid_json("a reply has invalid tool calls"))?;
        let mut bytes = 0;
        for fragment in pieces.into_iter().filter(|fragment| is_non_empty_json_value(fragment)) {
            let fragment = ToolCallFragment::parse(fragment.get())?;
            bytes += self.apply_fragment(fragment, is_complete)?;
        }
        Ok(bytes)
    }

    /// Applies the field `function_call` of an older version of the API, which allows one call per
    /// reply. Returns the number of bytes received.
    pub(super) fn apply_function_call(&mut self, function_json: &str) -> Decoded<u64> {
        let index = format!(r#"{{"index":0,"function":{function_json}}}"#);
        self.apply_fragment(ToolCallFragment::parse(&index)?, false)
    }

    fn apply_fragment(&mut self, fragment: ToolCallFragment, is_complete: bool) -> Decoded<u64> {
        let found = match is_complete {
            true => None,
            false => self.find_call_position(&fragment),
        };
        let position = found.unwrap_or(self.calls.len());
        check_tool_call_count(position + 1)?;
        if let Some(index) = fragment.index {
            self.call_by_index.insert(index, position);
        }
        if found.is_none() {
            self.calls.push(PartialToolCall::default());
        }
        Ok(self.calls.get_mut(position).map_or(0, |call| call.append_fragment(fragment)))
    }

    /// Returns the position in `calls` of the call that a fragment belongs to. `None` means that
    /// the fragment starts a new call.
    fn find_call_position(&self, fragment: &ToolCallFragment) -> Option<usize> {
        if let Some(index) = fragment.index {
            let position = *self.call_by_index.get(&index)?;
            let call = self.calls.get(position)?;
            // Some servers give all calls the same index.
            let is_other_call =
                !call.id.is_empty() && !fragment.id.is_empty() && call.id != fragment.id;
            return (!is_other_call || fragment.name.is_empty()).then_some(position);
        }
        match (fragment.id.as_str(), fragment.name.as_str()) {
            ("", "") => self.calls.len().checked_sub(1),
            ("", _) => None,
            (id, _) => self.calls.iter().rposition(|call| call.id == id),
        }
    }

    /// Returns all tool calls of the reply, in the order in which they were started.
    pub(super) fn into_tool_calls(self) -> impl Iterator<Item = ToolCall> {
        self.calls.into_iter().map(PartialToolCall::into_tool_call)
    }
}

impl ToolCallFragment {
    fn parse(fragment_json: &str) -> Decoded<Self> {
        let mut rest = JsonObject::parse(fragment_json)
            .ok_or_else(|| DecodeError::malformed("a tool call is not an object"))?;
        // Some servers omit the object around name and arguments.
        let mut function = match rest.take_field("function").filter(is_not_null) {
            Some(function) => JsonObject::parse(function.as_str()).ok_or_else(|| {
                DecodeError::malformed("a tool call has a function that is not an object")
            })?,
            None => JsonObject::default(),
        };
        let mut take_from_either = |name: &str| {
            let outer = rest.take_field(name);
            function.take_field(name).or(outer).filter(is_not_null)
        };
        let (name, arguments) = (take_from_either("name"), take_from_either("arguments"));
        let index = rest.take_field("index");
        let id = rest.take_field("id");
        _ = rest.take_field("type");
        let mut extra = JsonObject::default();
        for (name, value) in rest.into_fields().into_iter().filter(|(_, value)| is_not_null(value))
        {
            extra.set_field(&name, value);
        }
        Ok(Self {
            index: index.and_then(|index| parse_lenient_u64(index.as_str())),
            id: json_string_or_empty(id.as_ref()),
            name: json_string_or_empty(name.as_ref()),
            arguments,
            extra,
        })
    }
}

impl PartialToolCall {
    /// Appends a fragment to the call and returns the number of bytes received.
    fn append_fragment(&mut self, fragment: ToolCallFragment) -> u64 {
        let before = self.received_byte_count();
        if self.id.is_empty() {
            self.id = fragment.id;
        }
        // Servers send the name once, repeat it with every fragment, repeat a longer version of it,
        // or send it in fragments.
        match fragment.name {
            name if name.starts_with(&self.name) => self.name = name,
            name => self.name.push_str(&name),
        }
        if let Some(arguments) = fragment.arguments {
            match serde_json::from_str::<String>(arguments.as_str()) {
                Ok(text) => self.json.push_str(&text),
                Err(_) => self.input = Some(arguments),
            }
        }
        for (name, value) in fragment.extra.into_fields() {
            self.deferred.add_fragment(&name, value);
        }
        self.received_byte_count().saturating_sub(before)
    }

    fn received_byte_count(&self) -> u64 {
        let input = self.input.as_ref().map_or(0, |input| input.as_str().len());
        (self.id.len() + self.name.len() + self.json.len() + input) as u64
    }

    fn into_tool_call(self) -> ToolCall {
        let mut fields = JsonObject::default();
        self.deferred.merge_into(&mut fields);
        ToolCall {
            id: self.id,
            name: self.name,
            input: parse_tool_arguments(self.input, &self.json),
            extra: fields.to_json(),
        }
    }
}

fn is_not_null(value: &RawJson) -> bool {
    value.as_str() != "null"
}

fn json_string_or_empty(value: Option<&RawJson>) -> String {
    let text = value.and_then(|value| serde_json::from_str(value.as_str()).ok());
    text.unwrap_or_default()
}
