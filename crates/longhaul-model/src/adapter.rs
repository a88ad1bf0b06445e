//! A model behind a wire: what all wires have in common.
//!
//! Never: asks again when it failed, sends what the user did not set, or serialises
//! a message that it has sent before.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::{Block, Reply, StopReason};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::time::Clock;
use longhaul_core::usage::ModelPricing;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::conversation::{EncodedConversation, EncodedMessage, MessageEncoder, Piece};
use crate::exchange::{Endpoint, EventDecoder, RequestSize};
use crate::http::Http;
use crate::image_source::ImageSource;
use crate::images::{self, EncodedImages};
use crate::json_object::JsonObject;
use crate::lenient_json::without_deep_extras;
use crate::request_cache::{ByteSize, RequestCache};
use crate::secrets;
use crate::settings::{AuthScheme, Settings, SettingsError};
use crate::token_counts::UsagePaths;
use crate::tool_table::{self, ToolRow};

/// So many bytes a request has beside its conversation, as a guess.
const BODY_OVERHEAD: usize = 4 * 1024;

/// A provider's way to be asked.
pub(crate) trait Wire: MessageEncoder + fmt::Debug + Send + Sync + 'static {
    /// A reply while it comes in.
    type Decoder: ResponseDecoder;

    /// Where tokens are counted.
    const USAGE: &'static UsagePaths;

    /// The version of the API and the operation, as they stand in the address.
    const PATH: (&'static str, &'static str);

    /// How a key is shown where nobody says otherwise.
    const AUTH_SCHEME: AuthScheme;

    /// Headers of every request.
    const HEADERS: &'static [(&'static str, &'static str)];

    /// The fields of a request that are ours to fill.
    const RESERVED_FIELDS: &'static [&'static str];

    /// The prompt, as a request has it.
    fn encode_prompt(&self, prompt: &str) -> RawJson;

    /// The list of tools, as a request has it.
    fn encode_tools(&self, tools: &[ToolRow]) -> RawJson;

    /// Whose blocks a reply over this wire is made of.
    fn api(&self) -> &str;

    /// The name of the list that the conversation is in.
    const CONVERSATION_FIELD: &'static str;

    /// The fields of a request before the conversation.
    fn leading_fields(&self, parts: &RequestParts<'_, Self::Kind>) -> JsonObject;

    /// The conversation.
    fn encode_conversation(&self, parts: &RequestParts<'_, Self::Kind>) -> impl Serialize;
}

/// What a request is made of.
#[derive(Debug)]
pub(crate) struct RequestParts<'a, K> {
    pub(crate) model: &'a str,
    pub(crate) max_tokens: u64,
    /// The fields that the user has set.
    pub(crate) fields: Option<&'a RawJson>,
    pub(crate) prompt: Option<&'a RawJson>,
    pub(crate) tools: Option<&'a RawJson>,
    pub(crate) messages: &'a [EncodedMessage<K>],
    /// What stands behind them when nothing follows.
    pub(crate) trailing: &'a [Piece<K>],
}

impl<'a, K> RequestParts<'a, K> {
    /// All pieces of the conversation.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &'a Piece<K>> + use<'a, K> {
        let pieces = self.messages.iter().flat_map(|entry| &entry.pieces);
        pieces.chain(self.trailing)
    }
}

/// A request. Its list is written at once: there may be megabytes in it.
struct RequestBody<T> {
    head: JsonObject,
    list: (&'static str, T),
}

impl<T: Serialize> Serialize for RequestBody<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut object = to.serialize_map(None)?;
        for (name, value) in self.head.pairs() {
            object.serialize_entry(name, value)?;
        }
        let (name, list) = &self.list;
        object.serialize_entry(name, list)?;
        object.end()
    }
}

/// A reply while it comes in.
pub(crate) trait ResponseDecoder: EventDecoder + Default {
    /// The whole reply, in this dialect.
    fn finish(self, dialect: &str) -> DecodedReply;
}

/// The reply that these blocks are, and whether it has calls.
pub(crate) fn build_reply(dialect: &str, blocks: impl IntoIterator<Item = Block>) -> (Reply, bool) {
    let reply = Reply {
        api: dialect.to_owned(),
        blocks: blocks.into_iter().filter_map(without_deep_extras).collect(),
    };
    let has_calls = reply.calls().next().is_some();
    (reply, has_calls)
}

/// What came of a question.
#[derive(Debug)]
pub(crate) struct DecodedReply {
    pub(crate) reply: Reply,
    pub(crate) stop: StopReason,
    /// The model, as it calls itself.
    pub(crate) model: Option<String>,
}

/// A model behind a wire.
pub(crate) struct Adapter<W: Wire> {
    wire: W,
    model: String,
    endpoint: Endpoint,
    fields: Option<RawJson>,
    pricing: ModelPricing,
    image_source: Option<Arc<dyn ImageSource>>,
    cache: RequestCache<CachedRequest<W::Kind>>,
}

impl<W: Wire> fmt::Debug for Adapter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provider, model) = (&self.endpoint.provider, &self.model);
        write!(f, "Adapter({provider}/{model} over {:?})", self.wire)
    }
}

/// The request of a run as far as it is written.
#[derive(Debug)]
struct CachedRequest<K> {
    head: RequestHead,
    conversation: EncodedConversation<K>,
    /// So many pictures at its beginning are told of in words.
    dropped_images: usize,
}

impl<K> ByteSize for CachedRequest<K> {
    fn byte_size(&self) -> usize {
        let head = [&self.head.encoded_prompt, &self.head.encoded_tools];
        let head = head.into_iter().flatten().map(|json| json.as_str().len());
        head.sum::<usize>() + self.conversation.byte_size()
    }
}

/// The part of a request that stays the same through a run.
#[derive(Debug)]
struct RequestHead {
    system: StoredText,
    tools: StoredText,
    encoded_prompt: Option<RawJson>,
    encoded_tools: Option<RawJson>,
}

impl<W: Wire> Adapter<W> {
    /// The model of these settings, at this server. Times in headers are read by
    /// this clock.
    pub(crate) fn new(
        wire: W,
        http: Http,
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SettingsError> {
        let headers = settings.headers(W::HEADERS, W::AUTH_SCHEME)?;
        settings.check_fields(W::RESERVED_FIELDS)?;
        let (version, path) = W::PATH;
        let line = Endpoint {
            url: http.endpoint_url(version, path),
            provider: settings.provider,
            http,
            headers,
            secrets: secrets::redactor(settings.key.as_ref(), &settings.headers),
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

    /// The name of the model that answered, without what a provider must not echo.
    /// The name that we asked for is no secret, whatever a header says.
    fn redacted_name(&self, said: Option<String>) -> String {
        match said {
            Some(said) if said != self.model => self.redact(&said),
            Some(_) | None => self.model.clone(),
        }
    }

    fn redact(&self, said: &str) -> String {
        self.endpoint.secrets.redact(said).into_owned()
    }

    fn build_head(&self, ask: &ModelRequest) -> Result<RequestHead, String> {
        let prompt = inline_text(&ask.system, "prompt")?;
        let tools = tool_table::parse(inline_text(&ask.tools, "table of tools")?)?;
        Ok(RequestHead {
            system: ask.system.clone(),
            tools: ask.tools.clone(),
            encoded_prompt: (!prompt.trim().is_empty()).then(|| self.wire.encode_prompt(prompt)),
            encoded_tools: (!tools.is_empty()).then(|| self.wire.encode_tools(&tools)),
        })
    }

    fn encode(
        &self,
        parts: &RequestParts<'_, W::Kind>,
        capacity: usize,
    ) -> Result<Vec<u8>, Failure> {
        let whole = RequestBody {
            head: self.wire.leading_fields(parts),
            list: (W::CONVERSATION_FIELD, self.wire.encode_conversation(parts)),
        };
        let mut body = Vec::with_capacity(capacity);
        serde_json::to_writer(&mut body, &whole).map_err(|why| invalid_request(why.to_string()))?;
        Ok(body)
    }

    /// The body of a question, of which only what is new is serialised.
    async fn build_body(&self, ask: &ModelRequest) -> Result<Bytes, Failure> {
        let faded = images::dropped_count(&ask.messages);
        let (head, mut talk) = match self.cache.take(ask.run) {
            Some(kept) if kept.dropped_images == faded => (Some(kept.head), kept.conversation),
            // What was written shows pictures that have faded since.
            Some(kept) => (Some(kept.head), EncodedConversation::default()),
            None => (None, EncodedConversation::default()),
        };
        let same = |head: &RequestHead| head.system == ask.system && head.tools == ask.tools;
        let head = match head.filter(same) {
            Some(head) => head,
            None => self.build_head(ask).map_err(invalid_request)?,
        };
        let same = talk.retain_prefix(&ask.messages);
        // Of the pictures that have faded so many are still to come.
        let mut left = faded;
        for (place, message) in ask.messages.iter().enumerate() {
            if place >= same {
                let mut album = EncodedImages::default();
                if let Some(pictures) = &self.image_source {
                    album.load(message, left, &**pictures).await;
                }
                talk.push(&self.wire, message, &album);
            }
            left = left.saturating_sub(images::image_count(message));
        }
        let closing = talk.missing_results(&self.wire);
        let parts = RequestParts {
            model: &self.model,
            max_tokens: ask.max_tokens,
            fields: self.fields.as_ref(),
            prompt: head.encoded_prompt.as_ref(),
            tools: head.encoded_tools.as_ref(),
            messages: &talk.messages,
            trailing: &closing,
        };
        let body = self.encode(&parts, talk.byte_size() + BODY_OVERHEAD)?;
        self.cache
            .insert(ask.run, CachedRequest { head, conversation: talk, dropped_images: faded });
        Ok(body.into())
    }
}

#[async_trait]
impl<W: Wire> Model for Adapter<W> {
    fn estimate(&self, ask: &ModelRequest) -> CostEstimate {
        CostEstimate::new(self.pricing, ask)
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let body = self.build_body(ask).await?;
        let sent = RequestSize { pricing: self.estimate(ask).pricing, bytes: ask.bytes() };
        let mut draft = W::Decoder::default();
        self.endpoint.send((body, sent), &mut draft, ear).await?;
        let usage = draft.counts().final_usage(W::USAGE, sent.estimated_usage(&draft));
        let DecodedReply { reply, stop, model } = draft.finish(self.wire.api());
        Ok(ModelResponse {
            reply: Arc::new(reply),
            stop: stop.map_text(|said| self.redact(&said)),
            usage,
            cost: self.pricing.price.map(|price| price.cost(usage)),
            model: self.redacted_name(model),
        })
    }
}

fn invalid_request(why: String) -> Failure {
    Failure::new(FailureClass::InvalidRequest, why)
}

fn inline_text<'a>(body: &'a StoredText, what: &str) -> Result<&'a str, String> {
    match body {
        StoredText::Inline(text) => Ok(text),
        StoredText::Blob(_) => Err(format!("the {what} is not spelled out")),
    }
}
