//! Slots for sandboxes, and the queue of runs that wait for a slot. Each sandbox occupies one slot
//! of its sandbox provider. A woken run stays in the queue until it acquires a slot, and a slot is
//! kept for it.
//!
//! Invariant: no more slots are in use or kept for woken runs than the capacity of the sandbox
//! provider, unless the capacity was lowered. No ended run is in the queue.

use longhaul_core::change::{RunSchedulingUpdate, SandboxSlot, SlotQueueLength, TimerKind};
use longhaul_core::id::{RunId, SandboxId, TimerId};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::wait::WaitKind;
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, get_u32};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::timer::{ArmedTimer, arm_timer};
use crate::sqlite::tx::Tx;

/// Acquires a slot for a sandbox and removes the run from the queue for slots. Refused if all slots
/// are in use or kept for other runs.
pub(crate) fn acquire_sandbox_slot(
    tx: &Tx<'_>,
    run: RunId,
    slot: &SandboxSlot,
) -> std::result::Result<(), RowChangeError> {
    let row: Option<(bool, i64)> = tx.query_one(
        "SELECT EXISTS (SELECT 1 FROM sandbox_slot WHERE sandbox = ?1),
                (SELECT count(*) FROM sandbox_slot WHERE provider = ?2)
                + (SELECT count(*) FROM sandbox_slot_wait
                    WHERE provider = ?2 AND woken = 1 AND run <> ?3)",
        params![slot.sandbox.bytes(), slot.provider, run.bytes()],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let (has_slot, count) = row.unwrap_or_default();
    if !has_slot {
        if count >= i64::from(slot.capacity) {
            return Err(RowChangeError::Refused(AppendRefusalReason::NoSlot));
        }
        tx.run(
            "INSERT INTO sandbox_slot (sandbox, provider) VALUES (?1, ?2)",
            params![slot.sandbox.bytes(), slot.provider],
        )?;
        // This is the slot that was kept for the run, so no other run is woken instead.
        tx.run(
            "DELETE FROM sandbox_slot_wait WHERE run = ?1 AND provider = ?2",
            params![run.bytes(), slot.provider],
        )?;
    }
    Ok(leave_queue(tx, run, None)?)
}

/// Releases the slot of a sandbox and wakes the first run waiting for a slot.
pub(crate) fn release_sandbox_slot(tx: &Tx<'_>, sandbox: SandboxId) -> Result<()> {
    let sql = "DELETE FROM sandbox_slot WHERE sandbox = ?1 RETURNING provider";
    let provider: Option<String> = tx.query_one(sql, params![sandbox.bytes()], |row| row.get(0))?;
    provider.map_or(Ok(()), |provider| wake_next_run(tx, &provider))
}

/// Adds a run to the queue for a sandbox slot of this provider. A run that is already queued keeps
/// its position.
pub(crate) fn queue_for_sandbox_slot(tx: &Tx<'_>, run: RunId, provider: &str) -> Result<()> {
    leave_queue(tx, run, Some(provider))?;
    tx.exec(
        "INSERT INTO sandbox_slot_wait (run, provider, woken, rank, since, agent)
         SELECT r.id, ?2, 0, -r.priority, ?3, r.agent
           FROM run r CROSS JOIN run_head h ON h.run = r.id
          WHERE r.id = ?1 AND h.state <> ?4
         ON CONFLICT (run) DO NOTHING",
        params![run.bytes(), provider, tx.now_micros(), ENDED],
    )
}

/// Updates the queue when the scheduling state of a run changes. A run that no longer waits for a
/// slot leaves the queue. The slot that is kept for a woken run is offered to the runs behind it if
/// the woken run waits again.
pub(crate) fn update_queue(tx: &Tx<'_>, run: RunId, update: &RunSchedulingUpdate) -> Result<()> {
    match update {
        RunSchedulingUpdate::Release => Ok(()),
        RunSchedulingUpdate::Park { reason, .. } if *reason == WaitKind::SandboxSlot.code() => {
            let sql = "UPDATE sandbox_slot_wait SET woken = 0 WHERE run = ?1 AND woken = 1
                       RETURNING provider";
            let provider: Option<String> =
                tx.query_one(sql, params![run.bytes()], |row| row.get(0))?;
            provider.map_or(Ok(()), |provider| wake_run_behind(tx, &provider, run))
        }
        RunSchedulingUpdate::Park { .. }
        | RunSchedulingUpdate::Pause
        | RunSchedulingUpdate::End { .. } => leave_queue(tx, run, None),
    }
}

/// Removes a run from the queue unless the run waits for a slot of the provider `except`. If a slot
/// was kept for the run, the next run is woken instead.
fn leave_queue(tx: &Tx<'_>, run: RunId, except: Option<&str>) -> Result<()> {
    let left: Option<(String, bool)> = tx.query_one(
        "DELETE FROM sandbox_slot_wait WHERE run = ?1 AND provider IS NOT ?2
         RETURNING provider, woken",
        params![run.bytes(), except],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    left.filter(|(_, woken)| *woken).map_or(Ok(()), |(provider, _)| wake_next_run(tx, &provider))
}

/// Selects the runs in the queue of a provider in the order in which they get slots: woken runs, the
/// highest priority, the agent that occupies the fewest slots, the longest wait.
pub(crate) const SELECT_SLOT_QUEUE: &str = "WITH occupied (agent, slots) AS (
       SELECT agent, count(*) FROM (
           SELECT r.agent FROM sandbox_slot s CROSS JOIN sandbox b ON b.sandbox = s.sandbox
                    CROSS JOIN run r ON r.id = b.owner
            WHERE s.provider = ?1
           UNION ALL SELECT agent FROM sandbox_slot_wait WHERE provider = ?1 AND woken = 1)
        GROUP BY agent)
     SELECT w.run FROM sandbox_slot_wait w LEFT JOIN occupied o ON o.agent = w.agent
      WHERE w.provider = ?1 AND w.woken <= ?2
      ORDER BY w.woken DESC, w.rank, coalesce(o.slots, 0), w.since, w.run LIMIT ?3";

/// Value of the limit of [`SELECT_SLOT_QUEUE`] that selects all runs.
const UNLIMITED: i64 = -1;

/// Returns the first runs of the queue in the order in which they get slots. `with_woken` is whether
/// the queue contains woken runs.
fn queued_runs(
    tx: &Tx<'_>,
    provider: &str,
    (with_woken, limit): (bool, i64),
) -> Result<Vec<RunId>> {
    tx.query_all(SELECT_SLOT_QUEUE, params![provider, with_woken, limit], |row| {
        row.get(0).map(RunId::from_bytes)
    })
}

fn wake_next_run(tx: &Tx<'_>, provider: &str) -> Result<()> {
    let next = queued_runs(tx, provider, (false, 1))?.pop();
    next.map_or(Ok(()), |next| wake_queued_run(tx, provider, next))
}

/// Wakes the run behind a run that waits again. It does not get a slot, so neither do runs in front
/// of it: if the capacity was lowered, each run of the queue is woken only once.
fn wake_run_behind(tx: &Tx<'_>, provider: &str, run: RunId) -> Result<()> {
    let waiting = queued_runs(tx, provider, (false, UNLIMITED))?;
    let next = waiting.into_iter().skip_while(|waiting| *waiting != run).nth(1);
    next.map_or(Ok(()), |next| wake_queued_run(tx, provider, next))
}

/// Keeps a slot for a run in the queue, and sets a timer that wakes the run.
fn wake_queued_run(tx: &Tx<'_>, provider: &str, run: RunId) -> Result<()> {
    tx.run("UPDATE sandbox_slot_wait SET woken = 1 WHERE run = ?1", params![run.bytes()])?;
    let timer = TimerId::derive(run.bits(), &format!("slot:{provider}"), tx.now);
    arm_timer(tx, &ArmedTimer { timer, run, fire_at: tx.now, kind: &TimerKind::Wake })
}

/// Returns the length of the queue of a provider, and for how many of the waiting runs a slot is
/// free.
pub(crate) fn free_slots(
    tx: &Tx<'_>,
    provider: &str,
    capacity: u32,
) -> Result<(SlotQueueLength, u32)> {
    let counts = tx.query_one(
        "SELECT (SELECT count(*) FROM sandbox_slot WHERE provider = ?1),
                (SELECT count(*) FROM sandbox_slot_wait WHERE provider = ?1 AND woken = 0),
                (SELECT count(*) FROM sandbox_slot_wait WHERE provider = ?1 AND woken = 1)",
        params![provider],
        |row| Ok((get_u32(row, 0)?, get_u32(row, 1)?, get_u32(row, 2)?)),
    )?;
    let (in_use, waiting, woken) = counts.unwrap_or_default();
    let free = capacity.saturating_sub(in_use).saturating_sub(woken);
    Ok((SlotQueueLength { waiting, woken }, free.min(waiting)))
}

/// Wakes waiting runs as long as a slot is free. Returns the remaining queue.
pub(crate) fn wake_runs_for_free_slots(
    tx: &Tx<'_>,
    provider: &str,
    capacity: u32,
) -> Result<SlotQueueLength> {
    let (queue, free) = free_slots(tx, provider, capacity)?;
    for _ in 0..free {
        wake_next_run(tx, provider)?;
    }
    Ok(SlotQueueLength { waiting: queue.waiting - free, woken: queue.woken + free })
}

/// Returns the position of a run in the queue of its provider, from 1.
pub(crate) fn queue_position(tx: &Tx<'_>, run: RunId) -> Result<Option<u32>> {
    let sql = "SELECT provider FROM sandbox_slot_wait WHERE run = ?1";
    let provider: Option<String> = tx.query_one(sql, params![run.bytes()], |row| row.get(0))?;
    let Some(provider) = provider else {
        return Ok(None);
    };
    let queue = queued_runs(tx, &provider, (true, UNLIMITED))?;
    Ok((1..).zip(queue).find(|(_, queued)| *queued == run).map(|(position, _)| position))
}

/// Lists the sandboxes that occupy a slot although a sandbox in their state needs none.
pub(crate) fn sandboxes_with_leaked_slot(tx: &Tx<'_>) -> Result<Vec<SandboxId>> {
    tx.query_all(
        "SELECT s.sandbox FROM sandbox_slot s LEFT JOIN sandbox b ON b.sandbox = s.sandbox
          WHERE coalesce(b.holds_slot, 0) = 0",
        (),
        |row| row.get(0).map(SandboxId::from_bytes),
    )
}
