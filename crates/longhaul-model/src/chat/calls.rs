//! The calls of a reply while they come in, in the many ways that servers send
//! them: by index, by id, by name, in pieces or whole.
//!
//! Never: more calls than a turn can hold, or room for an index that is only named.

use std::collections::BTreeMap;

use longhaul_core::message::ToolCall;
use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;

use crate::decode_error::DecodeError;
use crate::json_object::{DeferredFields, JsonObject};
use crate::lenient_json::{check_call_count, is_present, parse_arguments, parse_count};

/// The fields of a call that are written from what is known.
const KNOWN_FIELDS: &[&str] = &["index", "id", "type", "function", "name", "arguments"];

/// The calls so far.
#[derive(Debug, Default)]
pub(super) struct CallsBuilder {
    calls: Vec<PartialCall>,
    /// Which call has which index; a new one takes it from an old one.
    call_by_index: BTreeMap<u64, usize>,
}

/// A call that may still grow.
#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    name: String,
    /// The arguments where they came as JSON and not as a text of JSON.
    input: Option<RawJson>,
    /// The arguments as they come.
    json: String,
    fields: JsonObject,
    deferred: DeferredFields,
}

/// What is added to a call.
#[derive(Debug, Default)]
struct CallFragment {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Option<RawJson>,
    extra: JsonObject,
}

impl CallsBuilder {
    /// Hears the calls of a delta, or all of a message, where each stands for
    /// itself. Says how many bytes that are.
    pub(super) fn apply(&mut self, list: &str, whole: bool) -> Result<u64, DecodeError> {
        let list = match list.starts_with('{') {
            // One call where a list of them should stand.
            true => format!("[{list}]"),
            false => list.to_owned(),
        };
        let pieces: Vec<&RawValue> = serde_json::from_str(&list)
            .map_err(|bad| DecodeError::Malformed(format!("the calls of a reply: {bad}")))?;
        let mut bytes = 0;
        for piece in pieces.into_iter().filter(|piece| is_present(piece)) {
            let piece = CallFragment::parse(piece.get())?;
            bytes += self.apply_fragment(piece, whole)?;
        }
        Ok(bytes)
    }

    /// Hears the one call of an API that is older than lists of them.
    pub(super) fn apply_function_call(&mut self, function: &str) -> Result<u64, DecodeError> {
        let index = format!(r#"{{"index":0,"function":{function}}}"#);
        self.apply_fragment(CallFragment::parse(&index)?, false)
    }

    fn apply_fragment(&mut self, piece: CallFragment, whole: bool) -> Result<u64, DecodeError> {
        let known = match whole {
            true => None,
            false => self.find_call(&piece),
        };
        let place = known.unwrap_or(self.calls.len());
        check_call_count(place + 1)?;
        if let Some(index) = piece.index {
            self.call_by_index.insert(index, place);
        }
        if known.is_none() {
            self.calls.push(PartialCall::default());
        }
        Ok(self.calls.get_mut(place).map_or(0, |call| call.append(piece)))
    }

    /// The call that a piece belongs to; none: it begins a new one.
    fn find_call(&self, piece: &CallFragment) -> Option<usize> {
        if let Some(index) = piece.index {
            let place = *self.call_by_index.get(&index)?;
            let call = self.calls.get(place)?;
            // Some servers give all calls the same index.
            let is_other = !call.id.is_empty() && !piece.id.is_empty() && call.id != piece.id;
            return (!is_other || piece.name.is_empty()).then_some(place);
        }
        match (piece.id.as_str(), piece.name.as_str()) {
            ("", "") => self.calls.len().checked_sub(1),
            ("", _) => None,
            (id, _) => self.calls.iter().rposition(|call| call.id == id),
        }
    }

    /// The calls as they stand at the end.
    pub(super) fn finish(self) -> impl Iterator<Item = ToolCall> {
        self.calls.into_iter().map(PartialCall::finish)
    }
}

impl CallFragment {
    fn parse(raw: &str) -> Result<Self, DecodeError> {
        let nonsense = |what: &str| DecodeError::Malformed(format!("a call {what}"));
        let mut rest = JsonObject::parse(raw).ok_or_else(|| nonsense("that is no object"))?;
        let function = rest.take("function").filter(is_not_null);
        // Some servers leave out the object around name and arguments.
        let mut function = match function {
            Some(function) => JsonObject::parse(function.as_str())
                .ok_or_else(|| nonsense("whose function is no object"))?,
            None => JsonObject::default(),
        };
        let mut either = |name: &str| {
            let found = function.take(name).or_else(|| rest.take(name));
            found.filter(is_not_null)
        };
        let (name, arguments) = (either("name"), either("arguments"));
        let index = rest.take("index");
        let id = rest.take("id");
        let mut kept = JsonObject::default();
        for (name, value) in rest.into_pairs() {
            if !KNOWN_FIELDS.contains(&&*name) && is_not_null(&value) {
                kept.set(&name, value);
            }
        }
        Ok(Self {
            index: index.and_then(|index| parse_count(index.as_str())),
            id: text_or_empty(id.as_ref()),
            name: text_or_empty(name.as_ref()),
            arguments,
            extra: kept,
        })
    }
}

impl PartialCall {
    /// Grows by a piece, and says by how many bytes.
    fn append(&mut self, piece: CallFragment) -> u64 {
        let before = self.bytes();
        if self.id.is_empty() {
            self.id = piece.id;
        }
        // A name comes once, or again with every piece, or again and longer, or
        // in pieces.
        match piece.name {
            name if name.starts_with(&self.name) => self.name = name,
            name => self.name.push_str(&name),
        }
        if let Some(arguments) = piece.arguments {
            match serde_json::from_str::<String>(arguments.as_str()) {
                Ok(more) => self.json.push_str(&more),
                Err(_) => self.input = Some(arguments),
            }
        }
        for (name, value) in piece.extra.into_pairs() {
            self.deferred.add(&name, value);
        }
        self.bytes().saturating_sub(before)
    }

    fn bytes(&self) -> u64 {
        let input = self.input.as_ref().map_or(0, |input| input.as_str().len());
        (self.id.len() + self.name.len() + self.json.len() + input) as u64
    }

    fn finish(self) -> ToolCall {
        let mut fields = self.fields;
        self.deferred.apply_to(&mut fields);
        ToolCall {
            id: self.id,
            name: self.name,
            input: parse_arguments(self.input, &self.json),
            extra: fields.to_raw(),
        }
    }
}

fn is_not_null(value: &RawJson) -> bool {
    value.as_str() != "null"
}

/// A text; anything else is an empty one.
fn text_or_empty(value: Option<&RawJson>) -> String {
    let text = value.and_then(|value| serde_json::from_str(value.as_str()).ok());
    text.unwrap_or_default()
}
