//! Drives one claimed run until it rests, ends, or is another's.
//!
//! Never: decides (that is `longhaul-run`), and never opens a database. It asks
//! what is next, lets one adapter act, and tells what came of it.

mod act;
mod attend;
mod bound;
pub(crate) mod charge;
mod compact;
mod desk;
mod gauge;
mod hands;
mod look;
mod think;

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;
use longhaul_core::port::tool::Stay;
use longhaul_run::{Input, Step, next};

pub use crate::drive::charge::{Charge, Parting};

use crate::clean::Cleaner;
use crate::drive::act::act;
use crate::drive::compact::compact;
use crate::drive::desk::{Arrived, Desk};
use crate::drive::look::{look, look_again};
use crate::drive::think::think;
use crate::error::Error;
use crate::ledger::Told;
use crate::ports::{Ports, let_go};

/// Drives a run. Dropping the future is a crash: nothing is lost by it but what
/// no journal knows of.
pub async fn drive(ports: &Ports, charge: Charge) -> Result<Parting, Error> {
    let stay = Stay {
        run: charge.claimed.run,
        epoch: charge.claimed.epoch,
    };
    let parted = AssertUnwindSafe(go(ports, charge)).catch_unwind().await;
    // Whatever was opened for this run alone is not needed while it rests, also
    // when that rest is one that nobody wanted.
    let_go(ports, stay).await;
    parted.unwrap_or_else(|panic| resume_unwind(panic))
}

async fn go(ports: &Ports, charge: Charge) -> Result<Parting, Error> {
    let (mut desk, arrived) = Desk::open(ports, charge).await?;
    let mut input = match arrived {
        Arrived::Equipped => Some(Input::GoOn),
        Arrived::Missing(lack) => Some(lack.told()),
        Arrived::CrashLoop => Some(Input::CrashLoop),
        Arrived::Gone => None,
    };
    while let Some(mut said) = input.take() {
        // Whoever could not bring a part says why in words of their own.
        if let Input::Missing(sentence) | Input::Unfit(sentence) = &mut said {
            *sentence = Cleaner(&*ports.redact).text(std::mem::take(sentence));
        }
        if desk.ledger.tell(said).await? == Told::Gone {
            return Ok(Parting::Gone);
        }
        desk.end_trial();
        input = match next(desk.ledger.run(), desk.ledger.now()) {
            Step::Perceive => look(&mut desk).await?,
            Step::Look => look_again(&mut desk).await?,
            Step::AskModel(ask) => think(&mut desk, ask).await?,
            Step::Compact(ask) => compact(&mut desk, ask).await?,
            Step::UseTools(todos) => act(&mut desk, todos).await?,
            Step::Park(_) | Step::Finish(_) | Step::GoOn => Some(Input::GoOn),
            Step::Rest => return Ok(Parting::Rested),
        };
    }
    Ok(desk.leave().await)
}
