//! Chains in the simulation: tasks whose runs are followed by others.

use longhaul_core::chain::{
    Chain, ChainRepeat, ChainRepeatEndCondition, ChainStep, ChainStepCondition, PositionInChain,
};
use longhaul_core::policy::ParkedLanePolicy;
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;

use crate::sim::rng::SeededRng;
use crate::sim::script::{FINDINGS, Script};

/// Makes a task the first run of a chain with two or three steps, which share the script. Steps have
/// conditions and go back to earlier ones.
pub(super) fn make_random_chain(rng: &mut SeededRng, task: &mut TaskSpec, mut script: Script) {
    script.turns.truncate(2);
    script.text = FINDINGS.to_owned();
    task.input = RawJson::from_serialize(&script);
    // As the engine sets them for the steps of a chain.
    task.policy.lane_on_park = ParkedLanePolicy::Keep;
    task.policy.keep_open = None;
    let steps = (0..2 + rng.below(2)).map(|index| ChainStep {
        name: format!("step {index}"),
        agent: task.agent.clone(),
        definition: task.definition,
        policy: task.policy.clone(),
        condition: *rng.pick(&[
            ChainStepCondition::Always,
            ChainStepCondition::Always,
            ChainStepCondition::OnSuccess,
            ChainStepCondition::OnIssuesFound,
        ]),
        repeat: rng.one_in(2).then(|| ChainRepeat {
            from: rng.below(index + 1),
            until: *rng
                .pick(&[ChainRepeatEndCondition::NoIssues, ChainRepeatEndCondition::Success]),
            max: 1 + rng.below(2) as u32,
        }),
    });
    let chain = Chain { name: Some("simulated".to_owned()), steps: steps.collect() };
    task.chain = Some(Box::new(PositionInChain::first(chain, task.root)));
}
