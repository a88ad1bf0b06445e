//! Finds the desk for a command.
//!
//! Never: makes a store only to find it empty.

use crate::cli::desk::Desk;
use crate::cli::desk::here::Here;
use crate::cli::open;

/// The desk to say a word or to look; there must be something to look at.
pub(crate) fn look() -> anyhow::Result<Box<dyn Desk>> {
    look_if_there()?.ok_or_else(|| open::nothing_here().into())
}

/// The same; none when there is no store.
pub(crate) fn look_if_there() -> anyhow::Result<Option<Box<dyn Desk>>> {
    let house = open::look_if_there()?;
    Ok(house.map(|house| Box::new(Here::new(&house.longhaul)) as Box<dyn Desk>))
}

/// The desk to hand something over; a store is made if need be.
pub(crate) fn beside() -> anyhow::Result<Box<dyn Desk>> {
    Ok(Box::new(Here::new(&open::beside()?.longhaul)))
}
