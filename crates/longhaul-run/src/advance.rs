//! What follows from where a run stands, as long as nobody outside is needed.
//!
//! Never: states a start that could not be made now. Everything due is written
//! in one batch, so a turn costs two commits: reply with the starts of its
//! calls, results with the start of the next turn.

mod act;
pub(crate) mod aside;
pub(crate) mod call;
mod close;
mod conclude;
pub(crate) mod gates;
mod go;
mod order;
mod park;
mod start;
mod steer;
mod think;

pub(crate) use close::{fail, orphans};
pub(crate) use park::park_until;

use crate::advance::go::Go;
use crate::draft::Draft;
use crate::refusal::Refusal;
use crate::state::stage::Stage;

/// No decision takes more rounds than this; one that did would be a mistake of
/// ours, and is refused instead of spinning.
const ROUNDS_MAX: usize = 1_000;

/// States everything that is due.
pub(crate) fn advance(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    for _ in 0..ROUNDS_MAX {
        if round(draft)? == Go::Stop {
            return Ok(());
        }
    }
    Err(Refusal::OutOfPlace {
        what: "an endless decision",
        stage: draft.control.stage.word(),
    })
}

fn round(draft: &mut Draft<'_>) -> Result<Go, Refusal> {
    let control = &draft.control;
    if matches!(control.stage, Stage::Ended(_)) || control.rest.is_some() {
        return Ok(Go::Stop);
    }
    let busy = control.is_busy();
    if control.cancel.is_some() {
        return if busy {
            Ok(Go::Stop)
        } else {
            close::cancel(draft)
        };
    }
    if let Some(fault) = control.doom.clone() {
        return if busy {
            Ok(Go::Stop)
        } else {
            fail(draft, fault)
        };
    }
    if control.pause.is_some() {
        return if busy {
            Ok(Go::Stop)
        } else {
            park::pause(draft)
        };
    }
    if control.missing.is_some() {
        return park::still_missing(draft);
    }
    match &draft.control.stage {
        Stage::New | Stage::Asking(_) | Stage::Ended(_) => Ok(Go::Stop),
        Stage::Thinking(_) => think::think(draft),
        Stage::Acting(_) => act::act(draft),
        Stage::Concluding(_) => conclude::conclude(draft),
    }
}
