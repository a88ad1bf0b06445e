//! Lets a command that follows a run take over: drive the run when the process that drove it is
//! gone. Used for a local store only, not with a server.

use longhaul::assemble::ProjectRuntime;
use longhaul::config::process_env::ProcessEnv;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;

use crate::output;
use crate::store_access::{StoreAccess, open_as_driver_or_observer};

/// Interval between checks whether a process drives the store.
const POLL_INTERVAL: Millis = Millis(500);

/// A command that follows a run and can drive it when the driver is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverTakeover<'a> {
    /// The project, opened without driving its runs.
    pub(crate) observer: &'a ProjectRuntime,
    /// Environment of this command.
    pub(crate) process_env: &'a ProcessEnv,
}

impl<'a> DriverTakeover<'a> {
    /// Returns a candidate if another process drives the store. Returns `None` if this process
    /// drives the store, or if there is no local store.
    pub(crate) fn new(
        local_store: Option<(&'a ProjectRuntime, bool)>,
        process_env: &'a ProcessEnv,
    ) -> Option<Self> {
        let (beside, drives) = local_store?;
        (!drives).then_some(Self { observer: beside, process_env })
    }

    /// Waits until no process drives the store.
    pub(crate) async fn wait_until_no_driver(&self) -> anyhow::Result<()> {
        let records = &self.observer.longhaul.services().records;
        loop {
            SystemClock.sleep(POLL_INTERVAL).await;
            let driven = records.has_driver().await;
            if !driven.map_err(longhaul_engine::Error::from)? {
                return Ok(());
            }
        }
    }

    /// Opens the store to drive its runs. `None` means that another process drives the store by
    /// now.
    pub(crate) fn try_take_over_driving(
        &self,
        silent: bool,
    ) -> anyhow::Result<Option<ProjectRuntime>> {
        match open_as_driver_or_observer(self.process_env)? {
            StoreAccess::Driving(runtime) => {
                if !silent {
                    output::eprint_line("the driver is gone; this process drives the run now");
                }
                Ok(Some(runtime))
            }
            StoreAccess::Observing(..) => Ok(None),
        }
    }
}
