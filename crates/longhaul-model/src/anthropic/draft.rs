//! A reply while it comes in over the stream of the Messages API.
//!
//! Never: finished before the provider says so.

use std::collections::BTreeMap;

use longhaul_core::port::model::Ear;

use crate::adapter::{Draft, Said, reply};
use crate::anthropic::block::Open;
use crate::anthropic::wire::{USAGE, stop};
use crate::arguments::{check_count, says};
use crate::counts::Counts;
use crate::exchange::{Codec, Heed, called, each, no_json, part, say};
use crate::fault::Fault;
use crate::object::Object;
use crate::sse::Event;

/// A reply in the making.
#[derive(Debug, Default)]
pub(super) struct Reading {
    model: Option<String>,
    counts: Counts,
    reason: Option<String>,
    blocks: Vec<Open>,
    /// So many of them are calls.
    calls: usize,
    /// Which block has which index; a new one takes it from an old one.
    places: BTreeMap<u64, usize>,
    /// So much of a reply has come.
    bytes: u64,
}

impl Reading {
    /// Hears a frame of this kind; `None`: the kind means nothing.
    fn hear(
        &mut self,
        kind: &str,
        frame: &Object<'_>,
        ear: &dyn Ear,
    ) -> Result<Option<Heed>, Fault> {
        match kind {
            "message_start" => self.begin(frame),
            "content_block_start" => self.open(frame, ear)?,
            "content_block_delta" => self.grow(frame, ear)?,
            "message_delta" => self.end(frame),
            "message_stop" => return Ok(Some(Heed::Over)),
            // A block's end adds nothing: all of them end with the message.
            "content_block_stop" => {}
            "ping" => return Ok(Some(Heed::Idle)),
            _ => return Ok(None),
        }
        Ok(Some(Heed::Moved))
    }

    /// Hears the beginning, which a reply can do without.
    fn begin(&mut self, frame: &Object<'_>) {
        let Some(message) = frame.object("message") else {
            return;
        };
        self.model = message.text("model").or_else(|| self.model.take());
        if let Some(usage) = message.raw("usage") {
            self.counts.hear_first(&USAGE, usage.get());
        }
    }

    fn open(&mut self, frame: &Object<'_>, ear: &dyn Ear) -> Result<(), Fault> {
        let raw = part(frame, "content_block")?;
        let index = frame.count("index").unwrap_or(self.blocks.len() as u64);
        self.push(raw, ear)?;
        self.places.insert(index, self.blocks.len() - 1);
        Ok(())
    }

    fn push(&mut self, raw: &str, ear: &dyn Ear) -> Result<(), Fault> {
        let block = Open::new(raw).map_err(Fault::Nonsense)?;
        self.calls += usize::from(block.is_call());
        check_count(self.calls)?;
        self.bytes += raw.len() as u64;
        say(block.words(), ear);
        self.blocks.push(block);
        Ok(())
    }

    fn grow(&mut self, frame: &Object<'_>, ear: &dyn Ear) -> Result<(), Fault> {
        let raw = part(frame, "delta")?;
        let delta = Object::read(raw)
            .map_err(|bad| Fault::Nonsense(format!("the `delta` of an event: {bad}")))?;
        let kind = delta.text("type").unwrap_or_default();
        let place = match frame.count("index") {
            Some(index) => self.places.get(&index).copied(),
            // Without an index it can only be the block that began last.
            None => self.blocks.len().checked_sub(1),
        };
        let block = match place.and_then(|place| self.blocks.get_mut(place)) {
            Some(block) => block,
            None => self.begin_late(frame, &kind)?,
        };
        let (words, bytes) = block.grow(&kind, &delta, raw)?;
        say(&words, ear);
        self.bytes += bytes;
        Ok(())
    }

    /// A text can do without its beginning; a call can't.
    fn begin_late(&mut self, frame: &Object<'_>, kind: &str) -> Result<&mut Open, Fault> {
        if kind != "text_delta" {
            return Err(Fault::Nonsense(format!(
                "`{kind}` for a block that never began"
            )));
        }
        let place = self.blocks.len();
        self.places.insert(frame.count("index").unwrap_or(0), place);
        self.blocks.push(Open::text());
        self.blocks
            .get_mut(place)
            .ok_or_else(|| Fault::Nonsense("a block that is nowhere".to_owned()))
    }

    fn end(&mut self, frame: &Object<'_>) {
        let reason = frame
            .object("delta")
            .and_then(|delta| delta.word("stop_reason"));
        self.reason = reason.or_else(|| self.reason.take());
        if let Some(usage) = frame.raw("usage") {
            self.counts.hear(&USAGE, usage.get());
        }
    }
}

impl Draft for Reading {
    fn finish(self, dialect: &str) -> Said {
        let blocks = self.blocks.into_iter().map(Open::close);
        let (reply, has_calls) = reply(dialect, blocks);
        Said {
            stop: stop(self.reason.as_deref(), has_calls),
            reply,
            model: self.model,
        }
    }
}

impl Codec for Reading {
    fn event(&mut self, event: &Event, ear: &dyn Ear) -> Result<Heed, Fault> {
        each(event, |raw| {
            let frame = Object::read(raw.get()).map_err(no_json)?;
            let kind = called(&frame, event);
            let told = || Err(Fault::Told(raw.get().to_owned()));
            if kind == "error" {
                return told();
            }
            match self.hear(&kind, &frame, ear)? {
                Some(heed) => Ok(heed),
                // Servers that only speak this API leave out the kind around an error.
                None if frame.raw("error").is_some_and(says) => told(),
                None => Ok(Heed::Idle),
            }
        })
    }

    fn whole(&mut self, text: &str, ear: &dyn Ear) -> Result<(), Fault> {
        let strange = || Fault::Nonsense("neither a stream nor a message".to_owned());
        let letter = Object::read(text).map_err(|_| strange())?;
        let content = letter.list("content");
        let bare = content.is_none() && letter.raw("error").is_some_and(says);
        if bare || letter.text("type").as_deref() == Some("error") {
            return Err(Fault::Told(text.to_owned()));
        }
        for block in content.ok_or_else(strange)? {
            self.push(block.get(), ear)?;
        }
        if let Some(usage) = letter.raw("usage") {
            self.counts.hear(&USAGE, usage.get());
        }
        self.reason = letter.word("stop_reason");
        self.model = letter.text("model");
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
