//! Takes ready runs for a worker, in order.
//!
//! Never: filters by lane, seat or budget. Whoever stands in the queue may be
//! taken; what may not go yet does not stand there.

use longhaul_core::event::Event;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{Epoch, InboxName, RunId, Seq};
use longhaul_core::port::store::{ClaimAsk, Claimed, Standing};
use rusqlite::params;

use crate::sqlite::column::{LEASED, from_standing, int, limit, nat, to_json};
use crate::sqlite::fault::Fault;
use crate::sqlite::journal::{Tail, facts, write};
use crate::sqlite::tx::Tx;
use crate::sqlite::work::Done;

/// Walks the queue of an inbox in its own order; nothing is sorted.
pub(crate) const PICK: &str = "SELECT q.run, q.rank, q.pass, h.epoch, h.last
       FROM ready q CROSS JOIN run_head h ON h.run = q.run
      WHERE q.inbox = ?1 AND h.state = 0 AND h.format <= ?2 AND (q.host IS NULL OR q.host = ?3)
      ORDER BY q.rank, q.pass, q.run LIMIT ?4";

/// The same, for some types only.
pub(crate) const PICK_TYPES: &str = "SELECT q.run, q.rank, q.pass, h.epoch, h.last
       FROM ready q CROSS JOIN run_head h ON h.run = q.run
      WHERE q.inbox = ?1 AND h.state = 0 AND h.format <= ?2 AND (q.host IS NULL OR q.host = ?3)
        AND q.kind IN (SELECT value FROM json_each(?5))
      ORDER BY q.rank, q.pass, q.run LIMIT ?4";

/// Takes ready runs for a worker, in order.
pub(crate) fn claim(tx: &Tx<'_>, ask: &ClaimAsk) -> Result<Done<Vec<Claimed>>, Fault> {
    if !may_claim(tx, ask)? {
        return Ok(Done::Quiet(Vec::new()));
    }
    let mut claimed = Vec::new();
    for inbox in &ask.inboxes {
        let left = ask.limit.saturating_sub(claimed.len());
        for picked in pick(tx, ask, inbox, left)? {
            claimed.push(take(tx, ask, inbox, picked)?);
        }
    }
    Ok(if claimed.is_empty() {
        Done::Quiet(claimed)
    } else {
        Done::Kept(claimed)
    })
}

fn may_claim(tx: &Tx<'_>, ask: &ClaimAsk) -> rusqlite::Result<bool> {
    let live = tx.one(
        "SELECT 1 FROM worker WHERE id = ?1 AND state = ?2 AND abs(beat_at - ?3) <= ttl_ms * 1000",
        params![
            ask.worker.bytes(),
            from_standing(Standing::Live),
            tx.now_micros()
        ],
        |_| Ok(()),
    )?;
    Ok(live.is_some())
}

/// A run in the queue, and its head.
struct Picked {
    run: RunId,
    rank: i64,
    pass: i64,
    epoch: u64,
    last: Seq,
}

fn pick(
    tx: &Tx<'_>,
    ask: &ClaimAsk,
    inbox: &InboxName,
    count: usize,
) -> rusqlite::Result<Vec<Picked>> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Picked {
            run: RunId::from_bytes(row.get(0)?),
            rank: row.get(1)?,
            pass: row.get(2)?,
            epoch: nat(row, 3)?,
            last: Seq(nat(row, 4)?),
        })
    };
    if count == 0 {
        return Ok(Vec::new());
    }
    let (inbox, count) = (inbox.as_str(), limit(count));
    if ask.types.is_empty() {
        return tx.all(PICK, params![inbox, ask.format, ask.host, count], read);
    }
    let types = to_json(&ask.types)?;
    tx.all(
        PICK_TYPES,
        params![inbox, ask.format, ask.host, count, types],
        read,
    )
}

fn take(tx: &Tx<'_>, ask: &ClaimAsk, inbox: &InboxName, picked: Picked) -> Result<Claimed, Fault> {
    let run = picked.run;
    let epoch = Epoch(picked.epoch + 1);
    let claimed = Event::RunClaimed(RunClaimed {
        worker: ask.worker,
        epoch,
    });
    tx.run(
        "DELETE FROM ready WHERE inbox = ?1 AND rank = ?2 AND pass = ?3 AND run = ?4",
        params![inbox.as_str(), picked.rank, picked.pass, run.bytes()],
    )?;
    tx.run(
        "UPDATE run_head
            SET state = ?2, epoch = ?3, worker = ?4, last = last + 1, format = max(format, ?5),
                reason = NULL, blocked = 0, started_at = coalesce(started_at, ?6)
          WHERE run = ?1",
        params![
            run.bytes(),
            LEASED,
            int(epoch.0),
            ask.worker.bytes(),
            claimed.format(),
            tx.now_micros()
        ],
    )?;
    let tail = Tail {
        run,
        epoch,
        after: picked.last,
    };
    let last = write(tx, tail, &facts(run, &[claimed])?)?;
    Ok(Claimed { run, epoch, last })
}
