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
mod hands;
mod think;

use longhaul_run::{Input, Step, next};

pub use crate::drive::charge::{Charge, Parting};

use crate::drive::act::act;
use crate::drive::compact::compact;
use crate::drive::desk::{Arrived, Desk};
use crate::drive::think::think;
use crate::error::Error;
use crate::ledger::Told;
use crate::perceive::perceive;
use crate::ports::Ports;

/// Drives a run. Dropping the future is a crash: nothing is lost by it but what
/// no journal knows of.
pub async fn drive(ports: &Ports, charge: Charge) -> Result<Parting, Error> {
    let (mut desk, arrived) = Desk::open(ports, charge).await?;
    let mut input = match arrived {
        Arrived::Equipped => Some(Input::GoOn),
        Arrived::Missing(sentence) => Some(Input::Missing(sentence)),
    };
    while let Some(said) = input.take() {
        if desk.ledger.tell(said).await? == Told::Gone {
            return Ok(Parting::Gone);
        }
        input = match next(desk.ledger.run(), desk.ledger.now()) {
            Step::Perceive => Some(look(&mut desk).await?),
            Step::AskModel(ask) => think(&mut desk, ask).await?,
            Step::Compact(ask) => compact(&mut desk, ask).await?,
            Step::UseTools(todos) => act(&mut desk, todos).await?,
            Step::Park(_) | Step::Finish(_) | Step::GoOn => Some(Input::GoOn),
            Step::Rest => return Ok(Parting::Rested),
        };
    }
    Ok(Parting::Gone)
}

async fn look(desk: &mut Desk) -> Result<Input, Error> {
    let Some(capsule) = &desk.capsule else {
        return Ok(Input::GoOn);
    };
    let seen = perceive(&desk.ports, capsule, desk.ledger.run()).await?;
    Ok(match seen {
        Ok(seen) => Input::Perceived(Box::new(seen)),
        Err(sentence) => Input::Missing(sentence),
    })
}
