//! What a run sees before it thinks: rendered once, journaled, never again.
//!
//! Never: asked twice for the same look.

use longhaul_core::change::Blob;
use longhaul_core::message::{Message, Part};
use longhaul_core::port::model::Ask;
use longhaul_core::raw::{Body, RawJson};
use longhaul_core::usage::Tariff;
use longhaul_run::Run;
use longhaul_run::input::Perceived;
use serde_json::{Value, json};

use crate::capsule::Capsule;
use crate::compactor::compactor;
use crate::error::Error;
use crate::ports::Ports;
use crate::recollect::{MESSAGES_MAX, TOKENS_MAX, recollect};
use crate::template;

/// A text that is longer is kept once for all runs that say the same.
const INLINE_BYTES_MAX: usize = 1_024;

/// Looks at the world and makes the prompt; the error is a sentence that says
/// what is missing.
pub(crate) async fn perceive(
    ports: &Ports,
    capsule: &Capsule,
    run: &Run,
) -> Result<Result<Perceived, String>, Error> {
    let task = run.task();
    let memory = remember(ports, run).await?;
    let mut values = template::values(&task.input, capsule.context());
    values["memory"] = json!(memory.iter().map(said).collect::<Vec<_>>());
    let system = match template::fill(&capsule.agent.prompt, &values) {
        Ok(system) => system,
        Err(why) => {
            return Ok(Err(format!(
                "The prompt of agent `{}` can't be made: {why}. Mend the agent's file and \
                 submit the task again.",
                capsule.agent.name
            )));
        }
    };
    let mut blobs = Vec::new();
    let system = body(system, &mut blobs);
    let tools = body(table(capsule), &mut blobs);
    let mut opening = task.history.clone();
    opening.extend(memory);
    opening.push(Message::user(input_text(&task.input)));
    let mut names = capsule.models().iter().map(|found| found.name.clone());
    let ask = Ask {
        run: run.id(),
        turn: 1,
        attempt: 1,
        model: names.next().unwrap_or_default(),
        system: system.clone(),
        tools: tools.clone(),
        messages: std::sync::Arc::new(Vec::new()),
        max_tokens: 0,
    };
    let tariffs = capsule.models().iter();
    let tariffs = tariffs.map(|found| found.model.quote(&ask).tariff);
    let tariff = tariffs.reduce(Tariff::dearest).unwrap_or_default();
    Ok(Ok(Perceived {
        system,
        tools,
        opening,
        fallbacks: names.collect(),
        compactor: compactor(&*ports.models, &ask),
        model: ask.model,
        tariff,
        blobs,
    }))
}

/// A text that stands in the event, or is kept under its hash.
fn body(text: String, blobs: &mut Vec<Blob>) -> Body {
    if text.len() <= INLINE_BYTES_MAX {
        return Body::inline(text);
    }
    let blob = Blob::new(text.into_bytes());
    let body = Body::Blob(blob.at);
    blobs.push(blob);
    body
}

/// The table of tools as models are told of them.
fn table(capsule: &Capsule) -> String {
    let rows = capsule.tools().map(|equipped| {
        let card = equipped.card();
        json!({
            "name": card.name.wire(),
            "description": card.description,
            "schema": card.schema,
        })
    });
    Value::Array(rows.collect()).to_string()
}

/// What the model is asked: a text as it is, anything else as JSON.
fn input_text(input: &RawJson) -> String {
    match input.value() {
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            input.as_str().to_owned()
        }
    }
}

/// The newest part of the thread that fits, beginning with what a person said.
async fn remember(ports: &Ports, run: &Run) -> Result<Vec<Message>, Error> {
    let Some(thread) = &run.task().thread else {
        return Ok(Vec::new());
    };
    let messages = ports.shelves.thread(thread, MESSAGES_MAX).await?;
    Ok(recollect(messages, TOKENS_MAX))
}

/// A message of the thread for templates.
fn said(message: &Message) -> Value {
    let (who, text) = match message {
        Message::User(parts) => ("user", texts(parts)),
        Message::Assistant(reply) => ("assistant", reply.text()),
        Message::Results(_) => ("tool", String::new()),
    };
    json!({ "role": who, "text": text })
}

fn texts(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
