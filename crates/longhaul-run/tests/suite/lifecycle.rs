//! Lifecycle of a run: pending, running, waiting, blocked, paused, and the three terminal statuses.
//!
//! Each line shows the status as it appears in lists.

use longhaul_core::event::Event;

use super::harness::script::check;
use super::policies::{keep_open, plain};

#[test]
fn a_run_calls_model_and_tools_and_completes() {
    check(
        plain(),
        r#"
        ? why                        => The run waits for a worker.
        claim                        => run.claimed | running
        ? step                       => prepare
        see                          => run.prepared turn.started
        ? step                       => ask turn 1 try 1 max 4096
        call read/pure {"path": "a"} => turn.completed tool.started(t1.1)
        ? step                       => run t1.1 read {"path": "a"}
        done t1.1 a poem             => tool.completed(t1.1) turn.started
        ? said                       => t1.1: a poem
        say Here it is.              => turn.completed run.completed(Here it is.) | completed
        ? outcome                    => {"text":"Here it is."}
        ? step                       => idle
    "#,
    );
}

#[test]
fn a_final_object_is_data() {
    check(
        plain(),
        r#"
        claim                                   => run.claimed | running
        see                                     => run.prepared turn.started
        say {"success": true, "confidence": 90} => turn.completed run.completed({"success": true, "confidence": 90}) | completed
        ? outcome                               => {"text":"{\"success\": true, \"confidence\": 90}","data":{"success": true, "confidence": 90},"confidence":90}
    "#,
    );
}

#[test]
fn finish_ends_the_run_when_all_calls_are_done() {
    check(
        plain(),
        r#"
        claim        => run.claimed | running
        see          => run.prepared turn.started
        call finish/pure {"output": {"success": false}} + read/pure => turn.completed tool.completed(t1.1) tool.started(t1.2)
        done t1.2 ok => tool.completed(t1.2) run.completed({"success":false}) | completed
        ? outcome    => {"text":"{\"success\":false}","data":{"success":false}}
    "#,
    );
}

#[test]
fn finish_beside_a_failed_call_starts_another_turn() {
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        call finish/pure {"output": "sent"} + send/once => turn.completed tool.completed(t1.1) tool.started(t1.2)
        fail t1.2 no   => tool.failed(t1.2) turn.started
    "#,
    );
}

#[test]
fn a_run_that_is_kept_open_goes_on_with_a_message_and_ends_by_itself() {
    check(
        keep_open(),
        r#"
        claim                         => run.claimed | running
        see                           => run.prepared turn.started
        say First.                    => turn.completed run.waiting(message) | waiting message
        ? timers                      => [3600000]
        steer follow_up More, please. => steer.queued | running
        claim                         => run.claimed
        ? why                         => The run is about to read a message.
        go                            => steer.delivered(after turn 1) turn.started
        ? said                        => More, please.
        say Second.                   => turn.completed run.waiting(message) | waiting message
        ? timers                      => [3600000]
        tick 2000                     =>
        tick 1600                     => timer.fired | running
        claim                         => run.claimed
        go                            => run.completed(Second.) | completed
        tick 9999                     =>
        claim                         => !not ready
        go                            => !fenced
    "#,
    );
    check(
        keep_open(),
        r#"
        claim                                   => run.claimed | running
        see                                     => run.prepared turn.started
        call finish/pure {"output": "The end."} => turn.completed tool.completed(t1.1) run.completed(The end.) | completed
    "#,
    );
}

#[test]
fn an_open_run_is_closed_with_its_result() {
    let closed = check(
        keep_open(),
        r#"
        claim                         => run.claimed | running
        see                           => run.prepared turn.started
        say First.                    => turn.completed run.waiting(message) | waiting message
        steer follow_up More, please. => steer.queued | running
        end                           => !not_open
        claim                         => run.claimed
        go                            => steer.delivered(after turn 1) turn.started
        end                           => !fenced
        say Second.                   => turn.completed run.waiting(message) | waiting message
        signal the build              => gate.raised(signal)
        end                           => !open_gate
        complete                      => gate.answered | running
        claim                         => run.claimed
        go                            => turn.started(signal)
        say Third.                    => turn.completed run.waiting(message) | waiting message
        end                           => run.completed(Third.) | completed
        end                           => !fenced
    "#,
    );
    let Event::RunCompleted(completed) = &closed.entries.last().unwrap().event else {
        panic!("{:?}", closed.entries.last());
    };
    assert_eq!(completed.closed_by.as_deref(), Some("cli:anna"));
}

#[test]
fn a_cancelled_run_keeps_the_result_that_it_had() {
    let until_open = "
        claim                         => run.claimed | running
        see                           => run.prepared turn.started
        say First.                    => turn.completed run.waiting(message) | waiting message
        ? output                      => First.";
    for (lines, output) in [
        ("close enough => run.cancel_requested run.cancelled | cancelled", "First."),
        (
            "still => run.pause_requested run.paused | paused
          ? output => First.
          close enough => run.cancel_requested run.cancelled | cancelled",
            "First.",
        ),
        (
            "cancel enough => run.cancel_requested | running
          claim => run.claimed
          go => run.cancelled | cancelled",
            "First.",
        ),
        // A message leads to another result, which the run does not have yet.
        (
            "steer follow_up More. => steer.queued | running
          claim => run.claimed
          go => steer.delivered(after turn 1) turn.started
          cancel enough => run.cancel_requested
          err stopped => turn.failed(stopped) run.cancelled | cancelled",
            "none",
        ),
    ] {
        let cancelled = check(keep_open(), &format!("{until_open}\n{lines}"));
        assert_eq!(cancelled.show("output"), output, "{lines}");
        assert_eq!(cancelled.show("outcome"), "cancelled by cli:anna: enough");
    }
}

#[test]
fn control_calls_never_run() {
    check(
        plain(),
        r#"
        claim                                         => run.claimed | running
        see                                           => run.prepared turn.started
        call ask_human/pure {"question": "Which colour?", "options": ["red", "blue"]} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        ? gates                                       => Which colour?
        ? why                                         => The run waits for an answer: Which colour?
        answer Blue                                   => gate.answered | running
        claim                                         => run.claimed
        go                                            => tool.completed(t1.1) turn.started
        ? said                                        => t1.1: blue
        call report_progress/pure {"percent": 50, "message": "half"} => turn.completed progress.reported tool.completed(t2.1) turn.started
        ? said                                        => t2.1: noted
        call report_progress/pure {"percent": 101}    => turn.completed tool.failed(t3.1) turn.started
        ? said                                        => t3.1: ! `percent` must be a number from 0 to 100
        call report_blocked/pure {"reason": "no key"} => turn.completed gate.raised(blocked) run.blocked | blocked blocked
        ? why                                         => The run is blocked: no key.
        answer Here is one.                           => gate.answered | running
        claim                                         => run.claimed
        go                                            => tool.completed(t4.1) turn.started
        ? said                                        => t4.1: Here is one.
    "#,
    );
}

#[test]
fn a_wait_is_a_timer_or_a_signal() {
    check(
        plain(),
        r#"
        claim                                    => run.claimed | running
        see                                      => run.prepared turn.started
        call wait/pure {"for": "2h"} + read/pure => turn.completed tool.started(t1.1) tool.started(t1.2)
        ? timers                                 => [7200000]
        done t1.2 ok                             => tool.completed(t1.2) run.waiting(timer) | waiting timer
        tick 7200                                => timer.fired | running
        claim                                    => run.claimed
        go                                       => tool.completed(t1.1) turn.started
        ? said                                   => t1.1: the wait is over | t1.2: ok
        call wait/pure {"until": "2001-01-01T00:00:00Z"} => turn.completed tool.started(t2.1) run.waiting(timer) | waiting timer
        ? timers                                 => [0]
        fire                                     => timer.fired | running
        claim                                    => run.claimed
        go                                       => tool.completed(t2.1) turn.started
        call wait/pure {"signal": "deploy"}      => turn.completed gate.raised(signal) run.waiting(signal) | waiting signal
        complete                                 => gate.answered | running
        claim                                    => run.claimed
        go                                       => tool.completed(t3.1) turn.started
        ? said                                   => t3.1: it has happened
        call wait/pure {"for": "long"}           => turn.completed tool.failed(t4.1) turn.started
        ? said                                   => t4.1: ! set `for` to a duration such as "2h 30m", `until` to a time such as "2026-01-31T09:00:00Z", `child` to the id of a child run, or `signal` to a name
    "#,
    );
}

#[test]
fn a_run_can_be_cancelled_in_every_stage() {
    for (until, closing) in [
        ("", "close"),
        ("claim", "go"),
        ("claim; see", "err stopped"),
        ("claim; see", "say Too late."),
        ("claim; see", "halt Half"),
        ("claim; see; err context_overflow", "sum 1"),
        ("claim; see; call shell/once", "done t1.1 ok"),
        ("claim; see; call shell/once", "kill t1.1"),
        ("claim; see; call ask_human/pure {\"question\": \"?\"}", "close"),
        ("claim; see; call wait/pure {\"for\": \"1h\"}; claim", "close"),
        ("claim; see; err overloaded", "close"),
        ("claim; missing a key", "close"),
        ("claim; release", "close"),
        ("claim; see; call shell/once; crash", "close"),
        ("claim; see; call read/pure + read/pure; crash; claim", "go"),
        ("claim; see; pause; say Hm.", "close"),
        ("claim; still", "go"),
    ] {
        let mut test_run = super::harness::TestRun::new(plain());
        for line in until.split("; ").filter(|line| !line.is_empty()) {
            test_run.play(line);
        }
        if closing != "close" {
            test_run.play("cancel enough");
            if test_run.rows.head == super::harness::rows::Head::Ready {
                test_run.play("claim");
            }
        }
        let result = test_run.play(closing);
        assert!(result.ends_with("run.cancelled"), "{until}; {closing}: {result}");
        assert!(!result.contains(".started"), "{result}");
    }
}

#[test]
fn a_cancel_waits_for_running_calls_and_keeps_their_results() {
    check(
        plain(),
        r#"
        claim                                     => run.claimed | running
        see                                       => run.prepared turn.started
        call read/pure + write/keyed + shell/once => turn.completed tool.started(t1.1) tool.started(t1.2)
        cancel                                    => run.cancel_requested
        go                                        =>
        ? step                                    => run t1.1 read {}, run t1.2 write {}
        done t1.1 late                            => tool.completed(t1.1)
        steer interrupt                           => steer.queued
        kill t1.2                                 => tool.interrupted(t1.2) steer.dropped run.cancelled | cancelled
        ? outcome                                 => cancelled by cli:anna
        done t1.2 later still                     => !fenced
    "#,
    );
}

#[test]
fn a_cancel_reaches_a_paused_run() {
    check(
        plain(),
        r#"
        claim   => run.claimed | running
        see     => run.prepared turn.started
        pause   => run.pause_requested
        say Hm. => turn.completed run.paused | paused
        cancel  => run.cancel_requested | running
        claim   => run.claimed
        go      => run.cancelled | cancelled
    "#,
    );
}

#[test]
fn a_pause_waits_for_running_calls() {
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        pause          => run.pause_requested
        ? step         => ask turn 1 try 1 max 4096
        call read/pure => turn.completed run.paused | paused
        resume         => run.resumed | running
        claim          => run.claimed
        go             => tool.started(t1.1)
        pause          => run.pause_requested
        done t1.1 ok   => tool.completed(t1.1) run.paused | paused
        resume         => run.resumed | running
        claim          => run.claimed
        go             => turn.started
        say Done.      => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_waiting_run_is_paused_and_waits_again_after_resume() {
    check(
        plain(),
        r#"
        claim                                      => run.claimed | running
        see                                        => run.prepared turn.started
        call ask_human/pure {"question": "Which?"} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        pause                                      => run.pause_requested | running
        claim                                      => run.claimed
        go                                         => run.paused | paused
        answer This one.                           => gate.answered
        resume                                     => run.resumed | running
        claim                                      => run.claimed
        go                                         => tool.completed(t1.1) turn.started
    "#,
    );
    check(
        plain(),
        r#"
        claim                       => run.claimed | running
        missing Set OPENAI_API_KEY. => gate.raised(blocked) run.blocked | blocked blocked
        pause                       => run.pause_requested | running
        claim                       => run.claimed
        go                          => run.paused | paused
        resume                      => run.resumed | running
        claim                       => run.claimed
        go                          => gate.withdrawn
        missing Set OPENAI_API_KEY. => gate.raised(blocked) run.blocked | blocked blocked
    "#,
    );
    check(
        plain(),
        r#"
        still  => run.pause_requested run.paused | paused
        still  => !already_in_state
        pause  => !already_in_state
        resume => run.resumed | pending
        ? step => prepare
        claim  => run.claimed | running
    "#,
    );
}

#[test]
fn a_pause_keeps_the_time_of_a_retry() {
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        pause          => run.pause_requested
        err overloaded => turn.failed(overloaded) run.paused | paused
        resume         => run.resumed | running
        claim          => run.claimed
        go             => turn.started
        err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
        pause          => run.pause_requested | running
        claim          => run.claimed
        go             => run.paused | paused
        tick 60        => timer.fired
        resume         => run.resumed | running
        claim          => run.claimed
        go             => turn.started
    "#,
    );
}

#[test]
fn a_run_that_waits_for_trust_names_the_command_unless_a_model_wrote_the_text() {
    check(
        plain(),
        r#"
        claim                                  => run.claimed | running
        missing Review it with `longhaul trust`. => gate.raised(blocked) run.blocked | blocked blocked
        ? command                              => longhaul trust && longhaul resume RUN
    "#,
    );
    check(
        plain(),
        r#"
        claim                                  => run.claimed | running
        see                                    => run.prepared turn.started
        call report_blocked/pure {"reason": "Type `longhaul trust`."} => turn.completed gate.raised(blocked) run.blocked | blocked blocked
        ? command                              => longhaul answer GATE TEXT
    "#,
    );
}

#[test]
fn a_missing_dependency_blocks_until_an_answer_a_message_or_resume() {
    check(
        plain(),
        r#"
        claim                       => run.claimed | running
        missing Set OPENAI_API_KEY. => gate.raised(blocked) run.blocked | blocked blocked
        ? why                       => The run is blocked: Set OPENAI_API_KEY.
        ? command                   => longhaul resume RUN
        surface t9.9                => tool.surfaced(t9.9) | running
        claim                       => run.claimed
        go                          => run.blocked | blocked blocked
        surface t9.9                => tool.surfaced(t9.9) | running
        claim                       => run.claimed
        missing Set OPENAI_API_KEY. => gate.withdrawn gate.raised(blocked) run.blocked | blocked blocked
        answer It is set.           => gate.answered | running
        claim                       => run.claimed
        ? step                      => prepare
        see                         => run.prepared turn.started
    "#,
    );
    check(
        plain(),
        r#"
        claim                        => run.claimed | running
        missing Set OPENAI_API_KEY.  => gate.raised(blocked) run.blocked | blocked blocked
        steer after_batch It is set. => steer.queued | running
        claim                        => run.claimed
        go                           => gate.withdrawn
        see                          => run.prepared steer.delivered(after turn 0) turn.started
        ? said                       => It is set.
    "#,
    );
    check(
        plain(),
        r#"
        claim                       => run.claimed | running
        missing Set OPENAI_API_KEY. => gate.raised(blocked) run.blocked | blocked blocked
        ? command                   => longhaul resume RUN
        resume                      => run.resumed | running
        claim                       => run.claimed
        go                          => gate.withdrawn
        see                         => run.prepared turn.started
    "#,
    );
}

#[test]
fn a_driver_releases_the_run_cleanly() {
    check(
        plain(),
        r#"
        claim       => run.claimed | running
        release     => run.waiting(worker) | running worker
        ? why       => The run waits for a worker.
        claim       => run.claimed | running
        see         => run.prepared turn.started
        release     => !invalid_state
        err stopped => turn.failed(stopped) run.waiting(worker) | running worker
        claim       => run.claimed | running
        go          => turn.started
        ? step      => ask turn 1 try 2 max 4096
    "#,
    );
}

#[test]
fn a_release_keeps_timers() {
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        err overloaded => turn.failed(overloaded) run.waiting(retry) | waiting retry
        surface t9.9   => tool.surfaced(t9.9) | running
        claim          => run.claimed
        release        => run.waiting(worker) | running worker
        claim          => run.claimed | running
        go             => run.waiting(retry) | waiting retry
        fire           => timer.fired | running
        claim          => run.claimed
        go             => turn.started
    "#,
    );
}
