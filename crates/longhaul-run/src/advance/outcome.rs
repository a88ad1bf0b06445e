//! Checks the result of a run against the rubric of its agent: starts the run that grades the result,
//! and records its verdict.

use std::ops::ControlFlow;

use longhaul_core::event::Event;
use longhaul_core::event::environment::{GradingVerdict, OutcomeGraded};

use crate::advance::children::record_child_start;
use crate::decision::{Decision, RecordResult};
use crate::input::NewChildRun;
use crate::rejection::Rejection;
use crate::state::control::ControlState;
use crate::state::outcome::Grading;
use crate::state::stage::RunStage;

/// Records the verdict about the result if the grading run has ended. `None` means that the result
/// is accepted or needs no grading, so that the run can end.
pub(super) fn advance_grading(
    decision: &mut Decision<'_>,
    grading: Grading,
) -> Result<Option<ControlFlow<()>>, Rejection> {
    match grading {
        _ if decision.control.policy.outcome_rounds.is_none() => Ok(None),
        Grading::Graded(GradingVerdict::Satisfied) => Ok(None),
        // The engine prepares the grading run.
        Grading::Pending
        | Grading::Running(_)
        | Grading::Graded(GradingVerdict::NotSatisfied | GradingVerdict::GraderFailed) => {
            Ok(Some(ControlFlow::Break(())))
        }
        Grading::Ended { child, verdict, note } => {
            let round = decision.control.outcome.next_round();
            let graded = OutcomeGraded { round, verdict, note, child: Some(child) };
            decision.record_event(Event::OutcomeGraded(graded))?;
            Ok(Some(ControlFlow::Continue(())))
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
