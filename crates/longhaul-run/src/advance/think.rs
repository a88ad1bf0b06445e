//! About to ask the model: is it time, is it allowed, what must be said first.
//!
//! Never: asks. It states that the model is about to be asked.

use longhaul_core::event::Event;
use longhaul_core::event::run::RunRetried;
use longhaul_core::event::steer::Delivery;
use longhaul_core::event::turn::Purpose;
use longhaul_core::status::{Fault, Wait};

use crate::advance::close;
use crate::advance::go::Go;
use crate::advance::park::{park, park_until};
use crate::advance::start::start_turn;
use crate::advance::steer::deliver;
use crate::draft::Draft;
use crate::refusal::Refusal;
use crate::state::stage::{Stage, Thinking};

/// A turn is asked for so often at most, whoever died or failed. A question that
/// kills its worker would otherwise be asked for ever.
const TRIES_MAX: u32 = 64;

pub(super) fn think(draft: &mut Draft<'_>) -> Result<Go, Refusal> {
    let Stage::Thinking(thinking) = &draft.control.stage else {
        return Ok(Go::On);
    };
    let thinking = thinking.clone();
    if let Some(cap) = draft.control.broke {
        return park(draft, Wait::Budget(cap));
    }
    let spoken_to = draft
        .control
        .steers
        .iter()
        .any(|steer| steer.delivery != Delivery::FollowUp);
    if !spoken_to && let Some(wait) = sleeping(&thinking) {
        return park_until(draft, wait.0, wait.1);
    }
    if let Some(attempt) = thinking.retry {
        draft.record(Event::RunRetried(RunRetried { attempt }))?;
        return Ok(Go::On);
    }
    if deliver(draft, |steer| steer.delivery != Delivery::FollowUp)? {
        return Ok(Go::On);
    }
    if thinking.tries >= TRIES_MAX {
        let words = format!("{TRIES_MAX} questions of one turn were never answered");
        let hint = "look why workers die or calls fail, then retry the run";
        return close::fail(draft, Fault::new("lost", words, hint));
    }
    match (thinking.overflow, thinking.shortened) {
        (false, _) => start_turn(draft, Purpose::Think),
        (true, false) => start_turn(draft, Purpose::Compact),
        (true, true) => {
            let words = "the conversation is too long for the model, also after it was shortened";
            let hint = "use a model with a larger window";
            close::fail(draft, Fault::new("context_overflow", words, hint))
        }
    }
}

/// What it waits for before it may ask.
fn sleeping(thinking: &Thinking) -> Option<(Wait, longhaul_core::id::TimerId)> {
    let sleep = thinking.sleep.filter(|sleep| !sleep.fired)?;
    let wait = if thinking.limited {
        Wait::RateLimit(sleep.until)
    } else {
        Wait::Retry(sleep.until)
    };
    Some((wait, sleep.timer))
}
