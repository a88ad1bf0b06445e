//! Ends a run that has its output, after messages are delivered, the signals that programs announced
//! have arrived, its child runs have ended, the output is graded and approved, and the time for further
//! messages has passed.
//!
//! Invariant: no message is accepted for a run that has ended, because the check for an empty
//! message queue and the end are one append to the journal.
//!
//! The output is graded against the rubric of the agent by a run of its own, whose verdict is
//! recorded.

use longhaul_core::change::{NewThreadMessages, RowChange, TimerKind};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{GradingVerdict, OutcomeGraded};
use longhaul_core::event::run::RunCompleted;
use longhaul_core::message::Message;
use longhaul_core::status::{RunOutput, Status};
use longhaul_core::wait::WaitReason;

use crate::advance::children::{record_child_start, set_notify_timer};
use crate::advance::finish;
use crate::advance::gates::raise_result_gate;
use crate::advance::park::{park_run, park_with_timer};
use crate::advance::steer::deliver_steers;
use crate::decision::{AdvanceResult, BREAK, CONTINUE, Decision, RecordResult, StepResult};
use crate::input::NewChildRun;
use crate::rejection::Rejection;
use crate::state::control::ControlState;
use crate::state::driver::Activity;
use crate::state::stage::{ConcludingRunState, Grading, RunStage};

pub(super) fn advance_concluding_run(decision: &mut Decision<'_>) -> AdvanceResult {
    let RunStage::Concluding(concluding) = &decision.control.stage else { return CONTINUE };
    let concluding = concluding.clone();
    if let Some(gate) = concluding.gate {
        if decision.control.has_interrupting_steer() {
            decision.withdraw_gate(gate, "a person sent a message")?;
            return CONTINUE;
        }
        if decision.control.must_model_read_reports() {
            decision.withdraw_gate(gate, "an awaited event was reported")?;
            return CONTINUE;
        }
        return park_run(decision, WaitReason::Approval(vec![gate]));
    }
    // A message leads to another result.
    if let Grading::Running(child) = concluding.grading
        && !decision.control.people.steers.is_empty()
    {
        set_notify_timer(decision, child, TimerKind::VerdictUnneeded(decision.run.id));
    }
    if deliver_steers(decision, |_| true)? {
        return CONTINUE;
    }
    let signal =
        decision.control.people.gates.iter().find(|gate| gate.is_signal_gate_without_tool_call());
    if let Some(gate) = signal.map(|gate| gate.id) {
        return park_run(decision, WaitReason::Signal(gate));
    }
    if let Some(child) = decision.control.children.first().map(|child| child.id) {
        return park_run(decision, WaitReason::Child(child));
    }
    if let Some(flow) = advance_grading(decision, concluding.grading.clone())? {
        return Ok(flow);
    }
    if !concluding.approved
        && let Some(policy) = decision.control.policy.result_gate.clone()
    {
        raise_result_gate(decision, &policy)?;
        return CONTINUE;
    }
    if let Some(flow) = keep_open(decision, &concluding)? {
        return Ok(flow);
    }
    complete_run(decision, concluding, None)
}

/// Ends a run that is parked and open for further messages, with the result that it has.
pub(crate) fn close_open_run(decision: &mut Decision<'_>, by: String) -> RecordResult {
    let (RunStage::Concluding(concluding), true) =
        (&decision.control.stage, decision.run.is_open_for_messages())
    else {
        return Err(Rejection::NotOpen(decision.run.status()));
    };
    // The run can't end before the programs that raised these gates have answered.
    if let Some(gate) = decision.control.people.gates.first() {
        return Err(Rejection::OpenGate(gate.id));
    }
    let concluding = concluding.clone();
    decision.control.driver.activity = Activity::Ready;
    complete_run(decision, concluding, Some(by)).map(drop)
}

/// Parks a finished run so that it can receive further messages, for the time `keep_open` in the
/// run's policy. `None` means that the run may end now.
fn keep_open(decision: &mut Decision<'_>, concluding: &ConcludingRunState) -> StepResult {
    let Some(duration) = decision.control.policy.keep_open.filter(|_| !concluding.by_finish_tool)
    else {
        return Ok(None);
    };
    let (timer, until) = match concluding.timer {
        Some(sleep) if sleep.fired => return Ok(None),
        Some(sleep) => (sleep.timer, sleep.until),
        None => {
            let until = decision.ctx.now.plus(duration);
            (decision.set_wake_timer("message", duration), until)
        }
    };
    park_with_timer(decision, WaitReason::Message(until), timer).map(Some)
}

fn complete_run(
    decision: &mut Decision<'_>,
    concluding: ConcludingRunState,
    closed_by: Option<String>,
) -> AdvanceResult {
    let output = RunOutput { answer: concluding.answer, ..concluding.output };
    if let Some(thread) = decision.run.task.thread_to_write().cloned() {
        let tasks = decision.run.transcript.all_task_messages().cloned();
        let messages = tasks.chain([Message::assistant(output.text.as_str())]).collect();
        decision.add_row_change(RowChange::AppendThread(NewThreadMessages { thread, messages }));
    }
    finish::create_next_step(decision, &output)?;
    decision.record_event(Event::RunCompleted(Box::new(RunCompleted { output, closed_by })))?;
    finish::mark_run_ended(decision, Status::Completed, None);
    BREAK
}

/// Records the verdict about the result if the grading run has ended. `None` means that the result
/// is accepted or needs no grading, so that the run can end.
pub(super) fn advance_grading(decision: &mut Decision<'_>, grading: Grading) -> StepResult {
    match grading {
        _ if decision.control.policy.outcome_rounds.is_none() => Ok(None),
        Grading::Graded(GradingVerdict::Satisfied) => Ok(None),
        // The engine prepares the grading run.
        Grading::Pending
        | Grading::Running(_)
        | Grading::Graded(GradingVerdict::NotSatisfied | GradingVerdict::GraderFailed) => {
            BREAK.map(Some)
        }
        Grading::Ended { child, verdict, note } => {
            let round = decision.control.outcome.next_round();
            let graded = OutcomeGraded { round, verdict, note, child: Some(child) };
            decision.record_event(Event::OutcomeGraded(graded))?;
            CONTINUE.map(Some)
        }
    }
}

/// Returns whether the run has a result that no run grades yet.
pub(crate) fn has_ungraded_result(control: &ControlState) -> bool {
    let is_pending = matches!(
        &control.stage,
        RunStage::Concluding(concluding)
            if concluding.gate.is_none() && concluding.grading == Grading::Pending
    );
    is_pending && control.policy.outcome_rounds.is_some()
}

/// Records the start of the prepared grading run, or that it can't start. Nothing is recorded if
/// the run is stopping or parked, or if queued messages or open child runs must be handled before.
/// The grading run is then prepared again later.
pub(crate) fn record_prepared_grading(
    decision: &mut Decision<'_>,
    prepared: Result<Box<NewChildRun>, String>,
) -> RecordResult {
    let control = &decision.control;
    let is_grading_blocked = control.stop.stops_run()
        || control.driver.is_idle()
        || !control.people.steers.is_empty()
        || !control.children.is_empty();
    if is_grading_blocked || !has_ungraded_result(control) {
        return Ok(());
    }
    match prepared {
        Ok(_) if decision.ctx.free_children == Some(0) => {
            record_grader_failure(decision, "too many runs below the root are open".to_owned())
        }
        Ok(new) => record_child_start(decision, *new, None),
        Err(note) => record_grader_failure(decision, note),
    }
}

/// Records that no run could grade the result.
fn record_grader_failure(decision: &mut Decision<'_>, note: String) -> RecordResult {
    let round = decision.control.outcome.next_round();
    let verdict = GradingVerdict::GraderFailed;
    decision.record_event(Event::OutcomeGraded(OutcomeGraded { round, verdict, note, child: None }))
}
