//! I4: every call has at most one result, only repeatable calls are started twice, and no call
//! that must not be repeated had two effects on the external world.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::VerifyOutcome;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::policy::effect::EffectClass;

use crate::sim::external_world::{ModelCall, ToolEffect};

#[derive(Debug, Default)]
struct CallStats {
    class: EffectClass,
    starts: usize,
    ends: usize,
    cleared: usize,
    resumes: usize,
}

pub(super) fn check(entries: &[JournalEntry], effects: &[ToolEffect]) -> Result<(), String> {
    let stats_by_call = call_stats(entries)?;
    // A retry and the failed runs whose events it has copied make each call once, together.
    let retried = entries.iter().filter_map(|entry| {
        let Event::RunForked(forked) = &entry.event else {
            return None;
        };
        Some(forked.from)
    });
    let runs: BTreeSet<RunId> =
        entries.first().map(|entry| entry.run).into_iter().chain(retried).collect();
    for (call, stats) in &stats_by_call {
        if stats.ends > 1 {
            return Err(format!("I4: {call} has {} results", stats.ends));
        }
        if !stats.class.may_repeat() && stats.starts > 1 + stats.cleared {
            return Err(format!(
                "I4: {call} must not be repeated and was started {}x",
                stats.starts
            ));
        }
        check_effects(&runs, *call, stats, effects)?;
    }
    check_cancel(entries)
}

fn call_stats(entries: &[JournalEntry]) -> Result<BTreeMap<CallId, CallStats>, String> {
    let mut stats_by_call: BTreeMap<CallId, CallStats> = BTreeMap::new();
    for entry in entries {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only calls matter here")]
        match &entry.event {
            Event::TurnCompleted(data) => {
                for (index, call) in (1..).zip(&data.calls) {
                    let id = CallId { turn: data.turn, index };
                    let stats = CallStats { class: call.class, ..CallStats::default() };
                    if stats_by_call.insert(id, stats).is_some() {
                        return Err(format!("{id} was requested twice"));
                    }
                }
            }
            Event::ToolStarted(data) => {
                let stats = stats_of(&mut stats_by_call, data.call)?;
                stats.starts += 1;
                if stats.ends > 0 {
                    return Err(format!("{} was started after its result", data.call));
                }
            }
            Event::ToolResumed(data) => stats_of(&mut stats_by_call, data.call)?.resumes += 1,
            Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
                stats_of(&mut stats_by_call, data.call)?.ends += 1;
            }
            Event::ToolVerified(data) if data.outcome == VerifyOutcome::NotHappened => {
                stats_of(&mut stats_by_call, data.call)?.cleared += 1;
            }
            _ => {}
        }
    }
    Ok(stats_by_call)
}

fn stats_of(
    stats_by_call: &mut BTreeMap<CallId, CallStats>,
    call: CallId,
) -> Result<&mut CallStats, String> {
    stats_by_call.get_mut(&call).ok_or_else(|| format!("{call} was never requested"))
}

fn check_effects(
    runs: &BTreeSet<RunId>,
    call: CallId,
    stats: &CallStats,
    effects: &[ToolEffect],
) -> Result<(), String> {
    let executions =
        effects.iter().filter(|effect| runs.contains(&effect.run) && effect.call == call).count();
    if executions > stats.starts + stats.resumes {
        return Err(format!("{call} was executed {executions}x and started {}x", stats.starts));
    }
    if !stats.class.may_repeat() && executions > 1 {
        return Err(format!("I4: {call} must not be repeated and was executed {executions}x"));
    }
    Ok(())
}

fn check_cancel(entries: &[JournalEntry]) -> Result<(), String> {
    let cancelled =
        entries.iter().skip_while(|entry| !matches!(entry.event, Event::RunCancelRequested(_)));
    for entry in cancelled {
        if matches!(
            entry.event,
            Event::TurnStarted(_)
                | Event::ToolStarted(_)
                | Event::ToolResumed(_)
                | Event::ChildStarted(_)
        ) {
            return Err(format!("`{}` after the cancel, at {}", entry.event.kind(), entry.seq));
        }
    }
    Ok(())
}

/// Checks that no attempt of a turn was sent twice. After a crash there must be a new attempt.
pub(super) fn check_model_calls(calls: &[ModelCall]) -> Result<(), String> {
    let mut sent = BTreeSet::new();
    for call in calls {
        if !sent.insert((call.run, call.turn, call.attempt)) {
            let ModelCall { run, turn, attempt } = call;
            return Err(format!("{run}: turn {turn}, attempt {attempt}, was sent twice"));
        }
    }
    Ok(())
}
