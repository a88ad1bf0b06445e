//! Builder for one content block of a streamed reply.
//!
//! Invariant: unknown fields are preserved byte for byte.

use longhaul_core::message::{Block, TextBlock, ThinkingBlock, ToolCall};
use longhaul_core::raw::RawJson;

use crate::decode_error::{DecodeError, Decoded};
use crate::json_object::{JsonObject, StreamedFieldFragments};
use crate::lenient_json::parse_tool_arguments;
use crate::lenient_object::LenientObject;

/// Builder of a content block, by default of an empty text block. The block may still receive
/// deltas, which are the fragments of a streamed block.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    kind: BlockKind,
    /// Fields of the block's JSON, except those stored in `kind`.
    fields: JsonObject,
    /// Fields that citations and deltas of unknown types have added. They are merged into `fields`
    /// when the block is finished.
    deferred: StreamedFieldFragments,
}

#[derive(Debug)]
enum BlockKind {
    Text(String),
    Thinking {
        text: String,
        signature: Option<String>,
    },
    Call {
        id: String,
        name: String,
        /// Arguments of the tool call, if the start event contained them completely.
        input: Option<RawJson>,
        /// Arguments of the tool call as JSON text, collected from deltas.
        json: String,
    },
    /// A block of any other type, unchanged. `json` collects the streamed input of a tool that the
    /// provider runs itself.
    Other {
        raw: RawJson,
        json: String,
    },
}

impl Default for BlockKind {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl BlockKind {
    /// Returns the names of the JSON fields that this kind of block stores in its own Rust fields.
    /// They are removed from the block's other fields.
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
    /// Parses the JSON of a block, from a start event or from a complete reply.
    pub(super) fn from_json(block_json: &str) -> Decoded<Self> {
        let raw_block = RawJson::parse(block_json)
            .map_err(|error| DecodeError::Malformed(error.to_string()))?;
        if !raw_block.as_str().starts_with('{') {
            return Err(DecodeError::malformed("a block is not an object"));
        }
        let mut fields = JsonObject::parse(block_json).unwrap_or_default();
        let kind = fields.get("type").map(RawJson::as_str).unwrap_or_default();
        let kind = match kind {
            r#""text""# => BlockKind::Text(fields.take_string_field("text").unwrap_or_default()),
            r#""thinking""# => BlockKind::Thinking {
                text: fields.take_string_field("thinking").unwrap_or_default(),
                signature: fields
                    .take_string_field("signature")
                    .filter(|signature| !signature.is_empty()),
            },
            r#""tool_use""# => BlockKind::Call {
                id: fields.take_string_field("id").unwrap_or_default(),
                name: fields.take_string_field("name").unwrap_or_default(),
                input: fields.take_field("input"),
                json: String::new(),
            },
            _ => BlockKind::Other { raw: raw_block, json: String::new() },
        };
        Ok(Self { kind, fields, deferred: StreamedFieldFragments::default() })
    }

    /// Whether the content block is a tool call.
    pub(super) const fn is_tool_call(&self) -> bool {
        matches!(self.kind, BlockKind::Call { .. })
    }

    /// Returns the user-visible text of the block, as far as received.
    pub(super) fn visible_text(&self) -> &str {
        match &self.kind {
            BlockKind::Text(text) => text,
            BlockKind::Thinking { .. } | BlockKind::Call { .. } | BlockKind::Other { .. } => "",
        }
    }

    /// Applies a delta of the given type, which is a fragment of the block. Returns the
    /// user-visible text that the delta adds and the size of the delta in bytes.
    pub(super) fn apply_delta(&mut self, kind: &str, delta_json: &str) -> Decoded<(String, u64)> {
        let delta = LenientObject::parse(delta_json)
            .map_err(DecodeError::invalid_json("an event has an invalid `delta`"))?;
        let field = match kind {
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "signature_delta" => "signature",
            "input_json_delta" => "partial_json",
            _ => "",
        };
        let fragment = delta.try_string_field(field)?.unwrap_or_default();
        let bytes = match kind {
            // Signatures don't count as output tokens.
            "signature_delta" => 0,
            _ => fragment.len() as u64,
        };
        match (&mut self.kind, kind) {
            (BlockKind::Text(text), "text_delta") => {
                text.push_str(&fragment);
                return Ok((fragment, bytes));
            }
            (BlockKind::Thinking { text, .. }, "thinking_delta") => text.push_str(&fragment),
            (BlockKind::Thinking { signature, .. }, "signature_delta") => {
                *signature = (!fragment.is_empty()).then_some(fragment);
            }
            (BlockKind::Call { json, .. } | BlockKind::Other { json, .. }, "input_json_delta") => {
                json.push_str(&fragment);
            }
            (_, "citations_delta") => {
                let citation = delta.raw_field("citation").map(|raw| format!("[{}]", raw.get()));
                if let Some(Ok(citation)) = citation.map(RawJson::parse) {
                    self.deferred.add_fragment("citations", citation);
                }
            }
            _ => {
                let pairs = JsonObject::parse(delta_json).unwrap_or_default().into_fields();
                for (name, value) in pairs.into_iter().filter(|(name, _)| name != "type") {
                    self.deferred.add_fragment(&name, value);
                }
            }
        }
        Ok((String::new(), bytes))
    }

    /// Returns the finished content block.
    pub(super) fn into_content_block(self) -> Block {
        let Self { kind, mut fields, deferred } = self;
        let is_unchanged = deferred.is_empty();
        deferred.merge_into(&mut fields);
        for name in kind.known_fields() {
            _ = fields.take_field(name);
        }
        match kind {
            BlockKind::Text(text) => {
                Block::Text(TextBlock { text: text.into(), extra: fields.to_json() })
            }
            BlockKind::Thinking { text, signature } => Block::Thinking(ThinkingBlock {
                text: text.into(),
                signature: signature.map(Into::into),
                extra: fields.to_json(),
            }),
            BlockKind::Call { id, name, input, json } => Block::ToolCall(ToolCall {
                id,
                name,
                input: parse_tool_arguments(input, &json),
                extra: fields.to_json(),
            }),
            BlockKind::Other { raw, json } if is_unchanged && json.is_empty() => Block::Other(raw),
            BlockKind::Other { raw, json } => {
                if !json.is_empty() {
                    fields.set_field("input", parse_tool_arguments(None, &json));
                }
                Block::Other(fields.to_json().unwrap_or(raw))
            }
        }
    }
}
