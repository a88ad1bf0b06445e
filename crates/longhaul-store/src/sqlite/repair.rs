//! Finds and repairs rows that violate an invariant. If any such row is found, there is a bug
//! elsewhere.
//!
//! The search runs on a reader thread; the writer thread is used only if there is something to
//! repair. Each search looks at a limited range of rows, so that its cost does not grow with the
//! store.

use std::sync::LazyLock;

use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::records::RepairedRowCounts;
use longhaul_core::wait::{WaitKind, Waker};
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, PARKED, READY, gate_status_code};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{RowChangeError, WriteCommandError};
use crate::sqlite::head::wake_run;
use crate::sqlite::lane::{give_lane_to_next_run, list_stuck_lanes};
use crate::sqlite::queue::add_run_to_ready_queue;
use crate::sqlite::slot::{release_sandbox_slot, sandboxes_with_leaked_slot};
use crate::sqlite::tx::Tx;

const READY_WITHOUT_ROW: &str = "SELECT h.run FROM run_head h INDEXED BY run_head_open
      WHERE h.state <> 5 AND h.run > ?1 AND h.run <= ?2 AND h.state = ?3
        AND NOT EXISTS (SELECT 1 FROM ready q WHERE q.run = h.run)";

const ROW_WITHOUT_READY: &str = "SELECT q.run FROM ready q LEFT JOIN run_head h ON h.run = q.run
      WHERE q.run > ?1 AND q.run <= ?2 AND coalesce(h.state, ?4) <> ?3";

/// Selects parked runs that nothing can wake: for each reason to wait, the gate, timer or queue
/// entry that should end the wait, according to the table of waits, is missing. A run that waits for budget needs a hold to be released,
/// or a woken run that is still in the queue. Runs that wait for a person, a child run or the previous
/// run of the batch are not selected.
static PARKED_WITHOUT_WAKER: LazyLock<String> = LazyLock::new(|| {
    let cases = WaitKind::ALL.iter().filter_map(|kind| {
        let waker = waker_condition(kind.row().waker)?;
        Some(format!("WHEN '{}' THEN NOT ({waker})", kind.code()))
    });
    let cases: Vec<String> = cases.collect();
    format!(
        "SELECT h.run FROM run_head h INDEXED BY run_head_open
          WHERE h.state <> 5 AND h.run > ?1 AND h.run <= ?2 AND h.state = ?3
            AND CASE h.reason {} ELSE 0 END",
        cases.join(" ")
    )
});

/// Returns the SQL condition that something will wake the run of the head (scheduling row) `h`.
/// `None` means that no row is needed for that.
const fn waker_condition(waker: Waker) -> Option<&'static str> {
    Some(match waker {
        Waker::Gate => "EXISTS (SELECT 1 FROM gate g WHERE g.run = h.run AND g.status = 0)",
        Waker::Timer => "EXISTS (SELECT 1 FROM timer t WHERE t.run = h.run)",
        Waker::SandboxQueue => {
            "EXISTS (SELECT 1 FROM timer t WHERE t.run = h.run)
             OR EXISTS (SELECT 1 FROM sandbox_slot_wait w WHERE w.run = h.run AND w.woken = 0)"
        }
        Waker::BudgetQueue => {
            "EXISTS (SELECT 1 FROM budget_wait w JOIN budget b ON b.root = w.account
              WHERE w.run = h.run AND (b.held_micro_usd > 0 OR b.held_tokens > 0
                OR EXISTS (SELECT 1 FROM budget_wait o JOIN run_head d ON d.run = o.run
                            WHERE o.account = w.account AND d.state IN (0, 1))))"
        }
        Waker::EffectKey => {
            "EXISTS (SELECT 1 FROM effect_key_wait w
                      CROSS JOIN effect_key k ON k.key = w.key AND k.state = 0
                     WHERE w.run = h.run)"
        }
        Waker::Unchecked => return None,
    })
}

const GATE_OF_ENDED: &str = "SELECT g.id FROM gate g INDEXED BY gate_open
       LEFT JOIN run_head h ON h.run = g.run
      WHERE g.status = 0 AND g.id > ?1 AND g.id <= ?2 AND coalesce(h.state, ?3) = ?3";

const LAST_RUN_OF_PAGE: &str = "SELECT run FROM run_head INDEXED BY run_head_open
      WHERE state <> 5 AND run > ?1 ORDER BY run LIMIT 1 OFFSET ?2";

const LAST_GATE_OF_PAGE: &str = "SELECT id FROM gate INDEXED BY gate_open
      WHERE status = 0 AND id > ?1 ORDER BY id LIMIT 1 OFFSET ?2";

const LAST_LANE_OF_PAGE: &str =
    "SELECT lane FROM lane WHERE lane > ?1 ORDER BY lane LIMIT 1 OFFSET ?2";

/// Maximum number of open runs, of open gates and of lanes that one search looks at.
const PAGE_SIZE: u32 = 2_000;

/// A value that is greater than all ids, which have 16 bytes.
const AFTER_ALL_IDS: [u8; 17] = [0xFF; 17];

/// A text that is greater than all names of lanes.
const AFTER_ALL_LANES: &str = "\u{10FFFF}";

/// Ids of a run and a gate and name of a lane, after which the next search continues. All are empty
/// at the beginning.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConsistencyCheckCursor {
    run: Vec<u8>,
    gate: Vec<u8>,
    lane: String,
}

/// The rows that one search looks at: those after `after`, up to and including `last`.
#[derive(Debug, Clone)]
pub(crate) struct ConsistencyCheckPage {
    after: ConsistencyCheckCursor,
    last: ConsistencyCheckCursor,
}

impl ConsistencyCheckPage {
    /// Returns the range that contains all rows.
    fn page_of_all_rows() -> Self {
        let [run, gate] = [AFTER_ALL_IDS.to_vec(), AFTER_ALL_IDS.to_vec()];
        let last = ConsistencyCheckCursor { run, gate, lane: AFTER_ALL_LANES.to_owned() };
        Self { after: ConsistencyCheckCursor::default(), last }
    }

    /// Returns the range of rows after a cursor that one search looks at.
    fn page_after_cursor(tx: &Tx<'_>, cursor: ConsistencyCheckCursor) -> Result<Self> {
        let last_id = |sql: &str, id: &[u8]| -> Result<Vec<u8>> {
            let found = tx.query_one(sql, params![id, PAGE_SIZE - 1], |row| row.get(0))?;
            Ok(found.unwrap_or_else(|| AFTER_ALL_IDS.to_vec()))
        };
        let lane = tx.query_one(LAST_LANE_OF_PAGE, params![cursor.lane, PAGE_SIZE - 1], |row| {
            row.get::<_, String>(0)
        })?;
        let last = ConsistencyCheckCursor {
            run: last_id(LAST_RUN_OF_PAGE, &cursor.run)?,
            gate: last_id(LAST_GATE_OF_PAGE, &cursor.gate)?,
            lane: lane.unwrap_or_else(|| AFTER_ALL_LANES.to_owned()),
        };
        Ok(Self { after: cursor, last })
    }

    /// Returns the cursor after this range of rows. After the last rows of the store, the cursor is
    /// at the beginning again.
    pub(crate) fn into_next_cursor(self) -> ConsistencyCheckCursor {
        let next_id = |last: Vec<u8>| if last == AFTER_ALL_IDS { Vec::new() } else { last };
        let ConsistencyCheckCursor { run, gate, lane } = self.last;
        let lane = if lane == AFTER_ALL_LANES { String::new() } else { lane };
        ConsistencyCheckCursor { run: next_id(run), gate: next_id(gate), lane }
    }
}

/// Ids of the inconsistent rows that were found, by kind of inconsistency.
struct FoundInconsistencies {
    ready_without_row: Vec<[u8; 16]>,
    row_without_ready: Vec<[u8; 16]>,
    parked_without_waker: Vec<[u8; 16]>,
    lane_stuck: Vec<String>,
    gate_of_ended: Vec<[u8; 16]>,
    slot_leaked: Vec<longhaul_core::id::SandboxId>,
}

fn find_inconsistencies(tx: &Tx<'_>, page: &ConsistencyCheckPage) -> Result<FoundInconsistencies> {
    let id = |row: &rusqlite::Row<'_>| row.get(0);
    let ConsistencyCheckPage { after, last } = page;
    let runs_in_state =
        |sql: &str, state: i64| tx.query_all(sql, params![after.run, last.run, state], id);
    Ok(FoundInconsistencies {
        ready_without_row: runs_in_state(READY_WITHOUT_ROW, READY)?,
        row_without_ready: tx.query_all(
            ROW_WITHOUT_READY,
            params![after.run, last.run, READY, ENDED],
            id,
        )?,
        parked_without_waker: runs_in_state(&PARKED_WITHOUT_WAKER, PARKED)?,
        lane_stuck: list_stuck_lanes(tx, (&after.lane, &last.lane))?,
        gate_of_ended: tx.query_all(GATE_OF_ENDED, params![after.gate, last.gate, ENDED], id)?,
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
    Ok(find_inconsistencies(tx, &ConsistencyCheckPage::page_of_all_rows())?.to_repair_counts())
}

/// Returns the range of rows that follows a cursor, and whether its rows are consistent.
pub(crate) fn check_consistency_of_next_page(
    tx: &Tx<'_>,
    after: ConsistencyCheckCursor,
) -> Result<(ConsistencyCheckPage, bool)> {
    let page = ConsistencyCheckPage::page_after_cursor(tx, after)?;
    let counts = find_inconsistencies(tx, &page)?.to_repair_counts();
    Ok((page, counts.is_all_zero()))
}

/// Repairs the inconsistent rows in a range of rows and returns their number of each kind.
pub(crate) fn repair_inconsistent_rows(
    tx: &Tx<'_>,
    page: &ConsistencyCheckPage,
) -> Result<CommandOutcome<RepairedRowCounts>, WriteCommandError> {
    let inconsistencies = find_inconsistencies(tx, page)?;
    match apply_row_repairs(tx, &inconsistencies) {
        Ok(()) => Ok(CommandOutcome::Changed(inconsistencies.to_repair_counts())),
        Err(RowChangeError::Failed(error)) => Err(error),
        Err(RowChangeError::Refused(refusal)) => Err(WriteCommandError::InconsistentRows(format!(
            "inconsistent rows can't be repaired: {refusal:?}"
        ))),
    }
}

fn apply_row_repairs(
    tx: &Tx<'_>,
    inconsistencies: &FoundInconsistencies,
) -> Result<(), RowChangeError> {
    for run in &inconsistencies.ready_without_row {
        add_run_to_ready_queue(tx, RunId::from_bytes(*run))?;
    }
    for run in &inconsistencies.row_without_ready {
        tx.run("DELETE FROM ready WHERE run = ?1", params![run])?;
    }
    for run in &inconsistencies.parked_without_waker {
        wake_run(tx, RunId::from_bytes(*run))?;
    }
    for lane in &inconsistencies.lane_stuck {
        give_lane_to_next_run(tx, lane)?;
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
