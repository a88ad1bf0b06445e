//! Control tools as the heart reads them.
//!
//! Never: executes one. An async tool that awaits an answer would forget it in
//! a crash; a gate does not.

use longhaul_core::status::Output;
use longhaul_core::time::{Millis, Timestamp};
use serde_json::Value;

use crate::policy::control_tool_names::{ASK_HUMAN, FINISH, REPORT_BLOCKED, REPORT_PROGRESS, WAIT};
use crate::policy::legacy_output::legacy_output_from_finish;
use crate::state::call::Call;

/// What a control call wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ControlCall {
    /// A person's words.
    Question {
        /// What is asked.
        ask: String,
        /// Answers to choose from.
        options: Vec<String>,
    },
    /// Help.
    Blocked(String),
    /// Nothing: it says how far it is.
    Progress {
        /// 0 to 100.
        percent: u8,
        /// In words.
        message: String,
    },
    /// A time.
    WaitUntil(Timestamp),
    /// A program's word.
    WaitForSignal(String),
    /// The end.
    Finish(Output),
    /// It can't be read, and the model reads why.
    Invalid(String),
}

/// Reads a control call; none: it is an ordinary tool.
pub(crate) fn parse_control_call(call: &Call, now: Timestamp) -> Option<ControlCall> {
    let read: fn(&Value, Timestamp) -> ControlCall = match call.classification.tool.as_str() {
        ASK_HUMAN => |input, _| parse_question(input),
        REPORT_BLOCKED => |input, _| parse_blocked(input),
        REPORT_PROGRESS => |input, _| parse_progress(input),
        WAIT => parse_wait,
        FINISH => |input, _| ControlCall::Finish(legacy_output_from_finish(input)),
        _ => return None,
    };
    Some(read(&call.arguments().to_value(), now))
}

fn string_field(input: &Value, name: &str) -> Option<String> {
    input.get(name)?.as_str().map(str::to_owned)
}

fn parse_question(input: &Value) -> ControlCall {
    let Some(ask) = string_field(input, "question") else {
        return ControlCall::Invalid("`question` must be a text".into());
    };
    let options = input.get("options").and_then(Value::as_array);
    let options = options.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    ControlCall::Question { ask, options: options.collect() }
}

fn parse_blocked(input: &Value) -> ControlCall {
    string_field(input, "reason").map_or_else(
        || ControlCall::Invalid("`reason` must be a text".into()),
        ControlCall::Blocked,
    )
}

fn parse_progress(input: &Value) -> ControlCall {
    let percent = input.get("percent").and_then(Value::as_f64).unwrap_or(-1.0);
    if !(0.0..=100.0).contains(&percent) {
        return ControlCall::Invalid("`percent` must be a number from 0 to 100".into());
    }
    ControlCall::Progress {
        percent: percent as u8,
        message: string_field(input, "message").unwrap_or_default(),
    }
}

/// The longest wait: a year. A model that wants more has made a mistake.
const WAIT_MAX: Millis = Millis::from_secs(366 * 24 * 60 * 60);

fn parse_wait(input: &Value, now: Timestamp) -> ControlCall {
    if let Some(signal) = string_field(input, "signal") {
        return ControlCall::WaitForSignal(signal);
    }
    let until = match (string_field(input, "for"), string_field(input, "until")) {
        (Some(span), _) => span
            .parse::<jiff::SignedDuration>()
            .ok()
            .and_then(|span| std::time::Duration::try_from(span).ok())
            .map(|span| now.plus(span.into())),
        (None, Some(at)) => at.parse::<Timestamp>().ok(),
        (None, None) => None,
    };
    match until {
        Some(until) if until <= now.plus(WAIT_MAX) => ControlCall::WaitUntil(until),
        Some(_) => ControlCall::Invalid("a wait lasts a year at most".into()),
        None => ControlCall::Invalid(
            "say `for` as a span such as \"2h 30m\", `until` as a time such as \
             \"2026-01-31T09:00:00Z\", or `signal` as a name"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);

    fn check(input: &Value, wish: &ControlCall) {
        assert_eq!(&parse_wait(input, NOW), wish, "{input}");
    }

    #[test]
    fn a_wait_is_a_duration_a_time_or_a_signal() {
        check(&json!({"for": "90s"}), &ControlCall::WaitUntil(NOW.plus(Millis::from_secs(90))));
        check(
            &json!({"for": "1h 30m"}),
            &ControlCall::WaitUntil(NOW.plus(Millis::from_secs(5_400))),
        );
        check(&json!({"signal": "deploy"}), &ControlCall::WaitForSignal("deploy".into()));
        let until = "2001-09-10T00:00:00Z";
        check(&json!({ "until": until }), &ControlCall::WaitUntil(until.parse().unwrap()));
    }

    #[test]
    fn an_invalid_control_call_is_reported() {
        for input in
            [json!({}), json!({"for": "soon"}), json!({"for": "-5m"}), json!({"for": "9000d"})]
        {
            assert!(matches!(parse_wait(&input, NOW), ControlCall::Invalid(_)), "{input}");
        }
        assert!(matches!(parse_progress(&json!({"percent": 101})), ControlCall::Invalid(_)));
        assert!(matches!(parse_question(&json!({"question": 7})), ControlCall::Invalid(_)));
    }
}
