//! Models behind the Responses API of OpenAI and of compatible servers.
//!
//! Invariant: the provider is never asked to store a conversation: every request contains the whole
//! conversation. Reasoning is never sent without the item that it led to, and the bytes of
//! arguments, encrypted reasoning and unknown items are never changed.

mod blocks;
mod decode;
mod include;
mod item;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;

use longhaul_core::message::{Block, Part, Reply, TextBlock, ThinkingBlock, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{ModelAdapter, ProviderApi, RequestParts};
use crate::call_ids::{self, ToolCallIds};
use crate::conversation::{MessageEncoder, Pieces, Role, is_non_empty_part};
use crate::http::HttpClient;
use crate::images::{EncodedImages, image_placeholder_text};
use crate::json_object::JsonObject;
use crate::lenient_json::tool_arguments_as_object;
use crate::responses::decode::StreamDecoder;
use crate::responses::wire::USAGE;
use crate::settings::{AuthScheme, ModelSettings, OpenedModel, SettingsError};
use crate::token_counts::UsageJsonPaths;
use crate::tool_table::ToolTableRow;

/// Maximum number of characters of a tool name in a request.
const NAME_MAX: usize = 128;

/// Name of the Responses API, part of the label that is stored with each reply.
const API_NAME: &str = "responses";

/// The Responses API of one provider.
#[derive(Debug)]
struct ResponsesApi {
    /// Value of the field `include` in requests. `None` means that the field is not sent.
    include: Option<RawJson>,
    /// Label of this API and its provider, such as `responses:openai`, which is stored with each
    /// reply.
    label: String,
}

/// Minimum value of `max_output_tokens` that the API accepts in a request.
const OUTPUT_TOKENS_MIN: u64 = 16;

/// Creates a model that uses the Responses API. `clock` is used to interpret times in response
/// headers.
pub fn new_model(
    http: HttpClient,
    mut settings: ModelSettings,
    clock: Arc<dyn Clock>,
) -> OpenedModel {
    let include = include::take_include(&mut settings)?;
    let api = settings.api_label(API_NAME);
    let wire = ResponsesApi { include, label: api };
    Ok(Arc::new(ModelAdapter::new(wire, http, settings, clock)?))
}

/// Returns an error if the user has set a request field that only the adapter may set. Sends no
/// request.
pub fn check_request_fields(settings: &ModelSettings) -> Result<(), SettingsError> {
    include::take_include(&mut settings.clone())?;
    settings.reject_reserved(ResponsesApi::RESERVED_FIELDS)
}

impl ProviderApi for ResponsesApi {
    type Decoder = StreamDecoder;

    const USAGE: &'static UsageJsonPaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("v1", "responses");

    const AUTH_SCHEME: AuthScheme = AuthScheme::Bearer;

    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    /// Request fields that the user can't set. The last four would make the provider store the
    /// conversation, or run the request in the background.
    const RESERVED_FIELDS: &'static [&'static str] = &[
        "model",
        "max_output_tokens",
        "input",
        "instructions",
        "stream",
        "tools",
        "store",
        "previous_response_id",
        "conversation",
        "background",
    ];

    const CONVERSATION_FIELD: &'static str = "input";

    fn api_label(&self) -> &str {
        &self.label
    }

    fn encode_system_prompt(&self, prompt: &str) -> RawJson {
        RawJson::from_serialize(&prompt)
    }

    /// Encodes the tools with `strict: false`. Without this field the API may rewrite a tool's
    /// schema; the input of a call is checked against the original schema anyway.
    fn encode_tools(&self, tools: &[ToolTableRow]) -> RawJson {
        let tools = tools.iter().map(|row| {
            let tool = row.encode_tool(NAME_MAX, "parameters").to_json();
            let tool = JsonObject::with_type_field("function").with_fields_of_object(tool.as_ref());
            tool.with_field("strict", &false)
        });
        RawJson::from_serialize(&tools.collect::<Vec<_>>())
    }

    fn request_head(&self, parts: &RequestParts<'_>) -> JsonObject {
        JsonObject::default()
            .with_field("model", parts.model)
            .with_field("max_output_tokens", &parts.max_tokens.max(OUTPUT_TOKENS_MIN))
            .with_field("stream", &true)
            .with_field("store", &false)
            .with_fields_of_object(parts.fields)
            .with_option("include", self.include.as_ref())
            .with_option("instructions", parts.prompt)
            .with_option("tools", parts.tools)
    }

    fn encode_conversation(&self, parts: &RequestParts<'_>) -> impl Serialize {
        let items = parts.pieces().map(|piece| piece.json.clone());
        items.collect::<Vec<_>>()
    }
}

/// Prefix of the text of a failed tool call. The API has no field for a failed call.
const ERROR_PREFIX: &str = "error";

impl MessageEncoder for ResponsesApi {
    const IS_MISSING_RESULT_ERROR: bool = false;

    fn encode_user_message(&self, out: &mut Pieces<'_>, parts: &[Part]) {
        let parts = parts.iter().filter(|part| is_non_empty_part(part));
        let parts: Vec<JsonObject> = parts.map(|part| encode_part(part, out.images)).collect();
        if !parts.is_empty() {
            let message = JsonObject::with_type_field("message").with_field("role", "user");
            out.add_piece(Role::User, &message.with_field("content", &parts));
        }
    }

    fn encode_tool_result(&self, out: &mut Pieces<'_>, id: &str, result: &ToolResult) {
        let output = tool_result_output(result, out.images);
        let item = JsonObject::with_type_field("function_call_output")
            .with_field("call_id", id)
            .with_field("output", &output);
        out.add_piece(Role::Tool, &item);
    }

    fn encode_reply(&self, out: &mut Pieces<'_>, reply: &Reply) {
        let mut encoder = ReplyEncoder::new(reply.api == self.label);
        let mut blocks = reply.blocks.as_slice();
        while let Some((block, rest)) = blocks.split_first() {
            blocks = rest;
            match block {
                Block::Text(text_block) => {
                    let following_blocks = encoder.text_blocks_of_same_message(rest);
                    blocks = &rest[following_blocks.len()..];
                    encoder.encode_text_blocks(out, text_block, &following_blocks);
                }
                Block::Thinking(thinking) => encoder.queue_reasoning(thinking),
                Block::Other(raw) if encoder.is_own => {
                    encoder.flush_reasoning(out);
                    out.add_piece(Role::Assistant, raw);
                }
                Block::Other(_) => {}
                Block::ToolCall(call) => encoder.encode_tool_call(out, call),
            }
        }
    }
}

/// Encodes a part of a user message or of a tool result.
fn encode_part(part: &Part, images: &EncodedImages) -> JsonObject {
    if let Part::Image(image) = part
        && let Some(data) = images.image_base64(image)
    {
        let url = format!("data:{};base64,{data}", image.media_type);
        let encoded_image =
            JsonObject::with_type_field("input_image").with_field("image_url", &url);
        return encoded_image.with_field("detail", "auto");
    }
    JsonObject::with_type_field("input_text").with_field("text", &part_text(part))
}

/// Returns the output of a tool call: a text, or a list of parts if the result contains an image
/// that can be sent.
fn tool_result_output(result: &ToolResult, images: &EncodedImages) -> RawJson {
    let parts = result.content.iter().filter(|part| is_non_empty_part(part));
    let parts: Vec<&Part> = parts.collect();
    let needs_error_prefix =
        result.is_error && !parts.first().is_some_and(|part| starts_with_error_prefix(part));
    let is_shown = |part: &&Part| match part {
        Part::Image(image) => images.image_base64(image).is_some(),
        Part::Text(_) => false,
    };
    if parts.iter().any(is_shown) {
        let error_part = JsonObject::with_type_field("input_text")
            .with_field("text", &format!("{ERROR_PREFIX}:"));
        let parts = parts.iter().map(|part| encode_part(part, images));
        let error_part = needs_error_prefix.then_some(error_part).into_iter();
        return RawJson::from_serialize(&error_part.chain(parts).collect::<Vec<_>>());
    }
    let text: Vec<Cow<'_, str>> = parts.into_iter().map(part_text).collect();
    let text = text.join("\n");
    RawJson::from_serialize(&match (needs_error_prefix, text.is_empty()) {
        (false, _) => text,
        (true, false) => format!("{ERROR_PREFIX}: {text}"),
        (true, true) => ERROR_PREFIX.to_owned(),
    })
}

fn part_text(part: &Part) -> Cow<'_, str> {
    match part {
        Part::Text(text) => Cow::Borrowed(text),
        Part::Image(image) => Cow::Owned(image_placeholder_text(image)),
    }
}

fn starts_with_error_prefix(part: &Part) -> bool {
    let text = match part {
        Part::Text(text) => text.trim_start(),
        Part::Image(_) => return false,
    };
    text.get(..ERROR_PREFIX.len()).is_some_and(|first| first.eq_ignore_ascii_case(ERROR_PREFIX))
}

/// Returns the content part from which a text block was decoded, and whether the part is empty.
fn restored_content_part(block: &TextBlock, extra: &mut JsonObject) -> (JsonObject, bool) {
    let part = extra.take_field("part");
    let part = part.and_then(|part| JsonObject::parse(part.as_str()));
    let mut rest = part.unwrap_or_default();
    let kind = rest.take_string_field("type");
    let kind = kind.unwrap_or_else(|| "output_text".to_owned());
    let part = JsonObject::with_type_field(&kind);
    let part = match kind.as_str() {
        "output_text" => {
            let no_annotations: Option<&[(); 0]> = rest.is_empty().then_some(&[]);
            let part = part.with_field("text", &block.text);
            part.with_option("annotations", no_annotations)
        }
        "refusal" => part.with_field("refusal", &block.text),
        // The extra fields of an unknown part contain all of it.
        _ => return (part.with_fields_of_object(rest.to_json().as_ref()), false),
    };
    let is_blank = block.text.trim().is_empty();
    (part.with_fields_of_object(rest.to_json().as_ref()), is_blank)
}

/// Encodes the blocks of one reply as items. Its fields carry information from earlier to later
/// blocks.
struct ReplyEncoder<'a> {
    /// Whether the reply came from the same API and provider that the request is sent to.
    is_own: bool,
    /// Reasoning items that must be sent directly before the next item.
    pending_reasoning: Vec<&'a RawJson>,
    /// Whether a reasoning item of the reply is missing. The provider links items to their
    /// reasoning by ID, and rejects an item whose reasoning is missing.
    is_reasoning_missing: bool,
}

impl<'a> ReplyEncoder<'a> {
    const fn new(is_own: bool) -> Self {
        Self { is_own, pending_reasoning: Vec::new(), is_reasoning_missing: false }
    }

    fn queue_reasoning(&mut self, thinking: &'a ThinkingBlock) {
        if !self.is_own {
            return;
        }
        match thinking.extra.as_ref().filter(|item| is_replayable_reasoning(item)) {
            Some(item) => self.pending_reasoning.push(item),
            None => self.is_reasoning_missing = true,
        }
    }

    /// Adds the pending reasoning items to the request, before the item that they led to.
    fn flush_reasoning(&mut self, out: &mut Pieces<'_>) {
        for item in self.pending_reasoning.drain(..) {
            out.add_piece(Role::Assistant, item);
            self.is_reasoning_missing = false;
        }
    }

    /// Returns the text blocks at the start of `blocks` that continue the message of the text block
    /// directly before `blocks`.
    fn text_blocks_of_same_message(&self, blocks: &'a [Block]) -> Vec<&'a TextBlock> {
        let text_blocks = blocks.iter().map_while(|block| match block {
            Block::Text(text_block) if self.is_own => Some(text_block),
            Block::Text(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        });
        text_blocks
            .take_while(|text_block| {
                let extra = parse_extra_fields(text_block.extra.as_ref());
                extra.get("message").is_none() && extra.get("part").is_some()
            })
            .collect()
    }

    fn encode_text_blocks(
        &mut self,
        out: &mut Pieces<'_>,
        first: &TextBlock,
        following_blocks: &[&TextBlock],
    ) {
        if !self.is_own {
            return encode_plain_text(out, &[first]);
        }
        let mut fields = parse_extra_fields(first.extra.as_ref());
        let message = fields.take_field("message");
        let first_part = restored_content_part(first, &mut fields);
        let more_parts = following_blocks.iter();
        let more_parts = more_parts.map(|text_block| {
            restored_content_part(text_block, &mut parse_extra_fields(text_block.extra.as_ref()))
        });
        let (parts, are_blank): (Vec<JsonObject>, Vec<bool>) =
            [first_part].into_iter().chain(more_parts).unzip();
        if are_blank.into_iter().all(|is_blank| is_blank) {
            // The API rejects an empty message, and reasoning that led only to it.
            self.is_reasoning_missing |= !self.pending_reasoning.is_empty();
            self.pending_reasoning.clear();
            return;
        }
        self.flush_reasoning(out);
        match message.and_then(message_item_fields).filter(|_| !self.is_reasoning_missing) {
            Some(fields) => {
                let message = JsonObject::with_type_field("message").with_field("content", &parts);
                out.add_piece(
                    Role::Assistant,
                    &message.with_fields_of_object(fields.to_json().as_ref()),
                );
            }
            None => encode_plain_text(out, &[&[first], following_blocks].concat()),
        }
    }

    fn encode_tool_call(&mut self, out: &mut Pieces<'_>, call: &ToolCall) {
        self.flush_reasoning(out);
        let mut fields = parse_extra_fields(call.extra.as_ref().filter(|_| self.is_own));
        if self.is_reasoning_missing {
            _ = fields.take_field("id");
        }
        let id = out.register_call(call, &call.id, ToolCallIds::assign_valid);
        let arguments = fields.take_field("arguments").unwrap_or_else(|| {
            RawJson::from_serialize(&tool_arguments_as_object(&call.input).as_str())
        });
        let item = JsonObject::with_type_field("function_call")
            .with_field("call_id", &id)
            .with_field("name", &call_ids::to_valid_tool_name(&call.name, NAME_MAX))
            .with_field("arguments", &arguments)
            .with_fields_of_object(fields.to_json().as_ref());
        out.add_piece(Role::Assistant, &item);
    }
}

fn encode_plain_text(out: &mut Pieces<'_>, blocks: &[&TextBlock]) {
    for blocks in blocks.iter().filter(|blocks| !blocks.text.trim().is_empty()) {
        let message = JsonObject::with_type_field("message").with_field("role", "assistant");
        out.add_piece(Role::Assistant, &message.with_field("content", &blocks.text));
    }
}

fn parse_extra_fields(extra_json: Option<&RawJson>) -> JsonObject {
    let fields = extra_json.and_then(|extra_json| JsonObject::parse(extra_json.as_str()));
    fields.unwrap_or_default()
}

/// Returns the fields of a message item in the form in which the API accepts it back. `None` means
/// that the message has no ID, which this form requires.
fn message_item_fields(message: RawJson) -> Option<JsonObject> {
    let mut fields = parse_extra_fields(Some(&message));
    if !fields.get("id")?.as_str().starts_with('"') {
        return None;
    }
    for (name, default_value) in [("role", "assistant"), ("status", "completed")] {
        if fields.get(name).is_none() {
            fields.set_field(name, RawJson::from_serialize(&default_value));
        }
    }
    Some(fields)
}

/// Whether a reasoning item can be sent back: it must be encrypted, or contain its text, as with
/// servers that don't encrypt. The provider would look up any other item in its own storage, but it
/// was asked to store nothing.
fn is_replayable_reasoning(item: &RawJson) -> bool {
    let fields = parse_extra_fields(Some(item));
    let empty = ["null", r#""""#, "[]"];
    let has_value = |name: &str| {
        let value = fields.get(name).map(RawJson::as_str);
        value.is_some_and(|value| !empty.contains(&value))
    };
    has_value("encrypted_content") || has_value("content")
}
