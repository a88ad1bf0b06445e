//! Read-only views of the store for the checks: all journals and the relevant rows.

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{Epoch, LaneKey, RunId, Seq, WorkerId};
use longhaul_core::port::store::{JournalReadRequest, StoreError};

use crate::mem_store::rows::{State, Tables};

/// The state of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadView {
    pub run: RunId,
    /// `ready`, `leased`, `parked`, `lane_wait`, `paused` or `ended`.
    pub state: &'static str,
    /// Epoch of the latest claim.
    pub epoch: Epoch,
    /// Last sequence number of the journal.
    pub last_seq: Seq,
    /// Worker that drives the run.
    pub worker: Option<WorkerId>,
    /// Reason for parking.
    pub reason: Option<&'static str>,
    /// Position in the lane while the run is in it.
    pub lane_position: Option<u64>,
}

/// A lane with its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// Name of the lane.
    pub lane: LaneKey,
    /// Run that holds the lane.
    pub holder: Option<RunId>,
    /// Stored number of members.
    pub depth: u32,
    /// Members in order.
    pub members: Vec<RunId>,
}

impl Tables {
    pub(crate) fn journals(&self) -> Result<Vec<(RunId, Vec<JournalEntry>)>, StoreError> {
        let runs = self.heads.iter().map(|(run, _)| *run);
        runs.map(|run| {
            let request = JournalReadRequest { run, after: Seq::START, limit: usize::MAX };
            self.page(request).map(|(entries, _)| (run, entries))
        })
        .collect()
    }

    pub(crate) fn head_views(&self) -> Vec<HeadView> {
        let heads = self.heads.iter();
        heads
            .map(|(run, head)| {
                let (worker, reason) = match &head.state {
                    State::Leased(worker) => (Some(*worker), None),
                    State::Parked { reason, .. } => (None, Some(*reason)),
                    State::Ready | State::LaneWait | State::Paused | State::Ended { .. } => {
                        (None, None)
                    }
                };
                HeadView {
                    run: *run,
                    state: head.state.as_str(),
                    epoch: head.epoch,
                    last_seq: head.last_seq,
                    worker,
                    reason,
                    lane_position: head.lane_position,
                }
            })
            .collect()
    }

    pub(crate) fn lane_views(&self) -> Vec<LaneView> {
        let lanes = self.lanes.iter();
        lanes
            .map(|(key, lane)| {
                let range = (key.clone(), 0)..=(key.clone(), u64::MAX);
                let members = self.lane_members.range(range);
                LaneView {
                    lane: key.clone(),
                    holder: lane.holder,
                    depth: lane.depth,
                    members: members.map(|(_, run)| *run).collect(),
                }
            })
            .collect()
    }
}
