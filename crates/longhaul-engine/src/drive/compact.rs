//! Asks for a summary of a conversation that fills the window.
//!
//! Never: decides what a summary is, or takes one that is no gain: then the
//! conversation stays as it is, and the journal says why.

use std::sync::Arc;

use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::{Message, StopReason};
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_core::time::Millis;
use longhaul_run::Input;

use crate::drive::context::DriveContext;
use crate::drive::model_call::call_model_timed;
use crate::error::Error;
use crate::summary::{SummarySplit, build_summary, summarized_count, summary_request};

/// Asks for a summary. None: the run is not ours any more.
pub(super) async fn compact(
    desk: &mut DriveContext,
    ask: ModelRequest,
) -> Result<Option<Input>, Error> {
    let messages = Arc::clone(&ask.messages);
    let asked = desk.session.run().transcript().task_message().cloned();
    let (heard, active) =
        call_model_timed(desk, summary_request(ask), ModelCallPurpose::Compact).await?;
    Ok(heard.into_input(active, |answered, _| {
        Some(compaction_input(&messages, asked.as_ref(), (answered, active)))
    }))
}

/// What a summary makes of the conversation.
fn compaction_input(
    messages: &[Arc<Message>],
    asked: Option<&Message>,
    (answered, active): (ModelResponse, Millis),
) -> Input {
    let replaced = summarized_count(messages);
    let (dropped, kept) = messages.split_at(replaced);
    let cut = SummarySplit { task: asked, summarized: dropped, kept_messages: kept };
    let made = match answered.stop {
        StopReason::Refusal => Err("the model declined to sum it up"),
        // What is missing from it would be gone for the model.
        StopReason::MaxTokens => Err("the summary was cut off at its longest"),
        StopReason::EndTurn
        | StopReason::ToolUse
        | StopReason::PauseTurn
        | StopReason::Other(_) => build_summary(cut, &answered.reply.text()),
    };
    match made {
        Ok(summary) => Input::Compacted(Box::new(MemoryCompacted {
            replaced,
            summary: vec![summary],
            usage: answered.usage,
            cost: answered.cost,
            model: answered.model,
            active,
        })),
        Err(why) => {
            let mut failure = Failure::new(FailureClass::Refused, why);
            failure.usage = Some(answered.usage);
            Input::ModelFailed { failure, cost: answered.cost, active }
        }
    }
}
