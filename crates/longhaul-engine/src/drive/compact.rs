//! Asks for a summary of a conversation that no longer fits.
//!
//! Never: decides what a summary is.

use longhaul_core::port::model::Ask;
use longhaul_run::Input;
use longhaul_run::input::Compacted;

use crate::drive::desk::Desk;
use crate::drive::think::ask_model;
use crate::error::Error;
use crate::summary::{older, question, summary};

/// Asks for a summary. None: the run is not ours any more.
pub(super) async fn compact(desk: &mut Desk, ask: Ask) -> Result<Option<Input>, Error> {
    let replaced = older(&ask.messages);
    let first = ask.messages.first().cloned();
    let (heard, active) = ask_model(desk, question(ask)).await?;
    Ok(heard.told(active, |answered| {
        Some(Input::Compacted(Box::new(Compacted {
            replaced,
            summary: vec![summary(first.as_deref(), &answered.reply.text())],
            usage: answered.usage,
            cost: answered.cost,
            model: answered.model,
            active,
        })))
    }))
}
