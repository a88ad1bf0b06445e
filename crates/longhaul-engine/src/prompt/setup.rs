//! Prepares a run before its first turn: renders the prompt and the first messages once, so that
//! they can be journaled.
//!
//! The templates and the task text of a step of a chain see the outputs of the earlier steps.

use longhaul_core::chain::{CompletedChainStep, PositionInChain};
use longhaul_core::change::Blob;
use longhaul_core::event::run::{CompactionModel, RunPrepared};
use longhaul_core::message::Message;
use longhaul_core::port::context::Perception;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::status::RunOutput;
use longhaul_core::time::Millis;
use longhaul_core::usage::ModelPricing;
use longhaul_run::Run;
use serde_json::{Map, Value, json};

use crate::agent::Agent;
use crate::agent::config::LoopGuardConfig;
use crate::drive::run_env::{RunBlocker, RunEnv};
use crate::error::{Error, Result};
use crate::guard::redaction::Redaction;
use crate::guard::template;
use crate::guard::template::template_uses_value;
use crate::prompt::thread_window::{MESSAGES_MAX, TOKENS_MAX, trim_thread_messages};
use crate::prompt::{PromptSections, event_text};
use crate::replay::replay_run_state;
use crate::services::{ModelResolver, Services};
use crate::tools::find_tools::tool_list_entry;

/// Maximum size in bytes of a text that is stored in the event that prepares a run. Longer texts
/// are stored as blobs, which runs share.
const INLINE_BYTES_MAX: usize = 1_024;

/// Prefix of scripted models. The guards against repetitions do not apply to them, because they may
/// repeat themselves on purpose.
const SCRIPTED_PREFIX: &str = "scripted/";

/// Model alias under which a project configures the model for summaries.
const COMPACTOR_ALIAS: &str = "compact";

/// Model name prefixes of providers that replay recorded replies. Runs with such a model use the
/// same model for summaries, so that the whole run is replayed.
const REPLAY_PREFIXES: [&str; 2] = ["scripted/", "cassette/"];

/// Maximum size in bytes of the previous step's text that is added to the task text.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Outputs of the earlier steps of a chain. If a step has run several times, its newest output.
/// Empty for a run that belongs to no chain.
#[derive(Debug, Default)]
pub(crate) struct ChainOutputs {
    /// Name of the previous step, and a JSON object with its agent, run and output.
    previous: Option<(String, Value)>,
    /// JSON objects with agent, run and output of the earlier steps, by the names of the steps.
    steps: Map<String, Value>,
}

/// Builds the event that prepares a run for its first turn. The inner error says why the run can't
/// be prepared, for example because its prompt can't be rendered.
pub(crate) async fn build_run_prepared_event(
    services: &Services,
    env: &RunEnv,
    run: &Run,
    perception: Option<Perception>,
) -> Result<Result<(RunPrepared, Vec<Blob>), RunBlocker>> {
    let inputs = PromptInputs {
        memory: &load_recent_thread_messages(services, run).await?,
        perception: perception.as_ref(),
        outputs: &ChainOutputs::load(services, run.task().chain.as_deref()).await?,
    };
    let (system, user) = match render_prompt(services, env, run, inputs) {
        Ok(texts) => texts,
        Err(blocker) => return Ok(Err(blocker)),
    };
    let mut blobs = Vec::new();
    // The texts contain data of external origin, such as tool descriptions of servers and project
    // rules.
    let redaction = Redaction(&*services.redact);
    let system = store_inline_or_as_blob(redaction.redact_text(system), &mut blobs);
    let tools = env.tools_by_api_name().filter(|(name, _)| !env.deferred_tools.contains(*name));
    let tools: Vec<_> = tools.map(|(name, tool)| tool_list_entry(name, tool.spec())).collect();
    let tools = redaction.redact_json(&RawJson::from_serialize(&tools));
    let tools = match env.deferred_tools.is_empty() {
        // Loaded tools are added to the list.
        false => StoredText::new_inline(tools.as_str()),
        true => store_inline_or_as_blob(tools.as_str().to_owned(), &mut blobs),
    };
    let mut messages = run.task().history.clone();
    messages.extend(inputs.memory.iter().cloned());
    messages.push(Message::user(redaction.redact_text(user)));
    let mut names = env.models.iter().map(|found| found.name.clone());
    let request = ModelRequest {
        run: run.id(),
        model: names.next().unwrap_or_default(),
        system: system.clone(),
        tools: tools.clone(),
        ..ModelRequest::default()
    };
    let pricings = env.models.iter();
    let pricings = pricings.map(|found| found.model.estimate(&request).pricing);
    let pricing = pricings.reduce(ModelPricing::merge_most_restrictive_pricing).unwrap_or_default();
    let (world, context) =
        perception.map(|perception| (perception.world, perception.context)).unzip();
    let guards = repetition_limits(env, &request.model);
    let perceived = RunPrepared {
        system,
        tools,
        initial_messages: messages,
        fallbacks: names.collect(),
        compactor: compaction_model(&*services.models, &request),
        identical_calls: guards.identical_calls,
        no_progress: guards.no_progress,
        repeated_text: guards.repeated_text,
        compactions: guards.compactions,
        compaction: env.agent.compaction.clone(),
        model: request.model,
        pricing,
        world: world.map(|world| store_inline_or_as_blob(world.as_str().to_owned(), &mut blobs)),
        context: context.unwrap_or_default(),
        external_tools: env.external_tools.clone(),
        perception_active: Millis::ZERO,
    };
    Ok(Ok((perceived, blobs)))
}

/// Inputs for rendering the prompt of a run, besides its agent and task: thread messages,
/// perception (the state of the world) and outputs of earlier chain steps.
#[derive(Clone, Copy)]
struct PromptInputs<'a> {
    memory: &'a [Message],
    perception: Option<&'a Perception>,
    outputs: &'a ChainOutputs,
}

/// Returns the rendered system prompt and task text of a run.
fn render_prompt(
    services: &Services,
    env: &RunEnv,
    run: &Run,
    PromptInputs { memory, perception, outputs }: PromptInputs<'_>,
) -> Result<(String, String), RunBlocker> {
    let (agent, task) = (&env.agent, run.task());
    let mut values = template::template_values(
        &task.input,
        &env.merge_context(perception.map(|perception| &perception.context)),
    );
    values["memory"] = json!(memory.iter().map(message_template_value).collect::<Vec<_>>());
    if let Some(perception) = perception {
        values["perception"] = perception.world.to_value();
    }
    outputs.add_outputs_to_template_values(&mut values);
    let render_blocker = |template: &str, reason: &str| {
        let name = &agent.name;
        let problem = format!("{template} of agent `{name}` can't be rendered: {reason}.");
        let remedy = "fix the agent's file, cancel this run, which keeps the agent version it started \
                      with, and submit the task again";
        match perception {
            // The next answer of the context provider may contain the missing value.
            Some(_) => RunBlocker::from(format!(
                "{problem} If the context provider should have returned it, fix the provider, then resume \
                 the run or answer here to retry. Otherwise {remedy}."
            )),
            None => RunBlocker::permanent(format!("{problem} To continue, {remedy}.")),
        }
    };
    let identity = template::render_template(&agent.prompt, &values)
        .map_err(|reason| render_blocker("The prompt", &reason))?;
    let event = event_text::event_kind(agent, task);
    let user = event_text::task_text(agent, task, &values).map_err(|reason| {
        let event = event.unwrap_or_default();
        render_blocker(&format!("The text for the event `{event}`"), &reason)
    })?;
    let user = outputs.add_outputs_to_task_text(agent, user);
    let prompt_uses = |name| template::template_uses_value(&agent.prompt, name);
    let world = perception.map(|perception| &perception.world);
    let notes = |name: &str| env.tool(name).is_some();
    let sections = PromptSections {
        identity: &identity,
        world: world.filter(|world| world.as_str() != "null" && !prompt_uses("perception")),
        skills: env.skills(),
        notes: notes("remember") && notes("recall") && !prompt_uses("memory"),
        rules: &agent.project_rules,
        output_schema: env.output_schema.as_ref(),
        event,
        now: services.clock.now(),
    };
    let system = sections.render_system_prompt(run);
    Ok((system, user))
}

/// Returns the limits of repeated calls and replies (loop guard) for a run of this model.
fn repetition_limits(env: &RunEnv, model: &str) -> LoopGuardConfig {
    let default = match model.starts_with(SCRIPTED_PREFIX) {
        true => LoopGuardConfig::OFF,
        false => LoopGuardConfig::default(),
    };
    env.agent.guards.unwrap_or(default)
}

/// Returns the name and pricing of the model that the project configures for summaries of
/// conversations. `None` means that the run's own model is used.
fn compaction_model(models: &dyn ModelResolver, request: &ModelRequest) -> Option<CompactionModel> {
    if REPLAY_PREFIXES.iter().any(|prefix| request.model.starts_with(prefix)) {
        return None;
    }
    let found = models.resolve_model_name(Some(COMPACTOR_ALIAS)).ok()?;
    if found.name == request.model {
        return None;
    }
    let summary_request = ModelRequest {
        model: found.name.clone(),
        tools: StoredText::new_inline("[]"),
        ..request.clone()
    };
    Some(CompactionModel {
        pricing: found.model.estimate(&summary_request).pricing,
        model: found.name,
    })
}

/// Returns a short text itself. Adds a long text to `blobs` and returns a reference to the blob.
fn store_inline_or_as_blob(text: String, blobs: &mut Vec<Blob>) -> StoredText {
    if text.len() <= INLINE_BYTES_MAX {
        return StoredText::new_inline(text);
    }
    let blob = Blob::new(text.into_bytes());
    let body = StoredText::Blob(blob.blob_ref);
    blobs.push(blob);
    body
}

/// Returns the newest messages of the run's thread that fit into the prompt, starting with a
/// message of a person.
async fn load_recent_thread_messages(services: &Services, run: &Run) -> Result<Vec<Message>> {
    let Some(thread) = &run.task().thread else { return Ok(Vec::new()) };
    let messages = services.records.thread_messages(thread, MESSAGES_MAX).await?;
    // A secret may have been configured after the message was stored.
    let redaction = Redaction(&*services.redact);
    let messages = messages.into_iter().map(|message| redaction.redact_message(message));
    Ok(trim_thread_messages(messages.collect(), TOKENS_MAX))
}

/// Returns a thread message as a template value.
fn message_template_value(message: &Message) -> Value {
    let role = match message {
        Message::User(_) => "user",
        Message::Assistant(_) => "assistant",
        Message::Results(_) => "tool",
    };
    json!({ "role": role, "text": message.text() })
}

impl ChainOutputs {
    /// Reads the outputs of the earlier steps of a chain from the journals of their runs. A run
    /// that was deleted since has no output.
    pub(crate) async fn load(
        services: &Services,
        position: Option<&PositionInChain>,
    ) -> Result<Self> {
        let mut outputs = Self::default();
        let Some(position) = position else { return Ok(outputs) };
        for CompletedChainStep { step, run } in position.completed.iter().rev() {
            let Some(step) = position.chain.steps.get(*step) else { continue };
            if outputs.steps.contains_key(&step.name) {
                continue;
            }
            let output = match replay_run_state(services, *run).await {
                Ok((folded, _)) => folded.output().cloned().unwrap_or_default(),
                Err(Error::RunNotFound(_)) => RunOutput::default(),
                Err(error) => return Err(error),
            };
            let data = output.data.as_ref().map(RawJson::to_value);
            let answer = output.answer.as_ref();
            let value = json!({
                "agent": step.agent.as_str(),
                "run": run,
                "output": { "text": output.text, "data": data },
                "note": answer.and_then(|answer| answer.note.as_deref()),
                "payload": answer.and_then(|answer| answer.payload.as_ref()).map(RawJson::to_value),
            });
            if outputs.previous.is_none() {
                outputs.previous = Some((step.name.clone(), value.clone()));
            }
            outputs.steps.insert(step.name.clone(), value);
        }
        Ok(outputs)
    }

    /// Adds the outputs of the earlier chain steps to the values of a template, under the names
    /// `previous` and `steps`.
    pub(crate) fn add_outputs_to_template_values(&self, values: &mut Value) {
        values["previous"] = self.previous.as_ref().map_or(Value::Null, |(_, value)| value.clone());
        values["steps"] = Value::Object(self.steps.clone());
    }

    /// Returns the task text with the text of the previous chain step under a heading, unless a
    /// template of the agent uses the outputs of earlier steps itself.
    pub(crate) fn add_outputs_to_task_text(&self, agent: &Agent, text: String) -> String {
        let sources = || agent.events.values().chain([&agent.prompt]);
        let uses = |name| sources().any(|source| template_uses_value(source, name));
        let Some((step, value)) = &self.previous else { return text };
        let previous = value["output"]["text"].as_str().unwrap_or_default();
        if previous.is_empty() || uses("previous") || uses("steps") {
            return text;
        }
        let excerpt = &previous[..previous.floor_char_boundary(TEXT_BYTES_MAX)];
        let omission_note = match excerpt.len() < previous.len() {
            true => format!("\n\n[{} more bytes are left out]", previous.len() - excerpt.len()),
            false => String::new(),
        };
        let note = value["note"].as_str().map(str::to_owned);
        let payload = Some(&value["payload"]).filter(|payload| !payload.is_null());
        let added: Vec<String> = note.into_iter().chain(payload.map(Value::to_string)).collect();
        let answer = match added.is_empty() {
            true => String::new(),
            false => format!("\n\nThe person who approved it added:\n\n{}", added.join("\n\n")),
        };
        format!(
            "{text}\n\n## Result of the previous step, `{step}`\n\n{excerpt}{omission_note}{answer}"
        )
    }
}
