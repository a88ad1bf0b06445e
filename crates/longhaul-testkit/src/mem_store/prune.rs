//! Deletes data after its retention period.
//!
//! Not deleted are runs of a tree with an open run, runs with undelivered messages, runs with a
//! sandbox that still exists, referenced blobs, and the run with the newest event: its global
//! sequence number would be reused.

use std::collections::BTreeSet;

use longhaul_core::id::{RunId, Seq};
use longhaul_core::note::MemoryNote;
use longhaul_core::policy::spend_cap::SPEND_TTL;
use longhaul_core::port::records::{DeleteRunsOutcome, DeletedRuns};
use longhaul_core::port::store::{DEAD_WORKER_TTL, PruneOutcome, PruneRequest, WorkerLiveness};
use longhaul_core::raw::Hash;

use crate::mem_store::rows::{State, StoredBody};
use crate::mem_store::tx::Tx;

impl Tx<'_> {
    /// Deletes old runs, unreferenced blobs and expired idempotency keys.
    pub(crate) fn prune(&mut self, prune_request: PruneRequest) -> PruneOutcome {
        let runs = self.expired_runs(prune_request);
        for run in &runs {
            self.delete_run(*run);
        }
        let now = self.now;
        let keys = self
            .tables
            .idempotency_keys
            .remove_where(|_, key| key.until.is_some_and(|until| until <= now));
        let requests = &mut self.tables.requests;
        let requests = requests.remove_where(|_, request| request.until <= now);
        self.tables.lanes.remove_where(|_, lane| lane.depth == 0 && !lane.paused);
        self.delete_dead_workers();
        let retention = prune_request.runs_older_than.max(SPEND_TTL);
        self.tables.spend.remove_where(|_, row| row.window_end.plus(retention) < now);
        let referenced = self.referenced_blobs();
        let blobs = self.tables.blobs.remove_where(|hash, content| {
            content.touched_at.plus(prune_request.blobs_older_than) < now
                && !referenced.contains(hash)
        });
        PruneOutcome { runs: runs.len(), blobs, idempotency_keys: keys + requests }
    }

    fn expired_runs(&self, request: PruneRequest) -> Vec<RunId> {
        let heads = || self.tables.heads.iter();
        let open = heads().filter(|(_, head)| !head.state.is_ended());
        let open: BTreeSet<RunId> = open.map(|(_, head)| head.task.root).collect();
        let undelivered: BTreeSet<RunId> =
            self.tables.outbox.iter().map(|(_, message)| message.run).collect();
        let existing = self.tables.sandboxes.iter().filter(|(_, row)| !row.state.is_gone());
        let owners: BTreeSet<RunId> = existing.map(|(_, row)| row.owner).collect();
        let newest = self.tables.last_written_run();
        heads()
            .filter(|(run, _)| Some(**run) != newest)
            .filter(|(_, head)| !open.contains(&head.task.root))
            .filter(|(run, _)| !undelivered.contains(run) && !owners.contains(run))
            .filter(|(_, head)| {
                let finished_at = head.finished_at.unwrap_or(self.now);
                finished_at.plus(request.runs_older_than) < self.now
            })
            .map(|(run, _)| *run)
            .take(request.limit)
            .collect()
    }

    fn delete_dead_workers(&mut self) {
        let now = self.now;
        let tables = &mut *self.tables;
        let heads = &tables.heads;
        let holds_run = |worker| heads.iter().any(|(_, head)| head.state == State::Leased(worker));
        tables.workers.remove_where(|id, worker| {
            worker.liveness == WorkerLiveness::Dead
                && worker.heartbeat_at.plus(DEAD_WORKER_TTL) < now
                && !holds_run(*id)
        });
    }

    /// Deletes the tree of runs with this root, unless a run of the tree is still in use.
    pub(crate) fn delete_run_tree(&mut self, root: RunId) -> DeleteRunsOutcome {
        let heads = self.tables.heads.iter().filter(|(_, head)| head.task.root == root);
        let runs: Vec<(RunId, bool)> =
            heads.map(|(run, head)| (*run, head.state.is_ended())).collect();
        let is_in_tree = |run: RunId| runs.iter().any(|(other, _)| *other == run);
        if runs.is_empty() {
            return DeleteRunsOutcome::NotFound;
        }
        if let Some((open, _)) = runs.iter().find(|(_, has_ended)| !has_ended) {
            return DeleteRunsOutcome::Open(*open);
        }
        let sandboxes = &self.tables.sandboxes;
        let existing =
            sandboxes.iter().find(|(_, row)| !row.state.is_gone() && is_in_tree(row.owner));
        if let Some((sandbox, _)) = existing {
            return DeleteRunsOutcome::HasSandbox(*sandbox);
        }
        if let Some((_, row)) = self.tables.outbox.iter().find(|(_, row)| is_in_tree(row.run)) {
            return DeleteRunsOutcome::Undelivered(row.run);
        }
        let others = self.tables.heads.iter().filter(|(_, head)| head.task.root != root);
        let continued_by = others.filter(|(_, head)| head.task.earlier_account() == Some(root));
        let continued_by = continued_by.count() as u64;
        let is_own = |note: &MemoryNote| note.run.is_some_and(is_in_tree);
        let notes = self.tables.notes.remove_where(|_, note| is_own(&note.note)) as u64;
        let runs: Vec<RunId> = runs.into_iter().map(|(run, _)| run).collect();
        runs.iter().for_each(|run| self.delete_run(*run));
        let referenced = self.referenced_blobs();
        self.tables.blobs.remove_where(|hash, _| !referenced.contains(hash));
        DeleteRunsOutcome::Deleted(DeletedRuns { runs, notes, continued_by })
    }

    fn delete_run(&mut self, run: RunId) {
        self.leave_lane(run);
        let tables = &mut *self.tables;
        let account = tables.account_root(run);
        tables.heads.remove(&run);
        // Retries use the account of the first run, which may be deleted before them.
        let mut runs = tables.heads.iter().map(|(run, _)| *run);
        if !runs.any(|other| tables.account_root(other) == account) {
            tables.accounts.remove(&account);
        }
        tables.checkpoints.remove(&run);
        tables.newest_of_chain.remove_where(|_, newest| *newest == run);
        let rows = tables.journal.range((run, Seq::START)..=(run, Seq(u64::MAX)));
        let rows: Vec<_> = rows.map(|(key, row)| (*key, row.global_seq)).collect();
        for (key, global_seq) in rows {
            tables.journal.remove(&key);
            tables.global_log.remove(&global_seq);
            tables.last_deleted_global_seq = tables.last_deleted_global_seq.max(global_seq);
        }
        tables.blob_refs.remove_where(|(owner, _), ()| *owner == run);
        tables.effect_key_waits.remove_where(|(_, waiting), ()| *waiting == run);
        tables.steers.remove_where(|(owner, _), _| *owner == run);
        tables.rules.remove_where(|_, rule| rule.scope.run() == Some(run));
        tables.late_results.remove_where(|(owner, _), _| *owner == run);
        tables.gates.remove_where(|_, gate| gate.run == run);
        let gates = &tables.gates;
        tables.links.remove_where(|_, link| !gates.contains(&link.gate));
        tables.timers.remove_where(|_, timer| timer.run == run);
        let timers = &tables.timers;
        tables.due.remove_where(|(_, timer), ()| !timers.contains(timer));
        tables.usage.remove_where(|_, entry| entry.run == run);
        tables.outbox.remove_where(|_, entry| entry.run == run);
        let keys = &mut tables.idempotency_keys;
        keys.remove_where(|_, key| key.until.is_none() && key.runs == [run]);
        tables.sandboxes.remove_where(|_, row| row.owner == run);
        tables.slot_waits.remove(&run);
        tables.spend_waits.remove(&run);
        tables.budget_waits.remove_where(|_, (owner, _)| *owner == run);
    }

    fn referenced_blobs(&self) -> BTreeSet<Hash> {
        let refs = self.tables.blob_refs.iter().map(|((_, hash), ())| *hash);
        let bodies = self.tables.journal.iter().map(|(_, row)| &row.body);
        let body_blobs = bodies.filter_map(|body| match body {
            StoredBody::Blob(hash) => Some(*hash),
            StoredBody::Inline(_) => None,
        });
        refs.chain(body_blobs).collect()
    }
}
