//! Invalid inputs are rejected with a code and change nothing.

use super::harness::TestRun;
use super::policies::{ask_rule, with_rule};

/// Script that leads to a state, input in that state, and expected outcome.
const TABLE: &[(&str, &str, &str)] = &[
    ("", "go", "!fenced"),
    ("claim", "say Hi.", "!invalid_state"),
    ("claim", "err auth", "!invalid_state"),
    ("claim", "halt Hi", "!invalid_state"),
    ("claim", "sum 1", "!invalid_state"),
    ("claim", "done t1.1 ok", "!call_not_running"),
    ("claim", "found t1.1 nothing", "!call_not_running"),
    ("claim", "close", "!fenced"),
    ("claim; see", "see", "!invalid_state"),
    ("claim; see", "sum 1", "!invalid_state"),
    ("claim; see", "done t1.1 ok", "!call_not_running"),
    ("claim; see", "missing a key", "!invalid_state"),
    ("claim; see", "release", "!invalid_state"),
    ("claim; see; crash", "say Hi.", "!fenced"),
    ("claim; see; crash; claim", "say Hi.", "!invalid_state"),
    ("claim; see; crash", "still", "!invalid_state"),
    ("claim; see; err context_overflow", "say Hi.", "!invalid_state"),
    ("claim; see; call read/pure", "say Hi.", "!invalid_state"),
    ("claim; see; call read/pure", "see", "!invalid_state"),
    ("claim; see; call read/pure", "done t1.2 ok", "!call_not_running"),
    ("claim; see; call read/pure + read/pure; done t1.1 ok", "done t1.1 ok", "!call_not_running"),
    ("claim; see; call read/pure", "missing a key", "!invalid_state"),
    ("claim; see; call send/once", "release", "!invalid_state"),
    ("claim; see; call shell/once", "say Hi.", "!fenced"),
    ("claim; see; call shell/once", "done t1.1 ok", "!fenced"),
    ("claim; see; call shell/once", "answer Hi.", "!invalid_decision"),
    ("claim; see; call shell/once", "complete", "!invalid_decision"),
    ("claim; see; call shell/once; yes; claim; go", "no @1", "!already_answered"),
    ("claim; see; call ask_human/pure {\"question\": \"?\"}", "yes", "!invalid_decision"),
    ("claim; see; call ask_human/pure {\"question\": \"?\"}", "complete", "!invalid_decision"),
    ("claim; see; call wait/pure {\"signal\": \"x\"}", "yes", "!invalid_decision"),
    ("claim; see; call send/once; crash; claim; go", "edit {}", "!invalid_decision"),
    ("claim; see; pause; say Hi.", "pause", "!already_in_state"),
    ("claim; see; pause; say Hi.", "still", "!already_in_state"),
    ("claim; see; say Hi.", "go", "!fenced"),
    ("claim; see; say Hi.", "close", "!fenced"),
    ("claim; see; say Hi.", "end", "!fenced"),
    ("", "end", "!not_open"),
    ("claim; see; call ask_human/pure {\"question\": \"?\"}", "end", "!not_open"),
    ("claim; see; pause; say Hi.", "end", "!not_open"),
    ("claim; see; say Hi.", "steer after_batch", "!run_ended"),
    ("claim; see; say Hi.", "cancel", "!run_ended"),
    ("claim; see; say Hi.", "pause", "!run_ended"),
    ("claim; see; say Hi.", "resume", "!run_ended"),
    ("claim; see; say Hi.", "resume money 1", "!run_ended"),
    ("claim; see; say Hi.", "surface t1.1", "!run_ended"),
    ("steer after_batch; unsteer", "unsteer", "!steer settled"),
];

#[test]
fn invalid_commands_are_rejected() {
    for (until, command, refusal) in TABLE {
        let mut test_run = TestRun::new(with_rule(ask_rule()));
        for line in until.split("; ").filter(|line| !line.is_empty()) {
            let result = test_run.play(line);
            assert!(!result.starts_with('!'), "{until}: {line}: {result}");
        }
        let before = (test_run.run.clone(), test_run.entries.len());
        assert_eq!(test_run.play(command), *refusal, "{until}; {command}");
        assert_eq!(before, (test_run.run, test_run.entries.len()), "{until}; {command}");
    }
}
