//! A reply while it comes in over the stream of the Messages API.
//!
//! Never: finished before the provider says so.

use std::collections::BTreeMap;

use longhaul_core::port::model::Ear;
use serde_json::value::RawValue;

use crate::adapter::{Draft, Said, reply};
use crate::anthropic::block::Open;
use crate::anthropic::wire::{Delta, Ending, Frame, Letter, USAGE, stop};
use crate::arguments::{check_count, says};
use crate::counts::Counts;
use crate::exchange::{Codec, Fault, Heed, called, each, no_json, part};
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
    /// Hears a frame, which came as this.
    fn hear(&mut self, frame: &Frame<'_>, raw: &str, ear: &dyn Ear) -> Result<Heed, Fault> {
        match frame.kind.as_deref().unwrap_or_default() {
            "message_start" => self.begin(frame),
            "content_block_start" => self.open(frame, ear)?,
            "content_block_delta" => self.grow(frame, ear)?,
            "message_delta" => self.end(frame),
            "message_stop" => return Ok(Heed::Over),
            // A block's end adds nothing: all of them end with the message.
            "content_block_stop" => {}
            "ping" => return Ok(Heed::Idle),
            // Servers that only speak this API leave out the kind around an error.
            _ if frame.error.is_some_and(says) => {
                return Err(Fault::Told(raw.to_owned()));
            }
            _ => return Ok(Heed::Idle),
        }
        Ok(Heed::Moved)
    }

    /// Hears the beginning, which a reply can do without.
    fn begin(&mut self, frame: &Frame<'_>) {
        let letter = frame.message.map(|raw| serde_json::from_str(raw.get()));
        let Some(Ok(letter)) = letter else {
            return;
        };
        let letter: Letter<'_> = letter;
        self.model = letter.model.or_else(|| self.model.take());
        if let Some(usage) = letter.usage {
            self.counts.hear_first(&USAGE, usage.get());
        }
    }

    fn open(&mut self, frame: &Frame<'_>, ear: &dyn Ear) -> Result<(), Fault> {
        let raw = part(frame.content_block, "content_block")?;
        let index = frame.index.unwrap_or(self.blocks.len() as u64);
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

    fn grow(&mut self, frame: &Frame<'_>, ear: &dyn Ear) -> Result<(), Fault> {
        let raw = part(frame.delta, "delta")?;
        let delta = Delta::read(raw)
            .map_err(|bad| Fault::Nonsense(format!("the `delta` of an event: {bad}")))?;
        let place = match frame.index {
            Some(index) => self.places.get(&index).copied(),
            // Without an index it can only be the block that began last.
            None => self.blocks.len().checked_sub(1),
        };
        let block = match place.and_then(|place| self.blocks.get_mut(place)) {
            Some(block) => block,
            None => self.begin_late(frame, &delta)?,
        };
        let words = block.grow(&delta, raw);
        say(words, ear);
        self.bytes += added(&delta);
        Ok(())
    }

    /// A text can do without its beginning; a call can't.
    fn begin_late(&mut self, frame: &Frame<'_>, delta: &Delta<'_>) -> Result<&mut Open, Fault> {
        if delta.kind != "text_delta" {
            let kind = &delta.kind;
            return Err(Fault::Nonsense(format!(
                "`{kind}` for a block that never began"
            )));
        }
        let place = self.blocks.len();
        self.places.insert(frame.index.unwrap_or(0), place);
        self.blocks.push(Open::text());
        self.blocks
            .get_mut(place)
            .ok_or_else(|| Fault::Nonsense("a block that is nowhere".to_owned()))
    }

    fn end(&mut self, frame: &Frame<'_>) {
        let ending = frame.delta.map(|raw| serde_json::from_str(raw.get()));
        if let Some(Ok(Ending { stop_reason })) = ending {
            self.reason = stop_reason.or_else(|| self.reason.take());
        }
        if let Some(usage) = frame.usage {
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
            let mut frame: Frame<'_> = serde_json::from_str(raw.get()).map_err(no_json)?;
            frame.kind = called(frame.kind, event);
            if frame.kind.as_deref() == Some("error") {
                return Err(Fault::Told(raw.get().to_owned()));
            }
            self.hear(&frame, raw.get(), ear)
        })
    }

    fn whole(&mut self, text: &str, ear: &dyn Ear) -> Result<(), Fault> {
        let strange = || Fault::Nonsense("neither a stream nor a message".to_owned());
        let letter: Letter<'_> = serde_json::from_str(text).map_err(|_| strange())?;
        let content = letter.content.map(|raw| serde_json::from_str(raw.get()));
        let content: Option<Vec<&RawValue>> = content.and_then(Result::ok);
        let bare = content.is_none() && letter.error.is_some_and(says);
        if bare || letter.kind.as_deref() == Some("error") {
            return Err(Fault::Told(text.to_owned()));
        }
        for block in content.ok_or_else(strange)? {
            self.push(block.get(), ear)?;
        }
        if let Some(usage) = letter.usage {
            self.counts.hear(&USAGE, usage.get());
        }
        self.reason = letter.stop_reason;
        self.model = letter.model;
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn say(words: &str, ear: &dyn Ear) {
    if !words.is_empty() {
        ear.words(words);
    }
}

fn added(delta: &Delta<'_>) -> u64 {
    let texts = [&delta.text, &delta.thinking, &delta.partial_json];
    let bytes = texts
        .iter()
        .filter_map(|text| text.as_ref().map(String::len));
    bytes.sum::<usize>() as u64
}
