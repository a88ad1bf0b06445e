//! Control tools as the heart reads them.
//!
//! Never: executes one. An async tool that awaits an answer would forget it in
//! a crash; a gate does not.

use longhaul_core::status::Output;
use longhaul_core::time::{Millis, Timestamp};
use serde_json::Value;

use crate::judge::names::{ASK_HUMAN, FINISH, REPORT_BLOCKED, REPORT_PROGRESS, WAIT};
use crate::judge::output::output_of_finish;
use crate::state::call::Call;

/// What a control call wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
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
    Until(Timestamp),
    /// A program's word.
    Signal(String),
    /// The end.
    Finish(Output),
    /// It can't be read, and the model reads why.
    Unclear(String),
}

/// Reads a control call; none: it is an ordinary tool.
pub(crate) fn wish(call: &Call, now: Timestamp) -> Option<Wish> {
    let read: fn(&Value, Timestamp) -> Wish = match call.appraisal.tool.as_str() {
        ASK_HUMAN => |input, _| question(input),
        REPORT_BLOCKED => |input, _| blocked(input),
        REPORT_PROGRESS => |input, _| progress(input),
        WAIT => wait,
        FINISH => |input, _| Wish::Finish(output_of_finish(input)),
        _ => return None,
    };
    Some(read(&call.arguments().value(), now))
}

fn text(input: &Value, name: &str) -> Option<String> {
    input.get(name)?.as_str().map(str::to_owned)
}

fn question(input: &Value) -> Wish {
    let Some(ask) = text(input, "question") else {
        return Wish::Unclear("`question` must be a text".into());
    };
    let options = input.get("options").and_then(Value::as_array);
    let options = options
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned);
    Wish::Question {
        ask,
        options: options.collect(),
    }
}

fn blocked(input: &Value) -> Wish {
    text(input, "reason").map_or_else(
        || Wish::Unclear("`reason` must be a text".into()),
        Wish::Blocked,
    )
}

fn progress(input: &Value) -> Wish {
    let percent = input.get("percent").and_then(Value::as_f64).unwrap_or(-1.0);
    if !(0.0..=100.0).contains(&percent) {
        return Wish::Unclear("`percent` must be a number from 0 to 100".into());
    }
    Wish::Progress {
        percent: percent as u8,
        message: text(input, "message").unwrap_or_default(),
    }
}

/// The longest wait: a year. A model that wants more has made a mistake.
const WAIT_MAX: Millis = Millis::from_secs(366 * 24 * 60 * 60);

fn wait(input: &Value, now: Timestamp) -> Wish {
    if let Some(signal) = text(input, "signal") {
        return Wish::Signal(signal);
    }
    let until = match (text(input, "for"), text(input, "until")) {
        (Some(span), _) => span
            .parse::<jiff::SignedDuration>()
            .ok()
            .and_then(|span| std::time::Duration::try_from(span).ok())
            .map(|span| now.plus(span.into())),
        (None, Some(at)) => at.parse::<Timestamp>().ok(),
        (None, None) => None,
    };
    match until {
        Some(until) if until <= now.plus(WAIT_MAX) => Wish::Until(until),
        Some(_) => Wish::Unclear("a wait lasts a year at most".into()),
        None => Wish::Unclear(
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

    fn check(input: &Value, wish: &Wish) {
        assert_eq!(&wait(input, NOW), wish, "{input}");
    }

    #[test]
    fn waits_are_spans_times_or_signals() {
        check(
            &json!({"for": "90s"}),
            &Wish::Until(NOW.plus(Millis::from_secs(90))),
        );
        check(
            &json!({"for": "1h 30m"}),
            &Wish::Until(NOW.plus(Millis::from_secs(5_400))),
        );
        check(&json!({"signal": "deploy"}), &Wish::Signal("deploy".into()));
        let until = "2001-09-10T00:00:00Z";
        check(
            &json!({ "until": until }),
            &Wish::Until(until.parse().unwrap()),
        );
    }

    #[test]
    fn what_is_unclear_is_said() {
        for input in [
            json!({}),
            json!({"for": "soon"}),
            json!({"for": "-5m"}),
            json!({"for": "9000d"}),
        ] {
            assert!(matches!(wait(&input, NOW), Wish::Unclear(_)), "{input}");
        }
        assert!(matches!(
            progress(&json!({"percent": 101})),
            Wish::Unclear(_)
        ));
        assert!(matches!(
            question(&json!({"question": 7})),
            Wish::Unclear(_)
        ));
    }
}
