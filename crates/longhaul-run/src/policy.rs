//! Policy decisions about tool calls and outputs: approval rules, digests, control tools, calls in
//! doubt (outcome unknown) and final outputs.
//!
//! Control tools are never executed: the state machine turns their calls into gates and timers.

pub(crate) mod control_tool;
pub(crate) mod digest;
pub(crate) mod effect_keys;
pub(crate) mod in_doubt;
pub(crate) mod output;
pub(crate) mod rules;

use longhaul_core::form::{Form, are_options_numbered, find_option_by_text};
use longhaul_core::id::{CallId, RunId, TimerId};
use longhaul_core::policy::gate::GateSpec;
use longhaul_core::time::Timestamp;

/// Name of the control tool that asks a person a question.
pub(crate) const ASK_HUMAN: &str = "ask_human";
/// Name of the control tool that reports that the agent is blocked.
pub(crate) const REPORT_BLOCKED: &str = "report_blocked";
/// Name of the control tool that reports the agent's progress.
pub(crate) const REPORT_PROGRESS: &str = "report_progress";
/// Name of the control tool that waits for a time, a child run or a signal (an outside event).
pub(crate) const WAIT: &str = "wait";
/// Name of the control tool that starts a child run.
pub const RUN_AGENT: &str = "run_agent";
/// Name of the control tool that ends the run with an answer.
pub(crate) const FINISH: &str = "finish";

/// Returns the id of the timer after which the tool of a pending call is polled for the result.
/// `poll` is the number of this poll of the call, from 1.
pub(crate) fn poll_timer_id(run: RunId, call: CallId, poll: u32) -> TimerId {
    TimerId::derive(run.bits(), &format!("poll:{call}:{poll}"), Timestamp::default())
}

/// Returns the id of the timer that ends a `wait` call. The id is derived from the call, so
/// replaying the journal gives the same id without an event that contains it.
pub(crate) fn wait_timer_id(run: RunId, call: CallId) -> TimerId {
    TimerId::derive(run.bits(), &format!("wait:{call}"), Timestamp::default())
}

/// Checks an answer to a question and returns the text to record: the option that the answer names
/// or whose number it is, the completed form, or the unchanged text. The error says which answers are valid.
pub fn check_question_answer(question: &GateSpec, text: &str) -> Result<String, String> {
    if let Some(schema) = &question.schema {
        let form = Form::from_schema(&schema.to_value())?;
        let answer = serde_json::from_str(text)
            .map_err(|error| format!("the answer must be a JSON object: {error}"))?;
        return Ok(form.check_answer(&answer)?.to_string());
    }
    if question.options.is_empty() {
        return Ok(text.to_owned());
    }
    let numbered = || {
        let number: usize = text.trim().parse().ok()?;
        are_options_numbered(&question.options).then_some(())?;
        question.options.get(number.checked_sub(1)?).map(String::as_str)
    };
    let option = find_option_by_text(&question.options, text).or_else(numbered);
    option.map(str::to_owned).ok_or_else(|| {
        let options: Vec<String> =
            question.options.iter().map(|option| format!("`{option}`")).collect();
        format!("the answer must be one of {}", options.join(", "))
    })
}
