//! What must be true after every append, from fold and rows alone.
//!
//! Never: trusts the heart's own checks. The conversation is judged again here.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::id::{GateId, SteerId};
use longhaul_core::message::{Message, Part, StopReason};
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::raw::Hash;
use longhaul_core::status::Wait;
use longhaul_core::usage::Hold;
use longhaul_run::next::check_conversation;
use longhaul_run::state::control::Idle;
use longhaul_run::{Step, next};

use super::TestRun;
use super::rows::{Head, is_queued, plus};

/// Checks everything that holds at every place of every journal.
pub(crate) fn check(world: &TestRun) {
    heads_agree(world);
    open_gates_and_steers_agree(world);
    totals_agree(world);
    idle_run_can_wake(world);
    driven_run_has_valid_step(world);
}

fn heads_agree(world: &TestRun) {
    let ended = world.run.outcome().is_some();
    let head = match &world.run.control().idle {
        _ if ended => Head::Ended,
        Some(Idle::Paused) => Head::Paused,
        Some(Idle::Parked { wait: Wait::Worker, .. }) => Head::Ready,
        Some(Idle::Parked { .. }) => Head::Parked,
        None => match world.rows.head {
            Head::Leased => Head::Leased,
            _ => Head::Ready,
        },
    };
    assert_eq!(world.rows.head, head, "the head and the fold disagree");
}

fn open_gates_and_steers_agree(world: &TestRun) {
    let control = world.run.control();
    let rows = world.rows.gates.iter();
    let open_rows: BTreeSet<GateId> =
        rows.filter(|row| row.status == GateStatus::Open).map(|row| row.spec.id).collect();
    let open: BTreeSet<GateId> = control.gates.iter().map(|gate| gate.id).collect();
    assert_eq!(open, open_rows, "open gates");
    assert_eq!(open.len(), control.gates.len(), "a gate stands once");
    let queued_rows = world.rows.steers.iter().filter(|row| is_queued(row));
    let queued_rows: BTreeSet<SteerId> = queued_rows.map(|row| row.steer).collect();
    let queued: BTreeSet<SteerId> = control.steers.iter().map(|steer| steer.id).collect();
    assert_eq!(queued, queued_rows, "waiting messages");
    if world.run.outcome().is_some() {
        assert!(open.is_empty() && queued.is_empty(), "left open at the end");
    }
}

fn totals_agree(world: &TestRun) {
    let sums = world.run.control().totals;
    let (used, account) = (&world.rows.used, &world.rows.account);
    assert_eq!(sums.usage, used.usage, "usage");
    assert_eq!(sums.cost, used.cost, "cost");
    assert_eq!(sums.unpriced, used.unpriced, "unpriced");
    assert_eq!(sums.active, used.active, "active time");
    assert_eq!(world.run.control().turns, used.turns, "turns");
    assert_eq!(sums.held, account.held, "held");
    assert_eq!(sums.lost, account.lost, "lost");
    assert_eq!(sums.cost, account.spent.micro_usd, "spent money");
    assert_eq!(sums.usage.tokens(), account.spent.tokens, "spent tokens");
    let all = plus(account.settled_ever, account.held);
    assert_eq!(account.held_ever, all, "every hold is settled or in flight");
    if sums.held != Hold::default() {
        let used = plus(plus(account.spent, account.lost), account.held);
        assert!(account.cap.covers(used), "I8: the cap is crossed by a hold");
    }
}

/// A run that rests can be woken by something that will come or can be done.
fn idle_run_can_wake(world: &TestRun) {
    let Some(Idle::Parked { wait, timer }) = &world.run.control().idle else {
        return;
    };
    let is_open = |gate: &GateId| world.run.control().gates.iter().any(|g| g.id == *gate);
    let armed = timer.is_some_and(|timer| world.rows.timers.contains_key(&timer));
    let wakes = match wait {
        Wait::Approval(gates) => !gates.is_empty() && gates.iter().all(is_open),
        Wait::Question(gate) | Wait::Signal(gate) | Wait::Blocked(gate) => is_open(gate),
        Wait::Timer(_) | Wait::RateLimit(_) | Wait::Retry(_) | Wait::Message(_) => armed,
        Wait::Child(_) | Wait::SandboxSlot | Wait::Budget(_) | Wait::Worker => true,
    };
    assert!(wakes, "parked for ever: {wait:?}");
}

/// A driven run always has something to do, and asks only what may be asked.
fn driven_run_has_valid_step(world: &TestRun) {
    if world.rows.head != Head::Leased {
        return;
    }
    match next(&world.run, world.now) {
        Step::Idle => panic!("driven, with nothing to do: {:?}", world.run.control()),
        Step::UseTools(todos) => assert!(!todos.is_empty(), "no tool to use"),
        Step::AskModel(ask) => {
            check_messages(world, &ask.messages);
            world_is_in_messages(world, &ask.messages);
            let control = world.run.control();
            assert!(control.totals.held.tokens > ask.max_tokens, "unpaid");
        }
        Step::Compact(ask) => check_messages(world, &ask.messages),
        Step::Prepare
        | Step::RefreshPerception
        | Step::Park(_)
        | Step::Finish(_)
        | Step::Advance => {}
    }
}

/// A world that counts as told stands in what is asked: it is not told again.
fn world_is_in_messages(world: &TestRun, messages: &[Arc<Message>]) {
    let Some(told) = world.run.perception().world() else {
        return;
    };
    let tells = |part: &Part| match part {
        Part::Text(text) => Hash::digest(text.as_bytes()) == told,
        Part::Image(_) => false,
    };
    let stands = messages.iter().any(|message| match &**message {
        Message::User(parts) => parts.iter().any(tells),
        Message::Assistant(_) | Message::Results(_) => false,
    });
    assert!(stands, "the world is forgotten: {messages:?}");
}

fn check_messages(world: &TestRun, messages: &[Arc<Message>]) {
    if let Err(bad) = check_conversation(messages) {
        panic!("{bad}: {messages:?}");
    }
    if let Err(bad) = check_independently(messages) {
        panic!("{bad}: {messages:?}");
    }
    // Only a turn that the provider paused goes back as it is.
    if matches!(messages.last().map(|last| &**last), Some(Message::Assistant(_))) {
        let mut entries = world.entries.iter().rev();
        let ended = entries.find_map(|entry| match &entry.event {
            Event::TurnCompleted(done) => Some(done.stop == StopReason::PauseTurn),
            Event::TurnInterrupted(_) => Some(false),
            _ => None,
        });
        assert_eq!(ended, Some(true), "the model has the last word");
    }
}

/// What the strictest provider demands, written down apart from the heart.
pub(crate) fn check_independently(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut turns = std::collections::BTreeMap::new();
    match messages.first().map(|first| &**first) {
        Some(Message::User(_)) => {}
        other => return Err(format!("the first message is {other:?}")),
    }
    for (place, message) in messages.iter().enumerate() {
        let after = messages.get(place + 1).map(|next| &**next);
        match &**message {
            Message::User(parts) => {
                let said = parts.iter().any(|part| match part {
                    Part::Text(text) => !text.trim().is_empty(),
                    Part::Image(_) => true,
                });
                if !said {
                    return Err(format!("{place}: the user says nothing"));
                }
            }
            Message::Assistant(reply) => {
                let ids: Vec<&str> = reply.calls().map(|call| call.id.as_str()).collect();
                let Some(Message::Results(results)) = after else {
                    if ids.is_empty() && !reply.blocks.is_empty() {
                        continue;
                    }
                    return Err(format!("{place}: calls without results, or no words"));
                };
                if ids.len() != results.len() || ids.is_empty() {
                    return Err(format!("{place}: {} results", results.len()));
                }
                for ((id, result), index) in ids.iter().zip(results).zip(1..) {
                    if result.id != *id || result.call.index != index {
                        return Err(format!("{place}: result {index} is another's"));
                    }
                    if turns.insert(result.call, place).is_some() {
                        return Err(format!("{place}: {} has two results", result.call));
                    }
                }
            }
            Message::Results(_) => match place.checked_sub(1).map(|before| &*messages[before]) {
                Some(Message::Assistant(_)) => {}
                _ => return Err(format!("{place}: results out of the blue")),
            },
        }
    }
    Ok(())
}
