//! A conversation in the words of the Chat Completions API.
//!
//! Never: two users' messages in a row, a picture in a result, or a change to the bytes of
//! arguments or of a field that is not understood.

use longhaul_core::message::{Block, ImageRef, Part, Reply, ThinkingBlock, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;

use crate::adapter::RequestParts;
use crate::call_ids::{self, CallIds};
use crate::chat::wire::{
    ChatCompletionsApi, NAME_MAX, REASONING, REASONING_CONTENT, REASONING_FIELD,
};
use crate::conversation::{EncodeTarget, MessageEncoder, Piece};
use crate::images::{EncodedImages, placeholder_text};
use crate::json_object::JsonObject;
use crate::lenient_json::{arguments_text, object_arguments};
use crate::tool_results::{NO_RESULT, PendingCall, has_content};

/// The longest id of another provider's that is sent: OpenAI takes no longer one.
const FOREIGN_ID_MAX: usize = 40;

/// What stands for thoughts that were never had here: servers that demand some
/// take an empty text for none.
const EMPTY_REASONING: &str = " ";

/// What is said of a result that says nothing: some servers refuse a message
/// without content.
const EMPTY_RESULT: &str = "[nothing]";

/// What stands in a result for a picture: only a user may show one.
const IMAGE_BELOW: &str = "[a picture, shown below]";

/// What a piece is: always a whole message, written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// Of a user. Several in a row are sent as one.
    User,
    /// Of anybody else.
    Other,
}

impl MessageEncoder for ChatCompletionsApi {
    type Kind = PieceKind;

    fn encode_user(&self, page: &mut EncodeTarget<'_, PieceKind>, parts: &[Part]) {
        let parts = parts.iter().filter(|part| has_content(part));
        let parts: Vec<RawJson> = parts.map(|part| self.encode_part(page.images, part)).collect();
        if !parts.is_empty() {
            page.add(PieceKind::User, &message("user", &user_content(parts)));
        }
    }

    fn encode_result(&self, page: &mut EncodeTarget<'_, PieceKind>, id: &str, result: &ToolResult) {
        let words = self.result_text(result, page.images);
        page.add(PieceKind::Other, &tool_message(id, &words));
    }

    fn encode_missing_result(&self, page: &mut EncodeTarget<'_, PieceKind>, id: &str) {
        let words = format!("error: {NO_RESULT}");
        page.add(PieceKind::Other, &tool_message(id, &words));
    }

    fn encode_reply(&self, page: &mut EncodeTarget<'_, PieceKind>, reply: &Reply) {
        let is_own = reply.api == self.api;
        let keeps = is_own && !self.quirks.no_extras;
        let (mut words, mut thought) = (String::new(), None);
        let (mut extras, mut calls) = (Vec::new(), Vec::new());
        for block in &reply.blocks {
            match block {
                Block::Text(text) => words.push_str(&text.text),
                // Another provider's thoughts mean nothing here, and nor do its fields.
                Block::Thinking(_) | Block::Other(_) if !is_own => {}
                Block::Thinking(one) => {
                    thought = reasoning_field(one).map(|field| (field, &*one.text))
                }
                Block::Other(raw) => extras.extend(keeps.then_some(raw)),
                Block::ToolCall(call) => {
                    let short: String = call.id.chars().take(FOREIGN_ID_MAX).collect();
                    let id = match is_own {
                        true => page.register_call(call, &call.id, CallIds::assign_original),
                        false => page.register_call(call, &short, CallIds::assign),
                    };
                    let extra = call.extra.as_ref().filter(|_| keeps);
                    calls.push(self.encode_call(&id, call).with_fields(extra));
                }
            }
        }
        let is_silent = words.trim().is_empty();
        // Servers refuse a message that says nothing and wants nothing.
        if is_silent && calls.is_empty() {
            return;
        }
        let content = match is_silent {
            false => Some(&*words),
            true => self.quirks.empty_content.then_some(""),
        };
        let mut turn = message("assistant", &content);
        if self.quirks.send_reasoning && !calls.is_empty() {
            let (field, thought) = thought.unwrap_or((REASONING_CONTENT, EMPTY_REASONING));
            turn = turn.with(field, thought);
        }
        let turn = extras.into_iter().fold(turn, |turn, extra| turn.with_fields(Some(extra)));
        let turn = turn.with_some("tool_calls", (!calls.is_empty()).then_some(&calls));
        page.add(PieceKind::Other, &turn);
    }

    fn trailing_user_messages(
        &self,
        paid: &[(PendingCall, &ToolResult)],
        album: &EncodedImages,
    ) -> Vec<Vec<Part>> {
        let is_shown = |part: &&Part| match part {
            Part::Text(_) => false,
            Part::Image(image) => self.image_data(album, image).is_some(),
        };
        let said = paid.iter().map(|(owed, result)| {
            let whose = format!("[from the result of the call {}]", owed.id);
            let pictures = result.content.iter().filter(is_shown).cloned();
            [Part::Text(whose.into())].into_iter().chain(pictures).collect()
        });
        said.filter(|said: &Vec<Part>| said.len() > 1).collect()
    }
}

impl ChatCompletionsApi {
    /// A picture as base64; none: it is told of in words.
    fn image_data<'a>(&self, album: &'a EncodedImages, image: &ImageRef) -> Option<&'a str> {
        album.base64(image).filter(|_| !self.quirks.text_only)
    }

    /// A call under the id it goes by.
    /// A piece of what a user says: a text, or a part that shows a picture.
    fn encode_part(&self, album: &EncodedImages, part: &Part) -> RawJson {
        match part {
            Part::Text(words) => RawJson::from_serialize(words),
            Part::Image(image) => match self.image_data(album, image) {
                None => RawJson::from_serialize(&placeholder_text(image)),
                Some(data) => {
                    let url = format!("data:{};base64,{data}", image.media_type);
                    let url = JsonObject::default().with("url", &url);
                    RawJson::from_serialize(
                        &JsonObject::of_type("image_url").with("image_url", &url),
                    )
                }
            },
        }
    }

    fn encode_call(&self, id: &str, call: &ToolCall) -> JsonObject {
        let is_object = call.input.as_str().starts_with('{');
        let arguments = match self.quirks.json_arguments && !is_object {
            true => object_arguments(&call.input).as_str().to_owned(),
            false => arguments_text(&call.input).into_owned(),
        };
        let function = JsonObject::default()
            .with("name", &call_ids::tool_name(&call.name, NAME_MAX))
            .with("arguments", &arguments);
        JsonObject::default().with("id", id).with("type", "function").with("function", &function)
    }

    /// A result in words. This API knows no failed calls, so the words must say it.
    fn result_text(&self, result: &ToolResult, album: &EncodedImages) -> String {
        let parts = result.content.iter().filter(|part| has_content(part));
        let words: Vec<String> = parts
            .map(|part| match part {
                Part::Text(words) => words.to_string(),
                Part::Image(image) => match self.image_data(album, image) {
                    Some(_) => IMAGE_BELOW.to_owned(),
                    None => placeholder_text(image),
                },
            })
            .collect();
        let words = match words.is_empty() {
            true => EMPTY_RESULT.to_owned(),
            false => words.join("\n"),
        };
        let start = words.trim_start().get(..5).unwrap_or_default();
        match result.is_error && !start.eq_ignore_ascii_case("error") {
            true => format!("error: {words}"),
            false => words,
        }
    }
}

/// What somebody says.
pub(super) fn message(role: &str, content: &(impl serde::Serialize + ?Sized)) -> JsonObject {
    JsonObject::default().with("role", role).with("content", content)
}

/// The result of a call that goes by this id.
fn tool_message(id: &str, words: &str) -> JsonObject {
    JsonObject::default().with("role", "tool").with("tool_call_id", id).with("content", words)
}

/// All messages behind the prompt.
pub(super) fn messages(parts: &RequestParts<'_, PieceKind>) -> Vec<RawJson> {
    let pieces: Vec<&Piece<PieceKind>> = parts.pieces().collect();
    let of_one = |one: &&Piece<PieceKind>, next: &&Piece<PieceKind>| {
        one.kind == PieceKind::User && next.kind == PieceKind::User
    };
    let messages = pieces.chunk_by(of_one).map(|pieces| match pieces {
        [whole] => whole.json.clone(),
        said => {
            let parts = said.iter().flat_map(|piece| contents(&piece.json));
            RawJson::from_serialize(&message("user", &user_content(parts.collect())))
        }
    });
    messages.collect()
}

/// What a user's message holds: its one text, or its parts.
fn contents(message: &RawJson) -> Vec<RawJson> {
    let content = JsonObject::parse(message.as_str()).and_then(|mut fields| fields.take("content"));
    let content = content.unwrap_or_else(RawJson::null);
    serde_json::from_str(content.as_str()).unwrap_or_else(|_| vec![content])
}

/// What users said in a row: one text where it is but words, because not all servers read
/// lists.
fn user_content(mut said: Vec<RawJson>) -> RawJson {
    let texts = said.iter().map(|one| serde_json::from_str(one.as_str()).ok());
    if let Some(texts) = texts.collect::<Option<Vec<String>>>() {
        return RawJson::from_serialize(&texts.join("\n\n"));
    }
    for one in said.iter_mut().filter(|one| one.as_str().starts_with('"')) {
        *one = RawJson::from_serialize(&JsonObject::of_type("text").with("text", one));
    }
    RawJson::from_serialize(&said)
}

/// The field that a thought goes back under; none: it came in another way.
fn reasoning_field(thought: &ThinkingBlock) -> Option<&'static str> {
    let Some(extra) = &thought.extra else {
        return Some(REASONING_CONTENT);
    };
    let name = JsonObject::parse(extra.as_str())?.take_text(REASONING_FIELD)?;
    [REASONING, REASONING_CONTENT].into_iter().find(|known| *known == name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::message::Message;

    use super::*;
    use crate::chat::quirks::Quirks;
    use crate::conversation::EncodedConversation;

    #[test]
    fn a_user_message_is_encoded_once() {
        let wire = ChatCompletionsApi::new("chat".to_owned(), Quirks::default());
        let message = Arc::new(Message::user("hello"));
        let mut talk = EncodedConversation::default();
        talk.push(&wire, &message, &EncodedImages::default());
        let parts = RequestParts {
            model: "poem",
            max_tokens: 1,
            fields: None,
            prompt: None,
            tools: None,
            messages: &talk.messages,
            trailing: &[],
        };
        let (first, second) = (messages(&parts), messages(&parts));
        assert_eq!(first[0].as_str(), r#"{"role":"user","content":"hello"}"#);
        assert!(std::ptr::eq(first[0].as_str(), second[0].as_str()));
    }
}
