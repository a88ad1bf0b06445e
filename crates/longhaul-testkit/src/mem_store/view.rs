//! What a checker may see of the store: every journal and the rows that matter.
//!
//! Never: a way to change any of it.

use longhaul_core::event::entry::Entry;
use longhaul_core::id::{Epoch, LaneKey, RunId, Seq, WorkerId};
use longhaul_core::port::store::{ReadRequest, StoreError};

use crate::mem_store::rows::{State, Tables};

/// A head as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadView {
    /// Whose.
    pub run: RunId,
    /// `ready`, `leased`, `parked`, `lane_wait`, `paused` or `ended`.
    pub state: &'static str,
    /// The fence.
    pub epoch: Epoch,
    /// The last place of its journal.
    pub last_seq: Seq,
    /// Who drives it.
    pub worker: Option<WorkerId>,
    /// Why it is parked.
    pub reason: Option<&'static str>,
    /// Its place in its lane while it is in it.
    pub lane_position: Option<u64>,
}

/// A lane as it stands, with everybody in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// Which.
    pub lane: LaneKey,
    /// Who holds it.
    pub head: Option<RunId>,
    /// How many are said to be in it.
    pub depth: u32,
    /// Who is in it, in order.
    pub members: Vec<RunId>,
}

impl Tables {
    pub(crate) fn journals(&self) -> Result<Vec<(RunId, Vec<Entry>)>, StoreError> {
        let runs = self.heads.iter().map(|(run, _)| *run);
        runs.map(|run| {
            let whole = ReadRequest { run, after: Seq::START, limit: usize::MAX };
            self.page(whole).map(|(entries, _)| (run, entries))
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
                let everybody = (key.clone(), 0)..=(key.clone(), u64::MAX);
                let members = self.lane_members.range(everybody);
                LaneView {
                    lane: key.clone(),
                    head: lane.head,
                    depth: lane.depth,
                    members: members.map(|(_, run)| *run).collect(),
                }
            })
            .collect()
    }
}
