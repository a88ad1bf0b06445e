//! A conversation in the words of the Chat Completions API.
//!
//! Never: two users' messages in a row, a picture in a result, or a change to the bytes of
//! arguments or of a field that is not understood.

use longhaul_core::message::{Block, ImageRef, Part, Reply, Thinking, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;

use crate::adapter::Parts;
use crate::album::{Album, in_words};
use crate::arguments::{object, written};
use crate::chat::wire::{Completions, FIELD, NAME_MAX, REASONING, REASONING_CONTENT};
use crate::fields::Fields;
use crate::ids::{self, Ids};
use crate::owed::{NO_RESULT, Owed, says_something};
use crate::talk::{Page, Piece, Tongue};

/// The longest id of another provider's that is sent: OpenAI takes no longer one.
const FOREIGN_ID_MAX: usize = 40;

/// What stands for thoughts that were never had here: servers that demand some
/// take an empty text for none.
const NO_THOUGHT: &str = " ";

/// What is said of a result that says nothing: some servers refuse a message
/// without content.
const NOTHING: &str = "[nothing]";

/// What stands in a result for a picture: only a user may show one.
const SHOWN_BELOW: &str = "[a picture, shown below]";

/// What a piece is: always a whole message, written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of a user. Several in a row are sent as one.
    User,
    /// Of anybody else.
    Other,
}

impl Tongue for Completions {
    type Kind = Kind;

    fn user(&self, page: &mut Page<'_, Kind>, parts: &[Part]) {
        let parts = parts.iter().filter(|part| says_something(part));
        let parts: Vec<RawJson> = parts.map(|part| self.said(page.album, part)).collect();
        if !parts.is_empty() {
            page.add(Kind::User, &message("user", &content(parts)));
        }
    }

    fn result(&self, page: &mut Page<'_, Kind>, id: &str, result: &ToolResult) {
        let words = self.result_words(result, page.album);
        page.add(Kind::Other, &call_result(id, &words));
    }

    fn missing_result(&self, page: &mut Page<'_, Kind>, id: &str) {
        let words = format!("error: {NO_RESULT}");
        page.add(Kind::Other, &call_result(id, &words));
    }

    fn reply(&self, page: &mut Page<'_, Kind>, reply: &Reply) {
        let is_own = reply.dialect == self.dialect;
        let keeps = is_own && !self.quirks.no_extras;
        let (mut words, mut thought) = (String::new(), None);
        let (mut extras, mut calls) = (Vec::new(), Vec::new());
        for block in &reply.blocks {
            match block {
                Block::Text(text) => words.push_str(&text.text),
                // Another provider's thoughts mean nothing here, and nor do its fields.
                Block::Thinking(_) | Block::Other(_) if !is_own => {}
                Block::Thinking(one) => thought = field(one).map(|field| (field, &*one.text)),
                Block::Other(raw) => extras.extend(keeps.then_some(raw)),
                Block::ToolCall(call) => {
                    let short: String = call.id.chars().take(FOREIGN_ID_MAX).collect();
                    let id = match is_own {
                        true => page.call(call, &call.id, Ids::keep),
                        false => page.call(call, &short, Ids::give),
                    };
                    let extra = call.extra.as_ref().filter(|_| keeps);
                    calls.push(self.call(&id, call).with_fields(extra));
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
            let (field, thought) = thought.unwrap_or((REASONING_CONTENT, NO_THOUGHT));
            turn = turn.with(field, thought);
        }
        let turn = extras
            .into_iter()
            .fold(turn, |turn, extra| turn.with_fields(Some(extra)));
        let turn = turn.with_some("tool_calls", (!calls.is_empty()).then_some(&calls));
        page.add(Kind::Other, &turn);
    }

    fn said_behind(&self, paid: &[(Owed, &ToolResult)], album: &Album) -> Vec<Vec<Part>> {
        let is_shown = |part: &&Part| match part {
            Part::Text(_) => false,
            Part::Image(image) => self.seen(album, image).is_some(),
        };
        let said = paid.iter().map(|(owed, result)| {
            let whose = format!("[from the result of the call {}]", owed.id);
            let pictures = result.content.iter().filter(is_shown).cloned();
            [Part::Text(whose.into())]
                .into_iter()
                .chain(pictures)
                .collect()
        });
        said.filter(|said: &Vec<Part>| said.len() > 1).collect()
    }
}

impl Completions {
    /// A picture as base64; none: it is told of in words.
    fn seen<'a>(&self, album: &'a Album, image: &ImageRef) -> Option<&'a str> {
        album.picture(image).filter(|_| !self.quirks.text_only)
    }

    /// A call under the id it goes by.
    /// A piece of what a user says: a text, or a part that shows a picture.
    fn said(&self, album: &Album, part: &Part) -> RawJson {
        match part {
            Part::Text(words) => RawJson::of(words),
            Part::Image(image) => match self.seen(album, image) {
                None => RawJson::of(&in_words(image)),
                Some(data) => {
                    let url = format!("data:{};base64,{data}", image.media_type);
                    let url = Fields::default().with("url", &url);
                    RawJson::of(&Fields::of_type("image_url").with("image_url", &url))
                }
            },
        }
    }

    fn call(&self, id: &str, call: &ToolCall) -> Fields {
        let is_object = call.input.as_str().starts_with('{');
        let arguments = match self.quirks.json_arguments && !is_object {
            true => object(&call.input).as_str().to_owned(),
            false => written(&call.input).into_owned(),
        };
        let function = Fields::default()
            .with("name", &ids::name(&call.name, NAME_MAX))
            .with("arguments", &arguments);
        Fields::default()
            .with("id", id)
            .with("type", "function")
            .with("function", &function)
    }

    /// A result in words. This API knows no failed calls, so the words must say it.
    fn result_words(&self, result: &ToolResult, album: &Album) -> String {
        let parts = result.content.iter().filter(|part| says_something(part));
        let words: Vec<String> = parts
            .map(|part| match part {
                Part::Text(words) => words.to_string(),
                Part::Image(image) => match self.seen(album, image) {
                    Some(_) => SHOWN_BELOW.to_owned(),
                    None => in_words(image),
                },
            })
            .collect();
        let words = match words.is_empty() {
            true => NOTHING.to_owned(),
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
pub(super) fn message(role: &str, content: &(impl serde::Serialize + ?Sized)) -> Fields {
    Fields::default()
        .with("role", role)
        .with("content", content)
}

/// The result of a call that goes by this id.
fn call_result(id: &str, words: &str) -> Fields {
    Fields::default()
        .with("role", "tool")
        .with("tool_call_id", id)
        .with("content", words)
}

/// All messages behind the prompt.
pub(super) fn messages(parts: &Parts<'_, Kind>) -> Vec<RawJson> {
    let pieces: Vec<&Piece<Kind>> = parts.pieces().collect();
    let of_one =
        |one: &&Piece<Kind>, next: &&Piece<Kind>| one.kind == Kind::User && next.kind == Kind::User;
    let messages = pieces.chunk_by(of_one).map(|pieces| match pieces {
        [whole] => whole.json.clone(),
        said => {
            let parts = said.iter().flat_map(|piece| contents(&piece.json));
            RawJson::of(&message("user", &content(parts.collect())))
        }
    });
    messages.collect()
}

/// What a user's message holds: its one text, or its parts.
fn contents(message: &RawJson) -> Vec<RawJson> {
    let content = Fields::read(message.as_str()).and_then(|mut fields| fields.take("content"));
    let content = content.unwrap_or_else(RawJson::null);
    serde_json::from_str(content.as_str()).unwrap_or_else(|_| vec![content])
}

/// What users said in a row: one text where it is but words, because not all servers read
/// lists.
fn content(mut said: Vec<RawJson>) -> RawJson {
    let texts = said
        .iter()
        .map(|one| serde_json::from_str(one.as_str()).ok());
    if let Some(texts) = texts.collect::<Option<Vec<String>>>() {
        return RawJson::of(&texts.join("\n\n"));
    }
    for one in said.iter_mut().filter(|one| one.as_str().starts_with('"')) {
        *one = RawJson::of(&Fields::of_type("text").with("text", one));
    }
    RawJson::of(&said)
}

/// The field that a thought goes back under; none: it came in another way.
fn field(thought: &Thinking) -> Option<&'static str> {
    let Some(extra) = &thought.extra else {
        return Some(REASONING_CONTENT);
    };
    let name = Fields::read(extra.as_str())?.take_text(FIELD)?;
    [REASONING, REASONING_CONTENT]
        .into_iter()
        .find(|known| *known == name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::message::Message;

    use super::*;
    use crate::chat::quirks::Quirks;
    use crate::talk::Talk;

    #[test]
    fn what_a_user_says_is_written_once() {
        let wire = Completions::new("chat".to_owned(), Quirks::default());
        let message = Arc::new(Message::user("hello"));
        let mut talk = Talk::default();
        talk.add(&wire, &message, &Album::default());
        let parts = Parts {
            model: "poem",
            max_tokens: 1,
            fields: None,
            prompt: None,
            tools: None,
            entries: &talk.entries,
            closing: &[],
        };
        let (first, second) = (messages(&parts), messages(&parts));
        assert_eq!(first[0].as_str(), r#"{"role":"user","content":"hello"}"#);
        assert!(std::ptr::eq(first[0].as_str(), second[0].as_str()));
    }
}
