//! The calls of a reply while they come in, in the many ways that servers send
//! them: by index, by id, by name, in pieces or whole.
//!
//! Never: more calls than a turn can hold, or room for an index that is only named.

use std::collections::BTreeMap;

use longhaul_core::message::ToolCall;
use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;

use crate::arguments::{arguments, check_count, count_in, says};
use crate::fault::Fault;
use crate::fields::{Fields, Later};

/// The fields of a call that are written from what is known.
const KNOWN: &[&str] = &["index", "id", "type", "function", "name", "arguments"];

/// The calls so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Vec<Call>,
    /// Which call has which index; a new one takes it from an old one.
    places: BTreeMap<u64, usize>,
}

/// A call that may still grow.
#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    /// The arguments where they came as JSON and not as a text of JSON.
    input: Option<RawJson>,
    /// The arguments as they come.
    json: String,
    fields: Fields,
    later: Later,
}

/// What is added to a call.
#[derive(Debug, Default)]
struct Piece {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Option<RawJson>,
    rest: Fields,
}

impl Calls {
    /// Hears the calls of a delta, or all of a message, where each stands for
    /// itself. Says how many bytes that are.
    pub(super) fn hear(&mut self, list: &str, whole: bool) -> Result<u64, Fault> {
        let list = match list.starts_with('{') {
            // One call where a list of them should stand.
            true => format!("[{list}]"),
            false => list.to_owned(),
        };
        let pieces: Vec<&RawValue> = serde_json::from_str(&list)
            .map_err(|bad| Fault::Nonsense(format!("the calls of a reply: {bad}")))?;
        let mut bytes = 0;
        for piece in pieces.into_iter().filter(|piece| says(piece)) {
            let piece = Piece::read(piece.get())?;
            bytes += self.add(piece, whole)?;
        }
        Ok(bytes)
    }

    /// Hears the one call of an API that is older than lists of them.
    pub(super) fn hear_function(&mut self, function: &str) -> Result<u64, Fault> {
        let index = format!(r#"{{"index":0,"function":{function}}}"#);
        self.add(Piece::read(&index)?, false)
    }

    fn add(&mut self, piece: Piece, whole: bool) -> Result<u64, Fault> {
        let known = match whole {
            true => None,
            false => self.place(&piece),
        };
        let place = known.unwrap_or(self.all.len());
        check_count(place + 1)?;
        if let Some(index) = piece.index {
            self.places.insert(index, place);
        }
        if known.is_none() {
            self.all.push(Call::default());
        }
        Ok(self.all.get_mut(place).map_or(0, |call| call.grow(piece)))
    }

    /// The call that a piece belongs to; none: it begins a new one.
    fn place(&self, piece: &Piece) -> Option<usize> {
        if let Some(index) = piece.index {
            let place = *self.places.get(&index)?;
            let call = self.all.get(place)?;
            // Some servers give all calls the same index.
            let is_other = !call.id.is_empty() && !piece.id.is_empty() && call.id != piece.id;
            return (!is_other || piece.name.is_empty()).then_some(place);
        }
        match (piece.id.as_str(), piece.name.as_str()) {
            ("", "") => self.all.len().checked_sub(1),
            ("", _) => None,
            (id, _) => self.all.iter().rposition(|call| call.id == id),
        }
    }

    /// The calls as they stand at the end.
    pub(super) fn close(self) -> impl Iterator<Item = ToolCall> {
        self.all.into_iter().map(Call::close)
    }
}

impl Piece {
    fn read(raw: &str) -> Result<Self, Fault> {
        let nonsense = |what: &str| Fault::Nonsense(format!("a call {what}"));
        let mut rest = Fields::read(raw).ok_or_else(|| nonsense("that is no object"))?;
        let function = rest.take("function").filter(is_there);
        // Some servers leave out the object around name and arguments.
        let mut function = match function {
            Some(function) => Fields::read(function.as_str())
                .ok_or_else(|| nonsense("whose function is no object"))?,
            None => Fields::default(),
        };
        let mut either = |name: &str| {
            let found = function.take(name).or_else(|| rest.take(name));
            found.filter(is_there)
        };
        let (name, arguments) = (either("name"), either("arguments"));
        let index = rest.take("index");
        let id = rest.take("id");
        let mut kept = Fields::default();
        for (name, value) in rest.into_pairs() {
            if !KNOWN.contains(&&*name) && is_there(&value) {
                kept.set(&name, value);
            }
        }
        Ok(Self {
            index: index.and_then(|index| count_in(index.as_str())),
            id: text(id.as_ref()),
            name: text(name.as_ref()),
            arguments,
            rest: kept,
        })
    }
}

impl Call {
    /// Grows by a piece, and says by how many bytes.
    fn grow(&mut self, piece: Piece) -> u64 {
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
        for (name, value) in piece.rest.into_pairs() {
            self.later.add(&name, value);
        }
        self.bytes().saturating_sub(before)
    }

    fn bytes(&self) -> u64 {
        let input = self.input.as_ref().map_or(0, |input| input.as_str().len());
        (self.id.len() + self.name.len() + self.json.len() + input) as u64
    }

    fn close(self) -> ToolCall {
        let mut fields = self.fields;
        self.later.settle(&mut fields);
        ToolCall {
            id: self.id,
            name: self.name,
            input: arguments(self.input, &self.json),
            extra: fields.raw(),
        }
    }
}

fn is_there(value: &RawJson) -> bool {
    value.as_str() != "null"
}

/// A text; anything else is an empty one.
fn text(value: Option<&RawJson>) -> String {
    let text = value.and_then(|value| serde_json::from_str(value.as_str()).ok());
    text.unwrap_or_default()
}
