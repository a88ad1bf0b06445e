//! One block of a reply while it comes in.
//!
//! Never: loses a field that it does not know, or the spelling of one.

use longhaul_core::message::{Block, Thinking, ToolCall, Words};
use longhaul_core::raw::RawJson;

use crate::arguments::arguments;
use crate::fault::Fault;
use crate::fields::{Fields, Later};
use crate::object::Object;

/// A block that may still grow.
#[derive(Debug)]
pub(super) struct Open {
    kind: Kind,
    /// What is known of it, without what `kind` holds.
    fields: Fields,
    /// What deltas of unknown kinds add.
    later: Later,
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
    const fn own_fields(&self) -> &'static [&'static str] {
        match self {
            Self::Text(_) => &["type", "text"],
            Self::Thinking { .. } => &["type", "thinking", "signature"],
            Self::Call { .. } => &["type", "id", "name", "input"],
            Self::Other { .. } => &[],
        }
    }
}

impl Open {
    /// A block as it begins.
    pub(super) fn new(raw: &str) -> Result<Self, String> {
        let whole = RawJson::parse(raw).map_err(|bad| bad.to_string())?;
        if !whole.as_str().starts_with('{') {
            return Err("a block that is no object".to_owned());
        }
        let mut fields = Fields::read(raw).unwrap_or_default();
        let kind = fields.get("type").map(RawJson::as_str).unwrap_or_default();
        let kind = match kind {
            r#""text""# => Kind::Text(fields.take_text("text").unwrap_or_default()),
            r#""thinking""# => Kind::Thinking {
                text: fields.take_text("thinking").unwrap_or_default(),
                signature: fields
                    .take_text("signature")
                    .filter(|seal| !seal.is_empty()),
            },
            r#""tool_use""# => Kind::Call {
                id: fields.take_text("id").unwrap_or_default(),
                name: fields.take_text("name").unwrap_or_default(),
                input: fields.take("input"),
                json: String::new(),
            },
            _ => Kind::Other {
                raw: whole,
                json: String::new(),
            },
        };
        Ok(Self {
            kind,
            fields,
            later: Later::default(),
        })
    }

    /// A text whose beginning was left out.
    pub(super) fn text() -> Self {
        Self {
            kind: Kind::Text(String::new()),
            fields: Fields::default(),
            later: Later::default(),
        }
    }

    /// Whether it is a call.
    pub(super) const fn is_call(&self) -> bool {
        matches!(self.kind, Kind::Call { .. })
    }

    /// The words for the reader so far.
    pub(super) fn words(&self) -> &str {
        match &self.kind {
            Kind::Text(text) => text,
            Kind::Thinking { .. } | Kind::Call { .. } | Kind::Other { .. } => "",
        }
    }

    /// Grows by a delta of this kind, and says which words of it are for the reader, and
    /// how many bytes it has.
    pub(super) fn grow(
        &mut self,
        kind: &str,
        delta: &Object<'_>,
        raw: &str,
    ) -> Result<(String, u64), Fault> {
        let field = match kind {
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "signature_delta" => "signature",
            "input_json_delta" => "partial_json",
            _ => "",
        };
        let more = delta.said(field)?.unwrap_or_default();
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
                    self.later.add("citations", citation);
                }
            }
            _ => self.grow_unknown(raw),
        }
        Ok((String::new(), bytes))
    }

    fn grow_unknown(&mut self, raw: &str) {
        let pairs = Fields::read(raw).unwrap_or_default().into_pairs();
        for (name, value) in pairs.into_iter().filter(|(name, _)| name != "type") {
            self.later.add(&name, value);
        }
    }

    /// The block as it stands at the end.
    pub(super) fn close(self) -> Block {
        let Self {
            kind,
            mut fields,
            later,
        } = self;
        let untouched = later.is_empty();
        later.settle(&mut fields);
        for name in kind.own_fields() {
            _ = fields.take(name);
        }
        match kind {
            Kind::Text(text) => Block::Text(Words {
                text: text.into(),
                extra: fields.raw(),
            }),
            Kind::Thinking { text, signature } => Block::Thinking(Thinking {
                text: text.into(),
                signature: signature.map(Into::into),
                extra: fields.raw(),
            }),
            Kind::Call {
                id,
                name,
                input,
                json,
            } => Block::ToolCall(ToolCall {
                id,
                name,
                input: arguments(input, &json),
                extra: fields.raw(),
            }),
            Kind::Other { raw, json } if untouched && json.is_empty() => Block::Other(raw),
            Kind::Other { raw, json } => {
                if !json.is_empty() {
                    fields.set("input", arguments(None, &json));
                }
                Block::Other(fields.raw().unwrap_or(raw))
            }
        }
    }
}
