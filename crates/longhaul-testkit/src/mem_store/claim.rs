//! Workers: claims, heartbeats, and releasing the runs of dead workers. Only live workers can
//! claim runs.

use longhaul_core::event::Event;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{Epoch, InboxName, RunId, WorkerId};
use longhaul_core::port::store::{
    Claim, ClaimRequest, Heartbeat, HeartbeatAck, StoreError, WorkerLiveness,
};
use longhaul_core::time::Timestamp;

use crate::mem_store::rows::{State, Worker};
use crate::mem_store::tx::{JournalAppend, Tx};

impl Tx<'_> {
    /// Claims ready runs for a worker, in queue order.
    pub(crate) fn claim(&mut self, request: &ClaimRequest) -> Result<Vec<Claim>, StoreError> {
        let is_live = self.tables.workers.get(&request.worker).is_some_and(|worker| {
            worker.liveness == WorkerLiveness::Live && !worker.is_stale(self.now)
        });
        if !is_live {
            return Ok(Vec::new());
        }
        let mut picked: Vec<RunId> = Vec::new();
        for inbox in &request.inboxes {
            let fits = self.ready_runs(inbox).filter(|run| self.may_claim(*run, request));
            let more: Vec<RunId> = fits
                .filter(|run| !picked.contains(run))
                .take(request.limit - picked.len())
                .collect();
            picked.extend(more);
        }
        picked.into_iter().map(|run| self.claim_run(run, request.worker)).collect()
    }

    fn ready_runs(&self, inbox: &InboxName) -> impl Iterator<Item = RunId> {
        let first = (inbox.clone(), i64::MIN, 0, RunId::from_bits(0));
        let last = (inbox.clone(), i64::MAX, u64::MAX, RunId::from_bits(u128::MAX));
        self.tables.ready.range(first..=last).map(|((_, _, _, run), ())| *run)
    }

    fn may_claim(&self, run: RunId, request: &ClaimRequest) -> bool {
        self.tables.heads.get(&run).is_some_and(|head| {
            let is_type = |kind: &String| request.types.contains(kind);
            let right_type =
                request.types.is_empty() || head.task.kind.as_ref().is_some_and(is_type);
            right_type && head.format <= request.format
        })
    }

    fn claim_run(&mut self, run: RunId, worker: WorkerId) -> Result<Claim, StoreError> {
        self.set_state(run, State::Leased(worker));
        let now = self.now;
        let mut epoch = Epoch(0);
        self.tables.heads.update(&run, |head| {
            head.epoch = Epoch(head.epoch.0 + 1);
            head.started_at = head.started_at.or(Some(now));
            epoch = head.epoch;
        });
        let events = [Event::RunClaimed(RunClaimed { worker, epoch })];
        let last = self.append_events(&JournalAppend { run, epoch, events: &events })?;
        Ok(Claim { run, epoch, last_seq: last })
    }

    /// Records a heartbeat. If the worker has been in contact for one TTL, it also releases the
    /// runs of dead workers.
    pub(crate) fn heartbeat(&mut self, heartbeat: Heartbeat) -> HeartbeatAck {
        let now = self.now;
        let before = self.tables.workers.get(&heartbeat.worker);
        if before.is_some_and(|worker| worker.liveness == WorkerLiveness::Dead) {
            return HeartbeatAck { liveness: WorkerLiveness::Dead, reaped: 0, now };
        }
        // A worker that was silent itself can't tell yet whether other silent workers are dead.
        let in_touch_since =
            before.filter(|worker| !worker.is_stale(now)).map_or(now, |worker| worker.live_since);
        let liveness =
            if heartbeat.draining { WorkerLiveness::Draining } else { WorkerLiveness::Live };
        let worker = Worker {
            host: heartbeat.host,
            build: heartbeat.build,
            liveness,
            heartbeat_at: now,
            live_since: in_touch_since,
            ttl: heartbeat.ttl,
        };
        self.tables.workers.insert(heartbeat.worker, worker);
        let may_reap = in_touch_since.plus(heartbeat.ttl) <= now;
        let reaped = if may_reap { self.reap(now) } else { 0 };
        HeartbeatAck { liveness, reaped, now }
    }

    fn reap(&mut self, now: Timestamp) -> usize {
        let workers = self.tables.workers.iter();
        let silent: Vec<WorkerId> = workers
            .filter(|(_, worker)| worker.liveness != WorkerLiveness::Dead && worker.is_stale(now))
            .map(|(id, _)| *id)
            .collect();
        for worker in silent {
            let workers = &mut self.tables.workers;
            workers.update(&worker, |row| row.liveness = WorkerLiveness::Dead);
        }
        let is_dead = |worker: &WorkerId| {
            let row = self.tables.workers.get(worker);
            row.is_none_or(|row| row.liveness == WorkerLiveness::Dead)
        };
        let heads = self.tables.heads.iter();
        let left: Vec<RunId> = heads
            .filter(|(_, head)| matches!(&head.state, State::Leased(worker) if is_dead(worker)))
            .map(|(run, _)| *run)
            .collect();
        for run in &left {
            self.set_state(*run, State::Ready);
        }
        left.len()
    }
}
