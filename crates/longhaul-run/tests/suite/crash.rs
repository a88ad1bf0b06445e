//! Crashes of the driver. Recorded results are kept. Calls without a recorded result are repeated
//! or in doubt, depending on their effect class.
//!
//! Invariant: no call with side effects is repeated silently.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::effect::InDoubtPolicy;

use super::harness::script::check;
use super::policies::plain;

#[test]
fn a_crash_before_the_first_turn_or_in_one_is_recovered() {
    check(
        plain(),
        r#"
        claim     => run.claimed | running
        crash     =>
        claim     => run.claimed
        ? step    => prepare
        see       => run.recovered run.prepared turn.started
        crash     =>
        claim     => run.claimed
        ? step    => advance
        go        => run.recovered turn.failed(lost) turn.started
        ? step    => ask turn 1 try 2 max 4096
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn pure_and_keyed_calls_are_repeated_after_a_crash() {
    check(
        plain(),
        r#"
        claim                                     => run.claimed | running
        see                                       => run.prepared turn.started
        call read/pure + write/keyed + shell/once => turn.completed tool.started(t1.1) tool.started(t1.2)
        done t1.1 ok                              => tool.completed(t1.1)
        crash                                     =>
        claim                                     => run.claimed
        go                                        => run.recovered tool.started(t1.2 again 2)
        ? step                                    => run t1.2 write {}
        done t1.2 ok                              => tool.completed(t1.2) tool.started(t1.3)
        done t1.3 ok                              => tool.completed(t1.3) turn.started
    "#,
    );
}

#[test]
fn in_doubt_tell_reports_to_the_model() {
    check(
        plain(),
        r#"
        claim                                   => run.claimed | running
        see                                     => run.prepared turn.started
        call shell/once!tell + pty/session!tell => turn.completed tool.started(t1.1)
        crash                                   =>
        claim                                   => run.claimed
        go                                      => run.recovered tool.in_doubt(t1.1) tool.failed(t1.1) tool.started(t1.2)
        crash                                   =>
        claim                                   => run.claimed
        go                                      => run.recovered tool.in_doubt(t1.2) tool.failed(t1.2) turn.started
        ? said                                  => t1.1: ! the call was started and interrupted, and its outcome is unknown. Its worker died or stopped responding, and what it started may still be running on that worker's machine. It may have happened | t1.2: ! the call was started and interrupted, and its outcome is unknown. Its worker died or stopped responding. It may have happened
    "#,
    );
}

#[test]
fn an_unknown_result_without_a_crash_has_a_reason() {
    let script = |question: &str| {
        format!(
            "{question} What was the outcome? Approve to run it again, reject if it did not happen and should not, or answer with its result."
        )
    };
    let one = script("send was started. The server ended.");
    let two = script(
        "shell was started. Its worker died or stopped responding, and what it started may still be running on that worker's machine.",
    );
    check(
        plain(),
        &format!(
            r#"
        claim                    => run.claimed | running
        see                      => run.prepared turn.started
        call send/once?          => turn.completed tool.started(t1.1)
        lose t1.1 the server ended => tool.in_doubt(t1.1)
        found t1.1 unknown       => tool.verified(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        ? gates                  => {one}
        no                       => gate.answered | running
        claim                    => run.claimed
        go                       => tool.failed(t1.1) turn.started
        call send/once!tell      => turn.completed tool.started(t2.1)
        lose t2.1 Gone.          => tool.in_doubt(t2.1) tool.failed(t2.1) turn.started
        ? said                   => t2.1: ! the call was started and interrupted, and its outcome is unknown. Gone. It may have happened
        call shell/once          => turn.completed tool.started(t3.1)
        crash                    =>
        claim                    => run.claimed
        go                       => run.recovered tool.in_doubt(t3.1) gate.raised(indoubt) run.waiting(question) | waiting question
        ? gates                  => {two}
        no                       => gate.answered | running
        claim                    => run.claimed
        go                       => tool.failed(t3.1) turn.started
        call send/once!fail      => turn.completed tool.started(t4.1)
        lose t4.1 Gone.          => tool.in_doubt(t4.1) run.failed(in_doubt) | failed
        ? outcome                => in_doubt: send t4.1 was started, and its outcome is unknown: Gone
    "#
        ),
    );
}

#[test]
fn in_doubt_ask_raises_a_gate() {
    check(
        plain(),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call send/once      => turn.completed tool.started(t1.1)
        crash               =>
        claim               => run.claimed
        go                  => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        ? gates             => send was started. Its worker died or stopped responding. What was the outcome? Approve to run it again, reject if it did not happen and should not, or answer with its result.
        yes                 => gate.answered | running
        claim               => run.claimed
        go                  => tool.started(t1.1 again 2)
        crash               =>
        claim               => run.claimed
        go                  => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        no                  => gate.answered | running
        claim               => run.claimed
        go                  => tool.failed(t1.1) turn.started
        ? said              => t1.1: ! a person confirmed that it did not happen
        call send/once      => turn.completed tool.started(t2.1)
        crash               =>
        claim               => run.claimed
        go                  => run.recovered tool.in_doubt(t2.1) gate.raised(indoubt) run.waiting(question) | waiting question
        answer It was sent. => gate.answered | running
        claim               => run.claimed
        go                  => tool.completed(t2.1) turn.started
        ? said              => t2.1: It was sent.
    "#,
    );
}

#[test]
fn in_doubt_fail_ends_the_run() {
    let fails = RunPolicy { in_doubt: Some(InDoubtPolicy::Fail), ..plain() };
    check(
        fails,
        r#"
        claim                      => run.claimed | running
        see                        => run.prepared turn.started
        call read/pure + send/once => turn.completed tool.started(t1.1)
        done t1.1 ok               => tool.completed(t1.1) tool.started(t1.2)
        crash                      =>
        claim                      => run.claimed
        go                         => run.recovered tool.in_doubt(t1.2) run.failed(in_doubt) | failed
        ? outcome                  => in_doubt: send t1.2 was started, and its outcome is unknown: its worker died or stopped responding
    "#,
    );
    // The agent's policy overrides the tool's preference.
    check(
        RunPolicy { in_doubt: Some(InDoubtPolicy::Fail), ..plain() },
        r#"
        claim              => run.claimed | running
        see                => run.prepared turn.started
        call send/once!ask => turn.completed tool.started(t1.1)
        crash              =>
        claim              => run.claimed
        go                 => run.recovered tool.in_doubt(t1.1) run.failed(in_doubt) | failed
    "#,
    );
}

#[test]
fn a_call_in_doubt_is_verified_first() {
    check(
        plain(),
        r#"
        claim                                          => run.claimed | running
        see                                            => run.prepared turn.started
        call push/once? + push/once? + push/once?!tell => turn.completed tool.started(t1.1)
        crash                                          =>
        claim                                          => run.claimed
        go                                             => run.recovered tool.in_doubt(t1.1)
        ? step                                         => verify t1.1 push {}
        found t1.1 it is there                         => tool.verified(t1.1) tool.completed(t1.1) tool.started(t1.2)
        crash                                          =>
        claim                                          => run.claimed
        go                                             => run.recovered tool.in_doubt(t1.2)
        found t1.2 nothing                             => tool.verified(t1.2) tool.started(t1.2 again 2)
        ? step                                         => run t1.2 push {}
        done t1.2 ok                                   => tool.completed(t1.2) tool.started(t1.3)
        crash                                          =>
        claim                                          => run.claimed
        go                                             => run.recovered tool.in_doubt(t1.3)
        found t1.3 unknown                             => tool.verified(t1.3) tool.failed(t1.3) turn.started
        ? said                                         => t1.1: it is there | t1.2: ok | t1.3: ! the call was started and interrupted, and its outcome is unknown. Its worker died or stopped responding. It may have happened
    "#,
    );
}

#[test]
fn a_late_result_settles_a_call_in_doubt() {
    check(
        plain(),
        r#"
        claim              => run.claimed | running
        see                => run.prepared turn.started
        call send/once     => turn.completed tool.started(t1.1)
        crash              =>
        claim              => run.claimed
        go                 => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        surface t1.1 sent  => tool.surfaced(t1.1) | running
        yes                => gate.answered
        claim              => run.claimed
        go                 => tool.completed(t1.1) turn.started
        ? said             => t1.1: sent
        surface t1.1 again => tool.surfaced(t1.1)
    "#,
    );
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        call send/once    => turn.completed tool.started(t1.1)
        crash             =>
        claim             => run.claimed
        go                => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        yes               => gate.answered | running
        surface t1.1 sent => tool.surfaced(t1.1)
        claim             => run.claimed
        go                => tool.completed(t1.1) turn.started
        ? said            => t1.1: sent
    "#,
    );
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        call send/once    => turn.completed tool.started(t1.1)
        crash             =>
        claim             => run.claimed
        go                => run.recovered tool.in_doubt(t1.1) gate.raised(indoubt) run.waiting(question) | waiting question
        surface t1.1 sent => tool.surfaced(t1.1) | running
        claim             => run.claimed
        go                => gate.withdrawn tool.completed(t1.1) turn.started
        yes @1            => !already_answered
    "#,
    );
}

#[test]
fn a_late_verify_outcome_is_dropped() {
    check(
        plain(),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call push/once?     => turn.completed tool.started(t1.1)
        crash               =>
        claim               => run.claimed
        go                  => run.recovered tool.in_doubt(t1.1)
        surface t1.1 pushed => tool.surfaced(t1.1)
        found t1.1 nothing  => tool.completed(t1.1) turn.started
        ? said              => t1.1: pushed
    "#,
    );
    check(
        plain(),
        r#"
        claim              => run.claimed | running
        see                => run.prepared turn.started
        call push/once?    => turn.completed tool.started(t1.1)
        crash              =>
        claim              => run.claimed
        go                 => run.recovered tool.in_doubt(t1.1)
        cancel             => run.cancel_requested
        found t1.1 nothing => run.cancelled | cancelled
    "#,
    );
}

#[test]
fn a_parked_run_is_unchanged_by_a_crash() {
    check(
        plain(),
        r#"
        claim                                      => run.claimed | running
        see                                        => run.prepared turn.started
        call ask_human/pure {"question": "Which?"} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        answer Blue.                               => gate.answered | running
        claim                                      => run.claimed
        crash                                      =>
        claim                                      => run.claimed
        go                                         => run.recovered tool.completed(t1.1) turn.started
        crash                                      =>
        claim                                      => run.claimed
        pause                                      => run.pause_requested
        go                                         => run.recovered turn.failed(lost) run.paused | paused
    "#,
    );
}

/// A turn or call that crashes its worker every time is eventually given up.
#[test]
fn turns_and_calls_have_a_limit_of_starts() {
    let crash = "        crash => \n        claim => run.claimed\n";
    let turns: String = (0..63)
        .map(|_| format!("{crash}        go    => run.recovered turn.failed(lost) turn.started\n"))
        .collect();
    let begin =
        "        claim => run.claimed | running\n        see   => run.prepared turn.started\n";
    let end = "        go    => run.recovered turn.failed(lost) run.failed(lost) | failed\n";
    check(plain(), &format!("{begin}{turns}{crash}{end}"));

    let calls: String = (2..17)
        .map(|start| {
            format!("{crash}        go    => run.recovered tool.started(t1.1 again {start})\n")
        })
        .collect();
    let call = "        call read/pure => turn.completed tool.started(t1.1)\n";
    let end = "        go    => run.recovered tool.failed(t1.1) turn.started\n";
    check(plain(), &format!("{begin}{call}{calls}{crash}{end}"));
}

#[test]
fn crashes_are_counted_until_the_run_makes_progress() {
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        ? crashes         => 0
        crash             =>
        claim             => run.claimed
        ? crashes         => 1
        crash             =>
        claim             => run.claimed
        ? crashes         => 1
        recover           => run.recovered
        recover           =>
        crash             =>
        claim             => run.claimed
        ? crashes         => 2
        recover           => run.recovered
        see               => run.prepared turn.started
        ? crashes         => 0
        crash             =>
        claim             => run.claimed
        go                => run.recovered turn.failed(lost) turn.started
        ? crashes         => 1
        call read/pure    => turn.completed tool.started(t1.1)
        ? crashes         => 0
        crash             =>
        claim             => run.claimed
        go                => run.recovered tool.started(t1.1 again 2)
        crash             =>
        claim             => run.claimed
        go                => run.recovered tool.started(t1.1 again 3)
        ? crashes         => 2
        done t1.1 ok      => tool.completed(t1.1) turn.started
        ? crashes         => 0
    "#,
    );
}

#[test]
fn a_release_is_not_a_crash_and_a_resume_resets_the_count() {
    check(
        plain(),
        r#"
        claim     => run.claimed | running
        see       => run.prepared turn.started
        crash     =>
        claim     => run.claimed
        release   => run.waiting(worker) | running worker
        claim     => run.claimed | running
        ? crashes => 1
        go        => run.recovered turn.failed(lost) turn.started
        crash     =>
        resume    => run.resumed
        ? crashes => 0
    "#,
    );
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see            => run.prepared turn.started
        call read/pure => turn.completed tool.started(t1.1)
        release        => run.waiting(worker) | running worker
        claim          => run.claimed | running
        ? crashes      => 0
        go             => tool.started(t1.1 again 2)
    "#,
    );
}

#[test]
fn a_crash_loop_is_blocked_until_somebody_answers() {
    check(
        plain(),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        crash           =>
        claim           => run.claimed
        go              => run.recovered tool.started(t1.1 again 2)
        crash           =>
        claim           => run.claimed
        go              => run.recovered tool.started(t1.1 again 3)
        crash           =>
        claim           => run.claimed
        ? crashes       => 3
        loop            => gate.raised(blocked) run.blocked | blocked blocked
        answer Again.   => gate.answered | running
        claim           => run.claimed
        ? crashes       => 0
        go              => run.recovered tool.started(t1.1 again 4)
        done t1.1 ok    => tool.completed(t1.1) turn.started
        say Done.       => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_crash_loop_without_a_call_under_way_names_the_turn() {
    let crash = "        crash   =>\n        claim   => run.claimed\n";
    let recovery = "        recover => run.recovered\n";
    let crashes = format!("{crash}{recovery}{crash}{recovery}{crash}");
    let start = "        claim => run.claimed | running
        see => run.prepared turn.started
        call ask_human/pure {\"question\": \"Which?\"} => turn.completed gate.raised(question) run.waiting(question) | waiting question
        answer Blue. => gate.answered | running
        claim => run.claimed\n";
    let end = "        loop => gate.raised(blocked) run.blocked | blocked blocked\n";
    let test_run = check(plain(), &format!("{start}{crashes}{end}"));
    let question = &test_run.rows.gates.last().unwrap().spec.ask;
    assert!(question.contains("same point, after turn 1,"), "{question}");
}
