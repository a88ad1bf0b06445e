//! Seats of sandboxes and the queue for them.
//!
//! Never: more seats than the provider has, or a wake for a run that has ended.

use longhaul_core::change::{Due, SandboxSlot, TimerKind, TimerUpdate};
use longhaul_core::id::{RunId, SandboxId, TimerId};
use longhaul_core::port::store::Refused;
use rusqlite::{Result, params};

use crate::sqlite::column::ENDED;
use crate::sqlite::error::ChangeError;
use crate::sqlite::timer;
use crate::sqlite::tx::Tx;

/// A sandbox takes a seat, and its run waits for none any more.
pub(crate) fn acquire(tx: &Tx<'_>, run: RunId, seat: &SandboxSlot) -> Result<(), ChangeError> {
    let taken: Option<(bool, i64)> = tx.one(
        "SELECT EXISTS (SELECT 1 FROM sandbox_slot WHERE sandbox = ?1),
                (SELECT count(*) FROM sandbox_slot WHERE provider = ?2)",
        params![seat.sandbox.bytes(), seat.provider],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let (sits, count) = taken.unwrap_or_default();
    if sits {
        return Ok(());
    }
    if count >= i64::from(seat.capacity) {
        return Err(ChangeError::Refused(Refused::NoSlot));
    }
    tx.run(
        "DELETE FROM sandbox_slot_wait WHERE run = ?1 AND provider = ?2",
        params![run.bytes(), seat.provider],
    )?;
    tx.exec(
        "INSERT INTO sandbox_slot (sandbox, provider) VALUES (?1, ?2)",
        params![seat.sandbox.bytes(), seat.provider],
    )
}

/// A seat becomes free, and the first who waits for one is told by a timer.
/// Whoever has ended is passed over: the seat would be told to nobody.
pub(crate) fn release(tx: &Tx<'_>, sandbox: SandboxId) -> Result<(), ChangeError> {
    let provider: Option<String> = tx.one(
        "DELETE FROM sandbox_slot WHERE sandbox = ?1 RETURNING provider",
        params![sandbox.bytes()],
        |row| row.get(0),
    )?;
    let Some(provider) = provider else {
        return Ok(());
    };
    let next: Option<[u8; 16]> = tx.one(
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
    let wake = TimerUpdate::Arm {
        timer: TimerId::derive(run.bits(), &format!("slot:{sandbox}"), tx.now),
        run,
        due: Due::Now,
        kind: TimerKind::Wake,
    };
    timer::update(tx, &wake)
}

/// A run queues for a seat; who queues already keeps its place.
pub(crate) fn queue(tx: &Tx<'_>, run: RunId, provider: &str) -> Result<()> {
    tx.exec(
        "INSERT OR IGNORE INTO sandbox_slot_wait (provider, rank, since, run)
         SELECT ?2, -priority, ?3, id FROM run WHERE id = ?1",
        params![run.bytes(), provider, tx.now_micros()],
    )
}

/// Seats whose sandbox neither runs nor is on its way.
pub(crate) fn leaked_slots(tx: &Tx<'_>) -> Result<Vec<SandboxId>> {
    tx.all(
        "SELECT s.sandbox FROM sandbox_slot s LEFT JOIN sandbox b ON b.sandbox = s.sandbox
          WHERE coalesce(b.holds_slot, 0) = 0",
        (),
        |row| row.get(0).map(SandboxId::from_bytes),
    )
}
