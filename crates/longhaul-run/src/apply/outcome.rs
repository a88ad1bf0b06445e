//! Applies the start, the end and the verdict of a grading run to the control state of the graded
//! run (everything but its conversation).
//!
//! Invariant: a result counts as accepted only after a verdict that says so.

use longhaul_core::event::environment::{GradingVerdict, OutcomeGraded};
use longhaul_core::id::RunId;
use longhaul_core::message::Message;
use longhaul_core::status::{RunError, RunOutcome, RunOutput};
use serde::Deserialize;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::state::control::ControlState;
use crate::state::stage::{Grading, RunStage};

/// Error code of a run whose result was not accepted in its last allowed grading round.
pub(super) const NOT_MET: &str = "outcome_not_met";

/// Error code of a run whose result nobody could grade.
pub(super) const GRADER_FAILED: &str = "grader_failed";

/// Maximum length of a verdict's note in bytes.
const NOTE_BYTES_MAX: usize = 8 * 1024;

/// Structured result of a grading run.
#[derive(Debug, Deserialize)]
struct GraderOutput {
    satisfied: bool,
    note: String,
}

impl ControlState {
    pub(super) fn apply_grading_started(&mut self, child: RunId) -> Result<(), &'static str> {
        if let RunStage::Concluding(concluding) = &mut self.stage
            && concluding.gate.is_none()
            && concluding.grading == Grading::Pending
        {
            concluding.grading = Grading::Running(child);
            return Ok(());
        }
        Err("there is no result to be graded")
    }

    /// Keeps the verdict of an ended grading run until it is recorded. A verdict about an earlier
    /// result is ignored.
    pub(super) fn apply_grading_ended(&mut self, child: RunId, outcome: &RunOutcome) {
        if let RunStage::Concluding(concluding) = &mut self.stage
            && concluding.grading == Grading::Running(child)
        {
            let (verdict, note) = verdict_of_grading_run(child, outcome);
            concluding.grading = Grading::Ended { child, verdict, note };
        }
    }

    pub(super) fn apply_outcome_graded(&mut self, data: &OutcomeGraded) -> ApplyResult {
        let rounds = self.policy.outcome_rounds.unwrap_or_default();
        let RunStage::Concluding(concluding) = &mut self.stage else {
            return Err("there is no result to be graded");
        };
        if !matches!(concluding.grading, Grading::Pending | Grading::Ended { .. }) {
            return Err("the result is graded already, or a run grades it");
        }
        concluding.grading = Grading::Graded(data.verdict);
        let partial_text = Some(result_text(&concluding.output)).filter(|text| !text.is_empty());
        self.outcome.record_verdict(data);
        match data.verdict {
            GradingVerdict::Satisfied => return NO_MESSAGES,
            GradingVerdict::NotSatisfied if data.round < rounds => {
                return self.add_message_between_turns(grader_note_message(data));
            }
            GradingVerdict::NotSatisfied => {
                let message = format!(
                    "the result did not meet the rubric in round {} of {rounds}; the last note: {}",
                    data.round, data.note
                );
                let hint = "a retry continues with this note and all rounds; the result is in \
                    `error.partial_text` of the run, all notes are in `longhaul show`";
                let error = RunError::new(NOT_MET, message, hint);
                self.stop.failure = Some(RunError { partial_text, ..error });
            }
            GradingVerdict::GraderFailed => {
                let message = format!("the result could not be graded: {}", data.note);
                let hint = "fix `outcome` of the agent or the model of the grader; a retry grades \
                    the same result again, which is in `error.partial_text` of the run";
                let error = RunError::new(GRADER_FAILED, message, hint);
                self.stop.failure = Some(RunError { partial_text, ..error });
            }
        }
        NO_MESSAGES
    }

    /// Returns the grader's note about the last result as a message, if the run fails because of
    /// the grader's verdict. `None` in all other cases: the model has then read the note.
    pub(super) fn unread_grader_note(&self) -> Option<Message> {
        let code = self.stop.failure.as_ref().map(|error| error.code.as_str());
        let last = self.outcome.verdicts().last().filter(|_| code == Some(NOT_MET));
        last.map(grader_note_message)
    }
}

/// Returns the verdict and the note of the grading run `child`, given the outcome with which it
/// ended.
fn verdict_of_grading_run(child: RunId, outcome: &RunOutcome) -> (GradingVerdict, String) {
    let grader_failed =
        |reason: String| (GradingVerdict::GraderFailed, truncated_grader_note(&reason));
    match outcome {
        RunOutcome::Completed(RunOutput { data, .. }) => {
            let output = data.as_ref().map_or("", |data| data.as_str());
            match serde_json::from_str::<GraderOutput>(output) {
                Ok(GraderOutput { satisfied, note }) => {
                    let (yes, no) = (GradingVerdict::Satisfied, GradingVerdict::NotSatisfied);
                    (if satisfied { yes } else { no }, truncated_grader_note(&note))
                }
                Err(_) => grader_failed(format!("the grading run {child} gave no verdict")),
            }
        }
        RunOutcome::Failed(RunError { code, message, .. }) => {
            grader_failed(format!("the grading run {child} failed ({code}): {message}"))
        }
        RunOutcome::Cancelled(cancellation) => {
            grader_failed(format!("the grading run {child} was {cancellation}"))
        }
    }
}

fn truncated_grader_note(text: &str) -> String {
    text[..text.floor_char_boundary(NOTE_BYTES_MAX)].to_owned()
}

/// Returns the message that gives the note of a verdict to the model.
fn grader_note_message(graded: &OutcomeGraded) -> Message {
    Message::user(format!(
        "[longhaul] Your result was graded against the rubric of this task and is not accepted yet. \
         Note of the grader:\n\n{}\n\nImprove your work, then give the whole result again.",
        graded.note
    ))
}

/// Returns the result of a run as text: its text, or its JSON data if the text is empty.
pub(super) fn result_text(output: &RunOutput) -> String {
    match (output.text.is_empty(), &output.data) {
        (true, Some(data)) => data.as_str().to_owned(),
        (true, None) | (false, _) => output.text.clone(),
    }
}
