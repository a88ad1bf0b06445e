//! Parses calls of control tools, which the state machine handles itself.
//!
//! Control tools are never executed as tools: a tool that waits for an answer would lose it in a
//! crash, but a gate or a timer is durable.

use longhaul_core::duration;
use longhaul_core::form::{Form, check_question_options};
use longhaul_core::id::RunId;
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use longhaul_core::time::{Millis, Timestamp};
use serde_json::Value;

use crate::policy::output::first_rule_finish_output;
use crate::policy::{ASK_HUMAN, FINISH, REPORT_BLOCKED, REPORT_PROGRESS, WAIT};
use crate::state::call::TrackedCall;

/// A parsed call of a control tool, such as `ask_human` or `wait`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ControlToolCall {
    /// Asks a person a question.
    Question {
        /// Text of the question to the person.
        ask: String,
        /// Answers that the person can choose from. Empty if there is no choice of answers.
        options: Vec<String>,
        /// Schema of the form that the person fills in. `None` if the question has no form.
        schema: Option<RawJson>,
    },
    /// Reports that the agent is blocked, with this reason.
    Blocked(String),
    /// Reports the agent's progress.
    Progress {
        /// Progress of the agent in percent, 0 to 100.
        percent: u8,
        /// Description of the agent's progress.
        message: String,
    },
    WaitFor(Millis),
    WaitUntil(Timestamp),
    /// Waits for the end of this child run.
    WaitForChild(RunId),
    /// Waits for a signal (an outside event) with this name.
    WaitForSignal(String),
    /// Ends the run with this output.
    Finish(RunOutput),
    /// The arguments of the call are invalid. The text is an error message for the model.
    Invalid(String),
}

/// Parses a call of a control tool. `None` means that the call is for an ordinary tool.
pub(crate) fn control_tool_call(call: &TrackedCall, now: Timestamp) -> Option<ControlToolCall> {
    type Parse = fn(&Value, Timestamp) -> Result<ControlToolCall, String>;
    let parse: Parse = match call.classification.tool.as_str() {
        ASK_HUMAN => |input, _| parse_question(input),
        REPORT_BLOCKED => |input, _| parse_blocked_report(input),
        REPORT_PROGRESS => |input, _| parse_progress_report(input),
        WAIT => parse_wait,
        FINISH => |input, _| Ok(ControlToolCall::Finish(first_rule_finish_output(input))),
        _ => return None,
    };
    let parsed = parse(&call.arguments().to_value(), now);
    Some(parsed.unwrap_or_else(ControlToolCall::Invalid))
}

fn string_field(input: &Value, name: &str) -> Option<String> {
    input.get(name)?.as_str().map(str::to_owned)
}

fn parse_question(input: &Value) -> Result<ControlToolCall, String> {
    let ask = string_field(input, "question").ok_or("`question` must be a string")?;
    let options = input.get("options").filter(|options| !options.is_null());
    let options = options.map(|options| serde_json::from_value::<Vec<String>>(options.clone()));
    let options = options.transpose().map_err(|_| "`options` must be a list of texts")?;
    let options = options.unwrap_or_default();
    check_question_options(&options)
        .map_err(|error| format!("`options` can't be offered: {error}"))?;
    let schema = input.get("schema");
    if let Some(schema) = schema {
        Form::from_schema(schema)
            .map_err(|error| format!("`schema` can't be shown as a form: {error}"))?;
        if !options.is_empty() {
            return Err("set `options` or `schema`, not both".to_owned());
        }
    }
    let schema = schema.map(RawJson::from_serialize);
    Ok(ControlToolCall::Question { ask, options, schema })
}

fn parse_blocked_report(input: &Value) -> Result<ControlToolCall, String> {
    let reason = string_field(input, "reason").ok_or("`reason` must be a string")?;
    Ok(ControlToolCall::Blocked(reason))
}

fn parse_progress_report(input: &Value) -> Result<ControlToolCall, String> {
    let percent = input.get("percent").and_then(Value::as_f64);
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    let percent = percent.ok_or("`percent` must be a number from 0 to 100")? as u8;
    let message = string_field(input, "message").unwrap_or_default();
    Ok(ControlToolCall::Progress { percent, message })
}

/// Maximum duration of a `wait` call.
const WAIT_MAX: Millis = Millis::from_secs(366 * 24 * 60 * 60);

/// Parses a duration in the format of the configuration, such as `2h 30m`, or another common
/// format.
fn parse_wait_duration(text: &str) -> Option<Millis> {
    duration::parse_duration(text).or_else(|| {
        let duration: jiff::SignedDuration = text.parse().ok()?;
        std::time::Duration::try_from(duration).ok().map(Millis::from)
    })
}

fn parse_wait(input: &Value, now: Timestamp) -> Result<ControlToolCall, String> {
    let conditions = ["for", "until", "child", "signal"];
    let given = conditions.iter().filter(|name| input.get(**name).is_some_and(|v| !v.is_null()));
    if given.count() > 1 {
        return Err("set only one of `for`, `until`, `child` and `signal`".to_owned());
    }
    if let Some(child) = string_field(input, "child") {
        let child = child.parse().map_err(|_| "`child` must be the id of a child run")?;
        return Ok(ControlToolCall::WaitForChild(child));
    }
    if let Some(signal) = string_field(input, "signal") {
        return Ok(ControlToolCall::WaitForSignal(signal));
    }
    let duration = string_field(input, "for").and_then(|text| parse_wait_duration(&text));
    let until = string_field(input, "until").and_then(|text| text.parse::<Timestamp>().ok());
    let wait = match (duration, until) {
        (Some(duration), _) => (now.plus(duration), ControlToolCall::WaitFor(duration)),
        (None, Some(until)) => (until, ControlToolCall::WaitUntil(until)),
        (None, None) => {
            return Err("set `for` to a duration such as \"2h 30m\", `until` to a time such as \
                 \"2026-01-31T09:00:00Z\", `child` to the id of a child run, or `signal` to a name"
                .to_owned());
        }
    };
    match wait.0 <= now.plus(WAIT_MAX) {
        true => Ok(wait.1),
        false => Err("a wait can last at most one year".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);

    fn check_parsed_wait(input: &Value, expected: &ControlToolCall) {
        assert_eq!(parse_wait(input, NOW).as_ref(), Ok(expected), "{input}");
    }

    #[test]
    fn a_wait_is_a_duration_a_time_or_a_signal() {
        check_parsed_wait(&json!({"for": "90s"}), &ControlToolCall::WaitFor(Millis::from_secs(90)));
        check_parsed_wait(
            &json!({"for": "1h 30m"}),
            &ControlToolCall::WaitFor(Millis::from_secs(5_400)),
        );
        check_parsed_wait(
            &json!({"signal": "deploy"}),
            &ControlToolCall::WaitForSignal("deploy".into()),
        );
        let until = "2001-09-10T00:00:00Z";
        check_parsed_wait(
            &json!({ "until": until }),
            &ControlToolCall::WaitUntil(until.parse().unwrap()),
        );
    }

    #[test]
    fn an_invalid_control_call_is_reported() {
        for input in [
            json!({}),
            json!({"for": "soon"}),
            json!({"for": "-5m"}),
            json!({"for": "9000d"}),
            json!({"child": "researcher"}),
            json!({"for": "5m", "signal": "deploy"}),
        ] {
            assert!(parse_wait(&input, NOW).is_err(), "{input}");
        }
        assert!(parse_progress_report(&json!({"percent": 101})).is_err());
        for input in [
            json!({"question": 7}),
            json!({"question": "?", "options": "a"}),
            json!({"question": "?", "options": ["a", 1]}),
            json!({"question": "?", "options": ["a", " "]}),
            json!({"question": "?", "options": ["a", "A"]}),
            json!({"question": "?", "options": vec!["a"; 101]}),
        ] {
            assert!(parse_question(&input).is_err(), "{input}");
        }
    }
}
