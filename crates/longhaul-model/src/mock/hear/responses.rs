//! Reads a request of OpenAI Responses.
//!
//! Never: remembers a response. One that goes on from another says by that
//! one's id in which turn it is.

use std::borrow::Cow;

use longhaul_core::message::Block;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::dialect::Dialect;
use crate::mock::heard::{Heard, Inside, Talk, call};
use crate::mock::refusal::Refusal;
use crate::mock::speech;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    stream: Option<bool>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
    previous_response_id: Option<String>,
    #[serde(borrow, default)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    /// A text for a function; tools of the provider's own have other things here.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
}

/// Reads a request.
pub(super) fn hear(text: &str) -> Result<Heard<'_>, Refusal> {
    let unreadable = |bad: serde_json::Error| {
        let message = format!("We could not parse the JSON body of your request: {bad}");
        Refusal::new(400, message)
    };
    let request: Request<'_> = serde_json::from_str(text).map_err(unreadable)?;
    let echo = serde_json::from_str(text).map_err(unreadable)?;
    let missing = |field| Refusal::missing(Dialect::Responses, field);
    let model = request.model.ok_or_else(|| missing("model"))?;
    let before = match request.previous_response_id.as_deref() {
        None => 0,
        Some(id) => speech::turn_of(id).ok_or_else(|| Refusal::unknown_response(id))?,
    };
    if request.input.is_none() && request.prompt.is_none() && before == 0 {
        return Err(missing("input"));
    }
    let mut reading = Reading::default();
    let read = reading.input(request.input);
    read.map_err(|bad| Refusal::wrong("input", bad))?;
    let instructions = Inside::read(request.instructions, "instructions");
    let instructions = instructions.map_err(|bad| Refusal::wrong("instructions", bad))?;
    let (talk, system) = reading.end();
    Ok(Heard {
        model,
        stream: request.stream.unwrap_or_default(),
        said: talk.said.saturating_add(before),
        system: instructions.words() + &system,
        tools: request.tools.map_or("", RawValue::get),
        messages: talk.end(),
        echo,
        ..Heard::default()
    })
}

/// Items as they are read. Those of the assistant's that follow each other are
/// one message of its own.
#[derive(Default)]
struct Reading {
    talk: Talk,
    system: String,
    speaking: Option<Vec<Block>>,
}

impl Reading {
    fn input(&mut self, input: Option<&RawValue>) -> Result<(), String> {
        let Some(input) = input else {
            return Ok(());
        };
        if !input.get().starts_with('[') {
            self.talk.user(Inside::read(Some(input), "input")?.parts());
            return Ok(());
        }
        let items: Vec<Item<'_>> =
            serde_json::from_str(input.get()).map_err(|bad| format!("input: {bad}"))?;
        let mut items = items.iter().enumerate();
        items.try_for_each(|(place, item)| self.item(item, place))
    }

    fn item(&mut self, item: &Item<'_>, place: usize) -> Result<(), String> {
        let role = item.role.as_deref().unwrap_or_default();
        match item.kind.as_deref().unwrap_or("message") {
            "message" => self.message(item, role, place),
            // A result without one is of no use to a script, and no fault.
            kind if kind.ends_with("_output") => {
                self.hush();
                let output = Inside::read(item.output, format_args!("input[{place}].output"));
                self.talk
                    .result(output.map(Inside::parts).unwrap_or_default());
                Ok(())
            }
            "function_call" | "custom_tool_call" => {
                let raw = item.arguments.map_or("", RawValue::get);
                let text: Result<String, _> = serde_json::from_str(raw);
                let made = call(item.name.as_deref(), text.as_deref().unwrap_or(raw));
                self.speaking.get_or_insert_default().push(made);
                Ok(())
            }
            kind if kind.ends_with("_call") || ["reasoning", "item_reference"].contains(&kind) => {
                self.speaking.get_or_insert_default();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn message(&mut self, item: &Item<'_>, role: &str, place: usize) -> Result<(), String> {
        let inside = Inside::read(item.content, format_args!("input[{place}].content"))?;
        match role {
            "assistant" => {
                let said = self.speaking.get_or_insert_default();
                said.push(Block::text(inside.words()));
            }
            "user" => {
                self.hush();
                self.talk.user(inside.parts());
            }
            "system" | "developer" => self.system.push_str(&inside.words()),
            _ => {
                return Err(format!(
                    "input[{place}].role: must be `user`, `assistant`, `system` or `developer`"
                ));
            }
        }
        Ok(())
    }

    /// The assistant has ended.
    fn hush(&mut self) {
        if let Some(blocks) = self.speaking.take() {
            self.talk.assistant(blocks);
        }
    }

    fn end(mut self) -> (Talk, String) {
        self.hush();
        (self.talk, self.system)
    }
}
