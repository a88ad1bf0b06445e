//! What stands beside journal and queue.
//!
//! Never: lets a journal grow.

use std::collections::BTreeMap;
use std::ops::Bound;

use longhaul_core::change::LateResult;
use longhaul_core::id::{LaneKey, RunId, Seq, ThreadKey, WorkerId};
use longhaul_core::message::Message;
use longhaul_core::port::records::{
    Checkpoint, LaneRow, ModelUsage, OutboxItem, UsageQuery, WorkerRow,
};
use longhaul_core::port::store::{RunFilter, RunRow};
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, Usage};

use crate::mem_store::rows::{Lane, State, Tables, Worker};
use crate::mem_store::tx::Tx;

impl Tables {
    /// Rows of runs, newest first.
    pub(crate) fn list_runs(&self, ask: &RunFilter) -> Vec<RunRow> {
        let fits = |row: &RunRow| {
            (ask.statuses.is_empty() || ask.statuses.contains(&row.status))
                && ask.agent.as_ref().is_none_or(|agent| row.agent == *agent)
                && (ask.lane.is_none() || ask.lane == row.lane)
                && ask.root.is_none_or(|root| row.root == root)
                && ask.after.is_none_or(|after| row.id < after)
        };
        let rows = self.heads.iter().rev().map(|(run, head)| head.row(*run));
        rows.filter(fits).take(ask.limit).collect()
    }

    /// The newest messages of a thread, oldest first.
    pub(crate) fn thread_messages(&self, thread: &ThreadKey, limit: usize) -> Vec<Message> {
        let places = (thread.clone(), 0)..=(thread.clone(), u64::MAX);
        let newest = self.threads.range(places).rev().take(limit);
        let mut messages: Vec<Message> = newest.map(|(_, message)| message.clone()).collect();
        messages.reverse();
        messages
    }

    /// What was used, by model.
    pub(crate) fn usage_by_model(&self, ask: UsageQuery) -> Vec<ModelUsage> {
        let mut sums: BTreeMap<&str, (Usage, MicroUsd, u64)> = BTreeMap::new();
        let rows = self.usage.iter().map(|(_, used)| used);
        let rows = rows.filter(|used| {
            ask.root.is_none_or(|root| used.root == root)
                && ask.since.is_none_or(|since| used.at >= since)
        });
        for used in rows {
            let (usage, cost, unpriced) = sums.entry(&used.row.model).or_default();
            *usage = usage.plus(used.row.usage);
            *cost = cost.plus(used.row.cost.unwrap_or(MicroUsd::ZERO));
            *unpriced += u64::from(used.row.cost.is_none());
        }
        sums.into_iter()
            .map(|(model, (usage, cost, unpriced))| ModelUsage {
                model: model.to_owned(),
                usage,
                cost,
                unpriced,
            })
            .collect()
    }

    /// Lanes with anybody in them, in the order of their names, after one of them.
    pub(crate) fn lanes(&self, after: Option<&LaneKey>, limit: usize) -> Vec<LaneRow> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.lanes.range((from.cloned(), Bound::Unbounded));
        let used = rest.filter(|(_, lane)| lane.depth > 0);
        used.take(limit).map(|(key, lane)| lane_row(key, lane)).collect()
    }

    /// One lane.
    pub(crate) fn lane(&self, key: &LaneKey) -> Option<LaneRow> {
        self.lanes.get(key).map(|lane| lane_row(key, lane))
    }

    /// The runs in a worker's hands.
    pub(crate) fn claimed_runs(&self, worker: WorkerId) -> Vec<(RunId, Seq)> {
        let held = self.heads.iter().filter(|(_, head)| head.state == State::Leased(worker));
        held.map(|(run, head)| (*run, head.last_seq)).collect()
    }

    /// The workers that are known.
    pub(crate) fn workers(&self) -> Vec<WorkerRow> {
        let rows = self.workers.iter();
        rows.map(|(id, worker)| self.worker_row(*id, worker)).collect()
    }

    fn worker_row(&self, worker: WorkerId, row: &Worker) -> WorkerRow {
        let heads = self.heads.iter().map(|(_, head)| &head.state);
        let runs = heads.filter(|state| **state == State::Leased(worker)).count();
        WorkerRow {
            worker,
            host: row.host.clone(),
            build: row.build.clone(),
            liveness: row.liveness,
            heartbeat_at: row.heartbeat_at,
            ttl: row.ttl,
            runs: runs as u64,
        }
    }

    /// Results that came late, in order of arrival.
    pub(crate) fn late_results(&self, run: RunId) -> Vec<LateResult> {
        let rows = self.late_results.range((run, 0)..=(run, u64::MAX));
        rows.map(|(_, late)| late.clone()).collect()
    }
}

impl Tx<'_> {
    /// Messages to the outside that are due.
    pub(crate) fn due_outbox(&self, limit: usize) -> Vec<OutboxItem> {
        let letters = self.tables.outbox.iter();
        let due = letters.filter(|(_, letter)| letter.next_at <= self.now);
        due.take(limit)
            .map(|(id, letter)| OutboxItem {
                id: *id,
                run: letter.run,
                row: letter.row.clone(),
                attempts: letter.attempts,
            })
            .collect()
    }

    /// A message was delivered, or is to be tried again after a while.
    pub(crate) fn settle_outbox(&mut self, id: u64, again: Option<Millis>) {
        let now = self.now;
        match again {
            None => _ = self.tables.outbox.remove(&id),
            Some(span) => self.tables.outbox.update(&id, |letter| {
                letter.attempts += 1;
                letter.next_at = now.plus(span);
            }),
        }
    }

    /// A provider's account rests; a longer rest is never cut short.
    pub(crate) fn block_provider(&mut self, account: &str, span: Millis) {
        let until = self.now.plus(span);
        let before = self.tables.blocked_providers.get(&account.to_owned()).copied();
        let until = before.map_or(until, |before| before.max(until));
        self.tables.blocked_providers.insert(account.to_owned(), until);
    }

    /// The fold of a run if this build made it; another build's is dropped.
    pub(crate) fn checkpoint(&mut self, run: RunId, fold: &str) -> Option<Checkpoint> {
        let kept = self.tables.checkpoints.get(&run)?;
        if kept.fold_hash == fold {
            return Some(kept.clone());
        }
        self.tables.checkpoints.remove(&run);
        None
    }
}

fn lane_row(key: &LaneKey, lane: &Lane) -> LaneRow {
    LaneRow { lane: key.clone(), head: lane.head, depth: lane.depth }
}
