//! Builds the API views of runs, gates, rules and agents from rows of the store and from replayed
//! journals.

use longhaul_api::agent::AgentView;
use longhaul_api::fork::ForkedFromView;
use longhaul_api::gate::{AnswerView, GateView, RevocationView, RuleView};
use longhaul_api::run::{
    BudgetView, OutputView, ProgressView, RetryCountsView, RunChainView, RunView, micro_usd_to_usd,
};
use longhaul_api::sandbox::RunSandboxView;
use longhaul_core::chain::ChainRow;
use longhaul_core::change::NewRun;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::run::CancelCause;
use longhaul_core::id::{Epoch, Seq};
use longhaul_core::policy::gate::{GateDecision, GateRow, GateSpec, RecordedAnswer};
use longhaul_core::policy::rule::RememberedApprovalRow;
use longhaul_core::port::store::RunRow;
use longhaul_core::raw::RawJson;
use longhaul_core::status::{RunError, RunOutcome, RunOutput, Status};
use longhaul_core::task::EarliestStart;
use longhaul_core::time::Timestamp;
use longhaul_core::usage::{MicroUsd, Usage};
use longhaul_core::wait::{WaitKind, fill_in};
use longhaul_run::Run;
use longhaul_run::commands::{allowed_decisions, current_gate_digest, current_gate_input};
use longhaul_run::explain::explain_run_state;

use crate::agent::Agent;
use crate::error::Result;

/// Returns the API view of a run, built from its row and from the state replayed from its journal.
pub(crate) fn run_view(row: &RunRow, run: &Run, now: Timestamp) -> RunView {
    let task = run.task();
    let control = run.control();
    let until = row.finished_at.unwrap_or(now);
    let elapsed = row.started_at.map_or(0, |started| until.duration_since(started).0);
    let active = row.active.plus(control.unrecorded_active_time(now)).0;
    let model = Some(run.transcript().current_model()).filter(|name| !name.is_empty());
    RunView {
        id: row.id,
        agent: task.agent.to_string(),
        agent_version: task.definition,
        status: row.status,
        reason: row.reason.clone().or_else(|| cancel_reason_of_stopped_batch(run)),
        // Waiting for a lane, a batch or a start time is recorded only in the row.
        now: describe_start_time_wait(row, run, now)
            .or_else(|| describe_queue_wait(row))
            .unwrap_or_else(|| explain_run_state(run).message),
        input: task.input.clone(),
        context: task.context.clone(),
        turns: row.turns,
        tools_called: run.tools_called().to_vec(),
        output: output_view(run, row.usage),
        error: error_of_ended_run(run),
        verdicts: control.outcome.verdicts().iter().map(Into::into).collect(),
        usage: row.usage.into(),
        cost_usd: row.cost.map(micro_usd_to_usd),
        budget: BudgetView {
            turns: control.budget.caps.turns.into_iter().chain(task.policy.max_turns).min(),
            ..(&control.budget.caps).into()
        },
        active_ms: active,
        waiting_ms: elapsed.saturating_sub(active),
        attempt: run.attempt_number(),
        retries: RetryCountsView {
            model_calls: control.retries.model_calls,
            tool_calls: control.retries.tool_calls,
            takeovers: control.retries.takeovers,
        },
        epoch: row.epoch.0,
        model: model.map(str::to_owned).or_else(|| task.model.clone()),
        thread: task.thread.as_ref().map(ToString::to_string),
        resource: task.resource.as_ref().map(ToString::to_string),
        lane: row.lane.as_ref().map(ToString::to_string),
        inbox: row.inbox.to_string(),
        kind: row.kind.clone(),
        priority: row.priority,
        actor: task.actor.clone(),
        links: task.links.clone(),
        tags: task.tags.clone(),
        progress: row.progress.as_ref().map(ProgressView::from),
        parent: row.parent,
        root: row.root,
        batch: task.batch.map(|position| position.id),
        retry_of: task.retry_of.map(|retried| retried.run),
        forked_from: task.forked_from.as_deref().map(ForkedFromView::from),
        chain: row.chain.as_ref().map(RunChainView::from),
        sandbox: control
            .sandbox
            .as_deref()
            .map(|sandbox| RunSandboxView::new(&sandbox.event, sandbox.state)),
        gates: control.people.gates.iter().map(|gate| gate.id).collect(),
        metadata: task.metadata.clone(),
        created_at: row.created_at,
        started_at: row.started_at,
        finished_at: row.finished_at,
        late: Vec::new(),
        added: false,
    }
}

/// Describes what a queued run waits for, from the reason in its row in the store: its lane, its
/// batch, its start time or further messages. `None` for any other reason.
pub(crate) fn describe_queue_wait(row: &RunRow) -> Option<String> {
    let queued = [WaitKind::Lane, WaitKind::StartAt, WaitKind::Collect, WaitKind::Batch];
    let kind = WaitKind::from_code(row.reason.as_deref()?).filter(|kind| queued.contains(kind))?;
    Some(fill_in(kind.row().sentence, |fact| match fact {
        "lane" => row.lane.as_ref().map(ToString::to_string),
        _ => None,
    }))
}

/// Describes that a queued run waits for its start time. This also holds if a message has made the
/// run claimable before that time. `None` if the start time is not in the future.
pub(crate) fn describe_start_time_wait(row: &RunRow, run: &Run, now: Timestamp) -> Option<String> {
    let reason = row.reason.as_deref().and_then(WaitKind::from_code);
    let is_queued = matches!(reason, Some(WaitKind::StartAt | WaitKind::Worker));
    match run.task().start {
        EarliestStart::At(at) if is_queued && now < at => {
            Some(fill_in(WaitKind::StartAt.row().sentence, |_| Some(format!(", {at}"))))
        }
        EarliestStart::At(_) | EarliestStart::Now | EarliestStart::AfterBatch => None,
    }
}

/// Returns the reason `batch` if the run was cancelled because an earlier run of its batch did not
/// complete.
fn cancel_reason_of_stopped_batch(run: &Run) -> Option<String> {
    let stopped = matches!(run.outcome()?, RunOutcome::Cancelled(_))
        && run.cancel_cause() == Some(CancelCause::BatchStopped);
    stopped.then(|| WaitKind::Batch.code().to_owned())
}

fn output_view(run: &Run, usage: Usage) -> Option<OutputView> {
    let RunOutput { text, data, confidence, artifacts, answer } = run.output()?.clone();
    Some(OutputView {
        text,
        data,
        confidence,
        artifacts,
        answer,
        tools_called: run.tools_called().to_vec(),
        usage: usage.into(),
    })
}

fn error_of_ended_run(run: &Run) -> Option<RunError> {
    match run.outcome()? {
        RunOutcome::Failed(error) => Some(error.clone()),
        RunOutcome::Cancelled(cancellation) => {
            Some(RunError::new("cancelled", format!("the run was {cancellation}"), ""))
        }
        RunOutcome::Completed(_) => None,
    }
}

/// Returns the API view of an answer. The payload of an answer to a form is the completed form.
fn answer_view(gate: &GateSpec, recorded: &RecordedAnswer) -> AnswerView {
    let view = AnswerView::from(recorded);
    match (&gate.schema, &recorded.answer.decision) {
        (Some(_), GateDecision::Answer(form)) => AnswerView {
            note: recorded.answer.note.clone(),
            payload: RawJson::parse(form.as_str()).ok(),
            ..view
        },
        _ => view,
    }
}

/// Returns the API view of a run that was just created, without reading it back from the store.
pub(crate) fn created_run_view(new: &NewRun, now: Timestamp) -> Result<RunView> {
    let entries = new.events.iter().zip(1..).map(|(event, seq)| JournalEntry {
        run: new.id,
        seq: Seq(seq),
        at: now,
        epoch: Epoch(0),
        event: event.clone(),
    });
    let run = Run::replay(&entries.collect::<Vec<_>>())?;
    let task = &new.task;
    let row = RunRow {
        id: new.id,
        agent: task.agent.clone(),
        definition: task.definition,
        reason: match task.start {
            EarliestStart::Now => None,
            EarliestStart::At(_) => Some(WaitKind::StartAt.code().to_owned()),
            EarliestStart::AfterBatch => Some(WaitKind::Batch.code().to_owned()),
        },
        inbox: task.inbox.clone(),
        lane: task.lane.clone(),
        thread: task.thread.clone(),
        resource: task.resource.clone(),
        kind: task.kind.clone(),
        priority: task.priority,
        parent: task.parent,
        root: task.root,
        chain: task.chain.as_ref().map(|position| ChainRow {
            name: position.chain.name.clone(),
            step: position.step as u32,
            steps: position.chain.steps.len() as u32,
            current: new.id,
            current_status: Status::Pending,
        }),
        submitter: task.submitter.clone(),
        last_seq: run.seq(),
        cost: Some(MicroUsd::default()),
        created_at: now,
        ..RunRow::default()
    };
    Ok(run_view(&row, &run, now))
}

/// Returns the API view of a gate.
pub fn gate_view(gate: &GateRow) -> GateView {
    let spec = &gate.spec;
    let mut facts = spec.facts.as_deref().cloned();
    let diff = facts.as_mut().and_then(|facts| facts.diff.take());
    let input = current_gate_input(gate);
    let is_edit = |recorded: &&RecordedAnswer| recorded.answer.decision.edit().is_some();
    let edit = gate.answers.iter().rev().find(is_edit);
    let decisions = allowed_decisions(&spec.kind).iter();
    let value = input.map(RawJson::to_value).unwrap_or_default();
    let outputs = spec.outputs.iter().filter(|output| output.is_still_in_input(&value));
    GateView {
        id: spec.id,
        run: gate.run,
        kind: spec.kind.clone(),
        status: gate.status,
        ask: spec.ask.clone(),
        reason: None,
        tool: spec.tool.clone(),
        input: input.cloned(),
        injected_rule_match_texts: spec.injected_rule_match_texts.clone(),
        outputs: outputs.cloned().collect(),
        key: spec.key.clone(),
        facts,
        diff,
        digest: current_gate_digest(gate),
        decisions: decisions.map(|decision| (*decision).to_owned()).collect(),
        pattern: spec.pattern.clone(),
        scopes: spec.scopes(),
        deadline: gate.deadline,
        on_timeout: spec.on_timeout,
        auto_approves_at: gate.auto_approves_at(),
        options: spec.options.clone(),
        schema: spec.schema.clone(),
        approvers: spec.approvers.count,
        edited_by: edit.map(|recorded| recorded.answer.by.clone()),
        raised_at: gate.raised_at,
        tags: spec.tags.clone(),
        agent: None,
        task: None,
        run_tags: Vec::new(),
        key_taken: None,
        answers: gate.answers.iter().map(|recorded| answer_view(spec, recorded)).collect(),
    }
}

/// Returns the API view of a remembered approval (a rule by which later calls are approved).
pub fn rule_view(rule: RememberedApprovalRow) -> RuleView {
    RuleView {
        id: rule.rule,
        scope: rule.scope.answer_scope(),
        agent: rule.scope.agent().map(ToString::to_string),
        pattern: rule.pattern,
        by: rule.by,
        at: rule.at,
        run: rule.run,
        gate: rule.gate,
        used: rule.used,
        last_used_at: rule.last_used,
        revoked: rule.revoked.map(|revoked| RevocationView { by: revoked.by, at: revoked.at }),
    }
}

/// Returns the API view of an agent. The prompt is left out: it belongs to the agent's author.
pub fn agent_view(agent: &Agent) -> AgentView {
    AgentView {
        name: agent.name.to_string(),
        version: agent.definition_hash(),
        description: agent.description.clone(),
        models: agent.models.clone(),
        tools: agent.tools.clone(),
        context: agent.context.clone(),
        max_turns: agent.max_turns,
    }
}
