//! `Adapter`, the `Model` implementation that all provider APIs share.
//!
//! An adapter never retries, sends no optional field that the user has not set, and reuses the
//! encoded messages of a run's previous request.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::time::Clock;
use longhaul_core::usage::ModelPricing;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::conversation::{EncodedConversation, EncodedMessage, MessageEncoder, Piece};
use crate::exchange::{DecodedReply, ProviderEndpoint, ReplyDecoder, UsageEstimator};
use crate::http::HttpClient;
use crate::image_source::ImageSource;
use crate::images::{self, EncodedImages};
use crate::json_object::JsonObject;
use crate::request_cache::RequestCache;
use crate::settings::{AuthScheme, ModelSettings, SettingsError, credential_redactor};
use crate::token_counts::UsageJsonPaths;
use crate::tool_table::{self, ToolTableRow};

/// Estimated size in bytes of a request without its conversation.
const BODY_OVERHEAD: usize = 4 * 1024;

/// A provider's HTTP API for models: how requests are encoded and which decoder reads the
/// responses.
pub(crate) trait ProviderApi: MessageEncoder + fmt::Debug + Send + Sync + 'static {
    type Decoder: ReplyDecoder;

    /// JSON paths of the token counts in the `usage` object of a response.
    const USAGE: &'static UsageJsonPaths;

    /// API version and operation, the two parts of the URL path.
    const PATH: (&'static str, &'static str);

    /// How the API key is sent.
    const AUTH_SCHEME: AuthScheme;

    /// Fixed headers that this API requires with every request.
    const HEADERS: &'static [(&'static str, &'static str)];

    /// Request fields that the adapter fills in; the user can't set them.
    const RESERVED_FIELDS: &'static [&'static str];

    /// Encodes the system prompt in the format of this API.
    fn encode_system_prompt(&self, prompt: &str) -> RawJson;

    /// Encodes the list of tools in the format of this API.
    fn encode_tools(&self, tools: &[ToolTableRow]) -> RawJson;

    /// Returns the label of this API and its provider, such as `chat:moonshot`. The label is stored
    /// with each reply, because the blocks of a reply can only be sent back to the same API and
    /// provider.
    fn api_label(&self) -> &str;

    /// Name of the request field that contains the conversation.
    const CONVERSATION_FIELD: &'static str;

    /// Returns all request fields other than the conversation. They are sent before the
    /// conversation.
    fn request_head(&self, parts: &RequestParts<'_>) -> JsonObject;

    /// Returns the conversation in a form that serialises to the JSON of this API.
    fn encode_conversation(&self, parts: &RequestParts<'_>) -> impl Serialize;
}

/// The encoded parts that a request body is assembled from.
#[derive(Debug)]
pub(crate) struct RequestParts<'a> {
    pub(crate) model: &'a str,
    pub(crate) max_tokens: u64,
    /// Additional request fields set by the user, as one JSON object.
    pub(crate) fields: Option<&'a RawJson>,
    pub(crate) prompt: Option<&'a RawJson>,
    pub(crate) tools: Option<&'a RawJson>,
    pub(crate) messages: &'a [EncodedMessage],
    /// Encoded placeholder results for tool calls that have no result, sent after the last message.
    pub(crate) placeholders: &'a [Piece],
}

impl<'a> RequestParts<'a> {
    /// Iterates over all encoded pieces (content blocks or messages) of the conversation, including
    /// the placeholder results.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &'a Piece> + use<'a> {
        let pieces = self.messages.iter().flat_map(|entry| &entry.pieces);
        pieces.chain(self.placeholders)
    }
}

/// A complete request body. The conversation is serialised directly into the body, without an
/// intermediate JSON value, because it may be megabytes long.
struct RequestBody<T> {
    head: JsonObject,
    list: (&'static str, T),
}

impl<T: Serialize> Serialize for RequestBody<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (name, value) in self.head.fields() {
            object.serialize_entry(name, value)?;
        }
        let (name, list) = &self.list;
        object.serialize_entry(name, list)?;
        object.end()
    }
}

/// A `Model` that sends its requests to the API of a provider.
pub(crate) struct ModelAdapter<W: ProviderApi> {
    wire: W,
    model: String,
    endpoint: ProviderEndpoint,
    fields: Option<RawJson>,
    pricing: ModelPricing,
    image_source: Option<Arc<dyn ImageSource>>,
    cache: RequestCache<CachedEncodedRequest>,
}

impl<W: ProviderApi> fmt::Debug for ModelAdapter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provider, model) = (&self.endpoint.provider, &self.model);
        write!(f, "Adapter({provider}/{model} over {:?})", self.wire)
    }
}

/// Encoded request of a run, cached so that at the next turn only new messages have to be encoded.
#[derive(Debug)]
struct CachedEncodedRequest {
    head: PromptAndTools,
    conversation: EncodedConversation,
    /// Number of images at the start of the conversation that are replaced by text.
    dropped_images: usize,
}

/// System prompt and tools of a request, in original and encoded form. They rarely change during a
/// run.
#[derive(Debug)]
struct PromptAndTools {
    system: StoredText,
    tools: StoredText,
    encoded_prompt: Option<RawJson>,
    encoded_tools: Option<RawJson>,
}

impl<W: ProviderApi> ModelAdapter<W> {
    /// Creates an adapter that sends its requests with the client `http`. `clock` is used to
    /// interpret times in response headers.
    pub(crate) fn new(
        wire: W,
        http: HttpClient,
        settings: ModelSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SettingsError> {
        let headers = settings.request_headers(W::HEADERS, W::AUTH_SCHEME)?;
        settings.reject_reserved(W::RESERVED_FIELDS)?;
        let (version, path) = W::PATH;
        let line = ProviderEndpoint {
            url: http.endpoint_url(version, path),
            provider: settings.provider,
            http,
            headers,
            secrets: credential_redactor(settings.key.as_ref(), &settings.headers),
            clock,
            usage: W::USAGE,
        };
        Ok(Self {
            wire,
            model: settings.model,
            endpoint: line,
            fields: settings.fields,
            pricing: settings.pricing,
            image_source: settings.image_source,
            cache: RequestCache::default(),
        })
    }

    fn redact(&self, text: &str) -> String {
        self.endpoint.secrets.redact(text).into_owned()
    }

    fn prompt_and_tools(&self, request: &ModelRequest) -> Result<PromptAndTools, String> {
        let prompt = inline_text(&request.system, "prompt")?;
        let tools = tool_table::parse_tool_table(inline_text(&request.tools, "table of tools")?)?;
        Ok(PromptAndTools {
            system: request.system.clone(),
            tools: request.tools.clone(),
            encoded_prompt: (!prompt.trim().is_empty())
                .then(|| self.wire.encode_system_prompt(prompt)),
            encoded_tools: (!tools.is_empty()).then(|| self.wire.encode_tools(&tools)),
        })
    }

    /// Builds the request body. Messages that the cache already has in encoded form are not encoded
    /// again.
    async fn build_request_body(&self, request: &ModelRequest) -> Result<Bytes, Failure> {
        let dropped_images = images::dropped_image_count(&request.messages);
        let (head, mut conversation) = match self.cache.take(request.run) {
            Some(cached) if cached.dropped_images == dropped_images => {
                (Some(cached.head), cached.conversation)
            }
            // The cached messages contain images that have to be dropped now.
            Some(cached) => (Some(cached.head), EncodedConversation::default()),
            None => (None, EncodedConversation::default()),
        };
        let has_same_prompt_and_tools =
            |head: &PromptAndTools| head.system == request.system && head.tools == request.tools;
        let head = match head.filter(has_same_prompt_and_tools) {
            Some(head) => head,
            None => self.prompt_and_tools(request).map_err(invalid_request_failure)?,
        };
        let reused_count = conversation.keep_matching_prefix(&request.messages);
        // Number of dropped images in the messages from here on.
        let mut remaining_dropped = dropped_images;
        for (index, message) in request.messages.iter().enumerate() {
            if index >= reused_count {
                let mut encoded_images = EncodedImages::default();
                if let Some(source) = &self.image_source {
                    encoded_images.load(message, remaining_dropped, &**source).await;
                }
                conversation.push(&self.wire, message, &encoded_images);
            }
            remaining_dropped =
                remaining_dropped.saturating_sub(images::sendable_images(message).count());
        }
        let placeholders = conversation.placeholders(&self.wire);
        let parts = RequestParts {
            model: &self.model,
            max_tokens: request.max_tokens,
            fields: self.fields.as_ref(),
            prompt: head.encoded_prompt.as_ref(),
            tools: head.encoded_tools.as_ref(),
            messages: &conversation.messages,
            placeholders: &placeholders,
        };
        let request_body = RequestBody {
            head: self.wire.request_head(&parts),
            list: (W::CONVERSATION_FIELD, self.wire.encode_conversation(&parts)),
        };
        let mut body = Vec::with_capacity(conversation.byte_size() + BODY_OVERHEAD);
        serde_json::to_writer(&mut body, &request_body)
            .map_err(|error| invalid_request_failure(error.to_string()))?;
        drop(request_body);
        let head_json = [&head.encoded_prompt, &head.encoded_tools].into_iter().flatten();
        let head_bytes: usize = head_json.map(|json| json.as_str().len()).sum();
        let bytes = head_bytes + conversation.byte_size();
        let cached = CachedEncodedRequest { head, conversation, dropped_images };
        self.cache.insert(request.run, cached, bytes);
        Ok(body.into())
    }
}

#[async_trait]
impl<W: ProviderApi> Model for ModelAdapter<W> {
    fn estimate(&self, request: &ModelRequest) -> CostEstimate {
        CostEstimate::new(self.pricing, request)
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let body = self.build_request_body(request).await?;
        let usage_estimator = UsageEstimator {
            pricing: self.estimate(request).pricing,
            bytes: request.conversation_bytes(),
        };
        let mut decoder = W::Decoder::default();
        self.endpoint.request_reply((body, usage_estimator), &mut decoder, sink).await?;
        let usage = decoder
            .token_counts()
            .complete_usage(W::USAGE, usage_estimator.estimated_usage(&decoder));
        let DecodedReply { reply, stop, model } = decoder.into_decoded_reply(self.wire.api_label());
        Ok(ModelResponse {
            reply: Arc::new(reply),
            stop: stop.map_unknown_stop_reason(|text| self.redact(&text)),
            usage,
            cost: self.pricing.price.map(|price| price.cost(usage)),
            // The requested name is never redacted, even if it equals the value of a secret header.
            model: model
                .filter(|name| *name != self.model)
                .map_or_else(|| self.model.clone(), |name| self.redact(&name)),
            output: None,
        })
    }
}

fn invalid_request_failure(reason: String) -> Failure {
    Failure::new(FailureClass::InvalidRequest, reason)
}

fn inline_text<'a>(stored_text: &'a StoredText, text_name: &str) -> Result<&'a str, String> {
    match stored_text {
        StoredText::Inline(text) => Ok(text),
        StoredText::Blob(_) => Err(format!("the {text_name} is a blob reference, not inline text")),
    }
}
