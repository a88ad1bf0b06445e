//! Results that are graded against a rubric: rounds, verdicts, graders that fail, and what comes
//! before and after the grading.

use longhaul_core::change::TimerKind;
use longhaul_core::policy::gate::GateTimeoutAction;
use longhaul_core::policy::{ChildCancelPolicy, RunPolicy};
use longhaul_core::status::RunOutcome;
use longhaul_core::time::Millis;

use super::harness::TestRun;
use super::harness::children::child_id;
use super::harness::script::{check, check_in};
use super::policies::{plain, result_gate};

/// A policy under which results are graded in at most this many rounds.
fn graded(rounds: u32) -> RunPolicy {
    RunPolicy { outcome_rounds: Some(rounds), ..plain() }
}

/// Plays a script after the first result of a run, whose grading run has started.
#[track_caller]
fn check_after_result(policy: RunPolicy, script: &str) -> TestRun {
    check(
        policy,
        &format!(
            "claim      => run.claimed | running
             see        => run.prepared turn.started
             say First. => turn.completed
             ? step     => startgrading
             grade      => child.started(grading) run.waiting(child) | waiting child
             {script}"
        ),
    )
}

#[test]
fn the_note_of_the_grader_is_the_next_message() {
    let run = check_after_result(
        graded(3),
        r#"
        ? why      => The run waits for CHILD1, which grades its result (round 1 of 3).
        ? command  => longhaul why CHILD1
        crash      => !not driven
        child 1 {"satisfied": false, "note": "Too short."} => child.ended | running
        child 1 {"satisfied": true, "note": "Again."} => child.ended
        claim      => run.claimed
        go         => outcome.graded(1 not_satisfied) turn.started
        ? said     => [longhaul] Your result was graded against the rubric of this task and is not accepted yet. Note of the grader: ¶ Too short. ¶ Improve your work, then give the whole result again.
        say Second. => turn.completed
        grade      => child.started(grading) run.waiting(child) | waiting child
        ? why      => The run waits for CHILD2, which grades its result (round 2 of 3).
        child 2 {"satisfied": true, "note": "Good."} => child.ended | running
        claim      => run.claimed
        go         => outcome.graded(2 satisfied) run.completed(Second.) | completed
    "#,
    );
    let verdicts: Vec<_> = run.run.control().outcome.verdicts().iter().collect();
    let notes: Vec<_> = verdicts.iter().map(|graded| graded.note.as_str()).collect();
    assert_eq!(notes, ["Too short.", "Good."]);
    assert_eq!(verdicts[1].child, Some(child_id(2)));
}

#[test]
fn a_result_that_is_never_accepted_fails_the_run_and_is_kept() {
    let run = check_after_result(
        graded(2),
        r#"
        child 1 {"satisfied": false, "note": "Too short."} => child.ended | running
        claim       => run.claimed
        go          => outcome.graded(1 not_satisfied) turn.started
        say Second. => turn.completed
        grade       => child.started(grading) run.waiting(child) | waiting child
        child 2 {"satisfied": false, "note": "Too long."} => child.ended | running
        claim       => run.claimed
        go          => outcome.graded(2 not_satisfied) run.failed(outcome_not_met) | failed
        ? outcome   => outcome_not_met: the result did not meet the rubric in round 2 of 2; the last note: Too long.
    "#,
    );
    assert_eq!(partial_text(&run), Some("Second."));
    // A retry continues with the note, and counts the rounds from 1.
    check_in(
        run.retry(),
        r#"
        claim      => run.claimed | running
        go         => turn.started
        ? said     => [longhaul] Your result was graded against the rubric of this task and is not accepted yet. Note of the grader: ¶ Too long. ¶ Improve your work, then give the whole result again.
        say Third. => turn.completed
        grade      => child.started(grading) run.waiting(child) | waiting child
        ? why      => The run waits for CHILD1, which grades its result (round 1 of 2).
    "#,
    );
}

fn partial_text(run: &TestRun) -> Option<&str> {
    let Some(RunOutcome::Failed(error)) = run.run.outcome() else {
        return None;
    };
    error.partial_text.as_deref()
}

#[test]
fn a_grader_without_a_verdict_fails_the_run_and_a_retry_grades_again() {
    for (end, why) in [
        ("child 1 Fine!", "the grading run CHILD1 gave no verdict"),
        (r#"child 1 {"satisfied": "yes"}"#, "the grading run CHILD1 gave no verdict"),
        ("child 1 !no key", "the grading run CHILD1 failed (auth): no key"),
        ("child 1 cancelled", "the grading run CHILD1 was cancelled by cli:anna"),
    ] {
        let run = check_after_result(
            graded(3),
            &format!(
                "{end}      => child.ended | running
                 claim      => run.claimed
                 go         => outcome.graded(1 grader_failed) run.failed(grader_failed) | failed
                 ? outcome  => grader_failed: the result could not be graded: {why}"
            ),
        );
        assert_eq!(partial_text(&run), Some("First."), "{end}");
        check_in(
            run.retry(),
            r#"
            claim  => run.claimed | running
            go     =>
            ? step => startgrading
            grade  => child.started(grading) run.waiting(child) | waiting child
            child 1 {"satisfied": true, "note": "Good."} => child.ended | running
            claim  => run.claimed
            go     => outcome.graded(1 satisfied) run.completed(First.) | completed
        "#,
        );
    }
    check(
        graded(3),
        "claim           => run.claimed | running
         see             => run.prepared turn.started
         say First.      => turn.completed
         ungrade no inbox => outcome.graded(1 grader_failed) run.failed(grader_failed) | failed
         ? outcome       => grader_failed: the result could not be graded: no inbox",
    );
}

#[test]
fn a_person_is_asked_after_the_grader_and_may_start_new_rounds() {
    let policy = RunPolicy { outcome_rounds: Some(1), ..result_gate(GateTimeoutAction::Reject) };
    check_after_result(
        policy,
        r#"
        child 1 {"satisfied": true, "note": "Good."} => child.ended | running
        claim               => run.claimed
        go                  => outcome.graded(1 satisfied) gate.raised(result) run.waiting(approval) | waiting approval
        no Make it shorter. => gate.answered | running
        claim               => run.claimed
        go                  => turn.started
        say Short.          => turn.completed
        grade               => child.started(grading) run.waiting(child) | waiting child
        child 2 {"satisfied": true, "note": "Good."} => child.ended | running
        claim               => run.claimed
        go                  => outcome.graded(1 satisfied) gate.raised(result) run.waiting(approval) | waiting approval
        yes                 => gate.answered | running
        claim               => run.claimed
        go                  => run.completed(Short.) | completed
    "#,
    );
}

#[test]
fn a_run_that_stays_open_is_graded_before_and_after_a_message() {
    let policy = RunPolicy { keep_open: Some(Millis::from_secs(60)), ..graded(1) };
    check_after_result(
        policy,
        r#"
        child 1 {"satisfied": true, "note": "Good."} => child.ended | running
        claim             => run.claimed
        go                => outcome.graded(1 satisfied) run.waiting(message) | waiting message
        steer after_batch => steer.queued | running
        claim             => run.claimed
        go                => steer.delivered(after turn 1) turn.started
        say Second.       => turn.completed
        grade             => child.started(grading) run.waiting(child) | waiting child
        child 2 {"satisfied": false, "note": "Bad."} => child.ended | running
        claim             => run.claimed
        go                => outcome.graded(1 not_satisfied) run.failed(outcome_not_met) | failed
    "#,
    );
}

#[test]
fn a_message_during_the_grading_leads_to_another_result() {
    let run = check_after_result(
        graded(1),
        r#"
        steer after_batch => steer.queued | running
        claim             => run.claimed
        go                => steer.delivered(after turn 1) turn.started
        say Second.       => turn.completed run.waiting(child) | waiting child
        child 1 cancelled => child.ended | running
        claim             => run.claimed
        go                =>
        grade             => child.started(grading) run.waiting(child) | waiting child
        child 2 {"satisfied": true, "note": "Good."} => child.ended | running
        claim             => run.claimed
        go                => outcome.graded(1 satisfied) run.completed(Second.) | completed
    "#,
    );
    let parent = run.run.id();
    assert_eq!(run.rows.sent, [(child_id(1), TimerKind::VerdictUnneeded(parent))]);
}

#[test]
fn a_cancel_ends_the_grading_even_if_children_are_kept() {
    let policy = RunPolicy { children_on_cancel: ChildCancelPolicy::Keep, ..graded(1) };
    let run = check_after_result(
        policy,
        "close enough => run.cancel_requested run.cancelled | cancelled",
    );
    assert_eq!(run.rows.sent, [(child_id(1), TimerKind::ParentEnded(run.run.id()))]);
}

#[test]
fn nothing_is_graded_after_a_cancel_or_a_message() {
    for (line, expected) in [
        ("cancel", "run.cancelled"),
        ("pause", "run.paused"),
        ("steer after_batch", "steer.delivered(after turn 1) turn.started"),
    ] {
        let mut run =
            check(graded(1), "claim => run.claimed | running\n see => run.prepared turn.started");
        run.play("say First.");
        run.play(line);
        assert_eq!(run.play("grade"), expected, "{line}");
        assert!(run.rows.children.is_empty());
    }
}
