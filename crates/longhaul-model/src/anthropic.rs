//! Models behind the Messages API of Anthropic, and of servers that speak it.
//!
//! Never: asks twice, sends what the user did not set, or serialises a message
//! that it has sent before.

mod block;
mod counts;
mod draft;
mod head;
mod ids;
mod settings;
mod spell;
mod talk;
mod wire;

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{Answered, Ask, Ear, Model, Quote};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use longhaul_core::usage::Tariff;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::anthropic::draft::{Draft, Said};
use crate::anthropic::head::Head;
use crate::anthropic::spell::Album;
use crate::anthropic::talk::Talk;
use crate::exchange::Line;
use crate::http::Http;
use crate::kept::{Kept, Weighs};
use crate::pictures::Pictures;

pub use crate::anthropic::settings::{BadSettings, Login, Settings};

/// The version of the API that is spoken.
const VERSION: &str = "2023-06-01";

/// A model behind the Messages API.
pub struct Anthropic {
    model: String,
    /// The model's name as JSON.
    spelled: RawJson,
    line: Line,
    fields: Option<RawJson>,
    tariff: Tariff,
    pictures: Option<Arc<dyn Pictures>>,
    kept: Kept<Request>,
}

impl fmt::Debug for Anthropic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provider, model) = (&self.line.provider, &self.model);
        write!(f, "Anthropic({provider}/{model})")
    }
}

/// The request of a run as far as it is written.
#[derive(Debug)]
struct Request {
    head: Head,
    talk: Talk,
}

impl Weighs for Request {
    fn bytes(&self) -> usize {
        self.head.text().len() + self.talk.bytes()
    }
}

impl Anthropic {
    /// The model of these settings, at this server. Times in headers are read by
    /// this clock.
    pub fn new(http: Http, settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, BadSettings> {
        let headers = headers(&settings).map_err(BadSettings)?;
        if let Some(fields) = &settings.fields {
            head::check(fields).map_err(BadSettings)?;
        }
        let line = Line {
            url: http.at("v1", "messages"),
            provider: settings.provider,
            http,
            headers,
            key: settings.key,
            clock,
        };
        Ok(Self {
            spelled: RawJson::of(&settings.model),
            model: settings.model,
            line,
            fields: settings.fields,
            tariff: settings.tariff,
            pictures: None,
            kept: Kept::default(),
        })
    }

    /// The same model, which gets the pictures of a conversation from here.
    /// Without, it is told in words that there was one.
    #[must_use]
    pub fn with_pictures(self, pictures: Arc<dyn Pictures>) -> Self {
        Self {
            pictures: Some(pictures),
            ..self
        }
    }

    fn tariff(&self, ask: &Ask) -> Tariff {
        let fixed = ask.system.size().saturating_add(ask.tools.size());
        Tariff {
            fixed_tokens: fixed.div_ceil(self.tariff.bytes_per_token.max(1)),
            ..self.tariff
        }
    }

    /// The body of a question, of which only what is new is serialised.
    async fn body(&self, ask: &Ask) -> Result<Bytes, Failure> {
        let kept = self.kept.take(ask.run);
        let (head, mut talk) =
            kept.map_or((None, Talk::default()), |kept| (Some(kept.head), kept.talk));
        let head = match head.filter(|head| head.is_of(&ask.system, &ask.tools)) {
            Some(head) => head,
            None => Head::new(&ask.system, &ask.tools, self.fields.as_ref())
                .map_err(|why| Failure::new(FailureClass::InvalidRequest, why))?,
        };
        let same = talk.keep(&ask.messages);
        for message in ask.messages.iter().skip(same) {
            let mut album = Album::default();
            if let Some(pictures) = &self.pictures {
                album.fill(message, &**pictures).await;
            }
            talk.add(message, &album);
        }
        let name = self.spelled.as_str();
        let mut body = Vec::with_capacity(name.len() + head.text().len() + talk.len() + 128);
        let max = ask.max_tokens;
        // Writing to memory can't fail.
        _ = write!(body, r#"{{"model":{name},"max_tokens":{max},"stream":true"#);
        body.extend_from_slice(head.text());
        body.extend_from_slice(br#","messages":"#);
        talk.copy(&mut body);
        body.push(b'}');
        self.kept.put(ask.run, Request { head, talk });
        Ok(body.into())
    }
}

#[async_trait]
impl Model for Anthropic {
    fn quote(&self, ask: &Ask) -> Quote {
        let tariff = self.tariff(ask);
        Quote {
            hold: tariff.hold(weight(ask), ask.max_tokens),
            tariff,
        }
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        let body = self.body(ask).await?;
        let Tariff {
            bytes_per_token,
            fixed_tokens,
            price,
            ..
        } = self.tariff(ask);
        let asked = weight(ask).div_ceil(bytes_per_token.max(1));
        let mut draft = Draft::new(fixed_tokens.saturating_add(asked), bytes_per_token);
        self.line.ask(body, &mut draft, ear).await?;
        let Said {
            reply,
            stop,
            usage,
            model,
        } = draft.finish();
        Ok(Answered {
            reply,
            stop,
            usage,
            cost: price.map(|price| price.of(usage)),
            model: model.unwrap_or_else(|| self.model.clone()),
        })
    }
}

/// The bytes of the conversation so far.
fn weight(ask: &Ask) -> u64 {
    ask.messages.iter().map(|message| message.bytes()).sum()
}

fn headers(settings: &Settings) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
    for (name, value) in &settings.headers {
        let bad = |_| format!("the header `{name}` can't be sent");
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(()))?;
        headers.insert(known, HeaderValue::from_str(value).map_err(|_| bad(()))?);
    }
    if let Some(key) = &settings.key {
        let (name, value) = match settings.login {
            Login::Key => (
                HeaderName::from_static("x-api-key"),
                key.reveal().to_owned(),
            ),
            Login::Bearer => (AUTHORIZATION, format!("Bearer {}", key.reveal())),
        };
        let value = HeaderValue::from_str(&value);
        let mut value = value.map_err(|_| "the key has letters that no key has")?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}
