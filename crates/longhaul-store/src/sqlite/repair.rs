//! Finds and repairs rows that violate an invariant. If any such row is found, there is a bug
//! elsewhere.
//!
//! The search runs on a reader thread; the writer thread is used only if there is something to
//! repair.

use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::records::RepairedRowCounts;
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, PARKED, READY, gate_status_code};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{CommandError, RowChangeError};
use crate::sqlite::head::wake_run;
use crate::sqlite::lane::{list_stuck_lanes, promote_next_run};
use crate::sqlite::queue::add_run_to_queue;
use crate::sqlite::slot::{release_sandbox_slot, sandboxes_with_leaked_slot};
use crate::sqlite::tx::Tx;

const READY_WITHOUT_ROW: &str = "SELECT h.run FROM run_head h INDEXED BY run_head_open
      WHERE h.state <> 5 AND h.state = ?1
        AND NOT EXISTS (SELECT 1 FROM ready q WHERE q.run = h.run)";

const ROW_WITHOUT_READY: &str = "SELECT q.run FROM ready q LEFT JOIN run_head h ON h.run = q.run
      WHERE coalesce(h.state, ?2) <> ?1";

/// Selects parked runs that nothing can wake: for each reason to wait, the gate, timer or queue
/// entry that should end the wait is missing. Runs that wait for a person, a child run or the
/// previous run of the batch are not selected.
const PARKED_WITHOUT_WAKER: &str = "SELECT h.run FROM run_head h INDEXED BY run_head_open
      WHERE h.state <> 5 AND h.state = ?1 AND CASE
        WHEN h.reason IN ('approval', 'question', 'signal', 'blocked') THEN
          NOT EXISTS (SELECT 1 FROM gate g WHERE g.run = h.run AND g.status = 0)
        WHEN h.reason IN ('timer', 'retry', 'rate_limit', 'outage', 'message', 'start_at', 'collect',
                         'cap') THEN
          NOT EXISTS (SELECT 1 FROM timer t WHERE t.run = h.run)
        WHEN h.reason = 'sandbox_slot' THEN
          NOT EXISTS (SELECT 1 FROM timer t WHERE t.run = h.run)
          AND NOT EXISTS (SELECT 1 FROM sandbox_slot_wait w WHERE w.run = h.run)
        ELSE 0 END";

const GATE_OF_ENDED: &str = "SELECT g.id FROM gate g INDEXED BY gate_open
       LEFT JOIN run_head h ON h.run = g.run
      WHERE g.status = 0 AND coalesce(h.state, ?1) = ?1";

/// Ids of the inconsistent rows that were found, by kind of inconsistency.
struct FoundInconsistencies {
    ready_without_row: Vec<[u8; 16]>,
    row_without_ready: Vec<[u8; 16]>,
    parked_without_waker: Vec<[u8; 16]>,
    lane_stuck: Vec<String>,
    gate_of_ended: Vec<[u8; 16]>,
    slot_leaked: Vec<longhaul_core::id::SandboxId>,
}

fn find_inconsistencies(tx: &Tx<'_>) -> Result<FoundInconsistencies> {
    let id = |row: &rusqlite::Row<'_>| row.get(0);
    Ok(FoundInconsistencies {
        ready_without_row: tx.query_all(READY_WITHOUT_ROW, params![READY], id)?,
        row_without_ready: tx.query_all(ROW_WITHOUT_READY, params![READY, ENDED], id)?,
        parked_without_waker: tx.query_all(PARKED_WITHOUT_WAKER, params![PARKED], id)?,
        lane_stuck: list_stuck_lanes(tx)?,
        gate_of_ended: tx.query_all(GATE_OF_ENDED, params![ENDED], id)?,
        slot_leaked: sandboxes_with_leaked_slot(tx)?,
    })
}

impl FoundInconsistencies {
    fn to_repair_counts(&self) -> RepairedRowCounts {
        RepairedRowCounts {
            ready_without_row: self.ready_without_row.len() as u64,
            row_without_ready: self.row_without_ready.len() as u64,
            parked_without_waker: self.parked_without_waker.len() as u64,
            lane_stuck: self.lane_stuck.len() as u64,
            gate_of_ended: self.gate_of_ended.len() as u64,
            slot_leaked: self.slot_leaked.len() as u64,
        }
    }
}

/// Returns the number of inconsistent rows of each kind.
pub(crate) fn count_inconsistent_rows(tx: &Tx<'_>) -> Result<RepairedRowCounts> {
    Ok(find_inconsistencies(tx)?.to_repair_counts())
}

/// Returns whether all rows are consistent.
pub(crate) fn are_rows_consistent(tx: &Tx<'_>) -> Result<bool> {
    Ok(count_inconsistent_rows(tx)?.is_all_zero())
}

/// Repairs all inconsistent rows and returns their number of each kind.
pub(crate) fn repair_inconsistent_rows(
    tx: &Tx<'_>,
) -> Result<CommandOutcome<RepairedRowCounts>, CommandError> {
    let found = find_inconsistencies(tx)?;
    match apply_row_repairs(tx, &found) {
        Ok(()) => Ok(CommandOutcome::Changed(found.to_repair_counts())),
        Err(RowChangeError::Failed(error)) => Err(error),
        Err(RowChangeError::Refused(why)) => Err(CommandError::InconsistentRows(format!(
            "inconsistent rows can't be repaired: {why:?}"
        ))),
    }
}

fn apply_row_repairs(
    tx: &Tx<'_>,
    inconsistencies: &FoundInconsistencies,
) -> Result<(), RowChangeError> {
    for run in &inconsistencies.ready_without_row {
        add_run_to_queue(tx, RunId::from_bytes(*run))?;
    }
    for run in &inconsistencies.row_without_ready {
        tx.run("DELETE FROM ready WHERE run = ?1", params![run])?;
    }
    for run in &inconsistencies.parked_without_waker {
        wake_run(tx, RunId::from_bytes(*run))?;
    }
    for lane in &inconsistencies.lane_stuck {
        promote_next_run(tx, lane)?;
    }
    for gate in &inconsistencies.gate_of_ended {
        let withdrawn = gate_status_code(GateStatus::Withdrawn);
        tx.run("UPDATE gate SET status = ?2 WHERE id = ?1", params![gate, withdrawn])?;
    }
    for sandbox in &inconsistencies.slot_leaked {
        release_sandbox_slot(tx, *sandbox)?;
    }
    Ok(())
}
