//! Recognizes models that wait by sleeping in a command or by asking for the same state again and
//! again. Such calls are refused with a hint: `wait` parks the run at no cost.

use longhaul_core::message::Message;
use longhaul_run::Run;
use serde_json::Value;

use crate::tools::children::CHILD_STATUS;

/// Longest sleep in a command that is accepted, in seconds.
const SLEEP_SECS_MAX: f64 = 30.0;

/// Maximum number of consecutive turns in which the model calls nothing but `child_status`.
const STATUS_TURNS_MAX: usize = 2;

/// Returns the message that refuses a call in which a command sleeps too long, or with which the
/// model asks for the state of its child runs again and again. The message suggests `wait`. `None`
/// if the call does neither.
pub(crate) fn polling_refusal(run: &Run, tool: &str, input: &Value) -> Option<String> {
    match tool {
        "shell" => {
            let secs = longest_sleep_secs(input.get("command")?.as_str()?);
            (secs > SLEEP_SECS_MAX).then(|| {
                format!(
                    "not run: a command may sleep for at most {SLEEP_SECS_MAX} s. To wait longer, call \
                     `wait` with `for`, `until`, `child` or `signal`, which costs nothing"
                )
            })
        }
        CHILD_STATUS => {
            let messages = run.transcript().messages().iter().rev();
            let replies = messages.filter_map(|message| match &**message {
                Message::Assistant(reply) => Some(reply),
                Message::User(_) | Message::Results(_) => None,
            });
            let status_turns = replies.take_while(|reply| {
                let mut calls = reply.tool_calls().peekable();
                calls.peek().is_some() && calls.all(|call| call.name == CHILD_STATUS)
            });
            (status_turns.take(STATUS_TURNS_MAX).count() == STATUS_TURNS_MAX).then(|| {
                "not run: you have only asked for the state of your child runs in the last turns. \
                 Call `wait` with `child` to wait for one of them, which costs nothing"
                    .to_owned()
            })
        }
        _ => None,
    }
}

/// Returns the longest time in seconds that a part of a command sleeps.
fn longest_sleep_secs(command: &str) -> f64 {
    let parts = command.split([';', '&', '|', '\n', '(', ')']);
    let sleeps = parts.filter_map(|part| {
        let mut args = part.split_whitespace().skip_while(|arg| {
            matches!(*arg, "do" | "then" | "else" | "exec" | "command" | "time" | "{")
        });
        (args.next()? == "sleep").then(|| args.map_while(parse_sleep_secs).sum::<f64>())
    });
    sleeps.fold(0.0, f64::max)
}

/// Parses a duration of `sleep`, such as `90`, `1.5m` or `infinity`.
fn parse_sleep_secs(arg: &str) -> Option<f64> {
    let (number, unit) = match arg.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &arg[number.len()..]),
        None => (arg, "s"),
    };
    let factor = match unit {
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => 1.0,
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_are_found_in_commands() {
        for (command, expected) in [
            ("sleep 300", 300.0),
            ("make; sleep 2m", 120.0),
            ("while true; do sleep 45; done", 45.0),
            ("sleep 1m 30s && ls", 90.0),
            ("( sleep 1h )", 3_600.0),
            ("sleep infinity", f64::INFINITY),
            ("echo sleep 300", 0.0),
            ("sleep 5", 5.0),
            ("./sleepy 900", 0.0),
            ("sleep", 0.0),
            ("sleep $N", 0.0),
        ] {
            assert!(
                (longest_sleep_secs(command) - expected).abs() < 1e-9
                    || expected.is_infinite() && longest_sleep_secs(command).is_infinite(),
                "{command}"
            );
        }
    }
}
