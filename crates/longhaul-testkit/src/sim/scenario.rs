//! Tasks for simulated runs: named scenarios that tests kill and record, and random ones
//! generated from a seed.

use longhaul_core::change::LaneEntryPolicy;
use longhaul_core::id::{AgentName, IdError, InboxName, LaneKey, RunId};
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateRule, GateRuleAction, GateTimeout, GateTimeoutAction,
    ResultApprovalGate,
};
use longhaul_core::policy::{ParkedLanePolicy, RunPolicy};
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;

use crate::sim::chains::make_random_chain;
use crate::sim::rng::SeededRng;
use crate::sim::script::Script;

/// A named task.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Name of the scenario and of its recorded journal.
    pub name: &'static str,
    /// Replies of the model.
    pub script: Script,
    pub policy: RunPolicy,
}

/// Returns the inbox of all simulated runs.
pub fn inbox() -> Result<InboxName, IdError> {
    InboxName::new("default")
}

/// Returns the agent of all simulated runs.
pub fn agent() -> Result<AgentName, IdError> {
    AgentName::new("simulated")
}

pub fn task(run: RunId, script: &Script, policy: RunPolicy) -> Result<TaskSpec, IdError> {
    let mut task = TaskSpec::new(run, agent()?, RawJson::from_serialize(script), inbox()?);
    task.policy = policy;
    task.submitter = Some("sim".into());
    Ok(task)
}

/// Builds a rule that asks for approval before every call of this tool.
fn approval_rule(tool: &str) -> GateRule {
    GateRule {
        tool: tool.into(),
        match_glob: None,
        action: GateRuleAction::Ask(format!("May it use {tool}?")),
        always: false,
        timeout: Some(GateTimeout::After(Millis::from_secs(3_600))),
        on_timeout: GateTimeoutAction::Reject,
        in_doubt: None,
        approvers: ApprovalRequirement::default(),
        remind: None,
        escalation: Vec::new(),
        tags: Vec::new(),
    }
}

fn script(turns: &[&[&str]], text: &str) -> Script {
    let turns = turns.iter().map(|turn| turn.iter().map(|tool| (*tool).to_owned()).collect());
    Script { turns: turns.collect(), text: text.into(), ..Script::default() }
}

/// Returns the scenarios that are killed at every append and recorded.
pub fn recorded_scenarios() -> Vec<Scenario> {
    let plain = RunPolicy::default;
    let guarded = || RunPolicy { rules: vec![approval_rule("careful")], ..RunPolicy::default() };
    let in_doubt_policy =
        || RunPolicy { in_doubt: Some(InDoubtPolicy::Tell), ..RunPolicy::default() };
    let scenario = |name, script, policy| Scenario { name, script, policy };
    let mut all = vec![
        scenario("single_reply", script(&[], "hello"), plain()),
        scenario("pure_and_keyed", script(&[&["look", "put", "look"], &["put"]], "kept"), plain()),
        scenario("once_in_order", script(&[&["send", "look", "send"]], "sent"), plain()),
        scenario(
            "once_reported",
            script(&[&["send"], &["send", "put"]], "sent"),
            in_doubt_policy(),
        ),
        scenario("verified", script(&[&["probe", "put"], &["probe"]], "probed"), plain()),
        scenario("sandboxed", script(&[&["build", "look"], &["build"]], "built"), plain()),
        scenario("effect_keys", script(&[&["pay", "pay"], &["pay", "put"]], "paid"), plain()),
        scenario("approval", script(&[&["look", "careful", "put"]], "allowed"), guarded()),
        scenario("question", script(&[&["ask_human"], &["look"]], "went left"), plain()),
        scenario("blocked", script(&[&["report_blocked"]], "helped"), plain()),
        scenario("wait", script(&[&["wait", "look"]], "waited"), plain()),
        scenario("progress_and_finish", script(&[&["report_progress"], &["finish"]], ""), plain()),
        scenario("unknown_tool", script(&[&["nonsense", "look"]], "sorry"), plain()),
    ];
    all.extend(with_special_policies());
    all
}

/// Returns the scenarios with a special policy or model.
fn with_special_policies() -> Vec<Scenario> {
    let mut all = Vec::new();
    let scenario = |name, script, policy| Scenario { name, script, policy };
    let mut flaky = script(&[&["look"]], "at last");
    flaky.failures = [(1, 2), (2, 1)].into();
    all.push(scenario("flaky_model", flaky, RunPolicy::default()));
    let result_gate = ResultApprovalGate {
        auto_approve: None,
        ask: "Is it good?".into(),
        timeout: Some(GateTimeout::After(Millis::from_secs(86_400))),
        on_timeout: GateTimeoutAction::Approve,
        approvers: ApprovalRequirement::default(),
        tags: Vec::new(),
    };
    let with_result_gate = RunPolicy { result_gate: Some(result_gate), ..RunPolicy::default() };
    all.push(scenario("result_gate", script(&[&["put"]], "a plan"), with_result_gate));
    let keep_open_policy =
        RunPolicy { keep_open: Some(Millis::from_secs(60)), ..RunPolicy::default() };
    all.push(scenario("kept_open", script(&[&["look"]], "anything else?"), keep_open_policy));
    // A call costs at most a little more than two cents. The first cap is enough for a shorter
    // reply only, the second for none.
    for (name, cap) in [("wraps_up", 22_500), ("budget_exhausted", 11_000)] {
        let budget = Budget { micro_usd: Some(MicroUsd(cap)), ..Budget::default() };
        let policy = RunPolicy { budget, ..RunPolicy::default() };
        all.push(scenario(name, script(&[&["look"], &["put"]], "paid"), policy));
    }
    all
}

pub fn random_task(rng: &mut SeededRng, run: RunId) -> Result<TaskSpec, IdError> {
    const TOOLS: [&str; 17] = [
        "look",
        "look",
        "put",
        "send",
        "send",
        "probe",
        "tell",
        "pay",
        "careful",
        "ask_human",
        "wait",
        "report_progress",
        "nonsense",
        "run_agent",
        "build",
        "build",
        "build",
    ];
    let turns = (0..rng.below(5)).map(|_| {
        let calls = (0..=rng.below(3)).map(|_| rng.pick(&TOOLS).to_string());
        calls.collect()
    });
    let mut script = Script { turns: turns.collect(), text: "end".into(), ..Script::default() };
    if rng.one_in(4) {
        script.failures = [(1 + rng.below(3) as u32, 1 + rng.below(3) as u32)].into();
    }
    let mut task = task(run, &script, random_policy(rng))?;
    if rng.one_in(2) {
        task.lane = Some(LaneKey::new(format!("lane {}", rng.below(2)))?);
    }
    task.priority = rng.below(3) as i32;
    if rng.one_in(3) {
        make_random_chain(rng, &mut task, script);
    }
    Ok(task)
}

/// Returns a random condition under which a run enters its lane.
pub fn random_lane_entry(rng: &mut SeededRng) -> LaneEntryPolicy {
    *rng.pick(&[
        LaneEntryPolicy::Enqueue,
        LaneEntryPolicy::Enqueue,
        LaneEntryPolicy::IfEmpty,
        LaneEntryPolicy::IfNoneWaits { window: Millis::from_secs(2) },
        LaneEntryPolicy::Interrupt,
    ])
}

/// Returns a rule about `careful` that may need two people, reminds them, or ends in any way.
fn random_rule(rng: &mut SeededRng) -> GateRule {
    let mut rule = approval_rule("careful");
    if rng.one_in(3) {
        rule.approvers = ApprovalRequirement { count: 2, not_submitter: rng.one_in(2) };
    }
    rule.always = rng.one_in(4);
    rule.remind = rng.one_in(4).then_some(Millis::from_secs(900));
    rule.on_timeout = *rng.pick(&[
        GateTimeoutAction::Reject,
        GateTimeoutAction::Approve,
        GateTimeoutAction::Fail,
        GateTimeoutAction::Pause,
    ]);
    rule
}

fn random_policy(rng: &mut SeededRng) -> RunPolicy {
    let mut policy = RunPolicy { rules: vec![random_rule(rng)], ..RunPolicy::default() };
    policy.in_doubt =
        *rng.pick(&[None, None, Some(InDoubtPolicy::Tell), Some(InDoubtPolicy::Fail)]);
    if rng.one_in(4) {
        policy.budget.micro_usd = Some(MicroUsd(25_000 + 5_000 * rng.below(20) as u64));
    }
    if rng.one_in(6) {
        policy.result_gate = Some(ResultApprovalGate {
            auto_approve: None,
            ask: "Is it good?".into(),
            timeout: Some(GateTimeout::After(Millis::from_secs(3_600))),
            on_timeout: *rng.pick(&[
                GateTimeoutAction::Approve,
                GateTimeoutAction::Reject,
                GateTimeoutAction::Pause,
            ]),
            approvers: ApprovalRequirement::default(),
            tags: Vec::new(),
        });
    }
    if rng.one_in(8) {
        policy.keep_open = Some(Millis::from_secs(30));
    }
    if rng.one_in(8) {
        policy.lane_on_park = ParkedLanePolicy::Release;
    }
    policy.refresh_perception_each_turn = rng.one_in(3);
    if rng.one_in(5) {
        policy.outcome_rounds = Some(1 + rng.below(3) as u32);
    }
    policy
}
