//! Each change of a row, once.
//!
//! Never: decides which changes go with a fact.

use longhaul_core::change::{Change, OutboxRow, RuleRow, SandboxRow, SandboxState};
use longhaul_core::id::{RunId, Seq};
use longhaul_core::request::Effect;
use rusqlite::{Result, params};

use crate::sqlite::column::to_json;
use crate::sqlite::fault::Stop;
use crate::sqlite::new_run::{Opening, open_run};
use crate::sqlite::tx::Tx;
use crate::sqlite::{blob, budget, gate, head, reply, seat, shelf, steer, timer, usage};

/// Whose batch it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    /// The run.
    pub(crate) run: RunId,
    /// It may stand in a queue: nobody drives it.
    pub(crate) may_queue: bool,
    /// The place of the batch's last event.
    pub(crate) last: Seq,
}

/// Carries one change out, or says why a row does not allow it.
pub(crate) fn change(tx: &Tx<'_>, subject: Subject, change: &Change) -> Result<(), Stop> {
    let run = subject.run;
    match change {
        Change::OpenRun(new) => open_run(tx, new, Opening::Run),
        Change::OpenStep(new) => open_run(tx, new, Opening::Step),
        Change::SetHead(to) => Ok(head::move_head(tx, run, to, subject.may_queue)?),
        Change::RaiseGate(spec) => Ok(gate::raise(tx, run, spec)?),
        Change::CloseGate(closing) => gate::close(tx, closing),
        Change::SetTimer(to) => timer::set(tx, to),
        Change::QueueSteer(row) => steer::queue(tx, run, row),
        Change::ChangeSteer(to) => steer::settle(tx, run, to),
        Change::TakeSeat(seat) => seat::take(tx, run, seat),
        Change::FreeSeat(sandbox) => seat::free(tx, *sandbox),
        Change::QueueSeat(provider) => Ok(seat::queue(tx, run, provider)?),
        Change::Hold(hold) => budget::hold(tx, run, *hold),
        Change::Settle(settlement) => Ok(budget::settle(tx, run, *settlement)?),
        Change::SetCap(raise) => Ok(budget::set_cap(tx, run, *raise)?),
        Change::AddUsage(row) => Ok(usage::add(tx, run, row)?),
        Change::AddOutbox(row) => Ok(add_outbox(tx, run, row)?),
        Change::AppendThread(row) => Ok(shelf::extend_thread(tx, &row.thread, &row.messages)?),
        Change::PutBlob(content) => {
            blob::put(tx, content.hash(), &content.content)?;
            Ok(blob::refer(tx, run, content.hash())?)
        }
        Change::SetSandbox(row) => Ok(set_sandbox(tx, row)?),
        Change::PutDefinition(content) => Ok(blob::define(tx, content)?),
        Change::PutRule(row) => Ok(put_rule(tx, run, row)?),
        Change::MarkReply(of) => {
            let seq = subject.last;
            reply::apply(tx, of, &Effect::Events { run, seq })
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
        "INSERT INTO sandbox (sandbox, owner, sits, data) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (sandbox) DO UPDATE
            SET owner = excluded.owner, sits = excluded.sits, data = excluded.data",
        params![
            row.sandbox.bytes(),
            row.owner.bytes(),
            sits(row.state),
            to_json(row)?
        ],
    )
}

/// Whether a sandbox in this state has a right to its seat.
const fn sits(state: SandboxState) -> bool {
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
