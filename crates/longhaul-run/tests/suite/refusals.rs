//! What does not fit is refused with a reason, and changes nothing.
//!
//! Never: half taken.

use super::policies::{asks, ruled};
use super::world::World;

/// Where the run stands, what it is told, what it says.
const TABLE: &[(&str, &str, &str)] = &[
    ("", "go", "!fenced"),
    ("claim", "say Hi.", "!out_of_place"),
    ("claim", "err auth", "!out_of_place"),
    ("claim", "halt Hi", "!out_of_place"),
    ("claim", "sum 1", "!out_of_place"),
    ("claim", "done t1.1 ok", "!no_such_call"),
    ("claim", "found t1.1 nothing", "!no_such_call"),
    ("claim", "close", "!fenced"),
    ("claim; see", "see", "!out_of_place"),
    ("claim; see", "sum 1", "!out_of_place"),
    ("claim; see", "done t1.1 ok", "!no_such_call"),
    ("claim; see", "missing a key", "!out_of_place"),
    ("claim; see", "release", "!out_of_place"),
    ("claim; see; crash", "say Hi.", "!fenced"),
    ("claim; see; crash; claim", "say Hi.", "!out_of_place"),
    ("claim; see; crash", "still", "!out_of_place"),
    (
        "claim; see; err context_overflow",
        "say Hi.",
        "!out_of_place",
    ),
    ("claim; see; call read/pure", "say Hi.", "!out_of_place"),
    ("claim; see; call read/pure", "see", "!out_of_place"),
    (
        "claim; see; call read/pure",
        "done t1.2 ok",
        "!no_such_call",
    ),
    (
        "claim; see; call read/pure + read/pure; done t1.1 ok",
        "done t1.1 ok",
        "!no_such_call",
    ),
    (
        "claim; see; call read/pure",
        "missing a key",
        "!out_of_place",
    ),
    ("claim; see; call send/once", "release", "!out_of_place"),
    ("claim; see; call shell/once", "say Hi.", "!fenced"),
    ("claim; see; call shell/once", "done t1.1 ok", "!fenced"),
    (
        "claim; see; call shell/once",
        "answer Hi.",
        "!wrong_decision",
    ),
    ("claim; see; call shell/once", "complete", "!wrong_decision"),
    (
        "claim; see; call shell/once; yes; claim; go",
        "no @1",
        "!already_answered",
    ),
    (
        "claim; see; call ask_human/pure {\"question\": \"?\"}",
        "yes",
        "!wrong_decision",
    ),
    (
        "claim; see; call ask_human/pure {\"question\": \"?\"}",
        "complete",
        "!wrong_decision",
    ),
    (
        "claim; see; call wait/pure {\"signal\": \"x\"}",
        "yes",
        "!wrong_decision",
    ),
    (
        "claim; see; call send/once; crash; claim; go",
        "edit {}",
        "!wrong_decision",
    ),
    ("claim; see; pause; say Hi.", "pause", "!already"),
    ("claim; see; pause; say Hi.", "still", "!already"),
    ("claim; see; say Hi.", "go", "!fenced"),
    ("claim; see; say Hi.", "close", "!fenced"),
    ("claim; see; say Hi.", "steer after_batch", "!run_ended"),
    ("claim; see; say Hi.", "cancel", "!run_ended"),
    ("claim; see; say Hi.", "pause", "!run_ended"),
    ("claim; see; say Hi.", "resume", "!run_ended"),
    ("claim; see; say Hi.", "raise money 1", "!run_ended"),
    ("claim; see; say Hi.", "surface t1.1", "!run_ended"),
    ("steer after_batch; unsteer", "unsteer", "!steer settled"),
];

#[test]
fn what_does_not_fit_is_refused() {
    for (until, told, refusal) in TABLE {
        let mut world = World::new(ruled(asks()));
        for line in until.split("; ").filter(|line| !line.is_empty()) {
            let came = world.play(line);
            assert!(!came.starts_with('!'), "{until}: {line}: {came}");
        }
        let before = (world.run.clone(), world.entries.len());
        assert_eq!(world.play(told), *refusal, "{until}; {told}");
        assert_eq!(before, (world.run, world.entries.len()), "{until}; {told}");
    }
}
