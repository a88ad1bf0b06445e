//! Decoder for replies of the Responses API.
//!
//! Invariant: a stream is complete only after its final event.

use std::collections::{BTreeMap, HashMap};

use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;

use crate::decode_error::{DecodeError, Decoded};
use crate::exchange::{
    DecodedReply, EventEffect, NOT_JSON, ReplyDecoder, build_reply, decode_event_objects,
    event_type, required_field,
};
use crate::json_object::JsonObject;
use crate::lenient_json::{check_tool_call_count, is_non_empty_json_value};
use crate::lenient_object::LenientObject;
use crate::responses::blocks::parse_text_part;
use crate::responses::item::ItemBuilder;
use crate::responses::wire::{ResponseStopInfo, TextKind, USAGE};
use crate::sse::SseEvent;
use crate::token_counts::TokenCounts;

/// Maximum number of output items of a response. Each event of a stream visits all items.
const ITEMS_MAX: usize = 4_096;

/// Error JSON used for a failed response that contains no error.
const UNKNOWN_ERROR: &str = r#"{"message":"no reason given"}"#;

/// Decoder for one reply of the Responses API, with everything received so far.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    model: Option<String>,
    counts: TokenCounts,
    stop_info: ResponseStopInfo,
    items: Vec<ItemBuilder>,
    /// Maps the provider's output index to the position in `items`. A new item with the same index
    /// replaces the old entry.
    item_by_index: BTreeMap<u64, usize>,
    /// Maps an item ID to the position in `items`.
    item_by_id: HashMap<String, usize>,
}

impl StreamDecoder {
    fn on_event(&mut self, kind: &str, event: &LenientObject<'_>) -> Decoded<EventEffect> {
        match kind {
            "response.created" | "response.in_progress" => {
                let response = event.object_field("response");
                let model = response.and_then(|response| response.string_field("model"));
                self.model = model.or_else(|| self.model.take());
            }
            "response.output_item.added" => self.on_item_added(event)?,
            "response.output_item.done" => self.on_item_done(event)?,
            "response.content_part.added" | "response.content_part.done" => {
                self.on_content_part(event)?;
            }
            "response.completed" => return self.on_response_end(event, "completed"),
            "response.incomplete" => return self.on_response_end(event, "incomplete"),
            "response.failed" => return self.on_response_end(event, "failed"),
            other => match TextKind::of_event(other) {
                Some((kind, is_full)) => self.on_fragment(event, kind, is_full)?,
                None => return Ok(EventEffect::Ignored),
            },
        }
        Ok(EventEffect::Progress)
    }

    fn on_item_added(&mut self, event: &LenientObject<'_>) -> Decoded {
        let (item, key) = self.parse_item_of_event(event)?;
        // A fragment may have come before its item.
        let unstarted = self.find_item(&key, |item| !item.has_started());
        self.item_at(unstarted, key)?.start(item);
        Ok(())
    }

    fn on_item_done(&mut self, event: &LenientObject<'_>) -> Decoded {
        let (item, key) = self.parse_item_of_event(event)?;
        let is_repeated = |existing: &ItemBuilder| existing.has_complete_item(&item);
        if key.id.is_some() && self.find_item(&key, is_repeated).is_some() {
            return Ok(());
        }
        let open = self.find_item(&key, |existing| !existing.is_complete);
        self.item_at(open, key)?.complete(item);
        Ok(())
    }

    fn on_content_part(&mut self, event: &LenientObject<'_>) -> Decoded {
        let index = event.number_field("content_index").unwrap_or(0);
        // Other parts are repeated in their item, or come as fragments of reasoning.
        if let Some((kind, text)) =
            event.raw_field("part").and_then(|part| parse_text_part(part.get()))
        {
            self.item_for(event, kind)?.replace_part((kind, index), text);
        }
        Ok(())
    }

    fn on_fragment(&mut self, event: &LenientObject<'_>, kind: TextKind, is_full: bool) -> Decoded {
        let index = event.number_field("summary_index");
        let index = index.or_else(|| event.number_field("content_index")).unwrap_or(0);
        if !is_full {
            _ = required_field(event, "delta")?;
            let delta = event.try_string_field("delta")?.unwrap_or_default();
            self.item_for(event, kind)?.append_fragment((kind, index), &delta);
        } else if let Some(text) = event.try_string_field(kind.full_text_field())? {
            self.item_for(event, kind)?.replace_part((kind, index), text);
        }
        Ok(())
    }

    /// Parses the output item in an event. Also returns the index and ID by which the item is
    /// found.
    fn parse_item_of_event(&self, event: &LenientObject<'_>) -> Decoded<(RawJson, ItemKey)> {
        let item = parse_item_object(required_field(event, "item")?)?;
        let key = ItemKey {
            index: event.number_field("output_index"),
            id: item_id(&item).or_else(|| event.string_field("item_id")),
        };
        Ok((item, key))
    }

    /// Returns the output item that the fragment in an event belongs to. If there is no such item,
    /// adds a new item.
    fn item_for(&mut self, event: &LenientObject<'_>, kind: TextKind) -> Decoded<&mut ItemBuilder> {
        let key = ItemKey {
            index: event.number_field("output_index"),
            id: event.string_field("item_id"),
        };
        let position = self.find_item(&key, |item| item.accepts_fragment(kind));
        self.item_at(position, key)
    }

    /// Returns the position in `items` of the item with this index and ID, if the item fits.
    fn find_item(&self, key: &ItemKey, fits: impl FnOnce(&ItemBuilder) -> bool) -> Option<usize> {
        let position = self.find_item_position(key)?;
        self.items.get(position).is_some_and(fits).then_some(position)
    }

    /// Returns the position in `items` of the item with this index and ID. Some servers count items
    /// but change the ID with every event. Others send IDs but no index, or always the index 0.
    fn find_item_position(&self, key: &ItemKey) -> Option<usize> {
        let by_id = key.id.as_ref().and_then(|id| self.item_by_id.get(id)).copied();
        let Some(index) = key.index else {
            let is_last_open = self.items.last().is_some_and(|last| !last.is_complete);
            return by_id.or(is_last_open.then(|| self.items.len() - 1));
        };
        let has_index =
            |position: &usize| self.items.get(*position).is_some_and(|item| item.index == index);
        by_id.filter(has_index).or_else(|| self.item_by_index.get(&index).copied())
    }

    /// Returns the item at the given position. Without a position, adds and returns a new item.
    fn item_at(&mut self, position: Option<usize>, key: ItemKey) -> Decoded<&mut ItemBuilder> {
        let position = match position {
            Some(position) => position,
            None if self.items.len() >= ITEMS_MAX => {
                return Err(DecodeError::malformed("the response has too many output items"));
            }
            None => {
                let index = key.index.unwrap_or(self.items.len() as u64);
                self.items.push(ItemBuilder::from_output_index(index));
                self.item_by_index.insert(index, self.items.len() - 1);
                self.items.len() - 1
            }
        };
        if let Some(id) = key.id.filter(|id| !id.is_empty()) {
            self.item_by_id.insert(id, position);
        }
        let item = self.items.get_mut(position);
        item.ok_or_else(|| DecodeError::malformed("an event refers to a missing item"))
    }

    fn on_response_end(&mut self, event: &LenientObject<'_>, status: &str) -> Decoded<EventEffect> {
        let response = event.raw_field("response").map(|raw| LenientObject::parse(raw.get()));
        let response = response
            .transpose()
            .map_err(DecodeError::invalid_json("an event has an invalid `response`"))?;
        self.finish_response(&response.unwrap_or_default(), status)?;
        Ok(EventEffect::Done)
    }

    /// Handles the final JSON of the response, from the last event of a stream or from a complete
    /// body.
    fn finish_response(&mut self, response: &LenientObject<'_>, final_status: &str) -> Decoded {
        let output = response.list_field("output").unwrap_or_default();
        let details = response.object_field("incomplete_details");
        let reason = details.and_then(|details| details.string_or_number_field("reason"));
        self.model = response.string_field("model").or_else(|| self.model.take());
        if let Some(usage) = response.raw_field("usage") {
            self.counts.update_from_usage(&USAGE, usage.get());
        }
        let unfinished_statuses = ["in_progress", "queued"];
        let status = response
            .string_field("status")
            .filter(|status| !unfinished_statuses.contains(&status.as_str()));
        let status = status.unwrap_or_else(|| final_status.to_owned());
        if status == "failed" || final_status == "failed" {
            let error = response.raw_field("error").map_or(UNKNOWN_ERROR, RawValue::get);
            return Err(DecodeError::ProviderError(error.to_owned()));
        }
        self.merge_output_items(&output)?;
        check_tool_call_count(self.items.iter().filter(|item| item.is_tool_call()).count())?;
        if self.items.iter().any(ItemBuilder::is_unknown_call) {
            let message = "received arguments of a call that was never started";
            return Err(DecodeError::malformed(message));
        }
        self.stop_info = ResponseStopInfo { status, reason };
        Ok(())
    }

    /// Merges the output items of the final event into `items`, if items are missing or incomplete.
    fn merge_output_items(&mut self, output: &[&RawValue]) -> Decoded {
        let known_count = self.items.len();
        let is_complete =
            known_count == output.len() && self.items.iter().all(|item| item.is_complete);
        if is_complete || output.len() < known_count {
            return Ok(());
        }
        let old_items = std::mem::take(&mut self.items);
        let mut old_items: Vec<Option<ItemBuilder>> = old_items.into_iter().map(Some).collect();
        for (index, raw) in (0..).zip(output) {
            let item = parse_item_object(raw.get())?;
            let by_id = item_id(&item).and_then(|id| self.item_by_id.get(&id));
            let positions = [by_id, self.item_by_index.get(&index)];
            let mut positions = positions.into_iter().flatten();
            let old_item =
                positions.find_map(|position| old_items.get_mut(*position).and_then(Option::take));
            let mut item_builder = old_item.unwrap_or_default();
            item_builder.index = index;
            item_builder.complete(item);
            self.items.push(item_builder);
        }
        Ok(())
    }
}

/// Index and ID of an output item, as far as an event contains them.
#[derive(Debug)]
struct ItemKey {
    index: Option<u64>,
    id: Option<String>,
}

impl ReplyDecoder for StreamDecoder {
    fn decode_event(&mut self, event: &SseEvent) -> Decoded<EventEffect> {
        decode_event_objects(event, |raw| {
            let frame =
                LenientObject::parse(raw.get()).map_err(DecodeError::invalid_json(NOT_JSON))?;
            let kind = event_type(&frame, event);
            let is_untyped_error =
                kind.is_empty() && frame.raw_field("error").is_some_and(is_non_empty_json_value);
            if is_untyped_error || matches!(&*kind, "error" | "response.error") {
                return Err(DecodeError::ProviderError(raw.get().to_owned()));
            }
            self.on_event(&kind, &frame)
        })
    }

    fn decode_body(&mut self, body_text: &str) -> Decoded {
        let malformed = || DecodeError::malformed("the body is neither a stream nor a response");
        let body = LenientObject::parse(body_text).map_err(|_| malformed())?;
        let has_output = body.list_field("output").is_some();
        if body.string_field("type").as_deref() == Some("error") {
            return Err(DecodeError::ProviderError(body_text.to_owned()));
        }
        match (body.string_field("status").as_deref(), body.raw_field("error")) {
            (Some("in_progress" | "queued"), _) => {
                return Err(DecodeError::malformed("a response that is not finished"));
            }
            (Some("failed"), _) => {}
            (_, Some(error)) if !has_output && is_non_empty_json_value(error) => {
                return Err(DecodeError::ProviderError(format!(r#"{{"error":{}}}"#, error.get())));
            }
            (_, _) if !has_output => return Err(malformed()),
            (_, _) => {}
        }
        self.finish_response(&body, "completed")
    }

    fn take_new_text(&mut self) -> String {
        self.items.iter_mut().map(|item| std::mem::take(&mut item.new_text)).collect()
    }

    fn token_counts(&self) -> TokenCounts {
        self.counts
    }

    fn received_byte_count(&self) -> u64 {
        self.items.iter().map(ItemBuilder::received_byte_count).sum()
    }

    fn into_decoded_reply(mut self, api_label: &str) -> DecodedReply {
        self.items.sort_by_key(|item| item.index);
        let is_refusal = self.items.iter().any(ItemBuilder::is_refusal);
        let blocks = self.items.into_iter().flat_map(ItemBuilder::into_blocks);
        let (reply, has_calls) = build_reply(api_label, blocks);
        let stop = self.stop_info.stop_reason(is_refusal, has_calls);
        DecodedReply { stop, reply, model: self.model }
    }
}

fn parse_item_object(item_json: &str) -> Decoded<RawJson> {
    let item =
        RawJson::parse(item_json).map_err(|error| DecodeError::Malformed(error.to_string()))?;
    match item.as_str().starts_with('{') {
        true => Ok(item),
        false => Err(DecodeError::malformed("an item is not an object")),
    }
}

fn item_id(item: &RawJson) -> Option<String> {
    let id = JsonObject::parse(item.as_str())?.take_string_field("id");
    id.filter(|id| !id.is_empty())
}
