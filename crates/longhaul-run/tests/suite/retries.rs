//! Retries of failed runs: a retry continues from the last good event, repeats no completed call,
//! and keeps what was used.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::{ApprovalRequirement, GateRule, GateTimeoutAction};

use super::harness::TestRun;
use super::harness::script::{check, check_in};
use super::policies::{ask_rule, ask_rule_with_timeout, plain, result_gate, with_caps, with_rule};

/// Plays the lines without comparing their outcomes. The run must then have failed.
fn failed(policy: RunPolicy, lines: &[&str]) -> TestRun {
    let mut test_run = TestRun::new(policy);
    for line in lines {
        test_run.play(line);
    }
    assert_eq!(test_run.run.status().as_str(), "failed", "{:?}", test_run.run.control());
    test_run
}

/// Returns the idempotency keys of the calls that are to be made now, with the epochs that tools see.
fn open_calls(test_run: &TestRun) -> Vec<(String, u64)> {
    let run = &test_run.run;
    let step = longhaul_run::next_engine_step(run, test_run.now);
    let longhaul_run::EngineStep::UseTools(tasks) = step else {
        panic!("no calls: {step:?}");
    };
    let keys = tasks.iter().map(|task| {
        let origin = run.call_origin(task.call);
        let key = task.call.call_idempotency_key(origin.map_or(run.id(), |origin| origin.run));
        (key, origin.map_or(0, |origin| origin.epochs.0) + run.control().driver.epoch.0)
    });
    keys.collect()
}

#[test]
fn a_retry_has_the_caps_to_which_the_budget_was_raised() {
    let raised = ["raise money 9000000", "raise turns 50", "claim"];
    let without_turn = ["see", "err invalid_request", "err invalid_request"];
    let with_turn = ["see", "call read/pure", "done t1.1 ok", "err invalid_request"];
    for lines in [
        [&raised[..], &without_turn].concat(),
        [&raised[..], &with_turn, &["err invalid_request"]].concat(),
    ] {
        let retry =
            failed(with_caps(Budget { turns: Some(20), ..Budget::PROJECT_DEFAULT }), &lines)
                .retry();
        let Budget { micro_usd, turns, .. } = retry.run.control().budget.caps;
        assert_eq!((micro_usd.unwrap().0, turns), (9_000_000, Some(50)), "{lines:?}");
    }
}

#[test]
fn a_retry_goes_on_after_the_last_result() {
    let failed = check(
        plain(),
        r#"
        claim          => run.claimed | running
        see a/b        => run.prepared turn.started
        call send/once => turn.completed tool.started(t1.1)
        done t1.1 sent => tool.completed(t1.1) turn.started
        err invalid_request => turn.failed(invalid_request) turn.started
        err invalid_request => turn.failed(invalid_request) run.failed(invalid_request) | failed
    "#,
    );
    let retry = check_in(
        failed.retry(),
        r#"
        ? said   => t1.1: sent
        ? model  => scripted/poem
        claim    => run.claimed | running
        go       => turn.started
        ? step   => ask turn 2 try 1 max 4096
        say Done => turn.completed run.completed(Done) | completed
    "#,
    );
    assert_eq!((failed.run.attempt_number(), retry.run.attempt_number()), (1, 2));
    assert_eq!(retry.run.control().turns, 2);
}

#[test]
fn an_unusable_reply_is_asked_for_again() {
    for reply in ["cut", "refuse", "refuse send/once"] {
        let begin = ["claim", "see", "call read/pure", "done t1.1 text", reply];
        check_in(
            failed(plain(), &begin).retry(),
            r#"
            ? said   => t1.1: text
            claim    => run.claimed | running
            go       => turn.started
            ? step   => ask turn 3 try 1 max 4096
            say Done => turn.completed run.completed(Done) | completed
        "#,
        );
    }
}

#[test]
fn a_rejected_result_is_shown_again() {
    let failed = failed(
        result_gate(GateTimeoutAction::Approve),
        &["claim", "see", "say Done", "no", "claim", "go"],
    );
    check_in(
        failed.retry(),
        r#"
        claim => run.claimed | running
        go    => gate.raised(result) run.waiting(approval) | waiting approval
        yes   => gate.answered | running
        claim => run.claimed
        go    => run.completed(Done) | completed
    "#,
    );
}

#[test]
fn a_call_in_doubt_stays_in_doubt() {
    let begin = ["claim", "see", "call send/once!fail", "lose t1.1 gone"];
    let retry = check_in(
        failed(plain(), &begin).retry(),
        r#"
        claim       => run.claimed | running
        go          => gate.raised(indoubt) run.waiting(question) | waiting question
        answer sent => gate.answered | running
        claim       => run.claimed
        go          => tool.completed(t1.1) turn.started
        ? said      => t1.1: sent
    "#,
    );
    let starts = retry.entries.iter().filter(|entry| entry.event.kind() == "tool.started");
    assert_eq!(starts.count(), 1, "the call is not made again");
}

#[test]
fn an_unfinished_call_keeps_its_key_over_several_retries() {
    let policy = || ask_rule_with_timeout(GateTimeoutAction::Fail);
    // The driver dies during the first call, and nobody answers the gate of the second one.
    let begin =
        ["claim", "see", "call write/keyed + shell/once", "crash", "tick 601", "claim", "go"];
    let first = failed(policy(), &begin);
    let fails_again = ["claim", "go", "crash", "tick 601", "claim", "go"];
    let mut second = first.retry();
    let mut keys = Vec::new();
    for line in fails_again {
        second.play(line);
        if line == "go" && keys.is_empty() {
            keys = open_calls(&second);
        }
    }
    let key = format!("{}:t1.1", first.run.id());
    assert_eq!(keys, [(key.clone(), 3)], "epochs 1 and 2 belong to the failed run");
    assert_eq!(second.run.status().as_str(), "failed");
    let mut third = second.retry();
    third.play("claim");
    third.play("go");
    assert_eq!(open_calls(&third), [(key, 5)]);
    third.run_to_end();
    assert_eq!(third.run.status().as_str(), "completed");
    assert_eq!(third.run.attempt_number(), 3);
}

#[test]
fn messages_that_were_not_read_are_delivered_to_the_retry() {
    let begin = [
        "claim",
        "see",
        "call read/pure",
        "steer after_batch One.",
        "done t1.1 text",
        "steer after_batch Two.",
        "steer after_batch Three.",
        "unsteer 2",
        "steer follow_up Four.",
        "resteer after_batch Five.",
        "err invalid_request",
    ];
    let mut retry = failed(plain(), &begin).retry();
    for line in ["claim", "go"] {
        retry.play(line);
    }
    let users = retry.run.transcript().messages().iter().filter_map(|message| match &**message {
        longhaul_core::message::Message::User(parts) => parts[0].text(),
        _ => None,
    });
    let users: Vec<&str> = users.collect();
    assert_eq!(users[users.len() - 3..], ["One.", "Three.", "Five."]);
    retry.run_to_end();
    assert_eq!(retry.run.status().as_str(), "completed");
}

#[test]
fn a_run_without_a_completed_turn_starts_from_the_beginning_with_all_its_messages() {
    let begin = ["steer after_batch One.", "claim", "see", "steer after_batch Two.", "err auth"];
    check_in(
        failed(plain(), &begin).retry(),
        r#"
        claim => run.claimed | running
        see   => run.prepared steer.delivered(after turn 0) steer.delivered(after turn 0) turn.started
        ? said => Two.
    "#,
    );
}

#[test]
fn a_retry_has_neither_new_turns_nor_a_new_budget() {
    let limited = RunPolicy { max_turns: Some(1), ..plain() };
    check_in(
        failed(limited, &["claim", "see", "call read/pure"]).retry(),
        r#"
        claim     => run.claimed | running
        go        => run.failed(turn_limit) | failed
        ? hint    => raise max_turns in the agent file, then submit the task again: a retry keeps the count
    "#,
    );
    let capped = with_caps(Budget { turns: Some(1), warn_percent: 100, ..Budget::default() });
    check_in(
        failed(capped, &["claim", "see", "refuse"]).retry(),
        r#"
        claim => run.claimed | running
        go    => budget.reached(turns) run.waiting(budget) | waiting budget
    "#,
    );
}

#[test]
fn neither_submitter_of_a_retry_may_approve_its_gates() {
    let rule =
        GateRule { approvers: ApprovalRequirement { count: 1, not_submitter: true }, ..ask_rule() };
    let mut first = TestRun::with_task(|task| {
        task.policy = with_rule(rule);
        task.submitter = Some("key:anna".into());
    });
    for line in ["claim", "see", "call read/pure", "done t1.1 ok", "err invalid_request"] {
        first.play(line);
    }
    check_in(
        first.retry(),
        r#"
        claim                             => run.claimed | running
        go                                => turn.started
        call shell/once {"command": "ls"} => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
        yes by key:boss                   => !self_approval
        yes by key:anna                   => !self_approval
        yes by key:cleo                   => gate.answered | running
    "#,
    );
}
