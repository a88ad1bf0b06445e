//! I4: at most one result a call, a second start only for what may repeat, and
//! nothing that must not be repeated was done twice to the world.
//!
//! Never: believes a journal without looking at the world.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
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
}

pub(super) fn check(entries: &[Entry], deeds: &[ToolEffect]) -> Result<(), String> {
    let lives = call_stats(entries)?;
    let Some(run) = entries.first().map(|entry| entry.run) else {
        return Ok(());
    };
    for (call, life) in &lives {
        if life.ends > 1 {
            return Err(format!("I4: {call} has {} results", life.ends));
        }
        if !life.class.may_repeat() && life.starts > 1 + life.cleared {
            return Err(format!(
                "I4: {call} must not be repeated and was started {}x",
                life.starts
            ));
        }
        check_effects(run, *call, life, deeds)?;
    }
    check_cancel(entries)
}

fn call_stats(entries: &[Entry]) -> Result<BTreeMap<CallId, CallStats>, String> {
    let mut lives: BTreeMap<CallId, CallStats> = BTreeMap::new();
    for entry in entries {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only calls are looked at")]
        match &entry.event {
            Event::TurnCompleted(data) => {
                for (index, call) in (1..).zip(&data.calls) {
                    let id = CallId { turn: data.turn, index };
                    let life = CallStats { class: call.class, ..CallStats::default() };
                    if lives.insert(id, life).is_some() {
                        return Err(format!("{id} was asked for twice"));
                    }
                }
            }
            Event::ToolStarted(data) => {
                let life = stats_of(&mut lives, data.call)?;
                life.starts += 1;
                if life.ends > 0 {
                    return Err(format!("{} was started after its result", data.call));
                }
            }
            Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
                stats_of(&mut lives, data.call)?.ends += 1;
            }
            Event::ToolVerified(data) if data.outcome == VerifyOutcome::NotHappened => {
                stats_of(&mut lives, data.call)?.cleared += 1;
            }
            _ => {}
        }
    }
    Ok(lives)
}

fn stats_of(
    lives: &mut BTreeMap<CallId, CallStats>,
    call: CallId,
) -> Result<&mut CallStats, String> {
    lives.get_mut(&call).ok_or_else(|| format!("{call} was never asked for"))
}

fn check_effects(
    run: RunId,
    call: CallId,
    life: &CallStats,
    deeds: &[ToolEffect],
) -> Result<(), String> {
    let done = deeds.iter().filter(|deed| deed.run == run && deed.call == call).count();
    if done > life.starts {
        return Err(format!("{call} was done {done}x and started {}x", life.starts));
    }
    if !life.class.may_repeat() && done > 1 {
        return Err(format!("I4: {call} must not be repeated and was done {done}x"));
    }
    Ok(())
}

fn check_cancel(entries: &[Entry]) -> Result<(), String> {
    let cancelled =
        entries.iter().skip_while(|entry| !matches!(entry.event, Event::RunCancelRequested(_)));
    for entry in cancelled {
        if matches!(entry.event, Event::TurnStarted(_) | Event::ToolStarted(_)) {
            return Err(format!("a `{}` after the cancel, at {}", entry.event.kind(), entry.seq));
        }
    }
    Ok(())
}

/// No try of a turn is sent twice: a crash makes it a new try.
pub(super) fn check_model_calls(asked: &[ModelCall]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for ask in asked {
        if !seen.insert((ask.run, ask.turn, ask.attempt)) {
            let ModelCall { run, turn, attempt } = ask;
            return Err(format!("{run}: turn {turn}, try {attempt}, was sent twice"));
        }
    }
    Ok(())
}
