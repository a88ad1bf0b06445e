//! What a run sees before it thinks: rendered once, journaled, never again.
//!
//! Never: looks itself. Somebody has looked, or nobody does.

use longhaul_core::change::Blob;
use longhaul_core::event::run::RunPrepared;
use longhaul_core::message::{Message, Part};
use longhaul_core::port::context::Perception;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::usage::ModelPricing;
use longhaul_run::Run;
use serde_json::{Value, json};

use crate::blocker::Blocker;
use crate::compactor::compactor;
use crate::error::Error;
use crate::event_text;
use crate::prompt::PromptSections;
use crate::redaction::Redaction;
use crate::run_env::RunEnv;
use crate::services::EngineServices;
use crate::template;
use crate::thread_window::{MESSAGES_MAX, TOKENS_MAX, trim_thread};

/// A text that is longer is kept once for all runs that say the same.
const INLINE_BYTES_MAX: usize = 1_024;

/// So many identical calls end a run whose agent says nothing of it.
const IDENTICAL_CALLS_MAX: u32 = 16;

/// Scripts say the same again and again because they were written so.
const SCRIPTED_PREFIX: &str = "scripted/";

/// Makes the prompt of what was seen, or says what is missing.
pub(crate) async fn prepare_prompt(
    ports: &EngineServices,
    capsule: &RunEnv,
    run: &Run,
    seen: Option<Perception>,
) -> Result<Result<(RunPrepared, Vec<Blob>), Blocker>, Error> {
    let memory = load_thread_window(ports, run).await?;
    let told = match render_prompt(ports, capsule, run, (&memory, seen.as_ref())) {
        Ok(told) => told,
        Err(lack) => return Ok(Err(lack)),
    };
    let mut blobs = Vec::new();
    // What others say of themselves stands in it: servers, and whoever wrote the rules.
    let cleaner = Redaction(&*ports.redact);
    let system = inline_or_blob(cleaner.text(told.system), &mut blobs);
    let tools = cleaner.json(&RawJson::from_serialize(&tool_table(capsule)));
    let tools = inline_or_blob(tools.as_str().to_owned(), &mut blobs);
    let mut opening = run.task().history.clone();
    opening.extend(memory);
    opening.push(Message::user(cleaner.text(told.user)));
    let mut names = capsule.models().iter().map(|found| found.name.clone());
    let ask = ModelRequest {
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
    let tariffs = tariffs.map(|found| found.model.estimate(&ask).pricing);
    let tariff = tariffs.reduce(ModelPricing::most_restrictive).unwrap_or_default();
    let (world, context) = seen.map(|seen| (seen.world, seen.context)).unzip();
    let perceived = RunPrepared {
        system,
        tools,
        initial_messages: opening,
        fallbacks: names.collect(),
        compactor: compactor(&*ports.models, &ask),
        identical_calls: identical_calls_limit(capsule, &ask.model),
        model: ask.model,
        pricing: tariff,
        world: world.map(|world| inline_or_blob(world.as_str().to_owned(), &mut blobs)),
        context: context.unwrap_or_default(),
        external_tools: capsule.external_tools().map(str::to_owned).collect(),
    };
    Ok(Ok((perceived, blobs)))
}

/// What a run is told: who it is, and what it is asked.
struct PromptTexts {
    system: String,
    user: String,
}

fn render_prompt(
    ports: &EngineServices,
    capsule: &RunEnv,
    run: &Run,
    (memory, seen): (&[Message], Option<&Perception>),
) -> Result<PromptTexts, Blocker> {
    let (agent, task) = (&capsule.agent, run.task());
    let mut values = template::template_values(&task.input, &capsule.context_with(seen));
    values["memory"] = json!(memory.iter().map(template_message).collect::<Vec<_>>());
    if let Some(seen) = seen {
        values["perception"] = seen.world.to_value();
    }
    let wrong = |what: &str, why: &str| {
        let name = &agent.name;
        let wrong = format!("{what} of agent `{name}` can't be made: {why}.");
        let again = "mend the agent's file, cancel this run, which keeps the agent it began \
                     with, and submit the task again";
        match seen {
            // What is seen at the next look may be what the template wants.
            Some(_) => Blocker::from(format!(
                "{wrong} If what was seen lacks it, mend what looks, then answer here: it is \
                 asked again. Otherwise {again}."
            )),
            None => Blocker::permanent(format!("{wrong} To go on, {again}.")),
        }
    };
    let identity = template::render_template(&agent.prompt, &values)
        .map_err(|why| wrong("The prompt", &why))?;
    let event = event_text::event_kind(agent, task);
    let asked = event_text::task_text(agent, task, &values).map_err(|why| {
        let event = event.unwrap_or_default();
        wrong(&format!("The words for the event `{event}`"), &why)
    })?;
    let speaks_of = |name| template::references(&agent.prompt, name);
    let world = seen.map(|seen| &seen.world);
    let notes = |name: &str| capsule.tool(name).is_some();
    let sections = PromptSections {
        identity: &identity,
        world: world.filter(|world| world.as_str() != "null" && !speaks_of("perception")),
        skills: capsule.skills(),
        notes: notes("remember") && notes("recall") && !speaks_of("memory"),
        rules: &agent.project_rules,
        output_schema: capsule.output_schema(),
        event,
        now: ports.clock.now(),
    };
    let system = sections.render(run);
    Ok(PromptTexts { system, user: asked })
}

/// When a run that turns in circles ends: as the agent says, and otherwise after a
/// while, unless a script is what it follows.
fn identical_calls_limit(capsule: &RunEnv, model: &str) -> Option<u32> {
    match capsule.agent.guards {
        Some(guards) => guards.identical_calls,
        None => (!model.starts_with(SCRIPTED_PREFIX)).then_some(IDENTICAL_CALLS_MAX),
    }
}

/// A text that stands in the event, or is kept under its hash.
fn inline_or_blob(text: String, blobs: &mut Vec<Blob>) -> StoredText {
    if text.len() <= INLINE_BYTES_MAX {
        return StoredText::inline(text);
    }
    let blob = Blob::new(text.into_bytes());
    let body = StoredText::Blob(blob.blob_ref);
    blobs.push(blob);
    body
}

/// The table of tools as models are told of them.
fn tool_table(capsule: &RunEnv) -> Value {
    let rows = capsule.tools_by_wire_name().map(|(wire, equipped)| {
        let card = equipped.spec();
        json!({
            "name": wire,
            "description": card.description,
            "schema": card.schema,
        })
    });
    Value::Array(rows.collect())
}

/// The newest part of the thread that fits, beginning with what a person said.
async fn load_thread_window(ports: &EngineServices, run: &Run) -> Result<Vec<Message>, Error> {
    let Some(thread) = &run.task().thread else {
        return Ok(Vec::new());
    };
    let messages = ports.records.thread_messages(thread, MESSAGES_MAX).await?;
    // What is a secret now may have been none when it was said.
    let cleaner = Redaction(&*ports.redact);
    let messages = messages.into_iter().map(|said| cleaner.message(said));
    Ok(trim_thread(messages.collect(), TOKENS_MAX))
}

/// A message of the thread for templates.
fn template_message(message: &Message) -> Value {
    let (who, text) = match message {
        Message::User(parts) => ("user", joined_text(parts)),
        Message::Assistant(reply) => ("assistant", reply.text()),
        Message::Results(_) => ("tool", String::new()),
    };
    json!({ "role": who, "text": text })
}

fn joined_text(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(Part::text);
    texts.collect::<Vec<_>>().join("\n")
}
