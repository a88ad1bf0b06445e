//! Creates runs, either requested by a caller or decided by the events of another run. The runs of
//! one request are created together or not at all.

use longhaul_core::change::{LaneEntryPolicy, NewRun, TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::id::{Epoch, RunId, Seq, TimerId};
use longhaul_core::port::store::{
    AppendRefusalReason, CreateRunsOutcome, CreateRunsRequest, IdempotencyRecord,
};
use longhaul_core::raw::Hash;
use longhaul_core::task::{EarliestStart, OPEN_DESCENDANTS_MAX, TaskSpec};
use longhaul_core::wait::WaitKind;
use rusqlite::params;

use crate::sqlite::column::{LANE_WAIT, PARKED, READY, count_to_column, limit_to_column, to_json};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{RowChangeError, WriteCommandError};
use crate::sqlite::journal::{JournalAppendPoint, copy_journal, encode_events, insert_events};
use crate::sqlite::lane::{
    LaneDepthLimit, PositionInLane, check_lane_entry_policy, enter_lane,
    set_timers_to_cancel_runs_in_lane,
};
use crate::sqlite::queue::add_run_to_ready_queue;
use crate::sqlite::steer::insert_steer;
use crate::sqlite::tx::Tx;
use crate::sqlite::{blob, budget, spend, timer};

/// How a run is created: on its own, or as a step of a chain of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOrigin {
    /// The run is created on its own and enters its own lane.
    Run,
    /// The run is the next step of a chain and uses the lane of the chain's root.
    Step,
}

/// Creates all runs of a request, or none of them. A repeated request returns the runs that already
/// exist.
pub(crate) fn create_runs(
    tx: &Tx<'_>,
    request: &CreateRunsRequest,
) -> Result<CommandOutcome<CreateRunsOutcome>, WriteCommandError> {
    // The idempotency key is checked first: a repeated request gets the original result, even if
    // its lane is full by now.
    if let Some(key) = &request.idempotency
        && let Some(before) = find_runs_of_idempotency_key(tx, key)?
    {
        return Ok(CommandOutcome::Silent(before));
    }
    let run_ids: Vec<RunId> = request.runs.iter().map(|run| run.id).collect();
    for content in &request.blobs {
        blob::put_agent_definition(tx, content)?;
        blob::put_blob(tx, content.hash(), &content.content)?;
        for run in &run_ids {
            blob::add_blob_reference(tx, *run, content.hash())?;
        }
    }
    for run in &request.runs {
        match create_run(tx, run, RunOrigin::Run) {
            Ok(()) => {}
            Err(RowChangeError::Refused(AppendRefusalReason::LaneFull(lane))) => {
                return Ok(CommandOutcome::Rollback(CreateRunsOutcome::LaneFull(lane)));
            }
            Err(RowChangeError::Refused(AppendRefusalReason::LaneBusy(busy))) => {
                return Ok(CommandOutcome::Rollback(CreateRunsOutcome::LaneBusy(busy)));
            }
            Err(RowChangeError::Refused(AppendRefusalReason::OverCap(refusal))) => {
                return Ok(CommandOutcome::Rollback(CreateRunsOutcome::OverCap(refusal)));
            }
            Err(RowChangeError::Refused(refusal)) => {
                return Err(WriteCommandError::InconsistentRows(format!(
                    "opening a run was refused: {refusal:?}"
                )));
            }
            Err(RowChangeError::Failed(error)) => return Err(error),
        }
    }
    if let Some(key) = &request.idempotency {
        save_idempotency_key(tx, key, &run_ids)?;
    }
    Ok(CommandOutcome::Changed(CreateRunsOutcome::Created(run_ids)))
}

fn find_runs_of_idempotency_key(
    tx: &Tx<'_>,
    key: &IdempotencyRecord,
) -> rusqlite::Result<Option<CreateRunsOutcome>> {
    let existing: Option<([u8; 32], Vec<u8>)> = tx.query_one(
        "SELECT body_hash, runs FROM submit_key
          WHERE principal = ?1 AND key = ?2 AND (expires_at > ?3 OR expires_at IS NULL)",
        params![key.principal, key.key, tx.now_micros()],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(existing.map(|(body, runs)| {
        if Hash::from_bytes(body) == key.body_hash {
            let (ids, _) = runs.as_chunks();
            CreateRunsOutcome::Existing(ids.iter().copied().map(RunId::from_bytes).collect())
        } else {
            CreateRunsOutcome::KeyReused
        }
    }))
}

/// Saves the idempotency key of a task that is added to this run as a message. Refused if the key
/// was already used.
pub(crate) fn save_idempotency_key_of_added_task(
    tx: &Tx<'_>,
    run: RunId,
    key: &IdempotencyRecord,
) -> Result<(), RowChangeError> {
    match find_runs_of_idempotency_key(tx, key)? {
        Some(_) => Err(RowChangeError::Refused(AppendRefusalReason::SubmitKeyUsed)),
        None => Ok(save_idempotency_key(tx, key, &[run])?),
    }
}

fn save_idempotency_key(
    tx: &Tx<'_>,
    key: &IdempotencyRecord,
    runs: &[RunId],
) -> rusqlite::Result<()> {
    let ids: Vec<u8> = runs.iter().flat_map(|run| run.bytes()).collect();
    tx.exec(
        "INSERT OR REPLACE INTO submit_key (principal, key, body_hash, runs, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            key.principal,
            key.key,
            key.body_hash.bytes(),
            ids,
            key.ttl.map(|ttl| tx.now.plus(ttl).as_micros())
        ],
    )
}

/// Creates one run and writes the first events of its journal.
pub(crate) fn create_run(
    tx: &Tx<'_>,
    new_run: &NewRun,
    origin: RunOrigin,
) -> Result<(), RowChangeError> {
    let task = &new_run.task;
    let lane = task.lane.as_ref().filter(|_| origin == RunOrigin::Run);
    let lane_position = match (task.start, lane) {
        (EarliestStart::Now, Some(lane)) => {
            check_lane_entry_policy(tx, lane, new_run.lane_entry)?;
            let depth_limit = match new_run.lane_entry {
                LaneEntryPolicy::Interrupt => {
                    set_timers_to_cancel_runs_in_lane(tx, lane, new_run.id)?;
                    // The runs that fill the lane are about to be cancelled.
                    LaneDepthLimit::Unbounded
                }
                LaneEntryPolicy::Enqueue
                | LaneEntryPolicy::IfEmpty
                | LaneEntryPolicy::IfNoneWaits { .. } => {
                    LaneDepthLimit::Depth(new_run.lane_depth_max)
                }
            };
            Some(enter_lane(tx, new_run.id, lane, depth_limit)?)
        }
        (EarliestStart::Now | EarliestStart::At(_) | EarliestStart::AfterBatch, _) => None,
    };
    if task.root != new_run.id {
        let is_child = origin == RunOrigin::Run;
        increment_open_descendants(tx, task.root, is_child.then_some(OPEN_DESCENDANTS_MAX))?;
    }
    // A task that only adds a message to a busy lane is not counted.
    spend::count_new_run_in_caps(tx, &new_run.caps)?;
    insert_run_row(tx, new_run, origin, lane_position.map(|lane_position| lane_position.seq))?;
    set_newest_run_of_chain(tx, new_run)?;
    insert_run_head(tx, new_run, lane_position)?;
    insert_first_events(tx, new_run)?;
    for message in &new_run.steers {
        insert_steer(tx, new_run.id, message)?;
    }
    // A retry or a fork uses the budget of the run that it goes on from.
    if task.root == new_run.id && task.earlier_account().is_none() {
        budget::create_budget(tx, new_run.id, &task.policy.budget)?;
    }
    if let EarliestStart::At(at) = task.start {
        let start = TimerUpdate::Arm {
            timer: TimerId::derive(new_run.id.bits(), "start", tx.now),
            run: new_run.id,
            due: TimerDueTime::At(at),
            kind: TimerKind::Start,
        };
        timer::set_or_delete_timers(tx, &start)?;
    }
    Ok(())
}

/// Adds one to the number of open runs below `root`, for a new descendant of `root`. Refused if the
/// number would exceed `max`.
fn increment_open_descendants(
    tx: &Tx<'_>,
    root: RunId,
    max: Option<usize>,
) -> Result<(), RowChangeError> {
    let open: Option<i64> = tx.query_one(
        "UPDATE run_head SET open_descendants = open_descendants + 1 WHERE run = ?1
         RETURNING open_descendants",
        params![root.bytes()],
        |row| row.get(0),
    )?;
    match open.zip(max) {
        Some((open, max)) if open > limit_to_column(max) => {
            Err(RowChangeError::Refused(AppendRefusalReason::TreeFull))
        }
        Some(_) | None => Ok(()),
    }
}

/// Inserts the first events of a run, and after its first event those that are copied from another
/// run.
fn insert_first_events(tx: &Tx<'_>, new_run: &NewRun) -> Result<(), WriteCommandError> {
    let events = encode_events(new_run.id, &new_run.events)?;
    let tail = JournalAppendPoint { run: new_run.id, epoch: Epoch(0), after: Seq::START };
    let Some(copied) = new_run.copied_journal else {
        insert_events(tx, tail, &events)?;
        return Ok(());
    };
    let (first, others) = events.split_at(1.min(events.len()));
    insert_events(tx, tail, first)?;
    copy_journal(tx, copied, new_run.id)?;
    insert_events(tx, JournalAppendPoint { after: copied.through, ..tail }, others)?;
    Ok(())
}

fn insert_run_row(
    tx: &Tx<'_>,
    new: &NewRun,
    origin: RunOrigin,
    lane_position: Option<i64>,
) -> rusqlite::Result<()> {
    let task: &TaskSpec = &new.task;
    tx.run(
        "INSERT INTO run (id, root, parent, agent, definition, inbox, kind, priority, lane,
                          takes_lane, lane_position, thread, resource, submitter, batch,
                          collect_ms, retry_of, created_at, account, chain_step, title, tags)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
                 ?18, coalesce(?19, (SELECT account FROM run WHERE id = ?2)), ?20, ?21, ?22)",
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
            origin == RunOrigin::Run,
            lane_position,
            task.thread.as_ref().map(|thread| thread.as_str()),
            task.resource.as_ref().map(|resource| resource.as_str()),
            task.submitter,
            // A batch lists its chains by their first runs.
            task.batch.filter(|_| origin == RunOrigin::Run).map(|batch| batch.id.bytes()),
            match new.lane_entry {
                LaneEntryPolicy::IfNoneWaits { window } => Some(count_to_column(window.0)),
                LaneEntryPolicy::Enqueue
                | LaneEntryPolicy::IfEmpty
                | LaneEntryPolicy::Interrupt => None,
            },
            task.retry_of.map(|retried| retried.run.bytes()),
            tx.now_micros(),
            task.earlier_account().map(RunId::bytes),
            task.chain.as_ref().map(|position| count_to_column(position.step as u64)),
            task.title(),
            Some(&task.tags).filter(|tags| !tags.is_empty()).map(to_json).transpose()?,
        ],
    )?;
    let text = task.searched_text();
    if text.is_empty() {
        return Ok(());
    }
    tx.exec("INSERT INTO run_text (run, text) VALUES (?1, ?2)", params![new.id.bytes(), text])
}

/// Records a run as the newest one of its chain.
fn set_newest_run_of_chain(tx: &Tx<'_>, new_run: &NewRun) -> rusqlite::Result<()> {
    let Some(position) = &new_run.task.chain else {
        return Ok(());
    };
    let chain = &position.chain;
    tx.exec(
        "INSERT INTO chain (first_run, name, steps, current) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (first_run) DO UPDATE SET current = excluded.current",
        params![
            position.first_run.bytes(),
            chain.name,
            count_to_column(chain.steps.len() as u64),
            new_run.id.bytes()
        ],
    )
}

fn insert_run_head(
    tx: &Tx<'_>,
    new_run: &NewRun,
    lane_position: Option<PositionInLane>,
) -> rusqlite::Result<()> {
    let (state, reason) = match (new_run.task.start, lane_position) {
        (EarliestStart::Now, Some(PositionInLane { is_holder: false, .. })) => (LANE_WAIT, None),
        (EarliestStart::Now, Some(_) | None) => (READY, None),
        (EarliestStart::At(_), _) => (PARKED, Some(WaitKind::StartAt.code())),
        (EarliestStart::AfterBatch, _) => (PARKED, Some(WaitKind::Batch.code())),
    };
    let format = new_run.events.iter().map(Event::format).max().unwrap_or(0);
    tx.run(
        "INSERT INTO run_head (run, state, epoch, last_seq, format, reason, inbox)
         VALUES (?1, ?2, 0, ?3, max(?4, coalesce((SELECT format FROM run_head WHERE run = ?7), 0)),
                 ?5, ?6)",
        params![
            new_run.id.bytes(),
            state,
            count_to_column(new_run.last_seq().0),
            format,
            reason,
            new_run.task.inbox.as_str(),
            new_run.copied_journal.map(|copied| copied.from.bytes())
        ],
    )?;
    if state == READY {
        add_run_to_ready_queue(tx, new_run.id)?;
    }
    Ok(())
}
