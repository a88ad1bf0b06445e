//! Collects the `reasoning_details` of a reply. They come in fragments and are sent back complete,
//! because the signature in a detail is only valid for the complete detail.
//!
//! Invariant: only fragments of the same detail are joined, and their content is not interpreted.

use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;

use crate::json_object::{JsonObject, StreamedFieldFragments};

/// Fields of a detail whose fragments are appended to each other. Of any other field the last value
/// is used.
const APPENDED_FIELDS: &[&str] = &["text", "summary", "data"];

/// Maximum number of reasoning details per reply. Further details are ignored.
const DETAILS_MAX: usize = 1_024;

/// Reasoning details of a reply, as far as received.
#[derive(Debug, Default)]
pub(super) struct ReasoningDetails(Vec<ReasoningDetail>);

#[derive(Debug, Default)]
struct ReasoningDetail {
    fields: JsonObject,
    deferred: StreamedFieldFragments,
}

impl ReasoningDetails {
    /// Applies a JSON list of fragments of reasoning details. Returns false if the value is not a
    /// list.
    pub(super) fn try_apply_fragments(&mut self, fragments_json: &str) -> bool {
        let Ok(pieces) = serde_json::from_str::<Vec<&RawValue>>(fragments_json) else {
            return false;
        };
        for piece in pieces {
            if let Some(piece) = JsonObject::parse(piece.get()) {
                self.add_fragment_to_detail(piece);
            }
        }
        true
    }

    fn add_fragment_to_detail(&mut self, fragment: JsonObject) {
        let is_same_detail = |detail: &&mut ReasoningDetail| {
            let has_same = |name: &str| detail.fields.get(name) == fragment.get(name);
            fragment.get("index").is_some() && has_same("index") && has_same("type")
        };
        let is_full = self.0.len() >= DETAILS_MAX;
        match self.0.last_mut().filter(is_same_detail) {
            Some(last) => last.append_fragment(fragment),
            None if is_full => {}
            None => self.0.push(ReasoningDetail {
                fields: fragment,
                deferred: StreamedFieldFragments::default(),
            }),
        }
    }

    /// Returns all reasoning details as one JSON list. `None` means that there are no details.
    pub(super) fn into_json(self) -> Option<RawJson> {
        let details = self.0.into_iter().filter_map(ReasoningDetail::into_detail_json);
        let details: Vec<String> = details.map(|detail| detail.as_str().to_owned()).collect();
        let list = (!details.is_empty()).then(|| format!("[{}]", details.join(",")));
        RawJson::parse(list?).ok()
    }
}

impl ReasoningDetail {
    fn append_fragment(&mut self, fragment: JsonObject) {
        for (name, value) in fragment.into_fields() {
            match value.as_str() {
                "null" => {}
                _ if APPENDED_FIELDS.contains(&&*name) => self.deferred.add_fragment(&name, value),
                _ => self.fields.set_field(&name, value),
            }
        }
    }

    fn into_detail_json(mut self) -> Option<RawJson> {
        self.deferred.merge_into(&mut self.fields);
        self.fields.to_json()
    }
}
