//! A reply while it comes in over the stream of the Responses API.
//!
//! Never: finished before the provider says so.

use std::collections::{BTreeMap, HashMap};

use longhaul_core::port::model::Ear;
use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;

use crate::adapter::{Draft, Said, reply};
use crate::arguments::{check_count, says};
use crate::counts::Counts;
use crate::exchange::{Codec, Heed, called, each, no_json, part};
use crate::fault::Fault;
use crate::fields::Fields;
use crate::object::Object;
use crate::responses::blocks::spoken;
use crate::responses::item::Open;
use crate::responses::wire::{Ending, Piece, USAGE};
use crate::sse::Event;

/// What is told of a failure that comes without an error.
const NO_ERROR: &str = r#"{"message":"it does not say why"}"#;

/// A reply in the making.
#[derive(Debug, Default)]
pub(super) struct Reading {
    model: Option<String>,
    counts: Counts,
    ending: Ending,
    items: Vec<Open>,
    /// Which item has which index; a new one takes it from an old one.
    places: BTreeMap<u64, usize>,
    /// And which has which id.
    ids: HashMap<String, usize>,
}

impl Reading {
    fn hear(&mut self, kind: &str, frame: &Object<'_>, ear: &dyn Ear) -> Result<Heed, Fault> {
        match kind {
            "response.created" | "response.in_progress" => self.begin(frame),
            "response.output_item.added" => self.open(frame, ear)?,
            "response.output_item.done" => self.close(frame, ear)?,
            "response.content_part.added" | "response.content_part.done" => {
                self.part(frame, ear)?;
            }
            "response.completed" => return self.end(frame, "completed", ear),
            "response.incomplete" => return self.end(frame, "incomplete", ear),
            "response.failed" => return self.end(frame, "failed", ear),
            other => match Piece::of(other) {
                Some((piece, whole)) => self.grow(frame, piece, whole, ear)?,
                None => return Ok(Heed::Idle),
            },
        }
        Ok(Heed::Moved)
    }

    /// Hears the beginning, which a reply can do without.
    fn begin(&mut self, frame: &Object<'_>) {
        let model = frame
            .object("response")
            .and_then(|response| response.text("model"));
        self.model = model.or_else(|| self.model.take());
    }

    fn open(&mut self, frame: &Object<'_>, ear: &dyn Ear) -> Result<(), Fault> {
        let (item, at) = self.item(frame)?;
        // A piece of it may have come before it.
        let late = self.find(&at).filter(|place| {
            let late = self.items.get(*place);
            late.is_some_and(|late| !late.has_begun())
        });
        let open = self.take(late, at)?;
        open.begin(item, ear);
        Ok(())
    }

    fn close(&mut self, frame: &Object<'_>, ear: &dyn Ear) -> Result<(), Fault> {
        let (item, at) = self.item(frame)?;
        let found = self.find(&at);
        let before = found.and_then(|place| self.items.get(place));
        if at.id.is_some() && before.is_some_and(|before| before.is_just(&item)) {
            return Ok(());
        }
        let begun = found.filter(|_| before.is_some_and(|before| !before.is_whole));
        let open = self.take(begun, at)?;
        open.finish(item, ear);
        Ok(())
    }

    fn part(&mut self, frame: &Object<'_>, ear: &dyn Ear) -> Result<(), Fault> {
        let place = frame.count("content_index").unwrap_or(0);
        // Other parts come again: with their item, or as the pieces of a thought.
        if let Some((piece, text)) = frame.raw("part").and_then(|part| spoken(part.get())) {
            self.at(frame, piece)?.set((piece, place), text, ear);
        }
        Ok(())
    }

    fn grow(
        &mut self,
        frame: &Object<'_>,
        piece: Piece,
        whole: bool,
        ear: &dyn Ear,
    ) -> Result<(), Fault> {
        let place = frame.count("summary_index");
        let place = place.or_else(|| frame.count("content_index")).unwrap_or(0);
        match whole {
            true => {
                if let Some(text) = frame.said(piece.whole())? {
                    self.at(frame, piece)?.set((piece, place), text, ear);
                }
            }
            false => {
                _ = part(frame, "delta")?;
                let more = frame.said("delta")?.unwrap_or_default();
                self.at(frame, piece)?.grow((piece, place), &more, ear);
            }
        }
        Ok(())
    }

    /// The item of an event, and where it belongs.
    fn item(&self, frame: &Object<'_>) -> Result<(RawJson, At), Fault> {
        let item = object(part(frame, "item")?)?;
        let at = At {
            index: frame.count("output_index"),
            id: id(&item).or_else(|| frame.text("item_id")),
        };
        Ok((item, at))
    }

    /// The item that a piece belongs to; it may begin with it.
    fn at(&mut self, frame: &Object<'_>, piece: Piece) -> Result<&mut Open, Fault> {
        let at = At {
            index: frame.count("output_index"),
            id: frame.text("item_id"),
        };
        let found = self.find(&at).filter(|place| {
            let found = self.items.get(*place);
            found.is_some_and(|found| found.fits(piece))
        });
        self.take(found, at)
    }

    /// An item by its index and its id. Some servers count but change the ids
    /// with each event, others give ids but do not count, or always to 0.
    fn find(&self, at: &At) -> Option<usize> {
        let by_id = at.id.as_ref().and_then(|id| self.ids.get(id)).copied();
        let Some(index) = at.index else {
            let last = self.items.len().checked_sub(1);
            let open = last.filter(|last| self.items.get(*last).is_some_and(|one| !one.is_whole));
            return by_id.or(open);
        };
        let here = |place: &usize| {
            let item = self.items.get(*place);
            item.is_some_and(|item| item.index == index)
        };
        by_id
            .filter(here)
            .or_else(|| self.places.get(&index).copied())
    }

    /// The item in this place, or a new one.
    fn take(&mut self, place: Option<usize>, at: At) -> Result<&mut Open, Fault> {
        let place = match place {
            Some(place) => place,
            None => {
                let index = at.index.unwrap_or(self.items.len() as u64);
                self.items.push(Open::late(index));
                self.places.insert(index, self.items.len() - 1);
                self.items.len() - 1
            }
        };
        if let Some(id) = at.id.filter(|id| !id.is_empty()) {
            self.ids.insert(id, place);
        }
        self.items
            .get_mut(place)
            .ok_or_else(|| Fault::Nonsense("an item that is nowhere".to_owned()))
    }

    fn end(&mut self, frame: &Object<'_>, ended: &str, ear: &dyn Ear) -> Result<Heed, Fault> {
        let response = frame.raw("response").map(|raw| Object::read(raw.get()));
        let response = response.transpose();
        let response = response
            .map_err(|bad| Fault::Nonsense(format!("the `response` of an event: {bad}")))?;
        self.settle(&response.unwrap_or_default(), ended, ear)?;
        Ok(Heed::Over)
    }

    /// Hears the response as it stands at its end.
    fn settle(&mut self, letter: &Object<'_>, ended: &str, ear: &dyn Ear) -> Result<(), Fault> {
        let output = letter.list("output").unwrap_or_default();
        let details = letter.object("incomplete_details");
        let reason = details.and_then(|details| details.word("reason"));
        self.model = letter.text("model").or_else(|| self.model.take());
        if let Some(usage) = letter.raw("usage") {
            self.counts.hear(&USAGE, usage.get());
        }
        let unsettled = ["in_progress", "queued"];
        let status = letter
            .text("status")
            .filter(|status| !unsettled.contains(&status.as_str()));
        let status = status.unwrap_or_else(|| ended.to_owned());
        if status == "failed" || ended == "failed" {
            let error = letter.raw("error").map_or(NO_ERROR, RawValue::get);
            return Err(Fault::Told(error.to_owned()));
        }
        self.take_output(&output, ear)?;
        check_count(self.items.iter().filter(|item| item.is_call()).count())?;
        if self.items.iter().any(Open::is_nameless_call) {
            let what = "arguments of a call that never began";
            return Err(Fault::Nonsense(what.to_owned()));
        }
        self.ending = Ending { status, reason };
        Ok(())
    }

    /// Takes the items from the end of a stream in which some were missing, or
    /// were never whole.
    fn take_output(&mut self, output: &[&RawValue], ear: &dyn Ear) -> Result<(), Fault> {
        let known = self.items.len();
        let complete = known == output.len() && self.items.iter().all(|item| item.is_whole);
        if complete || output.len() < known {
            return Ok(());
        }
        let heard = std::mem::take(&mut self.items);
        let mut heard: Vec<Option<Open>> = heard.into_iter().map(Some).collect();
        for (index, raw) in (0..).zip(output) {
            let item = object(raw.get())?;
            let by_id = id(&item).and_then(|id| self.ids.get(&id));
            let places = [by_id, self.places.get(&index)];
            let mut places = places.into_iter().flatten();
            let before = places.find_map(|place| heard.get_mut(*place).and_then(Option::take));
            let mut open = before.unwrap_or_default();
            open.index = index;
            open.finish(item, ear);
            self.items.push(open);
        }
        Ok(())
    }
}

/// Where an item belongs, as far as an event says.
#[derive(Debug)]
struct At {
    index: Option<u64>,
    id: Option<String>,
}

impl Draft for Reading {
    fn finish(mut self, dialect: &str) -> Said {
        self.items.sort_by_key(|item| item.index);
        let refuses = self.items.iter().any(Open::refuses);
        let blocks = self.items.into_iter().flat_map(Open::close);
        let (reply, has_calls) = reply(dialect, blocks);
        Said {
            stop: self.ending.stop(refuses, has_calls),
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
            let nameless = kind.is_empty() && frame.raw("error").is_some_and(says);
            if nameless || matches!(&*kind, "error" | "response.error") {
                return Err(Fault::Told(raw.get().to_owned()));
            }
            self.hear(&kind, &frame, ear)
        })
    }

    fn whole(&mut self, text: &str, ear: &dyn Ear) -> Result<(), Fault> {
        let strange = || Fault::Nonsense("neither a stream nor a response".to_owned());
        let letter = Object::read(text).map_err(|_| strange())?;
        let has_output = letter.list("output").is_some();
        if letter.text("type").as_deref() == Some("error") {
            return Err(Fault::Told(text.to_owned()));
        }
        match (letter.text("status").as_deref(), letter.raw("error")) {
            (Some("in_progress" | "queued"), _) => {
                let what = "a response that is not finished";
                return Err(Fault::Nonsense(what.to_owned()));
            }
            (Some("failed"), _) => {}
            (_, Some(error)) if !has_output && says(error) => {
                return Err(Fault::Told(format!(r#"{{"error":{}}}"#, error.get())));
            }
            (_, _) if !has_output => return Err(strange()),
            (_, _) => {}
        }
        self.settle(&letter, "completed", ear)
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn bytes(&self) -> u64 {
        self.items.iter().map(Open::bytes).sum()
    }
}

fn object(raw: &str) -> Result<RawJson, Fault> {
    let item = RawJson::parse(raw).map_err(|bad| Fault::Nonsense(bad.to_string()))?;
    match item.as_str().starts_with('{') {
        true => Ok(item),
        false => Err(Fault::Nonsense("an item that is no object".to_owned())),
    }
}

fn id(item: &RawJson) -> Option<String> {
    let id = Fields::read(item.as_str())?.take_text("id");
    id.filter(|id| !id.is_empty())
}
