//! A reply while it comes in over the stream of the Responses API.
//!
//! Never: finished before the provider says so.

use std::collections::{BTreeMap, HashMap};

use longhaul_core::port::model::DeltaSink;
use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;

use crate::adapter::{DecodedReply, ResponseDecoder, build_reply};
use crate::decode_error::DecodeError;
use crate::exchange::{
    EventDecoder, EventEffect, decode_objects, event_type, invalid_json, required_field,
};
use crate::json_object::JsonObject;
use crate::lenient_json::{check_call_count, is_present};
use crate::lenient_object::LenientObject;
use crate::responses::blocks::visible_text;
use crate::responses::item::ItemBuilder;
use crate::responses::wire::{FragmentKind, StopInfo, USAGE};
use crate::sse::SseEvent;
use crate::token_counts::TokenCounts;

/// What is told of a failure that comes without an error.
const UNKNOWN_ERROR: &str = r#"{"message":"it does not say why"}"#;

/// A reply in the making.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    model: Option<String>,
    counts: TokenCounts,
    stop_info: StopInfo,
    items: Vec<ItemBuilder>,
    /// Which item has which index; a new one takes it from an old one.
    item_by_index: BTreeMap<u64, usize>,
    /// And which has which id.
    item_by_id: HashMap<String, usize>,
}

impl StreamDecoder {
    fn on_stream_event(
        &mut self,
        kind: &str,
        frame: &LenientObject<'_>,
        ear: &dyn DeltaSink,
    ) -> Result<EventEffect, DecodeError> {
        match kind {
            "response.created" | "response.in_progress" => self.on_created(frame),
            "response.output_item.added" => self.on_item_added(frame, ear)?,
            "response.output_item.done" => self.on_item_done(frame, ear)?,
            "response.content_part.added" | "response.content_part.done" => {
                self.on_content_part(frame, ear)?;
            }
            "response.completed" => return self.on_response_end(frame, "completed", ear),
            "response.incomplete" => return self.on_response_end(frame, "incomplete", ear),
            "response.failed" => return self.on_response_end(frame, "failed", ear),
            other => match FragmentKind::from_event_type(other) {
                Some((piece, whole)) => self.on_fragment(frame, piece, whole, ear)?,
                None => return Ok(EventEffect::Ignored),
            },
        }
        Ok(EventEffect::Progress)
    }

    /// Hears the beginning, which a reply can do without.
    fn on_created(&mut self, frame: &LenientObject<'_>) {
        let model = frame.object("response").and_then(|response| response.text("model"));
        self.model = model.or_else(|| self.model.take());
    }

    fn on_item_added(
        &mut self,
        frame: &LenientObject<'_>,
        ear: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let (item, at) = self.parse_item(frame)?;
        // A piece of it may have come before it.
        let late = self.find_item(&at).filter(|place| {
            let late = self.items.get(*place);
            late.is_some_and(|late| !late.has_started())
        });
        let open = self.item_at(late, at)?;
        open.start(item, ear);
        Ok(())
    }

    fn on_item_done(
        &mut self,
        frame: &LenientObject<'_>,
        ear: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let (item, at) = self.parse_item(frame)?;
        let found = self.find_item(&at);
        let before = found.and_then(|place| self.items.get(place));
        if at.id.is_some() && before.is_some_and(|before| before.is_same_item(&item)) {
            return Ok(());
        }
        let begun = found.filter(|_| before.is_some_and(|before| !before.is_complete));
        let open = self.item_at(begun, at)?;
        open.finish(item, ear);
        Ok(())
    }

    fn on_content_part(
        &mut self,
        frame: &LenientObject<'_>,
        ear: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let place = frame.count("content_index").unwrap_or(0);
        // Other parts come again: with their item, or as the pieces of a thought.
        if let Some((piece, text)) = frame.raw("part").and_then(|part| visible_text(part.get())) {
            self.item_for(frame, piece)?.replace((piece, place), text, ear);
        }
        Ok(())
    }

    fn on_fragment(
        &mut self,
        frame: &LenientObject<'_>,
        piece: FragmentKind,
        whole: bool,
        ear: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let place = frame.count("summary_index");
        let place = place.or_else(|| frame.count("content_index")).unwrap_or(0);
        match whole {
            true => {
                if let Some(text) = frame.strict_text(piece.full_text())? {
                    self.item_for(frame, piece)?.replace((piece, place), text, ear);
                }
            }
            false => {
                _ = required_field(frame, "delta")?;
                let more = frame.strict_text("delta")?.unwrap_or_default();
                self.item_for(frame, piece)?.append((piece, place), &more, ear);
            }
        }
        Ok(())
    }

    /// The item of an event, and where it belongs.
    fn parse_item(&self, frame: &LenientObject<'_>) -> Result<(RawJson, ItemKey), DecodeError> {
        let item = parse_object(required_field(frame, "item")?)?;
        let at = ItemKey {
            index: frame.count("output_index"),
            id: item_id(&item).or_else(|| frame.text("item_id")),
        };
        Ok((item, at))
    }

    /// The item that a piece belongs to; it may begin with it.
    fn item_for(
        &mut self,
        frame: &LenientObject<'_>,
        piece: FragmentKind,
    ) -> Result<&mut ItemBuilder, DecodeError> {
        let at = ItemKey { index: frame.count("output_index"), id: frame.text("item_id") };
        let found = self.find_item(&at).filter(|place| {
            let found = self.items.get(*place);
            found.is_some_and(|found| found.accepts(piece))
        });
        self.item_at(found, at)
    }

    /// An item by its index and its id. Some servers count but change the ids
    /// with each event, others give ids but do not count, or always to 0.
    fn find_item(&self, at: &ItemKey) -> Option<usize> {
        let by_id = at.id.as_ref().and_then(|id| self.item_by_id.get(id)).copied();
        let Some(index) = at.index else {
            let last = self.items.len().checked_sub(1);
            let open =
                last.filter(|last| self.items.get(*last).is_some_and(|one| !one.is_complete));
            return by_id.or(open);
        };
        let here = |place: &usize| {
            let item = self.items.get(*place);
            item.is_some_and(|item| item.index == index)
        };
        by_id.filter(here).or_else(|| self.item_by_index.get(&index).copied())
    }

    /// The item in this place, or a new one.
    fn item_at(
        &mut self,
        place: Option<usize>,
        at: ItemKey,
    ) -> Result<&mut ItemBuilder, DecodeError> {
        let place = match place {
            Some(place) => place,
            None => {
                let index = at.index.unwrap_or(self.items.len() as u64);
                self.items.push(ItemBuilder::from_index(index));
                self.item_by_index.insert(index, self.items.len() - 1);
                self.items.len() - 1
            }
        };
        if let Some(id) = at.id.filter(|id| !id.is_empty()) {
            self.item_by_id.insert(id, place);
        }
        self.items
            .get_mut(place)
            .ok_or_else(|| DecodeError::Malformed("an item that is nowhere".to_owned()))
    }

    fn on_response_end(
        &mut self,
        frame: &LenientObject<'_>,
        ended: &str,
        ear: &dyn DeltaSink,
    ) -> Result<EventEffect, DecodeError> {
        let response = frame.raw("response").map(|raw| LenientObject::parse(raw.get()));
        let response = response.transpose();
        let response = response
            .map_err(|bad| DecodeError::Malformed(format!("the `response` of an event: {bad}")))?;
        self.finish_response(&response.unwrap_or_default(), ended, ear)?;
        Ok(EventEffect::Done)
    }

    /// Hears the response as it stands at its end.
    fn finish_response(
        &mut self,
        letter: &LenientObject<'_>,
        ended: &str,
        ear: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let output = letter.list("output").unwrap_or_default();
        let details = letter.object("incomplete_details");
        let reason = details.and_then(|details| details.text_or_number("reason"));
        self.model = letter.text("model").or_else(|| self.model.take());
        if let Some(usage) = letter.raw("usage") {
            self.counts.update(&USAGE, usage.get());
        }
        let unsettled = ["in_progress", "queued"];
        let status = letter.text("status").filter(|status| !unsettled.contains(&status.as_str()));
        let status = status.unwrap_or_else(|| ended.to_owned());
        if status == "failed" || ended == "failed" {
            let error = letter.raw("error").map_or(UNKNOWN_ERROR, RawValue::get);
            return Err(DecodeError::ProviderError(error.to_owned()));
        }
        self.merge_output(&output, ear)?;
        check_call_count(self.items.iter().filter(|item| item.is_call()).count())?;
        if self.items.iter().any(ItemBuilder::is_unknown_call) {
            let what = "arguments of a call that never began";
            return Err(DecodeError::Malformed(what.to_owned()));
        }
        self.stop_info = StopInfo { status, reason };
        Ok(())
    }

    /// Takes the items from the end of a stream in which some were missing, or
    /// were never whole.
    fn merge_output(
        &mut self,
        output: &[&RawValue],
        ear: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let known = self.items.len();
        let complete = known == output.len() && self.items.iter().all(|item| item.is_complete);
        if complete || output.len() < known {
            return Ok(());
        }
        let heard = std::mem::take(&mut self.items);
        let mut heard: Vec<Option<ItemBuilder>> = heard.into_iter().map(Some).collect();
        for (index, raw) in (0..).zip(output) {
            let item = parse_object(raw.get())?;
            let by_id = item_id(&item).and_then(|id| self.item_by_id.get(&id));
            let places = [by_id, self.item_by_index.get(&index)];
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
struct ItemKey {
    index: Option<u64>,
    id: Option<String>,
}

impl ResponseDecoder for StreamDecoder {
    fn finish(mut self, dialect: &str) -> DecodedReply {
        self.items.sort_by_key(|item| item.index);
        let refuses = self.items.iter().any(ItemBuilder::is_refusal);
        let blocks = self.items.into_iter().flat_map(ItemBuilder::into_blocks);
        let (reply, has_calls) = build_reply(dialect, blocks);
        DecodedReply {
            stop: self.stop_info.stop_reason(refuses, has_calls),
            reply,
            model: self.model,
        }
    }
}

impl EventDecoder for StreamDecoder {
    fn decode_event(
        &mut self,
        event: &SseEvent,
        ear: &dyn DeltaSink,
    ) -> Result<EventEffect, DecodeError> {
        decode_objects(event, |raw| {
            let frame = LenientObject::parse(raw.get()).map_err(invalid_json)?;
            let kind = event_type(&frame, event);
            let nameless = kind.is_empty() && frame.raw("error").is_some_and(is_present);
            if nameless || matches!(&*kind, "error" | "response.error") {
                return Err(DecodeError::ProviderError(raw.get().to_owned()));
            }
            self.on_stream_event(&kind, &frame, ear)
        })
    }

    fn decode_body(&mut self, text: &str, ear: &dyn DeltaSink) -> Result<(), DecodeError> {
        let strange = || DecodeError::Malformed("neither a stream nor a response".to_owned());
        let letter = LenientObject::parse(text).map_err(|_| strange())?;
        let has_output = letter.list("output").is_some();
        if letter.text("type").as_deref() == Some("error") {
            return Err(DecodeError::ProviderError(text.to_owned()));
        }
        match (letter.text("status").as_deref(), letter.raw("error")) {
            (Some("in_progress" | "queued"), _) => {
                let what = "a response that is not finished";
                return Err(DecodeError::Malformed(what.to_owned()));
            }
            (Some("failed"), _) => {}
            (_, Some(error)) if !has_output && is_present(error) => {
                return Err(DecodeError::ProviderError(format!(r#"{{"error":{}}}"#, error.get())));
            }
            (_, _) if !has_output => return Err(strange()),
            (_, _) => {}
        }
        self.finish_response(&letter, "completed", ear)
    }

    fn counts(&self) -> TokenCounts {
        self.counts
    }

    fn received_bytes(&self) -> u64 {
        self.items.iter().map(ItemBuilder::bytes).sum()
    }
}

fn parse_object(raw: &str) -> Result<RawJson, DecodeError> {
    let item = RawJson::parse(raw).map_err(|bad| DecodeError::Malformed(bad.to_string()))?;
    match item.as_str().starts_with('{') {
        true => Ok(item),
        false => Err(DecodeError::Malformed("an item that is no object".to_owned())),
    }
}

fn item_id(item: &RawJson) -> Option<String> {
    let id = JsonObject::parse(item.as_str())?.take_text("id");
    id.filter(|id| !id.is_empty())
}
