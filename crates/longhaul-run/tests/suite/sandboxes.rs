//! The sandbox of a run: when it is opened, waited for, stopped, lost and handed over.

use longhaul_core::chain::ChainStepCondition;
use longhaul_core::change::{RowChange, SandboxRow};
use longhaul_core::policy::budget::Budget;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;

use super::chains::{pair, run_in_chain};
use super::harness::TestRun;
use super::harness::script::{check, check_in};
use super::policies::{plain, with_caps};

/// A run whose sandbox runs, with a command in it.
pub(crate) const OPENED: &str = r#"
    claim                => run.claimed | running
    see                  => run.prepared turn.started
    call shell/once@box  => turn.completed
    box open             => sandbox.creating
    box runs             => sandbox.running tool.started(t1.1)
"#;

pub(crate) fn check_opened(script: &str) -> TestRun {
    check(plain(), &format!("{OPENED}{script}"))
}

#[test]
fn the_sandbox_is_created_before_the_first_call_that_needs_it() {
    check(
        plain(),
        r#"
        claim                           => run.claimed | running
        see                             => run.prepared turn.started
        call read/pure                  => turn.completed tool.started(t1.1)
        ? box                           => none
        done t1.1 ok                    => tool.completed(t1.1) turn.started
        call read/pure + shell/once@box => turn.completed tool.started(t2.1)
        done t2.1 ok                    => tool.completed(t2.1)
        ? step                          => opensandbox
        go                              =>
        box open                        => sandbox.creating
        ? box                           => creating, with slot
        ? step                          => opensandbox
        box runs                        => sandbox.running tool.started(t2.2)
        done t2.2 ok                    => tool.completed(t2.2)
        box saved                       => workspace.saved turn.started
        call shell/once@box             => turn.completed tool.started(t3.1)
        done t3.1 ok                    => tool.completed(t3.1)
        box saved                       => workspace.saved turn.started
        say Done.                       => turn.completed run.completed(Done.) | completed
        ? box                           => running, with slot, idle, of ended run
        idle stopping                   => stopping
        idle stopped                    => stopped
        ? box                           => stopped, idle, of ended run
        idle deleted                    => deleted
    "#,
    );
}

#[test]
fn each_claim_opens_the_sandbox_again() {
    check_opened(
        r#"
        done t1.1 ok                             => tool.completed(t1.1)
        box saved                                => workspace.saved turn.started
        crash                                    =>
        claim                                    => run.claimed
        go                                       => run.recovered turn.failed(lost) turn.started
        ? box                                    => running, with slot
        call read/pure@box + read/pure@box       => turn.completed
        ? step                                   => opensandbox
        box runs                                 => sandbox.running tool.started(t2.1) tool.started(t2.2)
        crash                                    =>
        claim                                    => run.claimed
        go                                       => run.recovered
        ? step                                   => opensandbox
        box runs                                 => sandbox.running tool.started(t2.1 again 2) tool.started(t2.2 again 2)
    "#,
    );
}

#[test]
fn a_run_waits_for_a_free_slot() {
    check(
        plain(),
        r#"
        claim                       => run.claimed | running
        see                         => run.prepared turn.started
        box full                    =>
        call shell/once@box         => turn.completed
        box open                    => run.waiting(sandbox_slot) | waiting sandbox_slot
        ? box                       => none
        surface t9.9                => tool.surfaced(t9.9) | running
        claim                       => run.claimed
        box open                    => run.waiting(sandbox_slot) | waiting sandbox_slot
        box free                    =>
        fire                        => timer.fired | running
        claim                       => run.claimed
        box open                    => sandbox.creating
        box runs                    => sandbox.running tool.started(t1.1)
    "#,
    );
}

#[test]
fn an_idle_sandbox_is_stopped_and_started_again() {
    let question = r#"call ask_human/pure {"question": "Which?"}"#;
    check_opened(&format!(
        r#"
        idle stopping               => !in use
        done t1.1 ok                => tool.completed(t1.1)
        box saved                   => workspace.saved turn.started
        {question}                  => turn.completed gate.raised(question) run.waiting(question) | waiting question
        ? box                       => running, with slot, idle
        idle stopping               => sandbox.stopping
        ? box                       => stopping, with slot, idle
        idle stopped                => sandbox.stopped
        ? box                       => stopped, idle
        answer Blue.                => gate.answered | running
        claim                       => run.claimed
        go                          => tool.completed(t2.1) turn.started
        call shell/once@box         => turn.completed
        box open                    => sandbox.starting
        ? box                       => starting, with slot
        box runs                    => sandbox.running tool.started(t3.1)
        done t3.1 ok                => tool.completed(t3.1)
        box saved                   => workspace.saved turn.started
        pause                       => run.pause_requested
        say Done.                   => turn.completed run.paused | paused
        ? box                       => running, with slot, idle
    "#
    ));
}

#[test]
fn a_run_that_only_polls_does_not_keep_its_sandbox() {
    let idle_since = |test_run: &TestRun| {
        let mut rows = test_run.rows.sandboxes.rows.values();
        rows.next_back().unwrap().idle_since.unwrap()
    };
    let test_run = check_opened(
        r#"
        done t1.1 ok           => tool.completed(t1.1)
        box saved              => workspace.saved turn.started
        call look/pure         => turn.completed tool.started(t2.1)
        pend t2.1 30           => tool.pending(t2.1) run.waiting(tool) | waiting tool
    "#,
    );
    let first = idle_since(&test_run);
    let test_run = check_in(
        test_run,
        r#"
        tick 60                => timer.fired | running
        claim                  => run.claimed
        go                     => tool.resumed(t2.1)
        pend t2.1 30           => tool.pending(t2.1) run.waiting(tool) | waiting tool
        ? box                  => running, with slot, idle
    "#,
    );
    assert_eq!(idle_since(&test_run), first);
    let test_run = check_in(
        test_run,
        r#"
        tick 60                => timer.fired | running
        claim                  => run.claimed
        go                     => tool.resumed(t2.1)
        done t2.1 ok           => tool.completed(t2.1) turn.started
        call read/pure@box     => turn.completed
        box runs               => sandbox.running tool.started(t3.1)
        pend t3.1 30           => tool.pending(t3.1) run.waiting(tool) | waiting tool
    "#,
    );
    assert!(idle_since(&test_run) > first);
}

#[test]
fn a_claim_during_a_stop_finishes_the_stop() {
    let question = r#"call ask_human/pure {"question": "Which?"}"#;
    check_opened(&format!(
        r#"
        done t1.1 ok                => tool.completed(t1.1)
        box saved                   => workspace.saved turn.started
        {question}                  => turn.completed gate.raised(question) run.waiting(question) | waiting question
        answer Blue.                => gate.answered | running
        idle stopping               => sandbox.stopping
        claim                       => run.claimed
        idle stopped                => !fenced
        go                          => tool.completed(t2.1) turn.started
        call shell/once@box         => turn.completed
        ? step                      => opensandbox
        box unavailable             => run.waiting(sandbox_slot) | waiting sandbox_slot
        ? box                       => stopping, with slot, idle
        fire                        => timer.fired | running
        claim                       => run.claimed
        box stopped                 => sandbox.stopped
        box full                    =>
        box open                    => run.waiting(sandbox_slot) | waiting sandbox_slot
        box free                    =>
        fire                        => timer.fired | running
        claim                       => run.claimed
        box open                    => sandbox.starting
        box lost                    => sandbox.lost
        ? step                      => opensandbox
        box open                    => sandbox.creating
        box runs                    => sandbox.running tool.started(t3.1)
    "#
    ));
}

#[test]
fn a_sandbox_that_is_lost_during_a_call_is_replaced() {
    let test_run = check_opened(
        r#"
        box lost                    => sandbox.lost
        ? box                       => lost
        fail t1.1 It is gone.       => tool.failed(t1.1) turn.started(signal)
        call shell/once@box         => turn.completed
        box open                    => sandbox.creating
        box runs                    => sandbox.running tool.started(t2.1)
    "#,
    );
    assert_eq!(test_run.rows.sandboxes.rows.len(), 2);
}

#[test]
fn a_run_waits_without_a_slot_while_the_provider_has_no_room() {
    check(
        plain(),
        r#"
        claim                       => run.claimed | running
        see                         => run.prepared turn.started
        call shell/once@box         => turn.completed
        box open                    => sandbox.creating
        box noroom                  => sandbox.lost run.waiting(sandbox_slot) | waiting sandbox_slot
        ? box                       => lost
        ? timers                    => [2176]
        fire                        => timer.fired | running
        claim                       => run.claimed
        box open                    => sandbox.creating
        box noroom                  => sandbox.lost run.waiting(sandbox_slot) | waiting sandbox_slot
        ? timers                    => [4498]
        fire                        => timer.fired | running
        claim                       => run.claimed
        box open                    => sandbox.creating
        box runs                    => sandbox.running tool.started(t1.1)
    "#,
    );
}

#[test]
fn a_run_asks_for_help_when_its_provider_stays_unavailable() {
    let mut test_run = TestRun::new(plain());
    for line in ["claim", "see", "call shell/once@box", "box open"] {
        test_run.play(line);
    }
    for _ in 0..12 {
        assert_eq!(test_run.play("box unavailable"), "run.waiting(sandbox_slot)");
        assert_eq!(test_run.play("? box"), "creating, with slot, idle");
        let delay: u64 = test_run.play("? timers").trim_matches(['[', ']']).parse().unwrap();
        assert!(delay <= 375_000, "{delay}");
        test_run.play("fire");
        test_run.play("claim");
    }
    check_in(
        test_run,
        r#"
        box unavailable => gate.raised(blocked) run.blocked | blocked blocked
        ? gates         => The sandbox of the run can't be opened: the sandbox provider does not answer: timeout
        resume          => run.resumed | running
        claim           => run.claimed
        go              => gate.withdrawn
        box runs        => sandbox.running tool.started(t1.1)
    "#,
    );
}

#[test]
fn a_refused_sandbox_is_opened_again_after_a_person_has_helped() {
    let created = check(
        plain(),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call shell/once@box => turn.completed
        box open            => sandbox.creating
        box refused         => sandbox.lost gate.raised(blocked) run.blocked | blocked blocked
        ? box               => lost
        ? gates             => The sandbox of the run can't be opened: There is no image `x`.
        resume              => run.resumed | running
        claim               => run.claimed
        go                  => gate.withdrawn
        box open            => sandbox.creating
        box lost            => sandbox.lost run.waiting(sandbox_slot) | waiting sandbox_slot
        fire                => timer.fired | running
        claim               => run.claimed
        box open            => sandbox.creating
        box runs            => sandbox.running tool.started(t1.1)
    "#,
    );
    assert_eq!(created.rows.sandboxes.rows.len(), 3);
}

#[test]
fn a_run_is_cancelled_while_its_sandbox_is_opened() {
    for (line, expected) in [
        ("box runs", "sandbox.running run.cancelled"),
        ("box unavailable", "run.cancelled"),
        ("box refused", "sandbox.lost run.cancelled"),
    ] {
        let test_run = check(
            plain(),
            &format!(
                r#"
                claim               => run.claimed | running
                see                 => run.prepared turn.started
                call shell/once@box => turn.completed
                box open            => sandbox.creating
                cancel              => run.cancel_requested
                ? step              => advance
                {line}              => {expected} | cancelled
            "#
            ),
        );
        // The runtime stops the sandbox even if its creation was not answered.
        let is_gone = line == "box refused";
        assert_eq!(test_run.show_sandbox().ends_with("idle, of ended run"), !is_gone, "{line}");
    }
    check(
        plain(),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call shell/once@box => turn.completed
        cancel              => run.cancel_requested
        box open            => run.cancelled | cancelled
        ? box               => none
    "#,
    );
}

#[test]
fn a_call_in_doubt_is_verified_in_the_sandbox() {
    check(
        plain(),
        r#"
        claim                => run.claimed | running
        see                  => run.prepared turn.started
        call shell/once?@box => turn.completed
        box open             => sandbox.creating
        box runs             => sandbox.running tool.started(t1.1)
        crash                =>
        claim                => run.claimed
        go                   => run.recovered tool.in_doubt(t1.1)
        ? step               => opensandbox
        box runs             => sandbox.running
        ? step               => verify t1.1 shell {}
        found t1.1 nothing   => tool.verified(t1.1) tool.started(t1.1 again 2)
    "#,
    );
}

#[test]
fn a_run_without_active_time_opens_no_sandbox() {
    let budget = Budget { active: Some(Millis(600)), ..Budget::default() };
    check(
        with_caps(budget),
        r#"
        claim                => run.claimed | running
        see                  => run.prepared turn.started
        call shell/once@box  => turn.completed budget.reached(activetime) run.waiting(budget) | waiting budget
        ? box                => none
        resume active 900    => run.resumed | running
        claim                => run.claimed
        go                   =>
        ? step               => opensandbox
        box open             => sandbox.creating
        box runs             => sandbox.running tool.started(t1.1)
    "#,
    );
}

#[test]
fn a_retry_has_a_sandbox_of_its_own() {
    let failed = check_opened(
        r#"
        done t1.1 ok          => tool.completed(t1.1)
        box saved             => workspace.saved turn.started
        call shell/once@box   => turn.completed tool.started(t2.1)
        done t2.1 ok          => tool.completed(t2.1)
        box saved             => workspace.saved turn.started
        err invalid_request   => turn.failed(invalid_request) run.failed(invalid_request) | failed
        ? box                 => running, with slot, idle, of ended run
    "#,
    );
    let first = failed.run.control().sandbox.clone().unwrap().event.sandbox;
    let retry = check_in(
        failed.retry(),
        r#"
        ? box               => none
        claim               => run.claimed | running
        go                  => turn.started
        call shell/once@box => turn.completed
        box open            => sandbox.creating
        box runs            => sandbox.running tool.started(t3.1)
    "#,
    );
    assert_ne!(retry.run.control().sandbox.clone().unwrap().event.sandbox, first);
}

/// Returns the run of the next step of a chain, which takes over the sandbox of the run before it.
fn next_step_with_sandbox(first: &TestRun) -> TestRun {
    let reply = first.clone().input("say", "A poem.").unwrap();
    let batch = first.decide_only(reply, None).unwrap();
    let mut changes = batch.changes.iter();
    let task = changes.find_map(|change| match change {
        RowChange::CreateStep(step) => Some(step.task.clone()),
        _ => None,
    });
    let mut next = TestRun::with_task(|new| {
        let id = new.root;
        *new = TaskSpec { root: id, ..task.unwrap() };
    });
    let mut rows = first.rows.sandboxes.clone();
    let row = batch.changes.iter().find_map(|change| match change {
        RowChange::SetSandbox(row) => Some(row.clone()),
        _ => None,
    });
    rows.change(RowChange::SetSandbox(SandboxRow { owner: next.run.id(), ..row.unwrap() }))
        .unwrap();
    next.rows.sandboxes = rows;
    next
}

#[test]
fn the_next_step_of_a_chain_takes_the_sandbox_over() {
    let first = check_in(
        run_in_chain(pair(ChainStepCondition::Always), plain()),
        &format!(
            r#"
            {OPENED}
            done t1.1 ok => tool.completed(t1.1)
            box saved    => workspace.saved turn.started
        "#
        ),
    );
    let next = next_step_with_sandbox(&first);
    check_in(
        first,
        r#"
        say A poem. => turn.completed chain.step_started run.completed(A poem.) | completed
        ? box       => running, with slot, idle, of next run
    "#,
    );
    let next = check_in(
        next,
        r#"
        ? box               => running, with slot, idle
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call shell/once@box => turn.completed
        ? step              => opensandbox
        box runs            => sandbox.running tool.started(t1.1)
        ? box               => running, with slot
        done t1.1 ok        => tool.completed(t1.1)
        box same            => workspace.saved turn.started
        err auth            => turn.failed(auth) gate.raised(blocked) run.blocked | blocked blocked
        cancel              => run.cancel_requested | running
    "#,
    );
    let event = &next.run.control().sandbox.as_deref().unwrap().event;
    assert_eq!(event.earlier_epochs, 1, "commands of the next step have higher epochs");
}

#[test]
fn the_retry_of_a_step_does_not_use_the_sandbox_of_the_failed_step() {
    let first = check_in(run_in_chain(pair(ChainStepCondition::Always), plain()), OPENED);
    let mut first = first;
    first.play("done t1.1 ok");
    first.play("box saved");
    let failed = check_in(
        next_step_with_sandbox(&first),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        err invalid_request => turn.failed(invalid_request) run.failed(invalid_request) | failed
        ? box               => running, with slot, idle, of ended run
    "#,
    );
    assert_eq!(failed.retry().run.control().sandbox, None);
}
