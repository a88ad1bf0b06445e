//! Runs come to be: by a caller's request, or by another run's facts.
//!
//! Never: a part of a request.

use longhaul_core::change::{Due, NewRun, TimerKind, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::id::{Epoch, RunId, Seq, TimerId};
use longhaul_core::port::store::{Idempotency, OpenOutcome, OpenRequest, Refused};
use longhaul_core::raw::Hash;
use longhaul_core::task::{Start, TaskSpec};
use rusqlite::params;

use crate::sqlite::column::{LANE_WAIT, PARKED, READY, int};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{ChangeError, CommandError};
use crate::sqlite::journal::{AppendPoint, encode_events, insert_events};
use crate::sqlite::lane::{DepthLimit, LanePosition, enter};
use crate::sqlite::tx::Tx;
use crate::sqlite::{blob, budget, timer};

/// How a run comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOrigin {
    /// By itself: it takes its own lane.
    Run,
    /// As a chain's next step: it lives in its root's lane.
    Step,
}

/// Opens runs: all of them or none.
pub(crate) fn open_runs(
    tx: &Tx<'_>,
    ask: &OpenRequest,
) -> Result<CommandOutcome<OpenOutcome>, CommandError> {
    // The key comes first: a request that was carried out is answered as it was
    // then, however full its lane is by now.
    if let Some(key) = &ask.idempotency
        && let Some(before) = find_existing(tx, key)?
    {
        return Ok(CommandOutcome::Silent(before));
    }
    let runs: Vec<RunId> = ask.runs.iter().map(|run| run.id).collect();
    for content in &ask.blobs {
        blob::put_definition(tx, content)?;
        blob::put(tx, content.hash(), &content.content)?;
        for run in &runs {
            blob::add_reference(tx, *run, content.hash())?;
        }
    }
    for run in &ask.runs {
        match open_run(tx, run, RunOrigin::Run) {
            Ok(()) => {}
            Err(ChangeError::Refused(Refused::LaneFull(lane))) => {
                return Ok(CommandOutcome::Rollback(OpenOutcome::LaneFull(lane)));
            }
            Err(ChangeError::Refused(why)) => {
                return Err(CommandError::InconsistentRows(format!(
                    "opening a run was refused by {why:?}"
                )));
            }
            Err(ChangeError::Failed(fault)) => return Err(fault),
        }
    }
    if let Some(key) = &ask.idempotency {
        save_idempotency(tx, key, &runs)?;
    }
    Ok(CommandOutcome::Changed(OpenOutcome::Created(runs)))
}

fn find_existing(tx: &Tx<'_>, key: &Idempotency) -> rusqlite::Result<Option<OpenOutcome>> {
    let known: Option<([u8; 32], Vec<u8>)> = tx.one(
        "SELECT body_hash, runs FROM submit_key
          WHERE principal = ?1 AND key = ?2 AND expires_at > ?3",
        params![key.principal, key.key, tx.now_micros()],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(known.map(|(body, runs)| {
        if Hash::from_bytes(body) == key.body_hash {
            let (ids, _) = runs.as_chunks();
            OpenOutcome::Existing(ids.iter().copied().map(RunId::from_bytes).collect())
        } else {
            OpenOutcome::KeyReused
        }
    }))
}

fn save_idempotency(tx: &Tx<'_>, key: &Idempotency, runs: &[RunId]) -> rusqlite::Result<()> {
    let ids: Vec<u8> = runs.iter().flat_map(|run| run.bytes()).collect();
    tx.exec(
        "INSERT OR REPLACE INTO submit_key (principal, key, body_hash, runs, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            key.principal,
            key.key,
            key.body_hash.bytes(),
            ids,
            tx.now.plus(key.ttl).as_micros()
        ],
    )
}

/// One run with the first facts of its journal.
pub(crate) fn open_run(tx: &Tx<'_>, new: &NewRun, how: RunOrigin) -> Result<(), ChangeError> {
    let task = &new.task;
    let lane = task.lane.as_ref().filter(|_| how == RunOrigin::Run);
    let entered = match (task.start, lane) {
        (Start::Now, Some(lane)) => {
            Some(enter(tx, new.id, lane, DepthLimit::Depth(new.lane_depth_max))?)
        }
        (Start::Now | Start::At(_) | Start::AfterBatch, _) => None,
    };
    insert_run(tx, new, how, entered.map(|entered| entered.seq))?;
    insert_head(tx, new, entered)?;
    let tail = AppendPoint { run: new.id, epoch: Epoch(0), after: Seq::START };
    insert_events(tx, tail, &encode_events(new.id, &new.events)?)?;
    if task.root == new.id {
        budget::open(tx, new.id, &task.policy.budget)?;
    }
    if let Start::At(at) = task.start {
        let start = TimerUpdate::Arm {
            timer: TimerId::derive(new.id.bits(), "start", tx.now),
            run: new.id,
            due: Due::At(at),
            kind: TimerKind::Start,
        };
        timer::update(tx, &start)?;
    }
    Ok(())
}

fn insert_run(
    tx: &Tx<'_>,
    new: &NewRun,
    how: RunOrigin,
    lane_position: Option<i64>,
) -> rusqlite::Result<()> {
    let task: &TaskSpec = &new.task;
    tx.exec(
        "INSERT INTO run (id, root, parent, agent, definition, inbox, kind, priority, lane,
                          takes_lane, lane_position, thread, resource, submitter, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        params![
            new.id.bytes(),
            task.root.bytes(),
            task.parent.map(RunId::bytes),
            task.agent.as_str(),
            task.definition.bytes(),
            task.inbox.as_str(),
            task.kind,
            task.priority,
            task.lane.as_ref().map(|lane| lane.as_str()),
            how == RunOrigin::Run,
            lane_position,
            task.thread.as_ref().map(|thread| thread.as_str()),
            task.resource.as_ref().map(|resource| resource.as_str()),
            task.submitter,
            tx.now_micros(),
        ],
    )
}

fn insert_head(tx: &Tx<'_>, new: &NewRun, entered: Option<LanePosition>) -> rusqlite::Result<()> {
    let (state, reason) = match (new.task.start, entered) {
        (Start::Now, Some(LanePosition { is_head: false, .. })) => (LANE_WAIT, None),
        (Start::Now, Some(_) | None) => (READY, None),
        (Start::At(_), _) => (PARKED, Some("start_at")),
        (Start::AfterBatch, _) => (PARKED, Some("batch")),
    };
    let format = new.events.iter().map(Event::format).max().unwrap_or(0);
    tx.run(
        "INSERT INTO run_head (run, state, epoch, last_seq, format, reason)
         VALUES (?1, ?2, 0, ?3, ?4, ?5)",
        params![new.id.bytes(), state, int(new.events.len() as u64), format, reason],
    )?;
    if state == READY {
        tx.run(
            "INSERT INTO ready (inbox, rank, sort_key, run, kind) VALUES (?1, ?2, 0, ?3, ?4)",
            params![
                new.task.inbox.as_str(),
                -i64::from(new.task.priority),
                new.id.bytes(),
                new.task.kind
            ],
        )?;
    }
    Ok(())
}
