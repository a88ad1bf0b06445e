//! I10: of all calls with the same effect key, at most one was started without a person's decision and
//! has not certainly failed, and at most one has completed.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{CallId, GateId, RunId};
use longhaul_core::policy::effect_key::{EffectKeyHolder, EffectKeyState};
use longhaul_core::policy::gate::GateDecision;
use longhaul_core::raw::Hash;

/// What the journals say about one call with a key.
#[derive(Debug, Default, Clone, Copy)]
struct KeyedCall {
    is_started: bool,
    /// Other call with the key whose outcome is unknown, if a person had to decide about it here.
    replaces: Option<EffectKeyHolder>,
    /// Whether a person has said that the replaced call had no effect.
    is_rejected: bool,
    /// Whether nobody has decided about an unknown outcome.
    is_in_doubt: bool,
    is_freed: bool,
    is_completed: bool,
}

/// A call, by the run whose model made it.
type CallKey = (RunId, CallId);

pub(super) fn check(journals: &[(RunId, Vec<JournalEntry>)]) -> Result<(), String> {
    let mut keys: BTreeMap<Hash, BTreeMap<CallKey, KeyedCall>> = BTreeMap::new();
    for (run, entries) in journals {
        for (call, hash, state) in keyed_calls(entries) {
            let origin = original_run(journals, *run, call);
            let known = keys.entry(hash).or_default().entry((origin, call)).or_default();
            known.is_started |= state.is_started;
            known.replaces = state.replaces.or(known.replaces);
            known.is_freed |= state.is_freed;
            known.is_completed |= state.is_completed && state.is_started;
            if let Some(replaced) = state.replaces.filter(|_| state.is_freed && state.is_rejected) {
                let origin = original_run(journals, replaced.run, replaced.call);
                let calls = keys.entry(hash).or_default();
                calls.entry((origin, replaced.call)).or_default().is_freed = true;
            }
        }
    }
    for (key, calls) in keys {
        let count = |predicate: fn(&KeyedCall) -> bool| {
            calls.values().filter(|call| predicate(call)).count()
        };
        let started = count(|call| call.is_started && call.replaces.is_none() && !call.is_freed);
        if started > 1 || count(|call| call.is_completed) > 1 {
            return Err(format!("I10: the key {key} was used more than once: {calls:?}"));
        }
    }
    Ok(())
}

fn keyed_calls(entries: &[JournalEntry]) -> Vec<(CallId, Hash, KeyedCall)> {
    let mut calls: BTreeMap<CallId, (Hash, KeyedCall)> = BTreeMap::new();
    let mut gates: BTreeMap<GateId, CallId> = BTreeMap::new();
    for entry in entries {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only calls matter here")]
        let (id, change): (CallId, fn(&mut KeyedCall)) = match &entry.event {
            Event::TurnCompleted(data) => {
                for (index, call) in (1..).zip(&data.calls) {
                    let id = CallId { turn: data.turn, index };
                    let key = call.key.as_ref().map(|key| (id, (key.hash, KeyedCall::default())));
                    calls.extend(key);
                }
                continue;
            }
            Event::ToolStarted(data) => (data.call, |call| call.is_started = true),
            Event::ToolKeyTaken(data) if data.state == EffectKeyState::Unknown => {
                if let Some((_, call)) = calls.get_mut(&data.call) {
                    call.replaces = Some(data.holder);
                }
                continue;
            }
            Event::ToolInDoubt(data) => (data.call, |call| call.is_in_doubt = true),
            Event::ToolVerified(data) => (data.call, |call| call.is_in_doubt = false),
            Event::ToolSurfaced(data) => (data.call, |call| call.is_in_doubt = false),
            Event::GateRaised(data) => match data.gate.call {
                Some(call) => {
                    gates.insert(data.gate.id, call);
                    (call, |call| call.is_in_doubt = false)
                }
                None => continue,
            },
            Event::GateAnswered(data) => match gates.get(&data.gate) {
                Some(call) if data.answer.decision == GateDecision::Reject => {
                    (*call, |call| call.is_rejected = true)
                }
                _ => continue,
            },
            Event::ToolFailed(data) => (data.call, |call| call.is_freed = !call.is_in_doubt),
            Event::ToolCompleted(data) => (data.call, |call| call.is_completed = true),
            _ => continue,
        };
        if let Some((_, call)) = calls.get_mut(&id) {
            change(call);
        }
    }
    calls.into_iter().map(|(id, (hash, call))| (id, hash, call)).collect()
}

/// Returns the run whose model made a call. A retry has copied the calls of the failed run.
fn original_run(journals: &[(RunId, Vec<JournalEntry>)], run: RunId, call: CallId) -> RunId {
    let entries = journals.iter().find(|(id, _)| *id == run).map(|(_, entries)| entries);
    let mut is_copied = false;
    for entry in entries.into_iter().flatten() {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these events matter here")]
        match &entry.event {
            Event::TurnCompleted(data) => is_copied |= data.turn == call.turn,
            Event::RunForked(data) if is_copied => {
                return original_run(journals, data.from, call);
            }
            _ => {}
        }
    }
    run
}
