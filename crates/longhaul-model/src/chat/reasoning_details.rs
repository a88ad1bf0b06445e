//! The `reasoning_details` of a reply, which come in pieces and go back whole:
//! what is sealed in them is only valid as one.
//!
//! Never: joins pieces of two thoughts, or reads what they say.

use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;

use crate::json_object::{DeferredFields, JsonObject};

/// What grows; of anything else the last word counts.
const APPENDED_FIELDS: &[&str] = &["text", "summary", "data"];

/// More thoughts than a reply has. What comes behind them is left out.
const DETAILS_MAX: usize = 1_024;

/// The thoughts so far.
#[derive(Debug, Default)]
pub(super) struct ReasoningDetails(Vec<ReasoningDetail>);

#[derive(Debug, Default)]
struct ReasoningDetail {
    fields: JsonObject,
    deferred: DeferredFields,
}

impl ReasoningDetails {
    /// Hears a list; false: it is none.
    pub(super) fn apply(&mut self, list: &str) -> bool {
        let Ok(pieces) = serde_json::from_str::<Vec<&RawValue>>(list) else {
            return false;
        };
        for piece in pieces {
            if let Some(piece) = JsonObject::parse(piece.get()) {
                self.add(piece);
            }
        }
        true
    }

    fn add(&mut self, piece: JsonObject) {
        let same = |detail: &&mut ReasoningDetail| {
            let alike = |name: &str| detail.fields.get(name) == piece.get(name);
            piece.get("index").is_some() && alike("index") && alike("type")
        };
        let is_full = self.0.len() >= DETAILS_MAX;
        match self.0.last_mut().filter(same) {
            Some(last) => last.append(piece),
            None if is_full => {}
            None => {
                self.0.push(ReasoningDetail { fields: piece, deferred: DeferredFields::default() })
            }
        }
    }

    /// All of them as one list; none: there are none.
    pub(super) fn into_raw(self) -> Option<RawJson> {
        let all = self.0.into_iter().filter_map(ReasoningDetail::finish);
        let all: Vec<String> = all.map(|detail| detail.as_str().to_owned()).collect();
        let list = (!all.is_empty()).then(|| format!("[{}]", all.join(",")));
        RawJson::parse(list?).ok()
    }
}

impl ReasoningDetail {
    fn append(&mut self, piece: JsonObject) {
        for (name, value) in piece.into_pairs() {
            match value.as_str() {
                "null" => {}
                _ if APPENDED_FIELDS.contains(&&*name) => self.deferred.add(&name, value),
                _ => self.fields.set(&name, value),
            }
        }
    }

    fn finish(mut self) -> Option<RawJson> {
        self.deferred.apply_to(&mut self.fields);
        self.fields.to_raw()
    }
}
