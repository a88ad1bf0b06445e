//! Records besides journals and the ready queue.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use longhaul_core::chain::ChainRow;
use longhaul_core::change::LateToolResult;
use longhaul_core::checkpoint::RunCheckpoint;
use longhaul_core::id::{AgentName, InboxName, LaneKey, RunId, Seq, ThreadKey, WorkerId};
use longhaul_core::message::Message;
use longhaul_core::port::records::{
    DAY_MICROS, DueOutboxMessage, InboxRunCounts, LaneRow, UsageQuery, UsageSum, WorkerRow,
};
use longhaul_core::port::store::{RunRow, WorkerLiveness};
use longhaul_core::status::Status;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::{MicroUsd, Usage};

use crate::mem_store::rows::{Head, Lane, State, Tables, Worker};
use crate::mem_store::tx::Tx;

impl Tables {
    /// Returns the row of a run, with the state of its chain.
    pub(crate) fn run_row(&self, run: RunId, head: &Head) -> RunRow {
        RunRow { chain: self.chain_row(head), ..head.row(run) }
    }

    fn chain_row(&self, head: &Head) -> Option<ChainRow> {
        let position = head.task.chain.as_ref()?;
        let current = *self.newest_of_chain.get(&position.first_run)?;
        let newest = self.heads.get(&current)?;
        Some(ChainRow {
            name: position.chain.name.clone(),
            step: position.step as u32,
            steps: position.chain.steps.len() as u32,
            current,
            current_status: newest.row(current).status,
        })
    }

    /// Returns the runs that a later run retries.
    pub(crate) fn retried_runs(&self) -> BTreeSet<RunId> {
        let tasks = self.heads.iter().map(|(_, head)| &head.task);
        tasks.filter_map(|task| task.retry_of).map(|retried| retried.run).collect()
    }

    /// Returns the numbers of open and failed runs by inbox.
    pub(crate) fn count_by_inbox(&self, inbox: Option<&InboxName>) -> Vec<InboxRunCounts> {
        let retried = self.retried_runs();
        let mut rows: BTreeMap<InboxName, InboxRunCounts> = BTreeMap::new();
        for row in self.heads.iter().map(|(run, head)| head.row(*run)) {
            let is_counted = match row.status {
                Status::Completed | Status::Cancelled => false,
                Status::Failed => !retried.contains(&row.id),
                Status::Pending
                | Status::Running
                | Status::Waiting
                | Status::Blocked
                | Status::Paused => true,
            };
            if !is_counted || inbox.is_some_and(|inbox| row.inbox != *inbox) {
                continue;
            }
            let counts = rows.entry(row.inbox.clone()).or_insert(InboxRunCounts {
                inbox: row.inbox,
                pending: 0,
                running: 0,
                waiting: 0,
                failed: 0,
            });
            match row.status {
                Status::Pending => counts.pending += 1,
                Status::Running => counts.running += 1,
                Status::Failed => counts.failed += 1,
                Status::Waiting | Status::Blocked | Status::Paused => counts.waiting += 1,
                Status::Completed | Status::Cancelled => {}
            }
        }
        rows.into_values().collect()
    }

    /// Returns the newest messages of a thread, oldest first.
    pub(crate) fn thread_messages(&self, thread: &ThreadKey, limit: usize) -> Vec<Message> {
        let range = (thread.clone(), 0)..=(thread.clone(), u64::MAX);
        let newest = self.threads.range(range).rev().take(limit);
        let mut messages: Vec<Message> = newest.map(|(_, message)| message.clone()).collect();
        messages.reverse();
        messages
    }

    /// Returns usage by day, agent and model.
    pub(crate) fn usage_sums(&self, query: UsageQuery) -> Vec<UsageSum> {
        let mut sums: BTreeMap<(i64, AgentName, &str), UsageSum> = BTreeMap::new();
        let rows = self.usage.iter().map(|(_, entry)| entry);
        for entry in rows.filter(|entry| entry.at >= query.since) {
            let Some(head) = self.heads.get(&entry.run) else { continue };
            let (agent, model) = (head.task.agent.clone(), entry.row.model.as_str());
            let day = entry.at.as_micros() / DAY_MICROS * DAY_MICROS;
            let sum = sums.entry((day, agent.clone(), model)).or_insert_with(|| UsageSum {
                day: Timestamp::from_micros(day),
                agent,
                model: model.to_owned(),
                calls: 0,
                usage: Usage::default(),
                cost: MicroUsd::ZERO,
                unpriced: 0,
            });
            sum.calls += 1;
            sum.usage = sum.usage.plus(entry.row.usage);
            sum.cost = sum.cost.plus(entry.row.cost.unwrap_or(MicroUsd::ZERO));
            sum.unpriced += u64::from(entry.row.cost.is_none());
        }
        let mut sums: Vec<UsageSum> = sums.into_values().collect();
        sums.sort_by_key(|sum| (Reverse(sum.day), Reverse(sum.cost.0)));
        sums.truncate(query.limit);
        sums
    }

    /// Returns the lanes that are paused or have runs after a name, in order of their names.
    pub(crate) fn lanes(&self, after: Option<&LaneKey>, limit: usize) -> Vec<LaneRow> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let lanes = self.lanes.range((from.cloned(), Bound::Unbounded));
        let in_use = lanes.filter(|(_, lane)| lane.depth > 0 || lane.paused);
        in_use.take(limit).map(|(key, lane)| lane_row(key, lane)).collect()
    }

    pub(crate) fn lane(&self, key: &LaneKey) -> Option<LaneRow> {
        self.lanes.get(key).map(|lane| lane_row(key, lane))
    }

    pub(crate) fn claimed_runs_with_last_seq(&self, worker: WorkerId) -> Vec<(RunId, Seq)> {
        let held = self.heads.iter().filter(|(_, head)| head.state == State::Leased(worker));
        held.map(|(run, head)| (*run, head.last_seq)).collect()
    }

    /// Returns the workers that are not dead.
    pub(crate) fn workers(&self) -> Vec<WorkerRow> {
        let rows = self.workers.iter().filter(|(_, row)| row.liveness != WorkerLiveness::Dead);
        rows.map(|(id, worker)| self.worker_row(*id, worker)).collect()
    }

    fn worker_row(&self, worker: WorkerId, row: &Worker) -> WorkerRow {
        let heads = self.heads.iter().map(|(_, head)| &head.state);
        let runs = heads.filter(|state| **state == State::Leased(worker)).count();
        WorkerRow {
            worker,
            host: row.host.clone(),
            build: row.build.clone(),
            inboxes: row.inboxes.clone(),
            types: row.types.clone(),
            liveness: row.liveness,
            heartbeat_at: row.heartbeat_at,
            ttl: row.ttl,
            runs: runs as u64,
        }
    }

    /// Returns the late results of a run, in order of arrival.
    pub(crate) fn late_results(&self, run: RunId) -> Vec<LateToolResult> {
        let rows = self.late_results.range((run, 0)..=(run, u64::MAX));
        rows.map(|(_, result)| result.clone()).collect()
    }
}

impl Tx<'_> {
    pub(crate) fn due_outbox(&self, endpoint: &str, limit: usize) -> Vec<DueOutboxMessage> {
        let entries = self.tables.outbox.iter().filter(|(_, entry)| entry.row.endpoint == endpoint);
        let due = entries.filter(|(_, entry)| entry.next_at <= self.now);
        due.take(limit)
            .map(|(id, entry)| DueOutboxMessage {
                id: *id,
                run: entry.run,
                row: entry.row.clone(),
                attempts: entry.attempts,
            })
            .collect()
    }

    /// Deletes a delivered outbox message, or schedules the next attempt.
    pub(crate) fn settle_outbox(&mut self, id: u64, retry_after: Option<Millis>) {
        let now = self.now;
        match retry_after {
            None => _ = self.tables.outbox.remove(&id),
            Some(delay) => self.tables.outbox.update(&id, |entry| {
                entry.attempts += 1;
                entry.next_at = now.plus(delay);
            }),
        }
    }

    /// Blocks a provider's account for a while. A longer block is never shortened.
    pub(crate) fn block_provider(&mut self, account: &str, duration: Millis) {
        let until = self.now.plus(duration);
        let before = self.tables.blocked_providers.get(&account.to_owned()).copied();
        let until = before.map_or(until, |before| before.max(until));
        self.tables.blocked_providers.insert(account.to_owned(), until);
    }

    /// Returns the checkpoint of a run if this build made it. A checkpoint of another build is
    /// deleted.
    pub(crate) fn checkpoint(&mut self, run: RunId, fold: &str) -> Option<RunCheckpoint> {
        let stored = self.tables.checkpoints.get(&run)?;
        if stored.fold_hash == fold {
            return Some(stored.clone());
        }
        self.tables.checkpoints.remove(&run);
        None
    }
}

fn lane_row(key: &LaneKey, lane: &Lane) -> LaneRow {
    LaneRow { lane: key.clone(), holder: lane.holder, depth: lane.depth, paused: lane.paused }
}
