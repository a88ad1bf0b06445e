//! Actions from outside the drivers: answers, messages, cancels and timers. All of them append
//! as outsiders or closers.

use longhaul_core::change::{LaneEntryPolicy, TimerKind};
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::environment::ChildEnded;
use longhaul_core::event::run::RunControlRequest;
use longhaul_core::event::steer::{SteerDelivery, SteerMessage};
use longhaul_core::id::{GateId, RunId, Seq, SteerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateRow, GateSpec, GateStatus,
};
use longhaul_core::policy::rule::{RememberedApprovalFilter, RememberedApprovalRow};
use longhaul_core::policy::spend_cap::{CapCounterRow, CapLimitChange, CapWindowRange};
use longhaul_core::port::records::DueTimer;
use longhaul_core::port::store::{
    AppendRequest, AppendResult, BusyLane, CreateRunsOutcome, CreateRunsRequest, GateFilter,
    IdempotencyRecord, JournalAuthor, JournalReadRequest, RunFilter, RunRow,
};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_run::commands::{RunCommand, current_gate_digest, decide_command, remembered_scope};
use longhaul_run::submit::{RetryPoint, retry_failed_run};
use longhaul_run::{DecisionContext, Run, RunInput, decide};

use crate::sim::SimError;
use crate::sim::driver::SimServices;
use crate::sim::scenario;

pub async fn send_command(
    services: &SimServices,
    run: RunId,
    command: RunCommand,
) -> Result<Option<AppendResult>, SimError> {
    send_command_as(services, run, command, JournalAuthor::Outsider).await
}

async fn send_command_as(
    services: &SimServices,
    run: RunId,
    command: RunCommand,
    author: JournalAuthor,
) -> Result<Option<AppendResult>, SimError> {
    let now = services.records.now().await?;
    let Some(row) = services.store.get_run(run).await? else {
        return Ok(None);
    };
    let Ok(batch) = decide_command(run, row.status, command, DecisionContext::new(now)) else {
        return Ok(None);
    };
    Ok(Some(services.store.append_to_journal(AppendRequest { run, author, batch }).await?))
}

/// Fires all due timers, wakes runs that wait at caps with room, and returns whether there were any.
pub async fn fire_due_timers(services: &SimServices) -> Result<bool, SimError> {
    let due = services.records.due_timers(500).await?;
    for timer in &due {
        let command = if let (TimerKind::ChildEnded(child), false) = (&timer.kind, timer.run_ended)
        {
            child_report(services, timer, *child).await?
        } else {
            RunCommand::Timer(Box::new(timer.clone()))
        };
        let ctx = DecisionContext::new(services.records.now().await?);
        let Ok(batch) = decide_command(timer.run, Status::Running, command, ctx) else {
            continue;
        };
        let author = JournalAuthor::Outsider;
        services.store.append_to_journal(AppendRequest { run: timer.run, author, batch }).await?;
    }
    services.records.wake_runs_waiting_at_caps().await?;
    Ok(!due.is_empty())
}

pub async fn open_gates(services: &SimServices) -> Result<Vec<GateRow>, SimError> {
    let filter =
        GateFilter { status: Some(GateStatus::Open), limit: 1_000, ..GateFilter::default() };
    Ok(services.store.list_gates(filter).await?)
}

/// Returns the runs that have not ended.
pub async fn open_runs(services: &SimServices) -> Result<Vec<RunRow>, SimError> {
    let statuses = Status::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
    let filter = RunFilter { statuses, limit: 10_000, ..RunFilter::default() };
    Ok(services.store.list_runs(filter).await?)
}

/// Returns the newest run of the chain of a run that has ended, and otherwise the run itself.
pub async fn newest_of_chain(services: &SimServices, run: RunId) -> Result<RunId, SimError> {
    let row = services.store.get_run(run).await?.filter(|row| row.status.is_terminal());
    Ok(row.and_then(|row| row.chain).map_or(run, |chain| chain.current))
}

/// Raises a gate that a program completes, so that the run can't end before.
pub async fn raise_signal_gate(
    services: &SimServices,
    run: RunId,
    gate: GateId,
) -> Result<(), SimError> {
    let timeout = Some(Millis::from_secs(600));
    let spec = GateSpec { timeout, ..GateSpec::new(gate, GateKind::Signal, "the build") };
    send_command(services, run, RunCommand::RaiseSignalGate(Box::new(spec))).await?;
    Ok(())
}

/// Answers a gate with one of its valid decisions, selected by the number `variant`.
pub async fn answer(
    services: &SimServices,
    gate: &GateRow,
    variant: usize,
) -> Result<Option<AppendResult>, SimError> {
    let decision = match (&gate.spec.kind, variant % 8) {
        (GateKind::Approval | GateKind::Result, 6) => {
            GateDecision::Edit(RawJson::parse(r#"{"to": "somebody else"}"#)?)
        }
        (GateKind::Approval | GateKind::Result, 0 | 4) => GateDecision::Reject,
        (GateKind::Approval | GateKind::Result, _) => GateDecision::Approve,
        (GateKind::InDoubt, 0 | 4) => GateDecision::Reject,
        (GateKind::InDoubt, 1 | 5) => GateDecision::Complete,
        (GateKind::InDoubt, _) => GateDecision::Answer("it went well".into()),
        (GateKind::Question, _) if gate.spec.schema.is_some() => {
            GateDecision::Answer(r#"{"side":"left"}"#.into())
        }
        (GateKind::Question | GateKind::Blocked, _) => GateDecision::Answer("left".into()),
        (GateKind::Signal, _) => GateDecision::Complete,
    };
    // Some of these scopes are not offered, so that the answer is rejected.
    let scope = match (&decision, variant) {
        (GateDecision::Approve, 5) => AnswerScope::Run,
        (GateDecision::Approve, 13) => AnswerScope::Agent,
        (GateDecision::Approve, 21) => AnswerScope::Project,
        _ => AnswerScope::Once,
    };
    let answer = Answer {
        by: format!("person {}", variant % 3),
        scope,
        note: variant.is_multiple_of(4).then(|| "not like this".to_owned()),
        payload: None,
        digest: current_gate_digest(gate),
        decision,
    };
    let agent = scenario::agent()?;
    let pattern = gate.spec.pattern.clone().into_iter().collect();
    let scopes = remembered_scope(gate, &answer, agent.clone()).into_iter().collect();
    let has_rule = !services.records.active_remembered_approvals(scopes, pattern).await?.is_empty();
    let gate = Box::new(gate.clone());
    send_command(services, gate.run, RunCommand::Answer { gate, answer, agent, has_rule }).await
}

/// Revokes the newest active rule.
pub async fn revoke_rule(services: &SimServices) -> Result<(), SimError> {
    let filter = RememberedApprovalFilter { limit: 1, ..RememberedApprovalFilter::default() };
    let newest = services.records.list_rules(filter).await?.into_iter().next();
    let Some(RememberedApprovalRow { rule, scope, .. }) = newest else {
        return Ok(());
    };
    let by = "anna".to_owned();
    match scope.run() {
        Some(run) => {
            send_command(services, run, RunCommand::RevokeRule { rule, by }).await?;
        }
        None => {
            services.records.revoke_rule(rule, &by).await?;
        }
    }
    Ok(())
}

/// Raises the caps at which runs wait and whose window does not end within this time. Returns
/// whether there were any.
pub async fn raise_caps(services: &SimServices, min_remaining: Millis) -> Result<bool, SimError> {
    let min_window_end = services.records.now().await?.plus(min_remaining);
    let rows = services.records.cap_counter_rows().await?;
    let is_blocking = |row: &&CapCounterRow| row.waiting > 0 && row.window_end > min_window_end;
    let mut raised = false;
    for row in rows.iter().filter(is_blocking) {
        let limit = row.effective_limit() + row.limit;
        services.world.record_raised_cap(row.key.clone(), limit);
        let change = CapLimitChange {
            cap: row.key.cap.clone(),
            subject: Some(row.key.subject.clone()),
            period: CapWindowRange { start: row.key.window_start, end: row.window_end },
            limit,
        };
        services.records.set_cap_limit(change).await?;
        raised = true;
    }
    Ok(raised)
}

/// Sends a message to a run.
pub async fn steer(
    services: &SimServices,
    run: RunId,
    steer: SteerId,
    variant: usize,
) -> Result<bool, SimError> {
    let delivery = match variant % 4 {
        0 => SteerDelivery::AfterBatch,
        1 => SteerDelivery::BeforeNextTool,
        2 => SteerDelivery::Interrupt,
        _ => SteerDelivery::FollowUp,
    };
    let text = "please hurry".to_owned();
    let by = "anna".into();
    let command = RunCommand::Steer(SteerMessage { steer, text, delivery, by, is_task: false });
    Ok(matches!(send_command(services, run, command).await?, Some(AppendResult::Committed { .. })))
}

/// Adds a task to a run of its busy lane as a message: to the run that waits if tasks are collected,
/// and otherwise to the run that holds the lane.
pub async fn add_task(
    services: &SimServices,
    busy_lane: &BusyLane,
    lane_entry: LaneEntryPolicy,
    steer: SteerId,
) -> Result<(), SimError> {
    let is_collecting = matches!(lane_entry, LaneEntryPolicy::IfNoneWaits { .. });
    let target = if is_collecting { Some(busy_lane.last) } else { busy_lane.holder };
    let Some(run) = target else {
        return Ok(());
    };
    let author = match services.store.get_run(run).await? {
        Some(row) if is_collecting => JournalAuthor::Closer { after: row.last_seq },
        Some(_) | None => JournalAuthor::Outsider,
    };
    let (text, delivery, by) = ("and this".into(), SteerDelivery::AfterBatch, "anna".into());
    let message = SteerMessage { steer, text, delivery, by, is_task: true };
    send_command_as(services, run, RunCommand::Steer(message), author).await?;
    Ok(())
}

/// Cancels a run as a caller would: closes it if it has no driver, otherwise appends the
/// request as an outsider.
pub async fn cancel(services: &SimServices, run: RunId) -> Result<(), SimError> {
    let input =
        RunInput::CancelNow(RunControlRequest::from_principal("anna").with_reason("enough"));
    if !apply_if_undriven(services, run, input).await? {
        let command = RunCommand::Cancel { by: "anna".into(), reason: "enough".into() };
        send_command(services, run, command).await?;
    }
    Ok(())
}

/// Pauses a run as a caller would.
pub async fn pause(services: &SimServices, run: RunId) -> Result<(), SimError> {
    if !apply_if_undriven(services, run, RunInput::PauseNow { by: "anna".into() }).await? {
        send_command(services, run, RunCommand::Pause { by: "anna".into() }).await?;
    }
    Ok(())
}

/// Closes a run as a caller would. Does nothing if the run is not open for messages.
pub async fn close(services: &SimServices, run: RunId) -> Result<(), SimError> {
    apply_if_undriven(services, run, RunInput::CloseNow { by: "anna".into() }).await.map(drop)
}

/// Decides an input for a run without a driver, and returns whether the run had none.
async fn apply_if_undriven(
    services: &SimServices,
    run: RunId,
    input: RunInput,
) -> Result<bool, SimError> {
    let Some(folded) = fold(services, run).await? else {
        return Ok(true);
    };
    let now = services.records.now().await?;
    let Ok(batch) = decide(&folded, input, DecisionContext::new(now)) else {
        return Ok(false);
    };
    let author = JournalAuthor::Closer { after: folded.seq() };
    let appended = services.store.append_to_journal(AppendRequest { run, author, batch }).await?;
    Ok(matches!(appended, AppendResult::Committed { .. } | AppendResult::RunEnded))
}

/// Resumes a run with a larger budget.
pub async fn resume(services: &SimServices, run: RunId) -> Result<(), SimError> {
    let raise = BudgetRaise {
        micro_usd: Some(MicroUsd(1_000_000_000)),
        tokens: Some(1_000_000_000),
        turns: Some(1_000),
        active: None,
    };
    send_command(
        services,
        run,
        RunCommand::Resume { by: "anna".into(), raise: Some(raise), raises_tree: false },
    )
    .await?;
    Ok(())
}

/// Retries a run if it has failed. Returns the new run, unless a retry exists already.
pub async fn retry(
    services: &SimServices,
    failed: RunId,
    new: RunId,
) -> Result<Option<RunId>, SimError> {
    let entries = journal(services, failed).await?;
    let mut retry_point = RetryPoint::default();
    entries.iter().for_each(|entry| retry_point.update_from_entry(entry));
    let folded = Run::replay(&entries)?;
    let Ok(run) = retry_failed_run(new, &folded, &retry_point, "anna".into()) else {
        return Ok(None);
    };
    let key = failed.to_string();
    let idempotency = IdempotencyRecord {
        principal: "retry".to_owned(),
        body_hash: Hash::digest(key.as_bytes()),
        key,
        ttl: None,
    };
    let request =
        CreateRunsRequest { runs: vec![run], blobs: Vec::new(), idempotency: Some(idempotency) };
    let created = services.store.create_runs(request).await?;
    Ok(matches!(created, CreateRunsOutcome::Created(_)).then_some(new))
}

/// Returns the command that tells the run of this timer how its child has ended.
async fn child_report(
    services: &SimServices,
    due: &DueTimer,
    child: RunId,
) -> Result<RunCommand, SimError> {
    let run = Run::replay(&journal(services, child).await?)?;
    let outcome = run.outcome().cloned();
    let outcome = outcome.ok_or_else(|| format!("{child} was reported before its end"))?;
    let ended = Box::new(ChildEnded { child, outcome, full: None, submitters: Vec::new() });
    Ok(RunCommand::ChildEnded { ended, full: None, timer: due.timer })
}

/// Folds the whole journal of a run.
pub async fn fold(services: &SimServices, run: RunId) -> Result<Option<Run>, SimError> {
    let mut folded: Option<Run> = None;
    loop {
        let after = folded.as_ref().map_or(Seq::START, Run::seq);
        let page =
            services.store.read_journal(JournalReadRequest { run, after, limit: 500 }).await?;
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

/// Reads the whole journal of a run.
pub async fn journal(services: &SimServices, run: RunId) -> Result<Vec<JournalEntry>, SimError> {
    let mut entries: Vec<JournalEntry> = Vec::new();
    loop {
        let after = entries.last().map_or(Seq::START, |entry| entry.seq);
        let page =
            services.store.read_journal(JournalReadRequest { run, after, limit: 500 }).await?;
        if page.entries.is_empty() {
            return Ok(entries);
        }
        entries.extend(page.entries);
    }
}
