//! A reply while it comes in over the stream of the Messages API.
//!
//! Never: finished before the provider says so.

use std::collections::BTreeMap;

use longhaul_core::message::Reply;
use longhaul_core::port::model::Ear;
use longhaul_core::usage::Usage;
use serde_json::value::RawValue;

use crate::adapter::{Draft, Said};
use crate::anthropic::block::Open;
use crate::anthropic::counts::Counts;
use crate::anthropic::wire::{Delta, Ending, Frame, Letter, says_error, stop};
use crate::arguments::check_count;
use crate::exchange::{Codec, Fault, Heed};
use crate::guess::Guess;
use crate::sse::Event;

/// The end as other providers say it, which some servers say here too.
const DONE: &str = "[DONE]";

/// A reply in the making.
#[derive(Debug, Default)]
pub(super) struct Reading {
    dialect: String,
    /// What it weighs, where nobody counts.
    guess: Guess,
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
    pub(super) fn new(dialect: String, guess: Guess) -> Self {
        Self {
            dialect,
            guess,
            ..Self::default()
        }
    }

    fn guess(&self) -> Usage {
        self.guess.usage(self.bytes)
    }

    /// Hears a frame, which came as this.
    fn hear(&mut self, frame: &Frame<'_>, raw: &str, ear: &dyn Ear) -> Result<Heed, Fault> {
        match frame.kind.as_str() {
            "message_start" => self.begin(frame)?,
            "content_block_start" => self.open(frame, ear)?,
            "content_block_delta" => self.grow(frame, ear)?,
            "message_delta" => self.end(frame)?,
            "message_stop" => return Ok(Heed::Over),
            // A block's end adds nothing: all of them end with the message.
            "content_block_stop" => {}
            "ping" => return Ok(Heed::Idle),
            _ if frame.error.is_some_and(says_error) => {
                return Err(Fault::Told(raw.to_owned()));
            }
            _ => return Ok(Heed::Idle),
        }
        Ok(Heed::Moved)
    }

    fn begin(&mut self, frame: &Frame<'_>) -> Result<(), Fault> {
        let letter: Letter<'_> = read(frame.message, "message")?;
        self.model = letter.model.or_else(|| self.model.take());
        if let Some(usage) = letter.usage {
            self.counts.hear(usage.get());
        }
        Ok(())
    }

    fn open(&mut self, frame: &Frame<'_>, ear: &dyn Ear) -> Result<(), Fault> {
        let raw = part(frame.content_block, "content_block")?;
        let index = match frame.index {
            Some(_) => read(frame.index, "index")?,
            None => self.blocks.len() as u64,
        };
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
            Some(_) => self.places.get(&read(frame.index, "index")?).copied(),
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
        let index = match frame.index {
            Some(_) => read(frame.index, "index")?,
            None => 0,
        };
        let place = self.blocks.len();
        self.places.insert(index, place);
        self.blocks.push(Open::text());
        self.blocks
            .get_mut(place)
            .ok_or_else(|| Fault::Nonsense("a block that is nowhere".to_owned()))
    }

    fn end(&mut self, frame: &Frame<'_>) -> Result<(), Fault> {
        if frame.delta.is_some() {
            let ending: Ending = read(frame.delta, "delta")?;
            self.reason = ending.stop_reason.or_else(|| self.reason.take());
        }
        if let Some(usage) = frame.usage {
            self.counts.hear_last(usage.get());
        }
        Ok(())
    }
}

impl Draft for Reading {
    fn finish(self) -> Said {
        let usage = self.counts.settle(self.guess());
        let reply = Reply {
            dialect: self.dialect,
            blocks: self.blocks.into_iter().map(Open::close).collect(),
        };
        let has_calls = reply.calls().next().is_some();
        Said {
            stop: stop(self.reason.as_deref(), has_calls),
            reply,
            usage,
            model: self.model,
        }
    }
}

impl Codec for Reading {
    fn event(&mut self, event: &Event, ear: &dyn Ear) -> Result<Heed, Fault> {
        if event.data == DONE || event.data.is_empty() {
            return Ok(Heed::Idle);
        }
        let bad = |bad: serde_json::Error| Fault::Nonsense(format!("an event is no JSON: {bad}"));
        let mut heed = Heed::Idle;
        for raw in event.read::<&RawValue>().map_err(bad)? {
            let mut frame: Frame<'_> = serde_json::from_str(raw.get()).map_err(bad)?;
            if frame.kind.is_empty() {
                frame.kind = event.name.clone().unwrap_or_default();
            }
            if frame.kind == "error" {
                return Err(Fault::Told(raw.get().to_owned()));
            }
            match self.hear(&frame, raw.get(), ear)? {
                Heed::Idle => {}
                Heed::Moved => heed = Heed::Moved,
                Heed::Over => return Ok(Heed::Over),
            }
        }
        Ok(heed)
    }

    fn whole(&mut self, body: &[u8], ear: &dyn Ear) -> Result<(), Fault> {
        let text = std::str::from_utf8(body);
        let text = text.map_err(|_| Fault::Nonsense("the reply is no text".to_owned()))?;
        let letter = serde_json::from_str::<Letter<'_>>(text);
        let letter = match letter {
            Ok(letter) if letter.kind == "error" => return Err(Fault::Told(text.to_owned())),
            Ok(letter) if letter.content.is_some() => letter,
            Ok(letter) if letter.error.is_some_and(says_error) => {
                return Err(Fault::Told(text.to_owned()));
            }
            Ok(_) | Err(_) => {
                let what = "neither a stream nor a message";
                return Err(Fault::Nonsense(what.to_owned()));
            }
        };
        for block in letter.content.unwrap_or_default() {
            self.push(block.get(), ear)?;
        }
        if let Some(usage) = letter.usage {
            self.counts.hear_last(usage.get());
        }
        self.reason = letter.stop_reason;
        self.model = letter.model;
        Ok(())
    }

    fn used(&self) -> Usage {
        self.counts.so_far(self.guess())
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

fn part<'a>(raw: Option<&'a RawValue>, name: &str) -> Result<&'a str, Fault> {
    raw.map(RawValue::get)
        .ok_or_else(|| Fault::Nonsense(format!("an event without its `{name}`")))
}

fn read<'a, T: serde::Deserialize<'a>>(raw: Option<&'a RawValue>, name: &str) -> Result<T, Fault> {
    serde_json::from_str(part(raw, name)?)
        .map_err(|bad| Fault::Nonsense(format!("the `{name}` of an event: {bad}")))
}
