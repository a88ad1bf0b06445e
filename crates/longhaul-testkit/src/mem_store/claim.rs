//! Workers: claims, heartbeats, and releasing the runs of dead workers. Only live workers can
//! claim runs.

use std::collections::BTreeSet;
use std::ops::Bound;

use longhaul_core::event::Event;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{Epoch, InboxName, RunId, WorkerId};
use longhaul_core::port::queue::{PeekRequest, QueuePosition, RunsToClaim};
use longhaul_core::port::store::{
    Claim, Heartbeat, HeartbeatAck, RunClaimRequest, StoreError, WorkerLiveness,
};
use longhaul_core::time::Timestamp;

use crate::mem_store::rows::{State, Worker};
use crate::mem_store::tx::{JournalAppend, Tx};

impl Tx<'_> {
    /// Claims ready runs for a worker, from each inbox the same number.
    pub(crate) fn claim(&mut self, request: &RunClaimRequest) -> Result<Vec<Claim>, StoreError> {
        let is_live = self.tables.workers.get(&request.worker).is_some_and(|worker| {
            worker.liveness == WorkerLiveness::Live && !worker.is_stale(self.now)
        });
        if !is_live {
            return Ok(Vec::new());
        }
        if let Some(selection) = &request.only {
            let ready = self.ready_runs_of_selection(selection, request.format);
            return self.claim_all(ready.into_iter().take(request.limit), request.worker);
        }
        let mut claimed = Vec::new();
        let mut inboxes: Vec<&InboxName> = request.inboxes.iter().collect();
        while !inboxes.is_empty() && claimed.len() < request.limit {
            let share = ((request.limit - claimed.len()) / inboxes.len()).max(1);
            let mut not_exhausted = Vec::new();
            for inbox in inboxes {
                let limit = share.min(request.limit - claimed.len());
                let peek = PeekRequest {
                    inbox: inbox.clone(),
                    types: request.types.clone(),
                    format: request.format,
                    host: request.host.clone(),
                    after: None,
                    limit,
                };
                let positions = self.peek_queue(&peek);
                if positions.len() == limit {
                    not_exhausted.push(inbox);
                }
                let runs = positions.into_iter().map(|position| position.run);
                claimed.extend(self.claim_all(runs, request.worker)?);
            }
            inboxes = not_exhausted;
        }
        Ok(claimed)
    }

    fn ready_runs_of_selection(&self, selection: &RunsToClaim, format: u32) -> BTreeSet<RunId> {
        let heads = &self.tables.heads;
        let is_ready = |run: &RunId| {
            let head = heads.get(run);
            head.is_some_and(|head| head.state == State::Ready && head.format <= format)
        };
        match selection {
            RunsToClaim::Runs(runs) => runs.iter().copied().filter(is_ready).collect(),
            RunsToClaim::Tree(root) => {
                let tree_heads = heads.iter().filter(|(_, head)| head.task.root == *root);
                tree_heads.map(|(run, _)| *run).filter(is_ready).collect()
            }
        }
    }

    /// Lists ready runs of an inbox, in queue order.
    pub(crate) fn peek_queue(&self, request: &PeekRequest) -> Vec<QueuePosition> {
        let first = QueuePosition { rank: i64::MIN, sort_key: 0, run: RunId::from_bits(0) };
        let last =
            QueuePosition { rank: i64::MAX, sort_key: i64::MAX, run: RunId::from_bits(u128::MAX) };
        let after = Bound::Excluded((request.inbox.clone(), request.after.unwrap_or(first)));
        let rows = self.tables.ready.range((after, Bound::Included((request.inbox.clone(), last))));
        rows.map(|((_, position), ())| *position)
            .filter(|position| self.is_listed(position.run, request))
            .take(request.limit)
            .collect()
    }

    fn is_listed(&self, run: RunId, request: &PeekRequest) -> bool {
        self.tables.heads.get(&run).is_some_and(|head| {
            let is_type = |kind: &String| request.types.contains(kind);
            let right_type =
                request.types.is_empty() || head.task.kind.as_ref().is_some_and(is_type);
            right_type && head.format <= request.format
        })
    }

    fn claim_all(
        &mut self,
        runs: impl Iterator<Item = RunId>,
        worker: WorkerId,
    ) -> Result<Vec<Claim>, StoreError> {
        runs.map(|run| self.claim_run(run, worker)).collect()
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
        let live_since =
            before.filter(|worker| !worker.is_stale(now)).map_or(now, |worker| worker.live_since);
        let liveness =
            if heartbeat.draining { WorkerLiveness::Draining } else { WorkerLiveness::Live };
        let worker = Worker {
            host: heartbeat.host,
            build: heartbeat.build,
            inboxes: heartbeat.inboxes,
            types: heartbeat.types,
            liveness,
            heartbeat_at: now,
            live_since,
            ttl: heartbeat.ttl,
        };
        self.tables.workers.insert(heartbeat.worker, worker);
        let may_reap = live_since.plus(heartbeat.ttl) <= now;
        let reaped = if may_reap { self.reap(now) } else { 0 };
        HeartbeatAck { liveness, reaped, now }
    }

    fn reap(&mut self, now: Timestamp) -> usize {
        let workers = self.tables.workers.iter();
        let stale: Vec<WorkerId> = workers
            .filter(|(_, worker)| worker.liveness != WorkerLiveness::Dead && worker.is_stale(now))
            .map(|(id, _)| *id)
            .collect();
        for worker in stale {
            let workers = &mut self.tables.workers;
            workers.update(&worker, |row| row.liveness = WorkerLiveness::Dead);
        }
        let is_dead = |worker: &WorkerId| {
            let row = self.tables.workers.get(worker);
            row.is_none_or(|row| row.liveness == WorkerLiveness::Dead)
        };
        let heads = self.tables.heads.iter();
        let orphaned: Vec<RunId> = heads
            .filter(|(_, head)| matches!(&head.state, State::Leased(worker) if is_dead(worker)))
            .map(|(run, _)| *run)
            .collect();
        for run in &orphaned {
            self.set_state(*run, State::Ready);
        }
        orphaned.len()
    }
}
