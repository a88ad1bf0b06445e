//! Requests a summary of a conversation that fills the model's context window.
//!
//! A summary that is refused, truncated or too long is not used: the conversation stays unchanged,
//! and the failure is journaled.

use std::sync::Arc;

use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::{Message, StopReason};
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_core::time::Millis;
use longhaul_run::RunInput;

use crate::drive::context::DriveContext;
use crate::drive::model_call::{RedactedReply, timed_model_call};
use crate::error::Result;
use crate::prompt::summary::{
    ConversationSplit, build_summary, messages_to_summarize, to_summary_request,
};

/// Requests a summary of the run's conversation. `None` means that this driver has lost its claim
/// on the run.
pub(super) async fn compact_conversation(
    ctx: &mut DriveContext,
    request: ModelRequest,
) -> Result<Option<RunInput>> {
    let messages = Arc::clone(&request.messages);
    let task = ctx.session.run().transcript().task_message().cloned();
    let request =
        to_summary_request(request, ctx.session.run().control().compaction_summary_guidance());
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
        | StopReason::Other(_) => build_summary(split, &response.reply.text()),
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
