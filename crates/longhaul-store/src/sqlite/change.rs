//! Applies changes to rows outside the journal. The state machine decides which changes go with an
//! event.

use longhaul_core::change::{OutboxRow, RowChange};
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::request::IdempotentRequestEffect;
use rusqlite::{Result, params};

use crate::sqlite::error::RowChangeError;
use crate::sqlite::new_run::{RunOrigin, create_run, save_idempotency_key_of_added_task};
use crate::sqlite::tx::Tx;
use crate::sqlite::{
    blob, budget, effect_key, gate, head, idempotency, records, rule, sandbox, slot, spend, steer,
    timer, usage,
};

/// The batch of events that a row change belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowChangeContext {
    /// Run to whose journal the batch is appended.
    pub(crate) run: RunId,
    /// Whether the run may be added to the ready queue. False if the worker that has claimed the
    /// run appends the batch.
    pub(crate) may_queue: bool,
    /// Sequence number of the last event in the batch.
    pub(crate) last_seq: Seq,
}

/// Applies one row change. The error says why the change is refused or failed.
pub(crate) fn apply_row_change(
    tx: &Tx<'_>,
    context: RowChangeContext,
    change: &RowChange,
) -> Result<(), RowChangeError> {
    let run = context.run;
    match change {
        RowChange::CreateRun(new) => create_run(tx, new, RunOrigin::Run),
        RowChange::CreateStep(new) => create_run(tx, new, RunOrigin::Step),
        RowChange::UpdateScheduling(to) => {
            head::update_run_scheduling(tx, run, to, context.may_queue)?;
            slot::update_queue(tx, run, to)?;
            if to.keeps_run_in_budget_queue() {
                Ok(())
            } else {
                budget::remove_run_from_budget_queue(tx, run)
            }
        }
        RowChange::RaiseGate(spec) => gate::raise_gate(tx, run, spec),
        RowChange::UpdateGate(update) => gate::answer_or_close_gate(tx, update),
        RowChange::SetTimer(to) => timer::set_or_delete_timers(tx, to),
        RowChange::QueueSteer(row) => steer::queue_steer(tx, run, row),
        RowChange::UpdateSteer(to) => steer::update_queued_steer(tx, run, to),
        RowChange::AcquireSlot(sandbox_slot) => slot::acquire_sandbox_slot(tx, run, sandbox_slot),
        RowChange::ReleaseSlot(sandbox) => Ok(slot::release_sandbox_slot(tx, *sandbox)?),
        RowChange::QueueForSlot(provider) => Ok(slot::queue_for_sandbox_slot(tx, run, provider)?),
        RowChange::Hold(hold) => budget::hold_budget(tx, run, *hold),
        RowChange::Settle(settlement) => budget::settle_budget_hold(tx, run, *settlement),
        RowChange::WaitForHolds(needed) => budget::queue_run_for_budget(tx, run, *needed),
        RowChange::WaitForHigherCaps { micro_usd, tokens } => {
            budget::wake_run_if_budget_caps_changed(tx, run, (*micro_usd, *tokens))
        }
        RowChange::HoldCaps(reservations) => spend::reserve_in_spend_caps(tx, run, reservations),
        RowChange::SettleCaps(settlements) => Ok(spend::settle_spend_caps(tx, settlements)?),
        RowChange::WaitAtCap(row) => Ok(spend::queue_run_at_spend_cap(tx, run, row)?),
        RowChange::UpdateKey(to) => effect_key::update_effect_key(tx, run, to),
        RowChange::RaiseBudget(raise) => budget::raise_budget_caps(tx, (run, false), *raise),
        RowChange::RaiseTreeBudget(raise) => budget::raise_budget_caps(tx, (run, true), *raise),
        RowChange::AddUsage(row) => Ok(usage::add_usage(tx, run, row)?),
        RowChange::AddOutbox(row) => Ok(add_outbox_row(tx, run, row)?),
        RowChange::AppendThread(row) => Ok(records::extend_thread(tx, &row.thread, &row.messages)?),
        RowChange::PutBlob(content) => {
            blob::put_blob(tx, content.hash(), &content.content)?;
            Ok(blob::add_blob_reference(tx, run, content.hash())?)
        }
        RowChange::SetSandbox(row) => Ok(sandbox::set_sandbox(tx, row)?),
        RowChange::PutDefinition(content) => Ok(blob::put_agent_definition(tx, content)?),
        RowChange::AddRule(row) => rule::add_rule(tx, row),
        RowChange::UseRule(used) => Ok(rule::count_rule_use(tx, *used)?),
        RowChange::RevokeRule { rule, by } => match rule::revoke_rule(tx, *rule, by)? {
            true => Ok(()),
            false => Err(RowChangeError::Refused(AppendRefusalReason::RuleInactive)),
        },
        RowChange::MarkRequestApplied(key) => {
            let seq = context.last_seq;
            idempotency::record_change_committed_by_request(
                tx,
                key,
                &IdempotentRequestEffect::Events { run, seq },
            )
        }
        RowChange::SaveSubmitKey(key) => save_idempotency_key_of_added_task(tx, run, key),
        RowChange::SaveCheckpoint(state) => Ok(records::save_checkpoint(tx, run, state)?),
    }
}

fn add_outbox_row(tx: &Tx<'_>, run: RunId, row: &OutboxRow) -> Result<()> {
    tx.exec(
        "INSERT INTO outbox (run, endpoint, body, attempts, due_at) VALUES (?1, ?2, ?3, 0, ?4)",
        params![run.bytes(), row.endpoint, row.body, tx.now_micros()],
    )
}
