//! Looks for rows that crossed each other, mends and counts them.
//!
//! Never: finds anything, unless there is a bug elsewhere.

use longhaul_core::change::SandboxState;
use longhaul_core::id::{GateId, LaneKey, RunId, SandboxId};
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::shelves::Repairs;

use crate::mem_store::head::ready_key;
use crate::mem_store::rows::{Head, Lane, ReadyKey, State};
use crate::mem_store::tx::Tx;

impl Tx<'_> {
    /// Mends everything that can be mended.
    pub(crate) fn repair(&mut self) -> Repairs {
        let ready_without_row = self.rows_for_ready();
        let row_without_ready = self.rows_of_others();
        let parked_for_ever = self.parked_for_ever();
        let lane_stuck = self.stuck_lanes();
        let gate_of_ended = self.gates_of_ended();
        let seat_leaked = self.leaked_seats();
        Repairs {
            ready_without_row,
            row_without_ready,
            parked_for_ever,
            lane_stuck,
            gate_of_ended,
            seat_leaked,
        }
    }

    fn rows_for_ready(&mut self) -> u64 {
        let heads = self.tables.heads.iter();
        let keys = heads
            .filter(|(_, head)| head.state == State::Ready)
            .map(|(run, head)| ready_key(*run, head))
            .filter(|key| !self.tables.ready.has(key));
        let missing: Vec<ReadyKey> = keys.collect();
        let found = missing.len();
        for key in missing {
            self.tables.ready.put(key, ());
        }
        found as u64
    }

    fn rows_of_others(&mut self) -> u64 {
        let heads = &self.tables.heads;
        let gone = self.tables.ready.take_where(|(_, _, _, run), ()| {
            heads.get(run).is_none_or(|head| head.state != State::Ready)
        });
        gone as u64
    }

    fn parked_for_ever(&mut self) -> u64 {
        let heads = self.tables.heads.iter();
        let lost: Vec<RunId> = heads
            .filter(|(run, head)| self.is_lost(**run, head))
            .map(|(run, _)| *run)
            .collect();
        for run in &lost {
            self.wake(*run);
        }
        lost.len() as u64
    }

    /// Whether nothing that the store knows of could wake a parked run.
    fn is_lost(&self, run: RunId, head: &Head) -> bool {
        let State::Parked { reason, .. } = head.state else {
            return false;
        };
        let gate = || {
            let mut gates = self.tables.gates.iter().map(|(_, gate)| gate);
            gates.any(|gate| gate.run == run && gate.status == GateStatus::Open)
        };
        let timer = || self.tables.timers.iter().any(|(_, timer)| timer.run == run);
        let queue = || self.tables.seat_waits.iter().any(|((_, at), _)| *at == run);
        match reason {
            "approval" | "question" | "signal" | "blocked" => !gate(),
            "timer" | "retry" | "rate_limit" | "message" | "start_at" => !timer(),
            "sandbox_slot" => !queue() && !timer(),
            // A person, a child or the run before it in its batch wakes it.
            _ => false,
        }
    }

    fn stuck_lanes(&mut self) -> u64 {
        let lanes = self.tables.lanes.iter();
        let stuck: Vec<LaneKey> = lanes
            .filter(|(key, lane)| self.is_stuck(key, lane))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &stuck {
            self.promote(key);
        }
        stuck.len() as u64
    }

    /// A root that has ended holds its lane as long as a run of its tree goes on:
    /// the later steps of a chain.
    fn is_stuck(&self, key: &LaneKey, lane: &Lane) -> bool {
        let everybody = (key.clone(), 0)..=(key.clone(), u64::MAX);
        let mut members = self.tables.members.range(everybody).map(|(_, run)| *run);
        let someone_waits = members.any(|run| Some(run) != lane.head && !self.is_ended(run));
        let holds = lane.head.is_some_and(|root| {
            let mut heads = self.tables.heads.iter().map(|(_, head)| head);
            heads.any(|head| head.task.root == root && !head.state.is_ended())
        });
        someone_waits && !holds
    }

    fn gates_of_ended(&mut self) -> u64 {
        let gates = self.tables.gates.iter();
        let left: Vec<GateId> = gates
            .filter(|(_, gate)| gate.status == GateStatus::Open && self.is_ended(gate.run))
            .map(|(id, _)| *id)
            .collect();
        for gate in &left {
            let gates = &mut self.tables.gates;
            gates.change(gate, |gate| gate.status = GateStatus::Withdrawn);
        }
        left.len() as u64
    }

    fn leaked_seats(&mut self) -> u64 {
        let sits = |sandbox: &SandboxId| match self.tables.sandboxes.get(sandbox)?.state {
            SandboxState::Creating
            | SandboxState::Starting
            | SandboxState::Running
            | SandboxState::Stopping => Some(()),
            SandboxState::Stopped | SandboxState::Deleted | SandboxState::Lost => None,
        };
        let seats = self.tables.seats.iter().map(|(sandbox, _)| *sandbox);
        let leaked: Vec<SandboxId> = seats.filter(|sandbox| sits(sandbox).is_none()).collect();
        for sandbox in &leaked {
            self.free_seat(*sandbox);
        }
        leaked.len() as u64
    }
}
