//! Slots for sandboxes, and the queue of runs that wait for a slot. Each sandbox occupies one slot
//! of its sandbox provider.
//!
//! Invariant: no more slots are in use than the capacity of the sandbox provider.

use longhaul_core::change::{SandboxSlot, SlotQueueLength, TimerKind};
use longhaul_core::id::{RunId, SandboxId, TimerId};
use longhaul_core::port::store::AppendRefusalReason;
use rusqlite::params;

use crate::sqlite::column::{ENDED, get_u32};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{RowChangeError, WriteCommandError};
use crate::sqlite::timer::{ArmedTimer, arm_timer};
use crate::sqlite::tx::Tx;

/// Acquires a slot for a sandbox and removes the run from the queue for slots.
pub(crate) fn acquire_sandbox_slot(
    tx: &Tx<'_>,
    run: RunId,
    slot: &SandboxSlot,
) -> Result<(), RowChangeError> {
    let row: Option<(bool, i64)> = tx.query_one(
        "SELECT EXISTS (SELECT 1 FROM sandbox_slot WHERE sandbox = ?1),
                (SELECT count(*) FROM sandbox_slot WHERE provider = ?2)",
        params![slot.sandbox.bytes(), slot.provider],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let (has_slot, count) = row.unwrap_or_default();
    if has_slot {
        return Ok(());
    }
    if count >= i64::from(slot.capacity) {
        return Err(RowChangeError::Refused(AppendRefusalReason::NoSlot));
    }
    tx.run(
        "DELETE FROM sandbox_slot_wait WHERE run = ?1 AND provider = ?2",
        params![run.bytes(), slot.provider],
    )?;
    tx.exec(
        "INSERT INTO sandbox_slot (sandbox, provider) VALUES (?1, ?2)",
        params![slot.sandbox.bytes(), slot.provider],
    )
}

/// Releases the slot of a sandbox and sets a timer that wakes the first run waiting for a slot.
/// Ended runs are skipped, because they could not use the slot.
pub(crate) fn release_sandbox_slot(tx: &Tx<'_>, sandbox: SandboxId) -> rusqlite::Result<()> {
    let provider: Option<String> = tx.query_one(
        "DELETE FROM sandbox_slot WHERE sandbox = ?1 RETURNING provider",
        params![sandbox.bytes()],
        |row| row.get(0),
    )?;
    let Some(provider) = provider else {
        return Ok(());
    };
    let next: Option<[u8; 16]> = tx.query_one(
        "SELECT w.run FROM sandbox_slot_wait w CROSS JOIN run_head h ON h.run = w.run
          WHERE w.provider = ?1 AND h.state <> ?2
          ORDER BY w.rank, w.since, w.run LIMIT 1",
        params![provider, ENDED],
        |row| row.get(0),
    )?;
    let Some(run) = next else {
        return Ok(());
    };
    tx.run(
        "DELETE FROM sandbox_slot_wait WHERE run = ?1 AND provider = ?2",
        params![run, provider],
    )?;
    let run = RunId::from_bytes(run);
    let wake = ArmedTimer {
        timer: TimerId::derive(run.bits(), &format!("slot:{sandbox}"), tx.now),
        run,
        fire_at: tx.now,
        kind: &TimerKind::Wake,
    };
    arm_timer(tx, &wake)
}

/// Adds a run to the queue for a sandbox slot of this provider. A run that is already queued keeps
/// its position.
pub(crate) fn queue_for_sandbox_slot(
    tx: &Tx<'_>,
    run: RunId,
    provider: &str,
) -> rusqlite::Result<()> {
    tx.exec(
        "INSERT OR IGNORE INTO sandbox_slot_wait (provider, rank, since, run)
         SELECT ?2, -priority, ?3, id FROM run WHERE id = ?1",
        params![run.bytes(), provider, tx.now_micros()],
    )
}

/// Lists the sandboxes that occupy a slot although a sandbox in their state needs none.
pub(crate) fn sandboxes_with_leaked_slot(tx: &Tx<'_>) -> rusqlite::Result<Vec<SandboxId>> {
    tx.query_all(
        "SELECT s.sandbox FROM sandbox_slot s LEFT JOIN sandbox b ON b.sandbox = s.sandbox
          WHERE coalesce(b.holds_slot, 0) = 0",
        (),
        |row| row.get(0).map(SandboxId::from_bytes),
    )
}

/// Wakes runs for free slots.
pub(crate) fn wake_runs_for_free_slots(
    tx: &Tx<'_>,
    provider: &str,
    _capacity: u32,
) -> Result<CommandOutcome<SlotQueueLength>, WriteCommandError> {
    let sql = "SELECT count(*) FROM sandbox_slot_wait WHERE provider = ?1";
    let waiting = tx.query_one(sql, params![provider], |row| get_u32(row, 0))?;
    let queue = SlotQueueLength { waiting: waiting.unwrap_or_default(), woken: 0 };
    Ok(CommandOutcome::Silent(queue))
}

/// Returns the position of a run in the queue.
pub(crate) fn queue_position(tx: &Tx<'_>, run: RunId) -> rusqlite::Result<Option<u32>> {
    let sql = "SELECT 1 FROM sandbox_slot_wait WHERE run = ?1";
    tx.query_one(sql, params![run.bytes()], |row| get_u32(row, 0))
}
