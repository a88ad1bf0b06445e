//! Reasons for which a run stops working: a cancel, a failure, a pause, a missing dependency. The run
//! stops as soon as no work is in progress.

use longhaul_core::event::run::CancelCause;
use longhaul_core::id::GateId;
use longhaul_core::status::RunError;
use serde::{Deserialize, Serialize};

/// Reasons for which a run stops working, the strongest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StopReasons {
    /// Cancel of the run. `None` means that nobody has cancelled it.
    pub(crate) cancel: Option<Cancellation>,
    /// Error with which the run ends. `None` means that the run is not about to fail.
    pub(crate) failure: Option<RunError>,
    /// Principal that has paused the run. `None` means that the run is not about to be paused.
    pub(crate) pause: Option<String>,
    /// Missing dependency. `None` means that the run is not blocked on a dependency.
    pub(crate) blocked: Option<MissingDependency>,
}

/// Cancel of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cancellation {
    /// Who has cancelled the run and why, such as `cancelled by cli:anna`.
    pub(crate) reason: String,
    pub(crate) cause: CancelCause,
}

/// A dependency that a blocked run needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MissingDependency {
    /// Gate that asks a person for the dependency.
    pub(crate) gate: GateId,
    /// Whether a person has resumed the run since.
    pub(crate) resumed: bool,
}

impl StopReasons {
    /// Returns whether the run is cancelled or about to fail.
    pub(crate) const fn ends_run(&self) -> bool {
        self.cancel.is_some() || self.failure.is_some()
    }

    /// Returns whether the run is cancelled, about to fail, or about to be paused.
    pub(crate) const fn stops_run(&self) -> bool {
        self.ends_run() || self.pause.is_some()
    }
}
