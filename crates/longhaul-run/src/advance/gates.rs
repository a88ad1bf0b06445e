//! Gates that a run raises: before a call, for words, in doubt, for its result.
//!
//! Never: awaits one.

use longhaul_core::event::Event;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::event::world::ProgressReported;
use longhaul_core::policy::gate::{GATE_TIMEOUT, GateKind, GateRule, GateSpec};
use longhaul_core::policy::gate::{ResultGate, Verdict};
use longhaul_core::raw::RawJson;

use crate::advance::call::{conclude_call, start_wait};
use crate::draft::Draft;
use crate::judge::control_tool::{Wish, wish};
use crate::judge::digest::{Frozen, digest};
use crate::judge::doubt::question;
use crate::judge::rules::{Judgement, judge, pattern_of};
use crate::refusal::Refusal;
use crate::state::call::Call;

/// Judges one call: it is denied, asked about, granted as a wish, or left to begin.
pub(super) fn judge_call(draft: &mut Draft<'_>, call: &Call) -> Result<(), Refusal> {
    if let Some(problem) = &call.appraisal.problem {
        return conclude_call(draft, call.id, ToolOutput::text(problem.as_str()), true);
    }
    if let Some(wish) = wish(call, draft.moment.now) {
        return grant(draft, call, wish);
    }
    match judge(&draft.control, &call.appraisal) {
        Judgement::Allow => Ok(()),
        Judgement::Deny(why) => conclude_call(
            draft,
            call.id,
            ToolOutput::text(format!("denied: {why}")),
            true,
        ),
        Judgement::Ask(rule) => approval(draft, call, &rule),
    }
}

fn grant(draft: &mut Draft<'_>, call: &Call, wish: Wish) -> Result<(), Refusal> {
    match wish {
        Wish::Question { ask, options } => {
            let gate = GateSpec {
                options,
                ..for_call(draft, call, GateKind::Question, ask)
            };
            draft.raise(gate)
        }
        Wish::Blocked(reason) => {
            let gate = for_call(draft, call, GateKind::Blocked, reason);
            draft.raise(gate)
        }
        Wish::Signal(name) => {
            let mut gate = for_call(
                draft,
                call,
                GateKind::Signal,
                format!("the signal `{name}`"),
            );
            gate.tags = vec![name];
            draft.raise(gate)
        }
        Wish::Progress { percent, message } => {
            draft.record(Event::ProgressReported(ProgressReported {
                percent,
                message,
            }))?;
            conclude_call(draft, call.id, ToolOutput::text("noted"), false)
        }
        Wish::Until(until) => start_wait(draft, call, until),
        Wish::Finish(_) => conclude_call(
            draft,
            call.id,
            ToolOutput::text("the run ends with this, unless a call beside it failed"),
            false,
        ),
        Wish::Unclear(why) => conclude_call(draft, call.id, ToolOutput::text(why), true),
    }
}

/// A gate that stands for a call, with nothing special about it.
fn for_call(draft: &Draft<'_>, call: &Call, kind: GateKind, ask: String) -> GateSpec {
    let id = draft.new_gate(&call.id.to_string());
    GateSpec {
        call: Some(call.id),
        tool: Some(call.appraisal.tool.to_string()),
        timeout: Some(GATE_TIMEOUT),
        ..GateSpec::new(id, kind, ask)
    }
}

/// A gate at which a call is frozen: a yes names its digest.
fn frozen_call(draft: &Draft<'_>, call: &Call, kind: GateKind, ask: String) -> GateSpec {
    let mut gate = for_call(draft, call, kind, ask);
    let frozen = Frozen {
        gate: gate.id,
        call: gate.call,
        tool: gate.tool.as_deref(),
        input: call.arguments(),
        about: &call.appraisal.injected,
    };
    gate.digest = Some(digest(draft.run, &frozen));
    gate.input = Some(call.arguments().clone());
    gate.about.clone_from(&call.appraisal.injected);
    gate
}

fn approval(draft: &mut Draft<'_>, call: &Call, rule: &GateRule) -> Result<(), Refusal> {
    let ask = match &rule.verdict {
        Verdict::Ask(words) => words.clone(),
        Verdict::Allow | Verdict::Deny(_) => String::new(),
    };
    let mut gate = frozen_call(draft, call, GateKind::Approval, ask);
    gate.pattern = (!rule.always).then(|| pattern_of(rule));
    gate.approvers = rule.approvers;
    gate.timeout = Some(rule.timeout.unwrap_or(GATE_TIMEOUT));
    gate.on_timeout = rule.on_timeout;
    gate.remind = rule.remind;
    draft.raise(gate)
}

/// Asks a person what came of a call that was cut off.
pub(super) fn doubt_gate(
    draft: &mut Draft<'_>,
    call: &Call,
    why: Option<&str>,
) -> Result<(), Refusal> {
    let ask = question(&call.appraisal, why);
    let mut gate = frozen_call(draft, call, GateKind::InDoubt, ask);
    // Nobody may decide by silence that money was sent or not: it waits.
    gate.timeout = None;
    draft.raise(gate)
}

/// Asks whether the run's result is good.
pub(super) fn result_gate(draft: &mut Draft<'_>, policy: &ResultGate) -> Result<(), Refusal> {
    let crate::state::stage::Stage::Concluding(concluding) = &draft.control.stage else {
        return Ok(());
    };
    let input = RawJson::of(&concluding.output);
    let id = draft.new_gate("result");
    let frozen = Frozen {
        gate: id,
        call: None,
        tool: None,
        input: &input,
        about: &[],
    };
    let digest = digest(draft.run, &frozen);
    draft.raise(GateSpec {
        input: Some(input),
        digest: Some(digest),
        timeout: Some(policy.timeout),
        on_timeout: policy.on_timeout,
        ..GateSpec::new(id, GateKind::Result, policy.ask.as_str())
    })
}

/// Asks for a part that is missing.
pub(crate) fn missing_gate(
    draft: &mut Draft<'_>,
    sentence: &str,
    tags: &[&str],
) -> Result<(), Refusal> {
    let id = draft.new_gate("missing");
    draft.raise(GateSpec {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..GateSpec::new(id, GateKind::Blocked, sentence)
    })?;
    crate::advance::park::block(draft, id, sentence).map(|_| ())
}
