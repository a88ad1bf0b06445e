//! Applies the individual changes of a batch.

use longhaul_core::change::{OutboxRow, RowChange, SandboxRow, UsageRow};
use longhaul_core::id::{RunId, ThreadKey};
use longhaul_core::message::Message;

use crate::mem_store::open::RunOrigin;
use crate::mem_store::rows::{OutboxEntry, UsageEntry};
use crate::mem_store::tx::{ChangeResult, Tx};

impl Tx<'_> {
    /// Applies one change. Returns an error if a row does not allow it.
    pub(crate) fn change(&mut self, run: RunId, change: RowChange) -> ChangeResult {
        match change {
            RowChange::CreateRun(new) => return self.open_run(*new, RunOrigin::Run),
            RowChange::CreateStep(new) => return self.open_run(*new, RunOrigin::Step),
            RowChange::UpdateGate(update) => return self.update_gate(update),
            RowChange::SetTimer(timer) => return self.set_timer(timer),
            RowChange::QueueSteer(steer) => return self.queue_steer(run, steer),
            RowChange::UpdateSteer(steer) => return self.update_steer(run, &steer),
            RowChange::AcquireSlot(slot) => return self.acquire_slot(run, slot),
            RowChange::Hold(hold) => return self.hold(run, hold),
            RowChange::HoldCaps(reservations) => {
                return self.reserve_in_spend_caps(run, reservations);
            }
            RowChange::UpdateKey(to) => return self.update_effect_key(run, to),
            RowChange::UpdateScheduling(to) => {
                let is_queued = to.keeps_run_in_budget_queue();
                self.update_slot_queue(run, &to);
                self.set_head(run, to);
                if !is_queued {
                    self.remove_run_from_budget_queue(run);
                }
            }
            RowChange::RaiseGate(spec) => return self.raise_gate(run, *spec),
            RowChange::ReleaseSlot(sandbox) => self.release_slot(sandbox),
            RowChange::QueueForSlot(provider) => self.queue_for_slot(run, provider),
            RowChange::Settle(settlement) => self.settle(run, settlement),
            RowChange::WaitForHolds(needed) => self.queue_run_for_budget(run, needed),
            RowChange::WaitForHigherCaps { micro_usd, tokens } => {
                self.wake_run_if_budget_caps_changed(run, (micro_usd, tokens));
            }
            RowChange::SettleCaps(settlements) => self.settle_spend_caps(settlements),
            RowChange::WaitAtCap(row) => self.wait_at_cap(run, row),
            RowChange::RaiseBudget(raise) if self.is_child(run) => _ = raise,
            RowChange::RaiseBudget(raise) | RowChange::RaiseTreeBudget(raise) => {
                self.raise_caps(run, raise);
            }
            RowChange::AddUsage(row) => self.add_usage(run, row),
            RowChange::AddOutbox(row) => self.add_outbox(run, row),
            RowChange::AppendThread(row) => self.extend_thread(&row.thread, row.messages),
            RowChange::PutBlob(blob) => {
                let hash = self.put_blob(blob.content);
                self.tables.blob_refs.insert((run, hash), ());
            }
            RowChange::PutDefinition(blob) => {
                self.tables.definitions.insert(blob.hash(), blob.content)
            }
            RowChange::SetSandbox(row) => self.set_sandbox(row),
            RowChange::AddRule(row) => return self.add_rule(*row),
            RowChange::UseRule(rule) => self.count_rule_use(rule),
            RowChange::RevokeRule { rule, by } => return self.revoke_rule(rule, &by),
            RowChange::SaveCheckpoint(state) => self.tables.checkpoints.insert(run, state),
            RowChange::SaveSubmitKey(key) => {
                return self.save_idempotency_key_of_added_task(run, key);
            }
            // Stored by `append`, which knows the sequence number of the last event.
            RowChange::MarkRequestApplied(request_key) => {
                return self.check_not_applied(&request_key);
            }
        }
        Ok(())
    }

    fn add_usage(&mut self, run: RunId, row: UsageRow) {
        let is_call = !row.model.is_empty();
        self.tables.heads.update(&run, |head| {
            let totals = &mut head.totals;
            totals.turns = totals.turns.saturating_add(row.turns);
            totals.usage = totals.usage.plus(row.usage);
            totals.active = totals.active.plus(row.active);
            totals.cost = match (totals.cost, row.cost) {
                (Some(sum), Some(cost)) => Some(sum.plus(cost)),
                (sum, None) if !is_call => sum,
                (_, _) => None,
            };
        });
        if is_call {
            let at = self.now;
            let entry = UsageEntry { run, at, row };
            let key = self.tables.next_row_id();
            self.tables.usage.insert(key, entry);
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

    pub(crate) fn set_sandbox(&mut self, row: SandboxRow) {
        self.tables.sandboxes.insert(row.event.sandbox, row);
    }
}
