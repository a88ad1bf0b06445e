//! Each change of a row, once.
//!
//! Never: decides which changes go with a fact.

use longhaul_core::change::{Change, OutboxRow, RuleRow, SandboxRow, SandboxState};
use longhaul_core::id::{RunId, Seq};
use longhaul_core::request::RequestEffect;
use rusqlite::{Result, params};

use crate::sqlite::column::to_json;
use crate::sqlite::error::ChangeError;
use crate::sqlite::new_run::{RunOrigin, open_run};
use crate::sqlite::tx::Tx;
use crate::sqlite::{blob, budget, gate, head, idempotency, records, slot, steer, timer, usage};

/// Whose batch it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeTarget {
    /// The run.
    pub(crate) run: RunId,
    /// It may stand in a queue: nobody drives it.
    pub(crate) may_queue: bool,
    /// The place of the batch's last event.
    pub(crate) last_seq: Seq,
}

/// Carries one change out, or says why a row does not allow it.
pub(crate) fn apply_change(
    tx: &Tx<'_>,
    subject: ChangeTarget,
    change: &Change,
) -> Result<(), ChangeError> {
    let run = subject.run;
    match change {
        Change::OpenRun(new) => open_run(tx, new, RunOrigin::Run),
        Change::OpenStep(new) => open_run(tx, new, RunOrigin::Step),
        Change::SetHead(to) => Ok(head::update_head(tx, run, to, subject.may_queue)?),
        Change::RaiseGate(spec) => Ok(gate::raise(tx, run, spec)?),
        Change::UpdateGate(closing) => gate::update(tx, closing),
        Change::SetTimer(to) => timer::update(tx, to),
        Change::QueueSteer(row) => steer::queue(tx, run, row),
        Change::UpdateSteer(to) => steer::update(tx, run, to),
        Change::AcquireSlot(seat) => slot::acquire(tx, run, seat),
        Change::ReleaseSlot(sandbox) => slot::release(tx, *sandbox),
        Change::QueueForSlot(provider) => Ok(slot::queue(tx, run, provider)?),
        Change::Hold(hold) => budget::hold(tx, run, *hold),
        Change::Settle(settlement) => Ok(budget::settle(tx, run, *settlement)?),
        Change::SetCap(raise) => Ok(budget::set_cap(tx, run, *raise)?),
        Change::AddUsage(row) => Ok(usage::add(tx, run, row)?),
        Change::AddOutbox(row) => Ok(add_outbox(tx, run, row)?),
        Change::AppendThread(row) => Ok(records::extend_thread(tx, &row.thread, &row.messages)?),
        Change::PutBlob(content) => {
            blob::put(tx, content.hash(), &content.content)?;
            Ok(blob::add_reference(tx, run, content.hash())?)
        }
        Change::SetSandbox(row) => Ok(set_sandbox(tx, row)?),
        Change::PutDefinition(content) => Ok(blob::put_definition(tx, content)?),
        Change::PutRule(row) => Ok(put_rule(tx, run, row)?),
        Change::MarkRequestApplied(of) => {
            let seq = subject.last_seq;
            idempotency::mark_applied(tx, of, &RequestEffect::Events { run, seq })
        }
    }
}

fn add_outbox(tx: &Tx<'_>, run: RunId, row: &OutboxRow) -> Result<()> {
    tx.exec(
        "INSERT INTO outbox (run, endpoint, body, attempts, due_at) VALUES (?1, ?2, ?3, 0, ?4)",
        params![run.bytes(), row.endpoint, row.body, tx.now_micros()],
    )
}

fn set_sandbox(tx: &Tx<'_>, row: &SandboxRow) -> Result<()> {
    tx.exec(
        "INSERT INTO sandbox (sandbox, owner, holds_slot, data) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (sandbox) DO UPDATE
            SET owner = excluded.owner, holds_slot = excluded.holds_slot, data = excluded.data",
        params![row.sandbox.bytes(), row.owner.bytes(), holds_slot(row.state), to_json(row)?],
    )
}

/// Whether a sandbox in this state has a right to its seat.
const fn holds_slot(state: SandboxState) -> bool {
    match state {
        SandboxState::Creating
        | SandboxState::Starting
        | SandboxState::Running
        | SandboxState::Stopping => true,
        SandboxState::Stopped | SandboxState::Deleted | SandboxState::Lost => false,
    }
}

fn put_rule(tx: &Tx<'_>, run: RunId, row: &RuleRow) -> Result<()> {
    tx.exec(
        "INSERT INTO rule (run, rule, data) VALUES (?1, ?2, ?3)
         ON CONFLICT (run, rule) DO UPDATE SET data = excluded.data",
        params![run.bytes(), row.rule.bytes(), to_json(row)?],
    )
}
