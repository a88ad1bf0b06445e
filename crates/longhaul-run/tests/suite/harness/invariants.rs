//! Invariants that must hold after every append, checked from the folded state and the rows.
//!
//! The conversation is checked independently of the state machine's own check.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::id::{GateId, SteerId};
use longhaul_core::message::{Message, Part, StopReason};
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::raw::Hash;
use longhaul_core::usage::BudgetAmount;
use longhaul_core::wait::WaitReason;
use longhaul_run::next::{ToolCallAction, ToolCallTask};
use longhaul_run::state::driver::Activity;
use longhaul_run::{EngineStep, next_engine_step};

use super::amounts::plus;
use super::rows::{Head, is_queued};
use super::{TestRun, sandboxes};

/// Checks everything that must hold after every event of every journal.
pub(crate) fn check(test_run: &TestRun) {
    heads_agree(test_run);
    open_gates_and_steers_agree(test_run);
    totals_agree(test_run);
    idle_run_can_wake(test_run);
    driven_run_has_valid_step(test_run);
    sandboxes::check(test_run);
}

fn heads_agree(test_run: &TestRun) {
    let ended = test_run.run.outcome().is_some();
    let head = match &test_run.run.control().driver.activity {
        _ if ended => Head::Ended,
        Activity::Paused => Head::Paused,
        Activity::Parked { wait: WaitReason::Worker, .. } => Head::Ready,
        Activity::Parked { .. } if test_run.rows.is_woken_by_key => Head::Ready,
        Activity::Parked { .. } => Head::Parked,
        Activity::Ready | Activity::Driven => match test_run.rows.head {
            Head::Leased => Head::Leased,
            _ => Head::Ready,
        },
    };
    assert_eq!(test_run.rows.head, head, "the head row and the folded state disagree");
}

fn open_gates_and_steers_agree(test_run: &TestRun) {
    let control = test_run.run.control();
    let rows = test_run.rows.gates.iter();
    let open_rows: BTreeSet<GateId> =
        rows.filter(|row| row.status == GateStatus::Open).map(|row| row.spec.id).collect();
    let open: BTreeSet<GateId> = control.people.gates.iter().map(|gate| gate.id).collect();
    assert_eq!(open, open_rows, "open gates");
    assert_eq!(open.len(), control.people.gates.len(), "a gate is listed only once");
    let queued_rows = test_run.rows.steers.iter().filter(|row| is_queued(row));
    let queued_rows: BTreeSet<SteerId> = queued_rows.map(|row| row.steer).collect();
    let queued: BTreeSet<SteerId> = control.people.steers.iter().map(|steer| steer.id).collect();
    assert_eq!(queued, queued_rows, "queued messages");
    if test_run.run.outcome().is_some() {
        assert!(open.is_empty() && queued.is_empty(), "left open at the end");
    }
}

fn totals_agree(test_run: &TestRun) {
    let totals = test_run.run.control().totals;
    let (used, account) = (&test_run.rows.used, &test_run.rows.account);
    assert_eq!(totals.usage, used.usage, "usage");
    assert_eq!(totals.cost, used.cost, "cost");
    assert_eq!(totals.unpriced, used.unpriced, "unpriced");
    assert_eq!(totals.active, used.active, "active time");
    assert_eq!(test_run.run.control().turns, used.turns, "turns");
    assert_eq!(totals.held, account.held, "held");
    assert_eq!(totals.lost, account.lost, "lost");
    assert_eq!(totals.cost, account.spent.micro_usd, "spent money");
    assert_eq!(totals.usage.total_tokens(), account.spent.tokens, "spent tokens");
    let settled_or_held = plus(account.settled_ever, account.held);
    assert_eq!(account.held_ever, settled_or_held, "every hold is settled or in flight");
    if totals.held != BudgetAmount::default() {
        let used = plus(plus(account.spent, account.lost), account.held);
        assert!(account.cap.covers(used), "I8: a hold exceeds the cap");
    }
}

/// A parked run can be woken by a timer, an open gate or an outsider.
fn idle_run_can_wake(test_run: &TestRun) {
    let Activity::Parked { wait, timer } = &test_run.run.control().driver.activity else {
        return;
    };
    let is_open = |gate: &GateId| test_run.run.control().people.gates.iter().any(|g| g.id == *gate);
    let has_timer = timer.is_some_and(|timer| test_run.rows.timers.contains_key(&timer));
    let can_wake = match wait {
        WaitReason::Approval(gates) => !gates.is_empty() && gates.iter().all(is_open),
        WaitReason::Question(gate) | WaitReason::Signal(gate) | WaitReason::Blocked(gate) => {
            is_open(gate)
        }
        WaitReason::Timer(_)
        | WaitReason::Tool(_)
        | WaitReason::RateLimit(_)
        | WaitReason::Retry(_)
        | WaitReason::Outage(_)
        | WaitReason::Message(_) => has_timer,
        // The store sets the timer that starts a run.
        WaitReason::StartAt(_) | WaitReason::Batch => true,
        WaitReason::Cap(_) => !test_run.rows.timers.is_empty(),
        WaitReason::Child(child) => {
            test_run.run.control().children.iter().any(|open| open.id == *child)
        }
        WaitReason::SandboxSlot => {
            test_run.rows.sandboxes.is_queued || !test_run.rows.timers.is_empty()
        }
        WaitReason::Budget(_)
        | WaitReason::BudgetHeld
        | WaitReason::Key(_)
        | WaitReason::Worker => true,
    };
    assert!(can_wake, "nothing can wake the parked run: {wait:?}");
}

/// A driven run always has a next step, and its model requests are valid.
fn driven_run_has_valid_step(test_run: &TestRun) {
    if test_run.rows.head != Head::Leased {
        return;
    }
    match next_engine_step(&test_run.run, test_run.now) {
        EngineStep::Idle => panic!("a driven run has no next step: {:?}", test_run.run.control()),
        EngineStep::StartChildren(requests) => {
            assert!(!requests.is_empty(), "a step without calls")
        }
        EngineStep::UseTools(tasks) => {
            assert!(!tasks.is_empty(), "a step without calls");
            let is_sandboxed = |task: &ToolCallTask| {
                task.action == ToolCallAction::Verify && test_run.run.is_call_sandboxed(task.call)
            };
            let has_sandbox = test_run.is_sandbox_open() || !tasks.iter().any(is_sandboxed);
            assert!(has_sandbox, "a call is verified outside of its sandbox: {tasks:?}");
        }
        EngineStep::AskModel(request) => {
            check_messages(test_run, &request.messages);
            world_is_in_messages(test_run, &request.messages);
            let control = test_run.run.control();
            assert!(
                control.totals.held.tokens > request.max_tokens,
                "the hold does not cover the request"
            );
        }
        // The instruction to write a summary follows the messages, whatever the last one is.
        EngineStep::Compact(request) => {
            if let Err(error) = check_independently(&request.messages) {
                panic!("{error}: {:?}", request.messages);
            }
        }
        EngineStep::Prepare
        | EngineStep::RefreshPerception
        | EngineStep::StartGrading
        | EngineStep::OpenSandbox
        | EngineStep::SaveWorkspace
        | EngineStep::Advance => {}
    }
}

/// If a state of the environment counts as sent, the request must contain it.
fn world_is_in_messages(test_run: &TestRun, messages: &[Arc<Message>]) {
    let Some(world_hash) = test_run.run.perception().world else {
        return;
    };
    let is_world_text = |part: &Part| match part {
        Part::Text(text) => Hash::digest(text.as_bytes()) == world_hash,
        Part::Image(_) => false,
    };
    let is_present = messages.iter().any(|message| match &**message {
        Message::User(parts) => parts.iter().any(is_world_text),
        Message::Assistant(_) | Message::Results(_) => false,
    });
    assert!(is_present, "the state of the environment is missing: {messages:?}");
}

fn check_messages(test_run: &TestRun, messages: &[Arc<Message>]) {
    if let Err(error) = check_independently(messages) {
        panic!("{error}: {messages:?}");
    }
    // Only a turn that the provider paused is sent back with the reply as the last message.
    if matches!(messages.last().map(|last| &**last), Some(Message::Assistant(_))) {
        let mut entries = test_run.entries.iter().rev();
        let ended = entries.find_map(|entry| match &entry.event {
            // A retry removes such a reply from the conversation.
            Event::TurnCompleted(done)
                if matches!(done.stop, StopReason::Refusal | StopReason::MaxTokens) =>
            {
                None
            }
            Event::TurnCompleted(done) => Some(done.stop == StopReason::PauseTurn),
            // A call that was interrupted before any text leaves the paused turn as it was.
            Event::TurnInterrupted(call) if call.text.trim().is_empty() => None,
            Event::TurnInterrupted(_) => Some(false),
            _ => None,
        });
        assert_eq!(ended, Some(true), "the last message is a reply");
    }
}

/// Checks the rules of the strictest provider, independently of the state machine.
pub(crate) fn check_independently(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut turns = std::collections::BTreeMap::new();
    match messages.first().map(|first| &**first) {
        Some(Message::User(_)) => {}
        other => return Err(format!("the first message is {other:?}")),
    }
    for (i, message) in messages.iter().enumerate() {
        let after = messages.get(i + 1).map(|next| &**next);
        match &**message {
            Message::User(parts) => {
                let has_text = parts.iter().any(|part| match part {
                    Part::Text(text) => !text.trim().is_empty(),
                    Part::Image(_) => true,
                });
                if !has_text {
                    return Err(format!("{i}: the user message is empty"));
                }
            }
            Message::Assistant(reply) => {
                let ids: Vec<&str> = reply.tool_calls().map(|call| call.id.as_str()).collect();
                let Some(Message::Results(results)) = after else {
                    if ids.is_empty() && !reply.blocks.is_empty() {
                        continue;
                    }
                    return Err(format!("{i}: calls without results, or an empty reply"));
                };
                if ids.len() != results.len() || ids.is_empty() {
                    return Err(format!("{i}: {} results", results.len()));
                }
                for ((id, result), index) in ids.iter().zip(results).zip(1..) {
                    if result.id != *id || result.call.index != index {
                        return Err(format!("{i}: result {index} belongs to another call"));
                    }
                    if turns.insert(result.call, i).is_some() {
                        return Err(format!("{i}: {} has two results", result.call));
                    }
                }
            }
            Message::Results(_) => match i.checked_sub(1).map(|before| &*messages[before]) {
                Some(Message::Assistant(_)) => {}
                _ => return Err(format!("{i}: results without a reply")),
            },
        }
    }
    Ok(())
}
