//! Tasks for simulated runs: named ones that tests kill and record, and ones
//! that a seed makes.
//!
//! Never: knows how a run will go.

use longhaul_core::id::{AgentName, IdError, InboxName, LaneKey, RunId};
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::gate::{Approvers, GateRule, OnTimeout, ResultGate, RuleAction};
use longhaul_core::policy::{LaneOnPark, Policy};
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;

use crate::sim::rng::SeededRng;
use crate::sim::script::Script;

/// A named task.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name, also that of its recorded journal.
    pub name: &'static str,
    /// What the agent says.
    pub script: Script,
    /// What binds it.
    pub policy: Policy,
}

/// The inbox of all simulated runs.
pub fn inbox() -> Result<InboxName, IdError> {
    InboxName::new("default")
}

/// The task of a script under a policy.
pub fn task(run: RunId, script: &Script, policy: Policy) -> Result<TaskSpec, IdError> {
    let agent = AgentName::new("simulated")?;
    let mut task = TaskSpec::new(run, agent, RawJson::from_serialize(script), inbox()?);
    task.policy = policy;
    task.submitter = Some("sim".into());
    Ok(task)
}

/// Asks before every call of this tool.
fn approval_rule(tool: &str) -> GateRule {
    GateRule {
        tool: tool.into(),
        subject: None,
        action: RuleAction::Ask(format!("May it use {tool}?")),
        always: false,
        timeout: Some(Millis::from_secs(3_600)),
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    }
}

fn script(turns: &[&[&str]], text: &str) -> Script {
    let turns = turns.iter().map(|turn| turn.iter().map(|tool| (*tool).to_owned()).collect());
    Script { turns: turns.collect(), text: text.into(), ..Script::default() }
}

/// The scenarios that are killed at every append and recorded.
pub fn recorded_scenarios() -> Vec<Scenario> {
    let plain = Policy::default;
    let guarded = || Policy { rules: vec![approval_rule("careful")], ..Policy::default() };
    let told = || Policy { in_doubt: Some(InDoubtPolicy::Tell), ..Policy::default() };
    let scenario = |name, script, policy| Scenario { name, script, policy };
    let mut all = vec![
        scenario("one_word", script(&[], "hello"), plain()),
        scenario("pure_and_keyed", script(&[&["look", "put", "look"], &["put"]], "kept"), plain()),
        scenario("once_in_order", script(&[&["send", "look", "send"]], "sent"), plain()),
        scenario("once_told", script(&[&["send"], &["send", "put"]], "sent"), told()),
        scenario("verified", script(&[&["probe", "put"], &["probe"]], "probed"), plain()),
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

/// Scenarios with a policy or a model of their own.
fn with_special_policies() -> Vec<Scenario> {
    let mut all = Vec::new();
    let scenario = |name, script, policy| Scenario { name, script, policy };
    let mut flaky = script(&[&["look"]], "at last");
    flaky.failures = [(1, 2), (2, 1)].into();
    all.push(scenario("flaky_model", flaky, Policy::default()));
    let result_gate = ResultGate {
        ask: "Is it good?".into(),
        timeout: Millis::from_secs(86_400),
        on_timeout: OnTimeout::Approve,
    };
    let judged = Policy { result_gate: Some(result_gate), ..Policy::default() };
    all.push(scenario("result_gate", script(&[&["put"]], "a plan"), judged));
    let open = Policy { keep_open: Some(Millis::from_secs(60)), ..Policy::default() };
    all.push(scenario("kept_open", script(&[&["look"]], "anything else?"), open));
    // A call may cost a bit more than two cents at worst: the first of these pays
    // for a shorter reply, the second for none.
    for (name, cap) in [("wraps_up", 22_500), ("out_of_money", 11_000)] {
        let budget = Budget { micro_usd: Some(MicroUsd(cap)), ..Budget::default() };
        let policy = Policy { budget, ..Policy::default() };
        all.push(scenario(name, script(&[&["look"], &["put"]], "paid"), policy));
    }
    all
}

/// The task that fate gives a run.
pub fn random_task(dice: &mut SeededRng, run: RunId) -> Result<TaskSpec, IdError> {
    const TOOLS: [&str; 12] = [
        "look",
        "look",
        "put",
        "send",
        "send",
        "probe",
        "tell",
        "careful",
        "ask_human",
        "wait",
        "report_progress",
        "nonsense",
    ];
    let turns = (0..dice.below(5)).map(|_| {
        let calls = (0..=dice.below(3)).map(|_| dice.pick(&TOOLS).to_string());
        calls.collect()
    });
    let mut script = Script { turns: turns.collect(), text: "end".into(), ..Script::default() };
    if dice.one_in(4) {
        script.failures = [(1 + dice.below(3) as u32, 1 + dice.below(3) as u32)].into();
    }
    let mut task = task(run, &script, random_policy(dice))?;
    if dice.one_in(2) {
        task.lane = Some(LaneKey::new(format!("lane {}", dice.below(2)))?);
    }
    task.priority = dice.below(3) as i32;
    Ok(task)
}

fn random_policy(dice: &mut SeededRng) -> Policy {
    let mut policy = Policy { rules: vec![approval_rule("careful")], ..Policy::default() };
    policy.in_doubt =
        *dice.pick(&[None, None, Some(InDoubtPolicy::Tell), Some(InDoubtPolicy::Fail)]);
    if dice.one_in(4) {
        policy.budget.micro_usd = Some(MicroUsd(25_000 + 5_000 * dice.below(20) as u64));
    }
    if dice.one_in(6) {
        policy.result_gate = Some(ResultGate {
            ask: "Is it good?".into(),
            timeout: Millis::from_secs(3_600),
            on_timeout: *dice.pick(&[OnTimeout::Approve, OnTimeout::Reject, OnTimeout::Pause]),
        });
    }
    if dice.one_in(8) {
        policy.keep_open = Some(Millis::from_secs(30));
    }
    if dice.one_in(8) {
        policy.lane_on_park = LaneOnPark::Release;
    }
    policy.refresh_perception_each_turn = dice.one_in(3);
    policy
}
