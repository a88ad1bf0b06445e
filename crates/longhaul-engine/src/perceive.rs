//! What a run sees before it thinks: rendered once, journaled, never again.
//!
//! Never: looks itself. Somebody has looked, or nobody does.

use longhaul_core::change::Blob;
use longhaul_core::event::run::RunPerceived;
use longhaul_core::message::{Message, Part};
use longhaul_core::port::context::Perception;
use longhaul_core::port::model::Ask;
use longhaul_core::raw::{Body, RawJson};
use longhaul_core::usage::Tariff;
use longhaul_run::Run;
use serde_json::{Value, json};

use crate::capsule::Capsule;
use crate::clean::Cleaner;
use crate::compactor::compactor;
use crate::error::Error;
use crate::events;
use crate::lack::Lack;
use crate::ports::Ports;
use crate::prompt::Sections;
use crate::recollect::{MESSAGES_MAX, TOKENS_MAX, recollect};
use crate::template;

/// A text that is longer is kept once for all runs that say the same.
const INLINE_BYTES_MAX: usize = 1_024;

/// So many identical calls end a run whose agent says nothing of it.
const CIRCLES_MAX: u32 = 16;

/// Scripts say the same again and again because they were written so.
const SCRIPTED: &str = "scripted/";

/// Makes the prompt of what was seen, or says what is missing.
pub(crate) async fn perceive(
    ports: &Ports,
    capsule: &Capsule,
    run: &Run,
    seen: Option<Perception>,
) -> Result<Result<(RunPerceived, Vec<Blob>), Lack>, Error> {
    let memory = remember(ports, run).await?;
    let told = match tell(ports, capsule, run, (&memory, seen.as_ref())) {
        Ok(told) => told,
        Err(lack) => return Ok(Err(lack)),
    };
    let mut blobs = Vec::new();
    // What others say of themselves stands in it: servers, and whoever wrote the rules.
    let cleaner = Cleaner(&*ports.redact);
    let system = body(cleaner.text(told.system), &mut blobs);
    let tools = cleaner.json(&RawJson::of(&table(capsule)));
    let tools = body(tools.as_str().to_owned(), &mut blobs);
    let mut opening = run.task().history.clone();
    opening.extend(memory);
    opening.push(Message::user(cleaner.text(told.asked)));
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
    let (world, context) = seen.map(|seen| (seen.world, seen.context)).unzip();
    let perceived = RunPerceived {
        system,
        tools,
        opening,
        fallbacks: names.collect(),
        compactor: compactor(&*ports.models, &ask),
        circles: circles(capsule, &ask.model),
        model: ask.model,
        tariff,
        world: world.map(|world| body(world.as_str().to_owned(), &mut blobs)),
        context: context.unwrap_or_default(),
        supplied: capsule.supplied().map(str::to_owned).collect(),
    };
    Ok(Ok((perceived, blobs)))
}

/// What a run is told: who it is, and what it is asked.
struct Told {
    system: String,
    asked: String,
}

fn tell(
    ports: &Ports,
    capsule: &Capsule,
    run: &Run,
    (memory, seen): (&[Message], Option<&Perception>),
) -> Result<Told, Lack> {
    let (agent, task) = (&capsule.agent, run.task());
    let mut values = template::values(&task.input, &capsule.context_with(seen));
    values["memory"] = json!(memory.iter().map(said).collect::<Vec<_>>());
    if let Some(seen) = seen {
        values["perception"] = seen.world.value();
    }
    let wrong = |what: &str, why: &str| {
        let name = &agent.name;
        let wrong = format!("{what} of agent `{name}` can't be made: {why}.");
        let again = "mend the agent's file, cancel this run, which keeps the agent it began \
                     with, and submit the task again";
        match seen {
            // What is seen at the next look may be what the template wants.
            Some(_) => Lack::from(format!(
                "{wrong} If what was seen lacks it, mend what looks, then answer here: it is \
                 asked again. Otherwise {again}."
            )),
            None => Lack::lasting(format!("{wrong} To go on, {again}.")),
        }
    };
    let identity =
        template::fill(&agent.prompt, &values).map_err(|why| wrong("The prompt", &why))?;
    let event = events::kind(agent, task);
    let asked = events::words(agent, task, &values).map_err(|why| {
        let event = event.unwrap_or_default();
        wrong(&format!("The words for the event `{event}`"), &why)
    })?;
    let speaks_of = |name| template::mentions(&agent.prompt, name);
    let world = seen.map(|seen| &seen.world);
    let notes = |name: &str| capsule.tool(name).is_some();
    let sections = Sections {
        identity: &identity,
        world: world.filter(|world| world.as_str() != "null" && !speaks_of("perception")),
        skills: capsule.skills(),
        notes: notes("remember") && notes("recall") && !speaks_of("memory"),
        rules: &agent.house_rules,
        contract: capsule.contract(),
        event,
        now: ports.clock.now(),
    };
    let system = sections.prompt(run);
    Ok(Told { system, asked })
}

/// When a run that turns in circles ends: as the agent says, and otherwise after a
/// while, unless a script is what it follows.
fn circles(capsule: &Capsule, model: &str) -> Option<u32> {
    match capsule.agent.guards {
        Some(guards) => guards.identical_calls,
        None => (!model.starts_with(SCRIPTED)).then_some(CIRCLES_MAX),
    }
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
fn table(capsule: &Capsule) -> Value {
    let rows = capsule.wired().map(|(wire, equipped)| {
        let card = equipped.card();
        json!({
            "name": wire,
            "description": card.description,
            "schema": card.schema,
        })
    });
    Value::Array(rows.collect())
}

/// The newest part of the thread that fits, beginning with what a person said.
async fn remember(ports: &Ports, run: &Run) -> Result<Vec<Message>, Error> {
    let Some(thread) = &run.task().thread else {
        return Ok(Vec::new());
    };
    let messages = ports.shelves.thread(thread, MESSAGES_MAX).await?;
    // What is a secret now may have been none when it was said.
    let cleaner = Cleaner(&*ports.redact);
    let messages = messages.into_iter().map(|said| cleaner.message(said));
    Ok(recollect(messages.collect(), TOKENS_MAX))
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
    let texts = parts.iter().filter_map(Part::text);
    texts.collect::<Vec<_>>().join("\n")
}
