//! Sends one request to the model and waits for the reply. The state machine decides about retries.
//!
//! A request may also ask for a summary of a conversation that fills the model's context window. A
//! summary that is refused, truncated or too long is not used: the conversation stays unchanged,
//! and the failure is journaled.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::turn::{ModelCallPurpose, OutputCheckResult, ToolCallClassification};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::{Message, StopReason};
use longhaul_core::port::model::{Model, ModelRequest, ModelResponse};
use longhaul_core::port::sandbox::Sandbox;
use longhaul_core::port::store::StoreError;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_run::input::{InterruptedReply, ModelReply};
use longhaul_run::{Run, RunInput};

use crate::drive::abort::{AbortReason, AbortSignals, Abortable};
use crate::drive::classify::{add_remembered_approvals, classify_call};
use crate::drive::context::DriveContext;
use crate::drive::run_env::RunEnv;
use crate::error::Result;
use crate::guard::redaction::Redaction;
use crate::prompt::summary::{
    ConversationSplit, messages_to_summarize, summarize, to_summary_request,
};
use crate::services::{ModelResolver, ResolvedModel};
use crate::tools::effect_facts::add_effect_facts;

/// Outcome of a request to the model, as the provider returned it.
enum ModelOutcome {
    Reply(ModelResponse),
    /// The request failed. The second value is the cost of the request, if it is known.
    Failed(Failure, Option<MicroUsd>),
    /// A person's message interrupted the model after it had generated this text.
    Interrupted(InterruptedReply),
    /// This driver has lost its claim on the run.
    Lost,
}

/// A reply of the model in which secrets are redacted.
pub(super) struct RedactedReply {
    pub(super) response: ModelResponse,
    /// For each tool call of the reply, the name of a secret in its input, if there is one.
    secret_names: Vec<Option<String>>,
    /// Duration of the request.
    pub(super) active: Millis,
}

/// Requests the model's reply for the next turn. `None` means that this driver has lost its claim
/// on the run.
pub(super) async fn run_model_turn(
    ctx: &mut DriveContext,
    request: ModelRequest,
) -> Result<Option<RunInput>> {
    let reply = match timed_model_call(ctx, request, ModelCallPurpose::Turn).await? {
        Ok(reply) => reply,
        Err(input) => return Ok(input),
    };
    let (Some(env), run) = (&ctx.env, ctx.session.run()) else { return Ok(None) };
    let (mut calls, output_check) = classify_and_check(env, run, &reply).await?;
    let RedactedReply { response, active, .. } = reply;
    add_remembered_approvals(&ctx.services, run.task(), &mut calls).await?;
    let sandbox = ctx.sandbox.clone().map(|sandbox| sandbox as Arc<dyn Sandbox>);
    add_effect_facts((env, run, sandbox), &ctx.services.redact, &response.reply, &mut calls).await;
    let reply = ModelReply { response, calls, output_check, active };
    Ok(Some(RunInput::ModelReplied(Box::new(reply))))
}

/// Classifies the tool calls of a reply and checks a final answer against the output schema.
async fn classify_and_check(
    env: &RunEnv,
    run: &Run,
    RedactedReply { response, secret_names, .. }: &RedactedReply,
) -> Result<(Vec<ToolCallClassification>, Option<OutputCheckResult>), StoreError> {
    let mut calls = Vec::with_capacity(secret_names.len());
    for (call, secret_name) in response.reply.tool_calls().zip(secret_names) {
        calls.push(classify_call(env, run, (call, secret_name.as_deref())).await?);
    }
    let output_check = match &env.output_schema {
        Some(schema) => schema.validate_final_reply(response, &calls, &*env.clock).await,
        None => None,
    };
    Ok((calls, output_check))
}

/// Sends a request to the run's model, measures how long it takes, and redacts secrets in its
/// outcome, because what a provider returns is untrusted. Without a reply, the error is the next
/// input of the state machine. `None` as an error means that this driver has lost its claim on the
/// run.
pub(super) async fn timed_model_call(
    ctx: &mut DriveContext,
    request: ModelRequest,
    purpose: ModelCallPurpose,
) -> Result<Result<RedactedReply, Option<RunInput>>> {
    let started = ctx.services.clock.monotonic_time();
    let outcome = call_model(ctx, request, purpose).await?;
    let active = ctx.services.clock.monotonic_time().minus(started);
    let redaction = Redaction(&*ctx.services.redact);
    Ok(match outcome {
        ModelOutcome::Reply(response) => {
            // Calls with a secret are not made: with the secret redacted they would be other calls.
            let calls = response.reply.tool_calls();
            let secret_names = calls.map(|call| redaction.secret_name_in_json(&call.input));
            let secret_names = secret_names.collect();
            let response = redaction.redact_response(response);
            Ok(RedactedReply { response, secret_names, active })
        }
        ModelOutcome::Failed(mut failure, cost) => {
            let texts = failure.request_id.iter_mut().chain([&mut failure.message]);
            texts.for_each(|text| redaction.clean(text));
            Err(Some(RunInput::ModelFailed { failure, cost, active }))
        }
        ModelOutcome::Interrupted(mut interrupted) => {
            redaction.clean_shared(&mut interrupted.text);
            Err(Some(RunInput::ModelInterrupted(InterruptedReply { active, ..interrupted })))
        }
        ModelOutcome::Lost => Err(None),
    })
}

async fn call_model(
    ctx: &mut DriveContext,
    mut request: ModelRequest,
    purpose: ModelCallPurpose,
) -> Result<ModelOutcome> {
    let Some(env) = ctx.env.clone() else { return Ok(ModelOutcome::Lost) };
    // The start of the turn is journaled, but a worker that shuts down cancels it without sending
    // the request.
    if ctx.shutdown.is_draining() {
        return Ok(ModelOutcome::Failed(cancelled_failure(), None));
    }
    ctx.blob_texts.inline_request_blobs(&*ctx.services.records, &mut request).await?;
    // Checked after all other waits: loading the texts may take so long that the claim is lost
    // meanwhile.
    if !ctx.lease.wait_until_valid().await {
        return Ok(ModelOutcome::Lost);
    }
    let reply = (request.run, request.turn, request.attempt);
    let sink = ctx.services.deltas.create_sink(reply, Arc::clone(&ctx.services.redact));
    let found = match resolve_model(&env, &*ctx.services.models, (&request.model, purpose)) {
        Ok(found) => found,
        Err(failure) => return Ok(ModelOutcome::Failed(failure, None)),
    };
    let generation = AssertUnwindSafe(found.model.generate(&request, &sink)).catch_unwind();
    let generation = pin!(generation);
    let mut signals = AbortSignals {
        interruptible: true,
        timed_since: Some(ctx.services.clock.monotonic_time()),
        ..AbortSignals::new(&mut ctx.session, &ctx.lease, &ctx.shutdown)
    };
    Ok(match signals.wait_unless_aborted(generation).await? {
        Abortable::Done(Ok(Ok(response))) => ModelOutcome::Reply(response),
        Abortable::Done(Ok(Err(failure))) => {
            let cost = failure_cost(&*found.model, &request, &failure);
            ModelOutcome::Failed(failure, cost)
        }
        Abortable::Done(Err(_)) => {
            let message = format!("the model adapter of {} panicked", found.name);
            ModelOutcome::Failed(Failure::new(FailureClass::Server, message), None)
        }
        Abortable::Aborted(
            AbortReason::Cancelled
            | AbortReason::Shutdown
            | AbortReason::TimedOut
            | AbortReason::ActiveTimeUsedUp,
        ) => ModelOutcome::Failed(cancelled_failure(), None),
        Abortable::Aborted(AbortReason::Interrupted) => {
            interrupted_outcome(&*found.model, &request, sink.flush_and_get_text())
        }
        Abortable::Aborted(AbortReason::Lost) => ModelOutcome::Lost,
    })
}

/// Returns the model for a request: one of the run's models, or the model configured for summaries.
/// If the model for summaries is missing, no other model replaces it, because the budget was
/// reserved at the price of that model.
fn resolve_model(
    env: &RunEnv,
    models: &dyn ModelResolver,
    (name, purpose): (&str, ModelCallPurpose),
) -> Result<ResolvedModel, Failure> {
    let model = env.models.iter().find(|found| found.name == name);
    if let Some(model) = model {
        return Ok(model.clone());
    }
    models.resolve_model_name(Some(name)).or_else(|error| {
        let fallback = env.model(name).filter(|_| purpose == ModelCallPurpose::Turn).cloned();
        fallback.ok_or_else(|| Failure::new(FailureClass::InvalidRequest, error.to_string()))
    })
}

fn cancelled_failure() -> Failure {
    Failure::new(FailureClass::Stopped, "the request was cancelled")
}

/// Returns the cost of a failed request at the price of the requested model. The state machine
/// can't compute the cost, because it knows only the price of the run's most expensive model.
fn failure_cost(model: &dyn Model, request: &ModelRequest, failure: &Failure) -> Option<MicroUsd> {
    let usage = failure.usage.filter(|usage| usage.total_tokens() > 0)?;
    let price = model.estimate(request).pricing.price?;
    Some(price.cost(usage))
}

/// Returns the outcome of a request that a message interrupted, with estimated usage and cost.
fn interrupted_outcome(model: &dyn Model, request: &ModelRequest, text: Arc<str>) -> ModelOutcome {
    let pricing = model.estimate(request).pricing;
    let usage = pricing.estimate_usage(request.conversation_bytes(), text.len() as u64);
    ModelOutcome::Interrupted(InterruptedReply {
        text,
        usage,
        cost: pricing.price.map(|price| price.cost(usage)),
        active: Millis::ZERO,
    })
}

/// Requests a summary of the run's conversation. `None` means that this driver has lost its claim
/// on the run.
pub(super) async fn compact_conversation(
    ctx: &mut DriveContext,
    request: ModelRequest,
) -> Result<Option<RunInput>> {
    let messages = Arc::clone(&request.messages);
    let task = ctx.session.run().transcript().task_message().cloned();
    let request = to_summary_request(request, ctx.session.run().control().summary_guidance());
    Ok(match timed_model_call(ctx, request, ModelCallPurpose::Compact).await? {
        Ok(RedactedReply { response, active, .. }) => {
            Some(build_compaction_run_input(&messages, task.as_ref(), (response, active)))
        }
        Err(input) => input,
    })
}

/// Builds the state machine's input from the model's reply with the summary.
fn build_compaction_run_input(
    messages: &[Arc<Message>],
    task: Option<&Message>,
    (response, active): (ModelResponse, Millis),
) -> RunInput {
    let replaced = messages_to_summarize(messages);
    let (dropped, kept) = messages.split_at(replaced);
    let split = ConversationSplit { task, summarized: dropped, kept_messages: kept };
    let result = match response.stop {
        StopReason::Refusal => Err("the model refused to summarize the conversation"),
        // The model would lose whatever a truncated summary does not contain.
        StopReason::MaxTokens => Err("the summary was truncated at the maximum output length"),
        StopReason::EndTurn
        | StopReason::ToolUse
        | StopReason::PauseTurn
        | StopReason::Other(_) => summarize(split, &response.reply.text()),
    };
    match result {
        Ok(summary) => RunInput::Compacted(Box::new(MemoryCompacted {
            replaced,
            summary: vec![summary],
            usage: response.usage,
            cost: response.cost,
            model: response.model,
            active,
        })),
        Err(reason) => {
            let mut failure = Failure::new(FailureClass::Refused, reason);
            failure.usage = Some(response.usage);
            RunInput::ModelFailed { failure, cost: response.cost, active }
        }
    }
}
