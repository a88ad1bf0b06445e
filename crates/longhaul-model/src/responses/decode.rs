//! Decoder for replies of the Responses API.
//!
//! Invariant: a stream is complete only after its final event.

use std::collections::{BTreeMap, HashMap};

use longhaul_core::port::model::DeltaSink;
use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;

use crate::adapter::{DecodedReply, ResponseDecoder, build_reply};
use crate::decode_error::DecodeError;
use crate::exchange::{
    StreamEventDecoder, StreamEventEffect, decode_event_objects, event_type, invalid_json_error,
    required_field,
};
use crate::json_object::JsonObject;
use crate::lenient_json::{check_tool_call_count, is_non_empty_json_value};
use crate::lenient_object::LenientObject;
use crate::responses::blocks::parse_text_part;
use crate::responses::item::OutputItemBuilder;
use crate::responses::wire::{FragmentKind, ResponseStopInfo, USAGE};
use crate::sse::SseEvent;
use crate::token_counts::TokenCounts;

/// Error JSON used for a failed response that contains no error.
const UNKNOWN_ERROR: &str = r#"{"message":"no reason given"}"#;

/// Decoder for one reply of the Responses API, with everything received so far.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    model: Option<String>,
    counts: TokenCounts,
    stop_info: ResponseStopInfo,
    items: Vec<OutputItemBuilder>,
    /// Maps the provider's output index to the position in `items`. A new item with the same index
    /// replaces the old entry.
    item_by_index: BTreeMap<u64, usize>,
    /// Maps an item ID to the position in `items`.
    item_by_id: HashMap<String, usize>,
}

impl StreamDecoder {
    fn on_stream_event(
        &mut self,
        kind: &str,
        event_object: &LenientObject<'_>,
        sink: &dyn DeltaSink,
    ) -> Result<StreamEventEffect, DecodeError> {
        match kind {
            "response.created" | "response.in_progress" => self.on_response_created(event_object),
            "response.output_item.added" => self.on_item_added(event_object, sink)?,
            "response.output_item.done" => self.on_item_done(event_object, sink)?,
            "response.content_part.added" | "response.content_part.done" => {
                self.on_content_part(event_object, sink)?;
            }
            "response.completed" => return self.on_response_end(event_object, "completed", sink),
            "response.incomplete" => return self.on_response_end(event_object, "incomplete", sink),
            "response.failed" => return self.on_response_end(event_object, "failed", sink),
            other => match FragmentKind::of_event(other) {
                Some((fragment_kind, is_full_text)) => {
                    self.on_item_fragment(event_object, fragment_kind, is_full_text, sink)?
                }
                None => return Ok(StreamEventEffect::Ignored),
            },
        }
        Ok(StreamEventEffect::Progress)
    }

    /// Handles the event `response.created`. A reply without this event is accepted.
    fn on_response_created(&mut self, event_object: &LenientObject<'_>) {
        let model = event_object
            .object_field("response")
            .and_then(|response| response.string_field("model"));
        self.model = model.or_else(|| self.model.take());
    }

    fn on_item_added(
        &mut self,
        event_object: &LenientObject<'_>,
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let (item, key) = self.parse_item_of_event(event_object)?;
        // A fragment may have come before its item.
        let unstarted_position = self.find_item_position(&key).filter(|position| {
            let item = self.items.get(*position);
            item.is_some_and(|item| !item.has_started())
        });
        let item_builder = self.get_or_add_item(unstarted_position, key)?;
        item_builder.start(item, sink);
        Ok(())
    }

    fn on_item_done(
        &mut self,
        event_object: &LenientObject<'_>,
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let (item, key) = self.parse_item_of_event(event_object)?;
        let position = self.find_item_position(&key);
        let existing_item = position.and_then(|position| self.items.get(position));
        if key.id.is_some()
            && existing_item.is_some_and(|existing| existing.has_complete_item(&item))
        {
            return Ok(());
        }
        let open_position =
            position.filter(|_| existing_item.is_some_and(|existing| !existing.is_complete));
        let item_builder = self.get_or_add_item(open_position, key)?;
        item_builder.complete(item, sink);
        Ok(())
    }

    fn on_content_part(
        &mut self,
        event_object: &LenientObject<'_>,
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let index = event_object.number_field("content_index").unwrap_or(0);
        // Other parts are repeated in their item, or come as fragments of reasoning.
        if let Some((fragment_kind, text)) =
            event_object.raw_field("part").and_then(|part| parse_text_part(part.get()))
        {
            self.fragment_item(event_object, fragment_kind)?.replace_part_fragments(
                (fragment_kind, index),
                text,
                sink,
            );
        }
        Ok(())
    }

    fn on_item_fragment(
        &mut self,
        event_object: &LenientObject<'_>,
        fragment_kind: FragmentKind,
        is_full_text: bool,
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let index = event_object.number_field("summary_index");
        let index = index.or_else(|| event_object.number_field("content_index")).unwrap_or(0);
        match is_full_text {
            true => {
                if let Some(text) =
                    event_object.try_string_field(fragment_kind.full_text_field())?
                {
                    self.fragment_item(event_object, fragment_kind)?.replace_part_fragments(
                        (fragment_kind, index),
                        text,
                        sink,
                    );
                }
            }
            false => {
                _ = required_field(event_object, "delta")?;
                let delta = event_object.try_string_field("delta")?.unwrap_or_default();
                self.fragment_item(event_object, fragment_kind)?.append_fragment(
                    (fragment_kind, index),
                    &delta,
                    sink,
                );
            }
        }
        Ok(())
    }

    /// Parses the output item in an event. Also returns the index and ID by which the item is
    /// found.
    fn parse_item_of_event(
        &self,
        event_object: &LenientObject<'_>,
    ) -> Result<(RawJson, OutputItemKey), DecodeError> {
        let item = parse_item_object(required_field(event_object, "item")?)?;
        let key = OutputItemKey {
            index: event_object.number_field("output_index"),
            id: item_id(&item).or_else(|| event_object.string_field("item_id")),
        };
        Ok((item, key))
    }

    /// Returns the output item that the fragment in an event belongs to. If there is no such item,
    /// adds a new item.
    fn fragment_item(
        &mut self,
        event_object: &LenientObject<'_>,
        fragment_kind: FragmentKind,
    ) -> Result<&mut OutputItemBuilder, DecodeError> {
        let key = OutputItemKey {
            index: event_object.number_field("output_index"),
            id: event_object.string_field("item_id"),
        };
        let position = self.find_item_position(&key).filter(|position| {
            let item = self.items.get(*position);
            item.is_some_and(|item| item.accepts_fragment(fragment_kind))
        });
        self.get_or_add_item(position, key)
    }

    /// Returns the position in `items` of the item with this index and ID. Some servers count items
    /// but change the ID with every event. Others send IDs but no index, or always the index 0.
    fn find_item_position(&self, key: &OutputItemKey) -> Option<usize> {
        let by_id = key.id.as_ref().and_then(|id| self.item_by_id.get(id)).copied();
        let Some(index) = key.index else {
            let last = self.items.len().checked_sub(1);
            let open_position =
                last.filter(|last| self.items.get(*last).is_some_and(|one| !one.is_complete));
            return by_id.or(open_position);
        };
        let has_index = |position: &usize| {
            let item = self.items.get(*position);
            item.is_some_and(|item| item.index == index)
        };
        by_id.filter(has_index).or_else(|| self.item_by_index.get(&index).copied())
    }

    /// Returns the item at the given position. Without a position, adds and returns a new item.
    fn get_or_add_item(
        &mut self,
        position: Option<usize>,
        key: OutputItemKey,
    ) -> Result<&mut OutputItemBuilder, DecodeError> {
        let position = match position {
            Some(position) => position,
            None => {
                let index = key.index.unwrap_or(self.items.len() as u64);
                self.items.push(OutputItemBuilder::from_output_index(index));
                self.item_by_index.insert(index, self.items.len() - 1);
                self.items.len() - 1
            }
        };
        if let Some(id) = key.id.filter(|id| !id.is_empty()) {
            self.item_by_id.insert(id, position);
        }
        self.items
            .get_mut(position)
            .ok_or_else(|| DecodeError::Malformed("an event refers to a missing item".to_owned()))
    }

    fn on_response_end(
        &mut self,
        event_object: &LenientObject<'_>,
        final_status: &str,
        sink: &dyn DeltaSink,
    ) -> Result<StreamEventEffect, DecodeError> {
        let response =
            event_object.raw_field("response").map(|raw| LenientObject::parse(raw.get()));
        let response = response.transpose();
        let response = response.map_err(|error| {
            DecodeError::Malformed(format!("an event has an invalid `response`: {error}"))
        })?;
        self.finish_response(&response.unwrap_or_default(), final_status, sink)?;
        Ok(StreamEventEffect::Done)
    }

    /// Handles the final JSON of the response, from the last event of a stream or from a complete
    /// body.
    fn finish_response(
        &mut self,
        response: &LenientObject<'_>,
        final_status: &str,
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
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
        self.merge_output_items(&output, sink)?;
        check_tool_call_count(self.items.iter().filter(|item| item.is_tool_call()).count())?;
        if self.items.iter().any(OutputItemBuilder::is_unknown_call) {
            let message = "received arguments of a call that was never started";
            return Err(DecodeError::Malformed(message.to_owned()));
        }
        self.stop_info = ResponseStopInfo { status, reason };
        Ok(())
    }

    /// Merges the output items of the final event into `items`, if items are missing or incomplete.
    fn merge_output_items(
        &mut self,
        output: &[&RawValue],
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let known_count = self.items.len();
        let is_complete =
            known_count == output.len() && self.items.iter().all(|item| item.is_complete);
        if is_complete || output.len() < known_count {
            return Ok(());
        }
        let old_items = std::mem::take(&mut self.items);
        let mut old_items: Vec<Option<OutputItemBuilder>> =
            old_items.into_iter().map(Some).collect();
        for (index, raw) in (0..).zip(output) {
            let item = parse_item_object(raw.get())?;
            let by_id = item_id(&item).and_then(|id| self.item_by_id.get(&id));
            let positions = [by_id, self.item_by_index.get(&index)];
            let mut positions = positions.into_iter().flatten();
            let old_item =
                positions.find_map(|position| old_items.get_mut(*position).and_then(Option::take));
            let mut item_builder = old_item.unwrap_or_default();
            item_builder.index = index;
            item_builder.complete(item, sink);
            self.items.push(item_builder);
        }
        Ok(())
    }
}

/// Index and ID of an output item, as far as an event contains them.
#[derive(Debug)]
struct OutputItemKey {
    index: Option<u64>,
    id: Option<String>,
}

impl ResponseDecoder for StreamDecoder {
    fn into_decoded_reply(mut self, api_label: &str) -> DecodedReply {
        self.items.sort_by_key(|item| item.index);
        let is_refusal = self.items.iter().any(OutputItemBuilder::is_refusal);
        let blocks = self.items.into_iter().flat_map(OutputItemBuilder::into_blocks);
        let (reply, has_calls) = build_reply(api_label, blocks);
        DecodedReply {
            stop: self.stop_info.stop_reason(is_refusal, has_calls),
            reply,
            model: self.model,
        }
    }
}

impl StreamEventDecoder for StreamDecoder {
    fn decode_event(
        &mut self,
        event: &SseEvent,
        sink: &dyn DeltaSink,
    ) -> Result<StreamEventEffect, DecodeError> {
        decode_event_objects(event, |raw| {
            let frame = LenientObject::parse(raw.get()).map_err(invalid_json_error)?;
            let kind = event_type(&frame, event);
            let is_untyped_error =
                kind.is_empty() && frame.raw_field("error").is_some_and(is_non_empty_json_value);
            if is_untyped_error || matches!(&*kind, "error" | "response.error") {
                return Err(DecodeError::ProviderError(raw.get().to_owned()));
            }
            self.on_stream_event(&kind, &frame, sink)
        })
    }

    fn decode_body(&mut self, body_text: &str, sink: &dyn DeltaSink) -> Result<(), DecodeError> {
        let malformed_body_error =
            || DecodeError::Malformed("the body is neither a stream nor a response".to_owned());
        let body = LenientObject::parse(body_text).map_err(|_| malformed_body_error())?;
        let has_output = body.list_field("output").is_some();
        if body.string_field("type").as_deref() == Some("error") {
            return Err(DecodeError::ProviderError(body_text.to_owned()));
        }
        match (body.string_field("status").as_deref(), body.raw_field("error")) {
            (Some("in_progress" | "queued"), _) => {
                let message = "a response that is not finished";
                return Err(DecodeError::Malformed(message.to_owned()));
            }
            (Some("failed"), _) => {}
            (_, Some(error)) if !has_output && is_non_empty_json_value(error) => {
                return Err(DecodeError::ProviderError(format!(r#"{{"error":{}}}"#, error.get())));
            }
            (_, _) if !has_output => return Err(malformed_body_error()),
            (_, _) => {}
        }
        self.finish_response(&body, "completed", sink)
    }

    fn token_counts(&self) -> TokenCounts {
        self.counts
    }

    fn received_byte_count(&self) -> u64 {
        self.items.iter().map(OutputItemBuilder::received_byte_count).sum()
    }
}

fn parse_item_object(item_json: &str) -> Result<RawJson, DecodeError> {
    let item =
        RawJson::parse(item_json).map_err(|error| DecodeError::Malformed(error.to_string()))?;
    match item.as_str().starts_with('{') {
        true => Ok(item),
        false => Err(DecodeError::Malformed("an item is not an object".to_owned())),
    }
}

fn item_id(item: &RawJson) -> Option<String> {
    let id = JsonObject::parse(item.as_str())?.take_string_field("id");
    id.filter(|id| !id.is_empty())
}
