//! Whoever follows a run beside its driver takes over when that one is gone.
//!
//! Never: beside a server. Its end is not the end of who asks it.

use longhaul::assemble::House;
use longhaul::config::surroundings::Surroundings;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;

use crate::open::{Opened, drive_if_free};
use crate::say;

/// So often it is looked whether anybody drives.
const LOOK: Millis = Millis(500);

/// One who could drive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heir<'a> {
    /// The store, as it is seen beside its driver.
    pub(crate) beside: &'a House,
    /// Where this command stands.
    pub(crate) here: &'a Surroundings,
}

impl<'a> Heir<'a> {
    /// Whoever looks at a store that another drives.
    pub(crate) fn of(looked: Option<(&'a House, bool)>, here: &'a Surroundings) -> Option<Self> {
        let (beside, drives) = looked?;
        (!drives).then_some(Self { beside, here })
    }

    /// Returns when nobody drives.
    pub(crate) async fn orphaned(&self) -> anyhow::Result<()> {
        let shelves = &self.beside.longhaul.ports().shelves;
        loop {
            SystemClock.sleep(LOOK).await;
            let driven = shelves.is_driven().await;
            if !driven.map_err(longhaul_engine::Error::from)? {
                return Ok(());
            }
        }
    }

    /// Takes over, unless another was quicker.
    pub(crate) fn take(&self, silent: bool) -> anyhow::Result<Option<House>> {
        match drive_if_free(self.here)? {
            Opened::Driving(house) => {
                if !silent {
                    say::talk("who drove it is gone: driven from here now");
                }
                Ok(Some(house))
            }
            Opened::Beside(..) => Ok(None),
        }
    }
}
