//! A model behind a wire: what all wires have in common.
//!
//! Never: asks again when it failed, sends what the user did not set, or serialises
//! a message that it has sent before.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::{Reply, StopReason};
use longhaul_core::port::model::{Answered, Ask, Ear, Model, Quote};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::raw::{Body, RawJson};
use longhaul_core::time::Clock;
use longhaul_core::usage::{Tariff, Usage};

use crate::album::{self, Album};
use crate::exchange::{Codec, Line};
use crate::guess::Guess;
use crate::http::Http;
use crate::kept::{Kept, Weighs};
use crate::pictures::Pictures;
use crate::secrets;
use crate::settings::{BadSettings, Login, Settings};
use crate::spell;
use crate::table::{self, Row};
use crate::talk::{Talk, Tongue};

/// A provider's way to be asked.
pub(crate) trait Wire: Tongue + fmt::Debug + Send + Sync + 'static {
    /// A reply while it comes in.
    type Draft: Draft;

    /// The version of the API and the operation, as they stand in the address.
    const PATH: (&'static str, &'static str);

    /// How a key is shown where nobody says otherwise.
    const LOGIN: Login;

    /// Headers of every request.
    const HEADERS: &'static [(&'static str, &'static str)];

    /// The fields of a request that are ours to fill.
    const OURS: &'static [&'static str];

    /// Writes the fields that change with each question, behind the model's name.
    fn opening(&self, out: &mut Vec<u8>, max_tokens: u64);

    /// Writes the fields that stay the same through a run: the prompt, the tools,
    /// and last the list of messages, up to and with its opening bracket. A first
    /// message may stand in it already.
    fn head(&self, out: &mut Vec<u8>, prompt: &str, tools: &[Row<'_>]);

    /// Begins to hear a reply.
    fn draft(&self, guess: Guess) -> Self::Draft;
}

/// A reply while it comes in.
pub(crate) trait Draft: Codec {
    /// The whole reply.
    fn finish(self) -> Said;
}

/// What came of a question.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) reply: Reply,
    pub(crate) stop: StopReason,
    pub(crate) usage: Usage,
    /// The model, as it calls itself.
    pub(crate) model: Option<String>,
}

/// A model behind a wire.
pub(crate) struct Adapter<W: Wire> {
    wire: W,
    model: String,
    /// The model's name as JSON.
    spelled: RawJson,
    line: Line,
    fields: Option<RawJson>,
    tariff: Tariff,
    pictures: Option<Arc<dyn Pictures>>,
    kept: Kept<Request<W::After>>,
}

impl<W: Wire> fmt::Debug for Adapter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provider, model) = (&self.line.provider, &self.model);
        write!(f, "Adapter({provider}/{model} over {:?})", self.wire)
    }
}

/// The request of a run as far as it is written.
#[derive(Debug)]
struct Request<A> {
    head: Head,
    talk: Talk<A>,
    /// So many pictures at its beginning are told of in words.
    faded: usize,
}

impl<A> Weighs for Request<A> {
    fn bytes(&self) -> usize {
        self.head.text.len() + self.talk.bytes()
    }
}

/// The part of a request that stays the same through a run.
#[derive(Debug)]
struct Head {
    system: Body,
    tools: Body,
    text: Vec<u8>,
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
        };
        Ok(Self {
            wire,
            spelled: RawJson::of(&settings.model),
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

    fn plain_stop(&self, stop: StopReason) -> StopReason {
        match stop {
            StopReason::Other(said) => StopReason::Other(self.plain(&said)),
            StopReason::EndTurn
            | StopReason::ToolUse
            | StopReason::MaxTokens
            | StopReason::PauseTurn
            | StopReason::Refusal => stop,
        }
    }

    fn tariff(&self, ask: &Ask) -> Tariff {
        let fixed = ask.system.size().saturating_add(ask.tools.size());
        Tariff {
            fixed_tokens: fixed.div_ceil(self.tariff.bytes_per_token.max(1)),
            ..self.tariff
        }
    }

    fn guess(&self, ask: &Ask) -> Guess {
        let tariff = self.tariff(ask);
        let bytes_per_token = tariff.bytes_per_token.max(1);
        let asked = weight(ask).div_ceil(bytes_per_token);
        Guess {
            input_tokens: tariff.fixed_tokens.saturating_add(asked),
            bytes_per_token,
        }
    }

    fn head(&self, ask: &Ask) -> Result<Head, String> {
        let mut text = Vec::new();
        let set = self.fields.as_ref().and_then(spell::inside);
        if let Some(set) = set.filter(|set| !set.is_empty()) {
            text.push(b',');
            text.extend_from_slice(set.as_bytes());
        }
        let prompt = words(&ask.system, "prompt")?;
        let tools = table::read(words(&ask.tools, "table of tools")?)?;
        self.wire.head(&mut text, prompt, &tools);
        Ok(Head {
            system: ask.system.clone(),
            tools: ask.tools.clone(),
            text,
        })
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
            None => self
                .head(ask)
                .map_err(|why| Failure::new(FailureClass::InvalidRequest, why))?,
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
        let name = self.spelled.as_str().as_bytes();
        let length = name.len() + head.text.len() + talk.text.len();
        let mut body = Vec::with_capacity(length + 512);
        body.extend_from_slice(br#"{"model":"#);
        body.extend_from_slice(name);
        self.wire.opening(&mut body, ask.max_tokens);
        body.extend_from_slice(&head.text);
        self.wire.copy(&talk, &mut body);
        body.extend_from_slice(b"]}");
        self.kept.put(ask.run, Request { head, talk, faded });
        Ok(body.into())
    }
}

#[async_trait]
impl<W: Wire> Model for Adapter<W> {
    fn quote(&self, ask: &Ask) -> Quote {
        let tariff = self.tariff(ask);
        Quote {
            hold: tariff.hold(weight(ask), ask.max_tokens),
            tariff,
        }
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        let body = self.body(ask).await?;
        let mut draft = self.wire.draft(self.guess(ask));
        self.line.ask(body, &mut draft, ear).await?;
        let Said {
            reply,
            stop,
            usage,
            model,
        } = draft.finish();
        Ok(Answered {
            reply: Arc::new(reply),
            stop: self.plain_stop(stop),
            usage,
            cost: self.tariff.price.map(|price| price.of(usage)),
            model: self.plain_name(model),
        })
    }
}

/// The bytes of the conversation so far.
fn weight(ask: &Ask) -> u64 {
    ask.messages.iter().map(|message| message.bytes()).sum()
}

fn words<'a>(body: &'a Body, what: &str) -> Result<&'a str, String> {
    match body {
        Body::Inline(text) => Ok(text),
        Body::Blob(_) => Err(format!("the {what} is not spelled out")),
    }
}
