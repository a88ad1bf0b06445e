//! Asks for a summary of a conversation that fills the window.
//!
//! Never: decides what a summary is, or takes one that is no gain: then the
//! conversation stays as it is, and the journal says why.

use std::sync::Arc;

use longhaul_core::event::turn::Purpose;
use longhaul_core::event::world::MemoryCompacted;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::{Message, StopReason};
use longhaul_core::port::model::{Answered, Ask};
use longhaul_core::time::Millis;
use longhaul_run::Input;

use crate::drive::desk::Desk;
use crate::drive::think::ask_model;
use crate::error::Error;
use crate::summary::{Cut, older, question, summary};

/// Asks for a summary. None: the run is not ours any more.
pub(super) async fn compact(desk: &mut Desk, ask: Ask) -> Result<Option<Input>, Error> {
    let messages = Arc::clone(&ask.messages);
    let asked = desk.ledger.run().transcript().asked().cloned();
    let (heard, active) = ask_model(desk, question(ask), Purpose::Compact).await?;
    Ok(heard.told(active, |answered, _| {
        Some(made(&messages, asked.as_ref(), (answered, active)))
    }))
}

/// What a summary makes of the conversation.
fn made(
    messages: &[Arc<Message>],
    asked: Option<&Message>,
    (answered, active): (Answered, Millis),
) -> Input {
    let replaced = older(messages);
    let (dropped, kept) = messages.split_at(replaced);
    let cut = Cut {
        asked,
        dropped,
        kept,
    };
    let made = match answered.stop {
        StopReason::Refusal => Err("the model declined to sum it up"),
        // What is missing from it would be gone for the model.
        StopReason::MaxTokens => Err("the summary was cut off at its longest"),
        StopReason::EndTurn
        | StopReason::ToolUse
        | StopReason::PauseTurn
        | StopReason::Other(_) => summary(cut, &answered.reply.text()),
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
            Input::ModelFailed {
                failure,
                cost: answered.cost,
                active,
            }
        }
    }
}
