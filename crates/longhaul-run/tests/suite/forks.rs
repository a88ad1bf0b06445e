//! Forks: a fork goes on from the start of any turn of any run, repeats nothing before it, and takes
//! over nothing that belongs to the other run alone.

use longhaul_core::event::Event;
use longhaul_core::event::run::{ForkEdit, RunForked};
use longhaul_core::id::{AgentName, LaneKey, ThreadKey};
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::raw::Hash;
use longhaul_run::fork::{ForkAgent, ForkRequest, RequestedEdit};

use super::harness::TestRun;
use super::harness::script::{check, check_in};
use super::policies::{ask_rule, plain, with_caps, with_rule};

/// Returns a completed run of three turns whose second turn begins at event 7.
fn origin() -> TestRun {
    check(
        plain(),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        done t1.1 draft => tool.completed(t1.1) turn.started
        steer after_batch => steer.queued
        call send/once  => turn.completed tool.started(t2.1)
        done t2.1 sent  => tool.completed(t2.1) steer.delivered(after turn 2) turn.started
        say Done        => turn.completed run.completed(Done) | completed
    "#,
    )
}

fn fork(origin: &TestRun, before: u64) -> TestRun {
    origin.fork(before, ForkRequest::default()).unwrap()
}

fn forked_event(fork: &TestRun) -> RunForked {
    let forked = fork.entries.iter().find_map(|entry| match &entry.event {
        Event::RunForked(forked) => Some(forked.clone()),
        _ => None,
    });
    forked.unwrap()
}

fn edited(origin: &TestRun, before: u64, edit: RequestedEdit) -> TestRun {
    origin.fork(before, ForkRequest { edit: Some(edit), ..ForkRequest::default() }).unwrap()
}

#[test]
fn a_fork_goes_on_from_the_start_of_the_turn_of_an_event() {
    let origin = origin();
    let turns: Vec<u64> = (origin.entries.iter())
        .filter(|entry| matches!(entry.event, Event::TurnStarted(_)))
        .map(|entry| entry.seq.0)
        .collect();
    let [first, second, third] = turns[..] else { panic!("{turns:?}") };
    for (before, copied) in [
        (first, first - 1),
        (second - 1, first - 1),
        (second, second - 1),
        (third - 1, second - 1),
        (origin.run.seq().0, third - 1),
    ] {
        assert_eq!(forked_event(&fork(&origin, before)).through.0, copied, "before {before}");
    }
    let second_turn = check_in(
        fork(&origin, second),
        r#"
        ? said   => t1.1: draft
        claim    => run.claimed | running
        go       => turn.started
        ? step   => ask turn 2 try 1 max 4096
        say Done => turn.completed run.completed(Done) | completed
    "#,
    );
    assert_eq!(second_turn.run.control().turns, 2);
    assert_eq!(second_turn.run.attempt_number(), 1);
}

#[test]
fn an_event_before_the_first_turn_starts_again() {
    let origin = origin();
    let again = fork(&origin, 2);
    assert_eq!(again.entries.len(), 1);
    assert_eq!(again.run.task().forked_from.as_ref().unwrap().through.0, 1);
    assert_eq!(again.run.task().input, origin.run.task().input);
    let edit = RequestedEdit::Message("Write a novel.".into());
    assert_eq!(edited(&origin, 1, edit).run.task().input.as_str(), r#""Write a novel.""#);
}

#[test]
fn an_unknown_event_is_refused() {
    let origin = origin();
    for seq in [0, origin.run.seq().0 + 1, u64::MAX] {
        let refusal = origin.fork(seq, ForkRequest::default()).unwrap_err();
        assert_eq!(refusal.code(), "event_not_found", "{refusal}");
    }
}

#[test]
fn an_edited_message_is_journaled_with_its_author() {
    let origin = origin();
    let last = origin.run.seq().0;
    let fork = edited(&origin, last, RequestedEdit::Message("Take your time.".into()));
    let forked = forked_event(&fork);
    assert_eq!(forked.by, "key:boss");
    let Some(ForkEdit::Message { index, .. }) = forked.edit.as_deref() else {
        panic!("{forked:?}");
    };
    let texts = |run: &TestRun| run.run.transcript().messages()[*index].text();
    assert_eq!(texts(&origin), "Hurry.");
    assert_eq!(fork.show("said"), "Take your time.");
    let stored = serde_json::to_value(&fork.run).unwrap();
    let bytes = fork.run.transcript().estimated_bytes();
    assert_eq!(stored["control"]["transcript_bytes"], bytes);
    // A fork of the fork can edit the edited message.
    let again = edited(&fork, forked.through.0, RequestedEdit::Message("x".into()));
    assert_eq!(again.run.transcript().task_message().unwrap().text(), "x");
}

#[test]
fn an_edited_result_replaces_what_the_model_reads() {
    let origin = origin();
    let result =
        |call: &str| RequestedEdit::Result { call: call.parse().unwrap(), text: "no".into() };
    let fork = edited(&origin, 9, result("t1.1"));
    assert_eq!(fork.show("said"), "t1.1: no");
    for (before, call) in [(9, "t2.1"), (2, "t1.1"), (9, "t9.9")] {
        let request = ForkRequest { edit: Some(result(call)), ..ForkRequest::default() };
        let refusal = origin.fork(before, request).unwrap_err();
        assert_eq!(refusal.code(), "invalid_task");
        assert!(refusal.to_string().starts_with(&format!("the call {call} has no result")));
    }
}

#[test]
fn another_model_or_agent_is_prepared_again_with_the_conversation() {
    let origin = origin();
    let agent = |has_tools| {
        let name = AgentName::new("editor").unwrap();
        Some(ForkAgent { name, definition: Hash::digest(b"editor"), has_tools })
    };
    let model = Some("scripted/novel".to_owned());
    for request in [
        ForkRequest { model, ..ForkRequest::default() },
        ForkRequest { agent: agent(true), ..ForkRequest::default() },
    ] {
        let fork = origin.fork(9, request.clone()).unwrap();
        assert_eq!(fork.run.task().model, request.model);
        let fork = check_in(
            fork,
            r#"
            claim    => run.claimed | running
            ? said   => t1.1: draft
            see      => run.prepared turn.started
            ? said   => t1.1: draft
            ? step   => ask turn 2 try 1 max 4096
            say Done => turn.completed run.completed(Done) | completed
        "#,
        );
        assert_eq!(fork.run.transcript().task_message().unwrap().text(), "Write a poem.");
    }
    let request = ForkRequest { agent: agent(false), ..ForkRequest::default() };
    let refusal = origin.fork(9, request).unwrap_err();
    assert!(refusal.to_string().starts_with("the agent `editor` has no tools"), "{refusal}");
}

#[test]
fn a_fork_with_another_model_goes_on_after_an_interrupted_reply() {
    let origin = check(
        RunPolicy::default(),
        r#"
        claim                  => run.claimed | running
        see                    => run.prepared turn.started
        steer interrupt Rhyme! => steer.queued
        unsteer                => steer.withdrawn
        halt Roses are         => turn.interrupted turn.started
    "#,
    );
    let model = Some("scripted/novel".to_owned());
    let request = ForkRequest { model, ..ForkRequest::default() };
    let fork = origin.fork(origin.run.seq().0, request).unwrap();
    check_in(
        fork,
        r#"
        claim  => run.claimed | running
        see    => run.prepared turn.started
        ? said => [longhaul] You were interrupted. Continue.
    "#,
    );
}

#[test]
fn open_gates_and_unread_messages_are_not_copied() {
    let origin = check(
        with_rule(ask_rule()),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        steer after_batch => steer.queued
        done t1.1 draft => tool.completed(t1.1) steer.delivered(after turn 1) turn.started
        steer follow_up => steer.queued
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
    "#,
    );
    let copied_gates = |fork: &TestRun| fork.run.control().people.gates.len();
    let fork = fork(&origin, origin.run.seq().0);
    assert_eq!((copied_gates(&origin), copied_gates(&fork)), (1, 0));
    check_in(
        fork,
        r#"
        ? said          => Hurry.
        claim           => run.claimed | running
        go              => turn.started
        call shell/once => turn.completed gate.raised(approval) run.waiting(approval) | waiting approval
    "#,
    );
}

#[test]
fn a_fork_has_the_caps_to_which_the_budget_was_raised_later() {
    let mut origin = TestRun::new(with_caps(Budget { turns: Some(20), ..Budget::PROJECT_DEFAULT }));
    for line in ["claim", "see", "call read/pure", "raise turns 30", "done t1.1 a"] {
        origin.play(line);
    }
    let last = origin.run.seq().0;
    origin.play("raise turns 50");
    assert_eq!(fork(&origin, last).run.control().budget.caps.turns, Some(50));
}

#[test]
fn a_fork_writes_to_its_thread_only_on_request() {
    let thread = ThreadKey::new("t").unwrap();
    let origin = TestRun::with_task(|task| task.thread = Some(thread.clone()));
    let fork = |writes_thread| {
        let request = ForkRequest { writes_thread, ..ForkRequest::default() };
        origin.fork(1, request).unwrap().run.task().clone()
    };
    let (reads, writes) = (fork(false), fork(true));
    assert_eq!((reads.thread.as_ref(), reads.thread_to_write()), (Some(&thread), None));
    assert_eq!(reads.lane, None);
    assert_eq!(writes.thread_to_write(), Some(&thread));
    assert_eq!(writes.lane, Some(LaneKey::new("thread:t").unwrap()));
}

#[test]
fn files_of_a_sandbox_are_given_up_only_on_request() {
    let origin = TestRun::with_task(|task| task.sandbox = Some(Box::default()));
    let refusal = origin.fork(1, ForkRequest::default()).unwrap_err();
    assert_eq!(refusal.code(), "files_not_kept");
    assert!(refusal.to_string().contains("--fresh-files"), "{refusal}");
    let request = ForkRequest { fresh_files: true, ..ForkRequest::default() };
    assert_eq!(origin.fork(1, request).unwrap().run.task().sandbox, None);
}
