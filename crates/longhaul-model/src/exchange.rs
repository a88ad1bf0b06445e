//! One exchange with a provider: the question goes out, the codec hears the answer.
//!
//! Never: knows what a provider's JSON means, or asks again when it failed.

use std::sync::Arc;

use bytes::Bytes;
use longhaul_core::failure::Failure;
use longhaul_core::port::model::Ear;
use longhaul_core::redact::Redactor;
use longhaul_core::time::Clock;
use longhaul_core::usage::{Tariff, Usage};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde_json::value::RawValue;

use crate::blame::Blame;
use crate::counts::{Counts, UsagePaths};
use crate::fault::Fault;
use crate::http::Http;
use crate::http::answer::Answer;
use crate::http::trouble::Trouble;
use crate::object::Object;
use crate::sse::{Event, Events};

/// Somebody who puts a reply together from what a provider sends.
pub(crate) trait Codec: Send {
    /// Hears one event; words for the reader go to `ear`.
    fn event(&mut self, event: &Event, ear: &dyn Ear) -> Result<Heed, Fault>;

    /// Hears a reply that came whole, from a server that does not stream.
    fn whole(&mut self, body: &str, ear: &dyn Ear) -> Result<(), Fault>;

    /// Whether all was said that makes a reply, should the stream end here. Only
    /// for providers who may leave out the event that closes a stream.
    fn is_whole(&self) -> bool {
        false
    }

    /// The tokens that were counted so far.
    fn counts(&self) -> Counts;

    /// So much of a reply has come, for a guess where nobody counts.
    fn bytes(&self) -> u64;
}

/// What an event was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heed {
    /// A sign of life.
    Idle,
    /// Something of the reply.
    Moved,
    /// The end of the reply.
    Over,
}

/// Passes words on, where there are any.
pub(crate) fn say(words: &str, ear: &dyn Ear) {
    if !words.is_empty() {
        ear.words(words);
    }
}

/// The end as some providers say it, and servers that speak as others do say too.
const DONE: &str = "[DONE]";

/// The objects in an event; none: it says nothing, or that all was said.
pub(crate) fn objects(event: &Event) -> Result<Vec<&RawValue>, Fault> {
    if event.data == DONE || event.data.is_empty() {
        return Ok(Vec::new());
    }
    let objects: Vec<&RawValue> = event.read().map_err(no_json)?;
    match objects.iter().all(|raw| raw.get().starts_with('{')) {
        true => Ok(objects),
        false => Err(Fault::Nonsense("an event that is no object".to_owned())),
    }
}

/// Hears the objects of an event one after another, until one is the end.
pub(crate) fn each<'a>(
    event: &'a Event,
    mut hear: impl FnMut(&'a RawValue) -> Result<Heed, Fault>,
) -> Result<Heed, Fault> {
    let mut heed = Heed::Idle;
    for raw in objects(event)? {
        match hear(raw)? {
            Heed::Idle => {}
            Heed::Moved => heed = Heed::Moved,
            Heed::Over => return Ok(Heed::Over),
        }
    }
    Ok(heed)
}

/// The kind of a frame: as it says itself, or as the event around it is called.
pub(crate) fn called(frame: &Object<'_>, event: &Event) -> String {
    let kind = frame.text("type").filter(|kind| !kind.is_empty());
    kind.or_else(|| event.name.clone()).unwrap_or_default()
}

/// A field without which a frame means nothing.
pub(crate) fn part<'a>(frame: &Object<'a>, name: &str) -> Result<&'a str, Fault> {
    let raw = frame.raw(name).map(RawValue::get);
    raw.ok_or_else(|| Fault::Nonsense(format!("an event without its `{name}`")))
}

/// What an event says makes no sense.
pub(crate) fn no_json(bad: serde_json::Error) -> Fault {
    Fault::Nonsense(format!("an event is no JSON: {bad}"))
}

/// A line to one operation of a provider.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) provider: String,
    pub(crate) http: Http,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) secrets: Redactor,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where the provider counts tokens.
    pub(crate) usage: &'static UsagePaths,
}

/// What a question is estimated by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) tariff: Tariff,
    /// The bytes of the conversation in it.
    pub(crate) bytes: u64,
}

impl Sent {
    /// What was used, about, where the provider does not say it.
    pub(crate) fn used(&self, codec: &dyn Codec) -> Usage {
        self.tariff.estimate(self.bytes, codec.bytes())
    }
}

/// How hearing ended without a reply.
enum Ended {
    Trouble(Trouble),
    Fault(Fault),
    /// The answer is this, which is no reply, and why not.
    Strange(String, Vec<u8>),
}

impl From<Trouble> for Ended {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl Line {
    /// Sends a question and lets the codec hear the answer to its end.
    pub(crate) async fn ask(
        &self,
        (body, question): (Bytes, Sent),
        codec: &mut dyn Codec,
        ear: &dyn Ear,
    ) -> Result<(), Failure> {
        let sent = self.http.post(&self.url, &self.headers, body).await;
        let mut answer = sent.map_err(|trouble| self.blame().lost(&trouble, None))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if !(200..300).contains(&status) {
            let body = answer.beginning().await;
            return Err(self.blame().refused(status, &headers, &body));
        }
        let heard = match answer.is_stream() {
            true => self.hear(answer, codec, ear).await,
            false => self.hear_whole(answer, codec, ear).await,
        };
        heard.map_err(|ended| {
            let blame = self.blame();
            let failure = match ended {
                Ended::Trouble(trouble) => blame.lost(&trouble, Some(&headers)),
                Ended::Fault(Fault::Told(error)) => blame.told(&headers, &error),
                Ended::Fault(Fault::Nonsense(what)) => blame.nonsense(&headers, &what),
                Ended::Fault(Fault::TooMuch(what)) => blame.too_much(&headers, &what),
                Ended::Strange(what, body) => blame.strange(&headers, &what, &body),
            };
            Failure {
                usage: Some(codec.counts().so_far(self.usage, question.used(codec))),
                ..failure
            }
        })
    }

    async fn hear(
        &self,
        answer: Answer,
        codec: &mut dyn Codec,
        ear: &dyn Ear,
    ) -> Result<(), Ended> {
        let stall = self.http.limits().stall;
        let mut events = Events::new(answer);
        loop {
            let moved = tokio::time::timeout(stall, step(&mut events, codec, ear)).await;
            match moved.map_err(|_| Trouble::Stall(stall))?? {
                Heed::Over => break,
                Heed::Moved | Heed::Idle => {}
            }
        }
        events.drain().await;
        Ok(())
    }

    async fn hear_whole(
        &self,
        mut answer: Answer,
        codec: &mut dyn Codec,
        ear: &dyn Ear,
    ) -> Result<(), Ended> {
        let Some(body) = answer.whole().await? else {
            return self.hear(answer, codec, ear).await;
        };
        let heard = match std::str::from_utf8(&body) {
            Ok(text) => codec.whole(text, ear),
            Err(_) => Err(Fault::Nonsense("the reply is no text".to_owned())),
        };
        heard.map_err(|fault| match fault {
            Fault::Told(_) | Fault::TooMuch(_) => Ended::Fault(fault),
            Fault::Nonsense(what) => Ended::Strange(what, body),
        })
    }

    fn blame(&self) -> Blame<'_> {
        Blame {
            provider: &self.provider,
            secrets: &self.secrets,
            now: self.clock.now(),
        }
    }
}

/// Hears events until one moves the reply on.
async fn step(events: &mut Events, codec: &mut dyn Codec, ear: &dyn Ear) -> Result<Heed, Ended> {
    while let Some(event) = events.next().await? {
        match codec.event(&event, ear) {
            Ok(Heed::Idle) => {}
            Ok(heed @ (Heed::Moved | Heed::Over)) => return Ok(heed),
            // Half an event is the end of the stream, not nonsense.
            Err(Fault::Nonsense(_)) if event.torn => return Err(Trouble::Cut.into()),
            Err(fault) => return Err(Ended::Fault(fault)),
        }
    }
    match codec.is_whole() {
        true => Ok(Heed::Over),
        false => Err(Trouble::Cut.into()),
    }
}
