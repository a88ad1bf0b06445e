//! What people and the sweep say to runs: answers, messages, cancels, timers.
//!
//! Never: a driver. Everything here is an outsider's append.

use longhaul_core::change::TimerKind;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::{Delivery, SteerMessage};
use longhaul_core::id::{RunId, Seq, SteerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateRow, GateStatus, Scope};
use longhaul_core::port::store::{
    AppendRequest, Appended, Author, GateFilter, ReadRequest, RunFilter, RunRow,
};
use longhaul_core::status::Status;
use longhaul_core::usage::MicroUsd;
use longhaul_run::commands::{RunCommand, RunSnapshot, current_digest, decide_command};
use longhaul_run::{DecideContext, Input, Run, decide};

use crate::sim::SimError;
use crate::sim::driver::SimServices;

/// Says a word to a run.
pub async fn send_command(
    ports: &SimServices,
    run: RunId,
    word: RunCommand,
) -> Result<Option<Appended>, SimError> {
    let now = ports.records.now().await?;
    let Some(row) = ports.store.get_run(run).await? else {
        return Ok(None);
    };
    let view = RunSnapshot { run, status: row.status };
    let Ok(batch) = decide_command(&view, word, DecideContext::new(now)) else {
        return Ok(None);
    };
    let author = Author::Outsider;
    Ok(Some(ports.store.append(AppendRequest { run, author, batch }).await?))
}

/// Tells every timer that is due; whether there was one.
pub async fn fire_due_timers(ports: &SimServices) -> Result<bool, SimError> {
    let due = ports.records.due_timers(500).await?;
    for timer in &due {
        if matches!(timer.kind, TimerKind::ChildEnded(_)) {
            return Err("the simulation has no children".into());
        }
        let view = RunSnapshot { run: timer.run, status: Status::Running };
        let now = ports.records.now().await?;
        let Ok(batch) = decide_command(
            &view,
            RunCommand::Timer(Box::new(timer.clone())),
            DecideContext::new(now),
        ) else {
            continue;
        };
        let author = Author::Outsider;
        ports.store.append(AppendRequest { run: timer.run, author, batch }).await?;
    }
    Ok(!due.is_empty())
}

/// The open gates.
pub async fn open_gates(ports: &SimServices) -> Result<Vec<GateRow>, SimError> {
    let ask = GateFilter { status: Some(GateStatus::Open), limit: 1_000, ..GateFilter::default() };
    Ok(ports.store.list_gates(ask).await?)
}

/// The runs that have not ended.
pub async fn open_runs(ports: &SimServices) -> Result<Vec<RunRow>, SimError> {
    let open = Status::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
    let ask = RunFilter { statuses: open, limit: 10_000, ..RunFilter::default() };
    Ok(ports.store.list_runs(ask).await?)
}

/// Answers a gate in one of the ways that fit it.
pub async fn answer(
    ports: &SimServices,
    gate: &GateRow,
    way: usize,
) -> Result<Option<Appended>, SimError> {
    let decision = match (&gate.spec.kind, way % 4) {
        (GateKind::Approval | GateKind::Result, 0) => Decision::Reject,
        (GateKind::Approval | GateKind::Result, _) => Decision::Approve,
        (GateKind::InDoubt, 0) => Decision::Reject,
        (GateKind::InDoubt, 1) => Decision::Complete,
        (GateKind::InDoubt, _) => Decision::Answer("it went well".into()),
        (GateKind::Question | GateKind::Blocked, _) => Decision::Answer("left".into()),
        (GateKind::Signal, _) => Decision::Complete,
    };
    let for_run = way % 8 == 5 && gate.spec.pattern.is_some() && decision == Decision::Approve;
    let answer = Answer {
        by: format!("person {}", way % 3),
        scope: if for_run { Scope::Run } else { Scope::Once },
        note: way.is_multiple_of(4).then(|| "not like this".to_owned()),
        payload: None,
        digest: current_digest(gate),
        decision,
    };
    send_command(ports, gate.run, RunCommand::Answer { gate: Box::new(gate.clone()), answer }).await
}

/// Writes to a run.
pub async fn steer(
    ports: &SimServices,
    run: RunId,
    steer: SteerId,
    way: usize,
) -> Result<bool, SimError> {
    let delivery = match way % 4 {
        0 => Delivery::AfterBatch,
        1 => Delivery::BeforeNextTool,
        2 => Delivery::Interrupt,
        _ => Delivery::FollowUp,
    };
    let text = "please hurry".to_owned();
    let word = RunCommand::Steer(SteerMessage { steer, text, delivery, by: "anna".into() });
    Ok(matches!(send_command(ports, run, word).await?, Some(Appended::At { .. })))
}

/// Cancels a run as a caller would: as an outsider, and if nobody drives it, by
/// closing it.
pub async fn cancel(ports: &SimServices, run: RunId) -> Result<(), SimError> {
    let input = Input::CancelNow { by: "anna".into(), reason: "enough".into() };
    if !apply_if_undriven(ports, run, input).await? {
        let word = RunCommand::Cancel { by: "anna".into(), reason: "enough".into() };
        send_command(ports, run, word).await?;
    }
    Ok(())
}

/// Pauses a run as a caller would.
pub async fn pause(ports: &SimServices, run: RunId) -> Result<(), SimError> {
    if !apply_if_undriven(ports, run, Input::PauseNow { by: "anna".into() }).await? {
        send_command(ports, run, RunCommand::Pause { by: "anna".into() }).await?;
    }
    Ok(())
}

/// Decides for a run that nobody drives; whether it was so.
async fn apply_if_undriven(
    ports: &SimServices,
    run: RunId,
    input: Input,
) -> Result<bool, SimError> {
    let Some(folded) = fold(ports, run).await? else {
        return Ok(true);
    };
    let now = ports.records.now().await?;
    let Ok(batch) = decide(&folded, input, DecideContext::new(now)) else {
        return Ok(false);
    };
    let author = Author::Closer { after: folded.seq() };
    let appended = ports.store.append(AppendRequest { run, author, batch }).await?;
    Ok(matches!(appended, Appended::At { .. } | Appended::RunEnded))
}

/// Lets a run go on, with more to spend.
pub async fn resume(ports: &SimServices, run: RunId) -> Result<(), SimError> {
    let raise = BudgetRaise {
        micro_usd: Some(MicroUsd(1_000_000_000)),
        tokens: Some(1_000_000_000),
        turns: Some(1_000),
        active: None,
    };
    send_command(ports, run, RunCommand::Resume { by: "anna".into(), raise: Some(raise) }).await?;
    Ok(())
}

/// Folds a run's whole journal.
pub async fn fold(ports: &SimServices, run: RunId) -> Result<Option<Run>, SimError> {
    let mut folded: Option<Run> = None;
    loop {
        let after = folded.as_ref().map_or(Seq::START, Run::seq);
        let page = ports.store.read(ReadRequest { run, after, limit: 500 }).await?;
        for entry in &page.entries {
            match &mut folded {
                None => folded = Some(Run::from_first_entry(entry)?),
                Some(run) => run.apply(entry)?,
            }
        }
        if page.entries.is_empty() || folded.as_ref().is_some_and(|run| run.seq() >= page.last_seq)
        {
            return Ok(folded);
        }
    }
}

/// A run's whole journal.
pub async fn journal(ports: &SimServices, run: RunId) -> Result<Vec<Entry>, SimError> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map_or(Seq::START, |entry| entry.seq);
        let page = ports.store.read(ReadRequest { run, after, limit: 500 }).await?;
        if page.entries.is_empty() {
            return Ok(entries);
        }
        entries.extend(page.entries);
    }
}
