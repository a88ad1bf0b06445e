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
use longhaul_core::port::model::{Answered, Ask, Ear, Model, Quote};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::raw::{Body, RawJson};
use longhaul_core::time::Clock;
use longhaul_core::usage::Tariff;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::album::{self, Album};
use crate::arguments::bounded;
use crate::counts::UsagePaths;
use crate::exchange::{Codec, Line, Sent};
use crate::fields::Fields;
use crate::http::Http;
use crate::kept::{Kept, Weighs};
use crate::pictures::Pictures;
use crate::secrets;
use crate::settings::{BadSettings, Login, Settings};
use crate::table::{self, Row};
use crate::talk::{Entry, Piece, Talk, Tongue};

/// So many bytes a request has beside its conversation, as a guess.
const BODY_SPARE: usize = 4 * 1024;

/// A provider's way to be asked.
pub(crate) trait Wire: Tongue + fmt::Debug + Send + Sync + 'static {
    /// A reply while it comes in.
    type Draft: Draft;

    /// Where tokens are counted.
    const USAGE: &'static UsagePaths;

    /// The version of the API and the operation, as they stand in the address.
    const PATH: (&'static str, &'static str);

    /// How a key is shown where nobody says otherwise.
    const LOGIN: Login;

    /// Headers of every request.
    const HEADERS: &'static [(&'static str, &'static str)];

    /// The fields of a request that are ours to fill.
    const OURS: &'static [&'static str];

    /// The prompt, as a request has it.
    fn prompt(&self, prompt: &str) -> RawJson;

    /// The list of tools, as a request has it.
    fn tools(&self, tools: &[Row]) -> RawJson;

    /// Whose blocks a reply over this wire is made of.
    fn dialect(&self) -> &str;

    /// The name of the list that the conversation is in.
    const LIST: &'static str;

    /// The fields of a request before the conversation.
    fn head(&self, parts: &Parts<'_, Self::Kind>) -> Fields;

    /// The conversation.
    fn list(&self, parts: &Parts<'_, Self::Kind>) -> impl Serialize;
}

/// What a request is made of.
#[derive(Debug)]
pub(crate) struct Parts<'a, K> {
    pub(crate) model: &'a str,
    pub(crate) max_tokens: u64,
    /// The fields that the user has set.
    pub(crate) fields: Option<&'a RawJson>,
    pub(crate) prompt: Option<&'a RawJson>,
    pub(crate) tools: Option<&'a RawJson>,
    pub(crate) entries: &'a [Entry<K>],
    /// What stands behind them when nothing follows.
    pub(crate) closing: &'a [Piece<K>],
}

impl<'a, K> Parts<'a, K> {
    /// All pieces of the conversation.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &'a Piece<K>> + use<'a, K> {
        let pieces = self.entries.iter().flat_map(|entry| &entry.pieces);
        pieces.chain(self.closing)
    }
}

/// A request. Its list is written at once: there may be megabytes in it.
struct Whole<T> {
    head: Fields,
    list: (&'static str, T),
}

impl<T: Serialize> Serialize for Whole<T> {
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
pub(crate) trait Draft: Codec + Default {
    /// The whole reply, in this dialect.
    fn finish(self, dialect: &str) -> Said;
}

/// The reply that these blocks are, and whether it has calls.
pub(crate) fn reply(dialect: &str, blocks: impl IntoIterator<Item = Block>) -> (Reply, bool) {
    let reply = Reply {
        dialect: dialect.to_owned(),
        blocks: blocks.into_iter().filter_map(bounded).collect(),
    };
    let has_calls = reply.calls().next().is_some();
    (reply, has_calls)
}

/// What came of a question.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) reply: Reply,
    pub(crate) stop: StopReason,
    /// The model, as it calls itself.
    pub(crate) model: Option<String>,
}

/// A model behind a wire.
pub(crate) struct Adapter<W: Wire> {
    wire: W,
    model: String,
    line: Line,
    fields: Option<RawJson>,
    tariff: Tariff,
    pictures: Option<Arc<dyn Pictures>>,
    kept: Kept<Request<W::Kind>>,
}

impl<W: Wire> fmt::Debug for Adapter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provider, model) = (&self.line.provider, &self.model);
        write!(f, "Adapter({provider}/{model} over {:?})", self.wire)
    }
}

/// The request of a run as far as it is written.
#[derive(Debug)]
struct Request<K> {
    head: Head,
    talk: Talk<K>,
    /// So many pictures at its beginning are told of in words.
    faded: usize,
}

impl<K> Weighs for Request<K> {
    fn bytes(&self) -> usize {
        let head = [&self.head.prompt, &self.head.tool_list];
        let head = head.into_iter().flatten().map(|json| json.as_str().len());
        head.sum::<usize>() + self.talk.bytes()
    }
}

/// The part of a request that stays the same through a run.
#[derive(Debug)]
struct Head {
    system: Body,
    tools: Body,
    prompt: Option<RawJson>,
    tool_list: Option<RawJson>,
}

impl<W: Wire> Adapter<W> {
    /// The model of these settings, at this server. Times in headers are read by
    /// this clock.
    pub(crate) fn new(
        wire: W,
        http: Http,
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BadSettings> {
        let headers = settings.headers(W::HEADERS, W::LOGIN)?;
        settings.check_fields(W::OURS)?;
        let (version, path) = W::PATH;
        let line = Line {
            url: http.at(version, path),
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
            line,
            fields: settings.fields,
            tariff: settings.tariff,
            pictures: settings.pictures,
            kept: Kept::default(),
        })
    }

    /// The name of the model that answered, without what a provider must not echo.
    /// The name that we asked for is no secret, whatever a header says.
    fn plain_name(&self, said: Option<String>) -> String {
        match said {
            Some(said) if said != self.model => self.plain(&said),
            Some(_) | None => self.model.clone(),
        }
    }

    fn plain(&self, said: &str) -> String {
        self.line.secrets.redact(said).into_owned()
    }

    fn head(&self, ask: &Ask) -> Result<Head, String> {
        let prompt = words(&ask.system, "prompt")?;
        let tools = table::read(words(&ask.tools, "table of tools")?)?;
        Ok(Head {
            system: ask.system.clone(),
            tools: ask.tools.clone(),
            prompt: (!prompt.trim().is_empty()).then(|| self.wire.prompt(prompt)),
            tool_list: (!tools.is_empty()).then(|| self.wire.tools(&tools)),
        })
    }

    fn encode(&self, parts: &Parts<'_, W::Kind>, capacity: usize) -> Result<Vec<u8>, Failure> {
        let whole = Whole {
            head: self.wire.head(parts),
            list: (W::LIST, self.wire.list(parts)),
        };
        let mut body = Vec::with_capacity(capacity);
        serde_json::to_writer(&mut body, &whole).map_err(|why| invalid(why.to_string()))?;
        Ok(body)
    }

    /// The body of a question, of which only what is new is serialised.
    async fn body(&self, ask: &Ask) -> Result<Bytes, Failure> {
        let faded = album::faded(&ask.messages);
        let (head, mut talk) = match self.kept.take(ask.run) {
            Some(kept) if kept.faded == faded => (Some(kept.head), kept.talk),
            // What was written shows pictures that have faded since.
            Some(kept) => (Some(kept.head), Talk::default()),
            None => (None, Talk::default()),
        };
        let same = |head: &Head| head.system == ask.system && head.tools == ask.tools;
        let head = match head.filter(same) {
            Some(head) => head,
            None => self.head(ask).map_err(invalid)?,
        };
        let same = talk.keep(&ask.messages);
        // Of the pictures that have faded so many are still to come.
        let mut left = faded;
        for (place, message) in ask.messages.iter().enumerate() {
            if place >= same {
                let mut album = Album::default();
                if let Some(pictures) = &self.pictures {
                    album.fill(message, left, &**pictures).await;
                }
                talk.add(&self.wire, message, &album);
            }
            left = left.saturating_sub(album::count(message));
        }
        let closing = talk.closing(&self.wire);
        let parts = Parts {
            model: &self.model,
            max_tokens: ask.max_tokens,
            fields: self.fields.as_ref(),
            prompt: head.prompt.as_ref(),
            tools: head.tool_list.as_ref(),
            entries: &talk.entries,
            closing: &closing,
        };
        let body = self.encode(&parts, talk.bytes() + BODY_SPARE)?;
        self.kept.put(ask.run, Request { head, talk, faded });
        Ok(body.into())
    }
}

#[async_trait]
impl<W: Wire> Model for Adapter<W> {
    fn quote(&self, ask: &Ask) -> Quote {
        Quote::new(self.tariff, ask)
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        let body = self.body(ask).await?;
        let sent = Sent {
            tariff: self.quote(ask).tariff,
            bytes: ask.bytes(),
        };
        let mut draft = W::Draft::default();
        self.line.ask((body, sent), &mut draft, ear).await?;
        let usage = draft.counts().settle(W::USAGE, sent.used(&draft));
        let Said { reply, stop, model } = draft.finish(self.wire.dialect());
        Ok(Answered {
            reply: Arc::new(reply),
            stop: stop.map_words(|said| self.plain(&said)),
            usage,
            cost: self.tariff.price.map(|price| price.of(usage)),
            model: self.plain_name(model),
        })
    }
}

fn invalid(why: String) -> Failure {
    Failure::new(FailureClass::InvalidRequest, why)
}

fn words<'a>(body: &'a Body, what: &str) -> Result<&'a str, String> {
    match body {
        Body::Inline(text) => Ok(text),
        Body::Blob(_) => Err(format!("the {what} is not spelled out")),
    }
}
