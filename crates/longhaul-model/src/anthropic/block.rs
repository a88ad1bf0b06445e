//! One block of a reply while it comes in.
//!
//! Never: loses a field that it does not know, or the spelling of one.

use longhaul_core::message::{Block, TextBlock, ThinkingBlock, ToolCall};
use longhaul_core::raw::RawJson;

use crate::decode_error::DecodeError;
use crate::json_object::{DeferredFields, JsonObject};
use crate::lenient_json::parse_arguments;
use crate::lenient_object::LenientObject;

/// A block that may still grow.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    kind: Kind,
    /// What is known of it, without what `kind` holds.
    fields: JsonObject,
    /// What deltas of unknown kinds add.
    deferred: DeferredFields,
}

#[derive(Debug)]
enum Kind {
    Text(String),
    Thinking {
        text: String,
        signature: Option<String>,
    },
    Call {
        id: String,
        name: String,
        /// The arguments where they came whole.
        input: Option<RawJson>,
        /// The arguments as they come.
        json: String,
    },
    /// As it came, with the arguments of a tool that the provider uses itself.
    Other {
        raw: RawJson,
        json: String,
    },
}

impl Kind {
    /// The fields that are written from what is known, and so never stand among
    /// the others.
    const fn known_fields(&self) -> &'static [&'static str] {
        match self {
            Self::Text(_) => &["type", "text"],
            Self::Thinking { .. } => &["type", "thinking", "signature"],
            Self::Call { .. } => &["type", "id", "name", "input"],
            Self::Other { .. } => &[],
        }
    }
}

impl BlockBuilder {
    /// A block as it begins.
    pub(super) fn new(raw: &str) -> Result<Self, String> {
        let whole = RawJson::parse(raw).map_err(|bad| bad.to_string())?;
        if !whole.as_str().starts_with('{') {
            return Err("a block that is no object".to_owned());
        }
        let mut fields = JsonObject::parse(raw).unwrap_or_default();
        let kind = fields.get("type").map(RawJson::as_str).unwrap_or_default();
        let kind = match kind {
            r#""text""# => Kind::Text(fields.take_text("text").unwrap_or_default()),
            r#""thinking""# => Kind::Thinking {
                text: fields.take_text("thinking").unwrap_or_default(),
                signature: fields.take_text("signature").filter(|seal| !seal.is_empty()),
            },
            r#""tool_use""# => Kind::Call {
                id: fields.take_text("id").unwrap_or_default(),
                name: fields.take_text("name").unwrap_or_default(),
                input: fields.take("input"),
                json: String::new(),
            },
            _ => Kind::Other { raw: whole, json: String::new() },
        };
        Ok(Self { kind, fields, deferred: DeferredFields::default() })
    }

    /// A text whose beginning was left out.
    pub(super) fn new_text() -> Self {
        Self {
            kind: Kind::Text(String::new()),
            fields: JsonObject::default(),
            deferred: DeferredFields::default(),
        }
    }

    /// Whether it is a call.
    pub(super) const fn is_call(&self) -> bool {
        matches!(self.kind, Kind::Call { .. })
    }

    /// The words for the reader so far.
    pub(super) fn visible_text(&self) -> &str {
        match &self.kind {
            Kind::Text(text) => text,
            Kind::Thinking { .. } | Kind::Call { .. } | Kind::Other { .. } => "",
        }
    }

    /// Grows by a delta of this kind, and says which words of it are for the reader, and
    /// how many bytes it has.
    pub(super) fn apply_delta(
        &mut self,
        kind: &str,
        delta: &LenientObject<'_>,
        raw: &str,
    ) -> Result<(String, u64), DecodeError> {
        let field = match kind {
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "signature_delta" => "signature",
            "input_json_delta" => "partial_json",
            _ => "",
        };
        let more = delta.strict_text(field)?.unwrap_or_default();
        let bytes = match kind {
            // No token of the reply.
            "signature_delta" => 0,
            _ => more.len() as u64,
        };
        match (&mut self.kind, kind) {
            (Kind::Text(text), "text_delta") => {
                text.push_str(&more);
                return Ok((more, bytes));
            }
            (Kind::Thinking { text, .. }, "thinking_delta") => text.push_str(&more),
            (Kind::Thinking { signature, .. }, "signature_delta") => {
                *signature = (!more.is_empty()).then_some(more);
            }
            (Kind::Call { json, .. } | Kind::Other { json, .. }, "input_json_delta") => {
                json.push_str(&more);
            }
            (_, "citations_delta") => {
                let citation = delta.raw("citation").map(|raw| format!("[{}]", raw.get()));
                if let Some(Ok(citation)) = citation.map(RawJson::parse) {
                    self.deferred.add("citations", citation);
                }
            }
            _ => self.apply_unknown_delta(raw),
        }
        Ok((String::new(), bytes))
    }

    fn apply_unknown_delta(&mut self, raw: &str) {
        let pairs = JsonObject::parse(raw).unwrap_or_default().into_pairs();
        for (name, value) in pairs.into_iter().filter(|(name, _)| name != "type") {
            self.deferred.add(&name, value);
        }
    }

    /// The block as it stands at the end.
    pub(super) fn finish(self) -> Block {
        let Self { kind, mut fields, deferred: later } = self;
        let untouched = later.is_empty();
        later.apply_to(&mut fields);
        for name in kind.known_fields() {
            _ = fields.take(name);
        }
        match kind {
            Kind::Text(text) => {
                Block::Text(TextBlock { text: text.into(), extra: fields.to_raw() })
            }
            Kind::Thinking { text, signature } => Block::Thinking(ThinkingBlock {
                text: text.into(),
                signature: signature.map(Into::into),
                extra: fields.to_raw(),
            }),
            Kind::Call { id, name, input, json } => Block::ToolCall(ToolCall {
                id,
                name,
                input: parse_arguments(input, &json),
                extra: fields.to_raw(),
            }),
            Kind::Other { raw, json } if untouched && json.is_empty() => Block::Other(raw),
            Kind::Other { raw, json } => {
                if !json.is_empty() {
                    fields.set("input", parse_arguments(None, &json));
                }
                Block::Other(fields.to_raw().unwrap_or(raw))
            }
        }
    }
}
