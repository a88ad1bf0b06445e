//! Whoever follows a run beside its driver takes over when that one is gone.
//!
//! Never: beside a server. Its end is not the end of who asks it.

use longhaul::assemble::ProjectRuntime;
use longhaul::config::process_env::ProcessEnv;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;

use crate::output;
use crate::store_access::{StoreAccess, drive_or_observe};

/// So often it is looked whether anybody drives.
const POLL_INTERVAL: Millis = Millis(500);

/// One who could drive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takeover<'a> {
    /// The store, as it is seen beside its driver.
    pub(crate) observer: &'a ProjectRuntime,
    /// Where this command stands.
    pub(crate) process_env: &'a ProcessEnv,
}

impl<'a> Takeover<'a> {
    /// Whoever looks at a store that another drives.
    pub(crate) fn new(
        looked: Option<(&'a ProjectRuntime, bool)>,
        here: &'a ProcessEnv,
    ) -> Option<Self> {
        let (beside, drives) = looked?;
        (!drives).then_some(Self { observer: beside, process_env: here })
    }

    /// Returns when nobody drives.
    pub(crate) async fn driver_gone(&self) -> anyhow::Result<()> {
        let shelves = &self.observer.longhaul.services().records;
        loop {
            SystemClock.sleep(POLL_INTERVAL).await;
            let driven = shelves.has_driver().await;
            if !driven.map_err(longhaul_engine::Error::from)? {
                return Ok(());
            }
        }
    }

    /// Takes over, unless another was quicker.
    pub(crate) fn take_over(&self, silent: bool) -> anyhow::Result<Option<ProjectRuntime>> {
        match drive_or_observe(self.process_env)? {
            StoreAccess::Driving(house) => {
                if !silent {
                    output::stderr_line("who drove it is gone: driven from here now");
                }
                Ok(Some(house))
            }
            StoreAccess::Observing(..) => Ok(None),
        }
    }
}
