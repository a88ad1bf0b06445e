//! Applies the individual changes of a batch.

use longhaul_core::change::{Change, OutboxRow, SandboxRow, UsageRow};
use longhaul_core::id::{RunId, ThreadKey};
use longhaul_core::message::Message;

use crate::mem_store::open::RunOrigin;
use crate::mem_store::rows::{OutboxEntry, UsageEntry};
use crate::mem_store::tx::{ChangeResult, Tx};

impl Tx<'_> {
    /// Applies one change. Returns an error if a row does not allow it.
    pub(crate) fn change(&mut self, run: RunId, change: Change) -> ChangeResult {
        match change {
            Change::CreateRun(new) => return self.open_run(*new, RunOrigin::Run),
            Change::CreateStep(new) => return self.open_run(*new, RunOrigin::Step),
            Change::UpdateGate(closing) => return self.update_gate(closing),
            Change::SetTimer(timer) => return self.set_timer(timer),
            Change::QueueSteer(steer) => return self.queue_steer(run, steer),
            Change::UpdateSteer(steer) => return self.update_steer(run, &steer),
            Change::AcquireSlot(slot) => return self.acquire_slot(run, slot),
            Change::Hold(hold) => return self.hold(run, hold),
            Change::HoldCaps(reservations) => return self.reserve_in_spend_caps(run, reservations),
            Change::UpdateKey(to) => return self.update_effect_key(run, to),
            Change::UpdateScheduling(to) => {
                let is_queued = to.keeps_run_in_budget_queue();
                self.set_head(run, to);
                if !is_queued {
                    self.leave_budget_queue(run);
                }
            }
            Change::RaiseGate(spec) => return self.raise_gate(run, *spec),
            Change::ReleaseSlot(sandbox) => self.release_slot(sandbox),
            Change::QueueForSlot(provider) => self.queue_for_slot(run, provider),
            Change::Settle(settlement) => self.settle(run, settlement),
            Change::WaitForHolds(needed) => self.queue_for_budget(run, needed),
            Change::WaitForHigherCaps { micro_usd, tokens } => {
                self.wake_if_caps_differ(run, (micro_usd, tokens));
            }
            Change::SettleCaps(settlements) => self.settle_spend_caps(settlements),
            Change::WaitAtCap(row) => self.wait_at_cap(run, row),
            Change::RaiseBudget(raise) if self.is_child(run) => _ = raise,
            Change::RaiseBudget(raise) | Change::RaiseTreeBudget(raise) => {
                self.raise_caps(run, raise);
            }
            Change::AddUsage(row) => self.add_usage(run, row),
            Change::AddOutbox(row) => self.add_outbox(run, row),
            Change::AppendThread(row) => self.extend_thread(&row.thread, row.messages),
            Change::PutBlob(blob) => {
                let hash = self.put_blob(blob.content);
                self.tables.blob_refs.insert((run, hash), ());
            }
            Change::PutDefinition(blob) => {
                self.tables.definitions.insert(blob.hash(), blob.content)
            }
            Change::SetSandbox(row) => self.set_sandbox(row),
            Change::AddRule(row) => return self.add_rule(*row),
            Change::UseRule(rule) => self.count_rule_use(rule),
            Change::RevokeRule { rule, by } => return self.revoke_rule(rule, &by),
            Change::SaveCheckpoint(state) => self.tables.checkpoints.insert(run, state),
            Change::SaveSubmitKey(key) => return self.save_idempotency_key_of_added_task(run, key),
            // Stored by `append`, which knows the sequence number of the last event.
            Change::MarkRequestApplied(request_key) => return self.check_not_applied(&request_key),
        }
        Ok(())
    }

    fn add_usage(&mut self, run: RunId, row: UsageRow) {
        let mut root = run;
        let is_call = !row.model.is_empty();
        self.tables.heads.update(&run, |head| {
            root = head.task.root;
            let sums = &mut head.totals;
            sums.turns = sums.turns.saturating_add(row.turns);
            sums.usage = sums.usage.plus(row.usage);
            sums.active = sums.active.plus(row.active);
            sums.cost = match (sums.cost, row.cost) {
                (Some(sum), Some(cost)) => Some(sum.plus(cost)),
                (sum, None) if !is_call => sum,
                (_, _) => None,
            };
        });
        if is_call {
            let at = self.now;
            let used = UsageEntry { run, root, at, row };
            let key = self.tables.next_row_id();
            self.tables.usage.insert(key, used);
        }
    }

    fn add_outbox(&mut self, run: RunId, row: OutboxRow) {
        let entry = OutboxEntry { run, row, attempts: 0, next_at: self.now };
        let key = self.tables.next_row_id();
        self.tables.outbox.insert(key, entry);
    }

    /// Appends messages to a thread.
    pub(crate) fn extend_thread(&mut self, thread: &ThreadKey, messages: Vec<Message>) {
        for message in messages {
            let row_id = self.tables.next_row_id();
            self.tables.threads.insert((thread.clone(), row_id), message);
        }
    }

    fn set_sandbox(&mut self, row: SandboxRow) {
        self.tables.sandboxes.insert(row.sandbox, row);
    }
}
