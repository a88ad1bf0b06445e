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

use crate::policy::control_tool_names::{ASK_HUMAN, FINISH, REPORT_BLOCKED, REPORT_PROGRESS, WAIT};
use crate::policy::output::first_rule_finish_output;
use crate::state::call::TrackedToolCall;

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
pub(crate) fn parse_control_tool_call(
    call: &TrackedToolCall,
    now: Timestamp,
) -> Option<ControlToolCall> {
    let parse: fn(&Value, Timestamp) -> ControlToolCall = match call.classification.tool.as_str() {
        ASK_HUMAN => |input, _| parse_question(input),
        REPORT_BLOCKED => |input, _| parse_blocked_report(input),
        REPORT_PROGRESS => |input, _| parse_progress_report(input),
        WAIT => parse_wait,
        FINISH => |input, _| ControlToolCall::Finish(first_rule_finish_output(input)),
        _ => return None,
    };
    Some(parse(&call.arguments().to_value(), now))
}

fn string_field(input: &Value, name: &str) -> Option<String> {
    input.get(name)?.as_str().map(str::to_owned)
}

fn parse_question(input: &Value) -> ControlToolCall {
    let Some(ask) = string_field(input, "question") else {
        return ControlToolCall::Invalid("`question` must be a string".into());
    };
    let options = match input.get("options").filter(|options| !options.is_null()) {
        Some(options) => serde_json::from_value::<Vec<String>>(options.clone()),
        None => Ok(Vec::new()),
    };
    let Ok(options) = options else {
        return ControlToolCall::Invalid("`options` must be a list of texts".into());
    };
    if let Err(error) = check_question_options(&options) {
        return ControlToolCall::Invalid(format!("`options` can't be offered: {error}"));
    }
    let Some(schema) = input.get("schema") else {
        return ControlToolCall::Question { ask, options, schema: None };
    };
    match Form::from_schema(schema) {
        Ok(_) if options.is_empty() => {
            let schema = Some(RawJson::from_serialize(schema));
            ControlToolCall::Question { ask, options, schema }
        }
        Ok(_) => ControlToolCall::Invalid("set `options` or `schema`, not both".into()),
        Err(error) => {
            ControlToolCall::Invalid(format!("`schema` can't be shown as a form: {error}"))
        }
    }
}

fn parse_blocked_report(input: &Value) -> ControlToolCall {
    string_field(input, "reason").map_or_else(
        || ControlToolCall::Invalid("`reason` must be a string".into()),
        ControlToolCall::Blocked,
    )
}

fn parse_progress_report(input: &Value) -> ControlToolCall {
    let percent = input.get("percent").and_then(Value::as_f64).unwrap_or(-1.0);
    if !(0.0..=100.0).contains(&percent) {
        return ControlToolCall::Invalid("`percent` must be a number from 0 to 100".into());
    }
    ControlToolCall::Progress {
        percent: percent as u8,
        message: string_field(input, "message").unwrap_or_default(),
    }
}

/// Maximum duration of a `wait` call: one year. A model that asks for more has made a mistake.
const WAIT_MAX: Millis = Millis::from_secs(366 * 24 * 60 * 60);

/// Parses a duration that a model has written, such as `2h 30m`, `4d`, `2 hours` or `PT2H`. `None`
/// means that the text is not a duration.
fn parse_wait_duration(text: &str) -> Option<Millis> {
    duration::parse_duration(text).or_else(|| {
        let duration: jiff::SignedDuration = text.parse().ok()?;
        std::time::Duration::try_from(duration).ok().map(Millis::from)
    })
}

fn parse_wait(input: &Value, now: Timestamp) -> ControlToolCall {
    let conditions = ["for", "until", "child", "signal"];
    let given_conditions =
        conditions.iter().filter(|name| input.get(**name).is_some_and(|v| !v.is_null()));
    if given_conditions.count() > 1 {
        let reason = "set only one of `for`, `until`, `child` and `signal`";
        return ControlToolCall::Invalid(reason.into());
    }
    if let Some(child) = string_field(input, "child") {
        return child.parse().map_or_else(
            |_| ControlToolCall::Invalid("`child` must be the id of a child run".into()),
            ControlToolCall::WaitForChild,
        );
    }
    if let Some(signal) = string_field(input, "signal") {
        return ControlToolCall::WaitForSignal(signal);
    }
    let wait = match (string_field(input, "for"), string_field(input, "until")) {
        (Some(duration), _) => parse_wait_duration(&duration)
            .map(|duration| (now.plus(duration), ControlToolCall::WaitFor(duration))),
        (None, Some(at)) => {
            at.parse().ok().map(|until: Timestamp| (until, ControlToolCall::WaitUntil(until)))
        }
        (None, None) => None,
    };
    match wait {
        Some((until, wait)) if until <= now.plus(WAIT_MAX) => wait,
        Some(_) => ControlToolCall::Invalid("a wait can last at most one year".into()),
        None => ControlToolCall::Invalid(
            "set `for` to a duration such as \"2h 30m\", `until` to a time such as \
             \"2026-01-31T09:00:00Z\", `child` to the id of a child run, or `signal` to a name"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);

    fn check_parsed_wait(input: &Value, expected: &ControlToolCall) {
        assert_eq!(&parse_wait(input, NOW), expected, "{input}");
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
            assert!(matches!(parse_wait(&input, NOW), ControlToolCall::Invalid(_)), "{input}");
        }
        assert!(matches!(
            parse_progress_report(&json!({"percent": 101})),
            ControlToolCall::Invalid(_)
        ));
        for input in [
            json!({"question": 7}),
            json!({"question": "?", "options": "a"}),
            json!({"question": "?", "options": ["a", 1]}),
            json!({"question": "?", "options": ["a", " "]}),
            json!({"question": "?", "options": ["a", "A"]}),
            json!({"question": "?", "options": vec!["a"; 101]}),
        ] {
            assert!(matches!(parse_question(&input), ControlToolCall::Invalid(_)), "{input}");
        }
    }
}
