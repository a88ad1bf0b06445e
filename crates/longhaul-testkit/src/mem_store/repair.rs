//! Finds, repairs and counts rows that violate an invariant. Any hit is a bug elsewhere.

use longhaul_core::id::{GateId, LaneKey, RunId, SandboxId};
use longhaul_core::policy::effect_key::EffectKeyState;
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::records::RepairedRowCounts;
use longhaul_core::usage::BudgetAmount;
use longhaul_core::wait::{WaitKind, Waker};

use crate::mem_store::head::ready_key;
use crate::mem_store::rows::{Head, Lane, ReadyKey, State};
use crate::mem_store::tx::Tx;

impl Tx<'_> {
    /// Repairs all inconsistent rows.
    pub(crate) fn repair(&mut self) -> RepairedRowCounts {
        let ready_without_row = self.add_missing_ready_rows();
        let row_without_ready = self.remove_stale_ready_rows();
        let parked_without_waker = self.wake_stranded();
        let lane_stuck = self.promote_stuck_lanes();
        let gate_of_ended = self.withdraw_gates_of_ended();
        let slot_leaked = self.release_leaked_slots();
        RepairedRowCounts {
            ready_without_row,
            row_without_ready,
            parked_without_waker,
            lane_stuck,
            gate_of_ended,
            slot_leaked,
        }
    }

    fn add_missing_ready_rows(&mut self) -> u64 {
        let heads = self.tables.heads.iter();
        let keys = heads
            .filter(|(_, head)| head.state == State::Ready)
            .map(|(run, head)| ready_key(*run, head))
            .filter(|key| !self.tables.ready.contains(key));
        let missing: Vec<ReadyKey> = keys.collect();
        let count = missing.len();
        for key in missing {
            self.tables.ready.insert(key, ());
        }
        count as u64
    }

    fn remove_stale_ready_rows(&mut self) -> u64 {
        let heads = &self.tables.heads;
        let removed = self.tables.ready.remove_where(|(_, position), ()| {
            heads.get(&position.run).is_none_or(|head| head.state != State::Ready)
        });
        removed as u64
    }

    fn wake_stranded(&mut self) -> u64 {
        let heads = self.tables.heads.iter();
        let stranded: Vec<RunId> = heads
            .filter(|(run, head)| self.is_stranded(**run, head))
            .map(|(run, _)| *run)
            .collect();
        for run in &stranded {
            self.wake(*run);
        }
        stranded.len() as u64
    }

    /// Returns whether nothing in the store could wake a parked run.
    fn is_stranded(&self, run: RunId, head: &Head) -> bool {
        let State::Parked { reason, .. } = head.state else {
            return false;
        };
        let has_open_gate = || {
            let mut gates = self.tables.gates.iter().map(|(_, gate)| gate);
            gates.any(|gate| gate.run == run && gate.status == GateStatus::Open)
        };
        let has_timer = || self.tables.timers.iter().any(|(_, timer)| timer.run == run);
        let is_queued = || self.tables.slot_waits.get(&run).is_some_and(|wait| !wait.woken);
        let Some(kind) = WaitKind::from_code(reason) else {
            return false;
        };
        match kind.row().waker {
            Waker::Gate => !has_open_gate(),
            Waker::Timer => !has_timer(),
            Waker::SandboxQueue => !is_queued() && !has_timer(),
            Waker::BudgetQueue => {
                // A hold to be released, or a woken run that is still in the queue.
                let queue = self.tables.budget_queue(self.tables.account_root(run));
                let is_any_woken = queue.entries.iter().any(|entry| !entry.is_parked);
                let is_any_held = queue.account.held != BudgetAmount::default();
                !queue.contains(run) || !is_any_woken && !is_any_held
            }
            Waker::EffectKey => !self.waits_for_held_key(run),
            Waker::Unchecked => false,
        }
    }

    fn waits_for_held_key(&self, run: RunId) -> bool {
        let (keys, mut waits) = (&self.tables.effect_keys, self.tables.effect_key_waits.iter());
        let is_held = |key| keys.get(key).is_some_and(|taken| taken.state == EffectKeyState::Held);
        waits.any(|((key, waiting), ())| *waiting == run && is_held(key))
    }

    fn promote_stuck_lanes(&mut self) -> u64 {
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

    /// Returns whether a lane is stuck. A root that has ended holds its lane as long as a run
    /// of its tree is open, such as a later step of a chain.
    fn is_stuck(&self, key: &LaneKey, lane: &Lane) -> bool {
        let range = (key.clone(), 0)..=(key.clone(), u64::MAX);
        let mut members = self.tables.lane_members.range(range).map(|(_, run)| *run);
        let has_waiting_run = members.any(|run| Some(run) != lane.holder && !self.is_ended(run));
        let is_holder_open = lane.holder.is_some_and(|root| self.open_runs_of_tree(root) > 0);
        has_waiting_run && !is_holder_open && !lane.paused
    }

    fn withdraw_gates_of_ended(&mut self) -> u64 {
        let gates = self.tables.gates.iter();
        let open_gates: Vec<GateId> = gates
            .filter(|(_, gate)| gate.status == GateStatus::Open && self.is_ended(gate.run))
            .map(|(id, _)| *id)
            .collect();
        for gate in &open_gates {
            let gates = &mut self.tables.gates;
            gates.update(gate, |gate| gate.status = GateStatus::Withdrawn);
        }
        open_gates.len() as u64
    }

    fn release_leaked_slots(&mut self) -> u64 {
        let sandboxes = &self.tables.sandboxes;
        let in_use =
            |sandbox: &SandboxId| sandboxes.get(sandbox).is_some_and(|row| row.state.holds_slot());
        let slots = self.tables.slots.iter().map(|(sandbox, _)| *sandbox);
        let leaked: Vec<SandboxId> = slots.filter(|sandbox| !in_use(sandbox)).collect();
        for sandbox in &leaked {
            self.release_slot(*sandbox);
        }
        leaked.len() as u64
    }
}
