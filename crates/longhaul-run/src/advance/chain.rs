//! Creates the run of a chain's next step.
//!
//! Invariant: the run is created in the transaction that ends the run of the previous step. So a
//! crash neither loses a step nor starts it twice, and no other run gets the lane in between.

use longhaul_core::change::RowChange;
use longhaul_core::event::Event;
use longhaul_core::event::environment::ChainStepStarted;
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::Budget;
use longhaul_core::status::RunOutput;
use longhaul_core::task::{EarliestStart, TaskSpec};

use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;
use crate::submit::new_run_from_task;

/// Creates the run of the next step of the chain that the current run belongs to. The current run
/// is about to complete with `output`. Does nothing if the run is in no chain or is the last step.
pub(super) fn create_next_chain_step(
    decision: &mut DecisionBuilder<'_>,
    output: &RunOutput,
) -> Result<(), Rejection> {
    let (id, task) = (decision.run.id, &decision.run.task);
    let next_position =
        task.chain.as_ref().and_then(|position| position.position_of_next_run(id, output));
    let Some((position, step)) = next_position.as_ref().and_then(|position| {
        let step = position.current_step()?;
        Some((position, step))
    }) else {
        return Ok(());
    };
    let run = RunId::derive(id.bits(), &decision.unique_id_salt("step"), decision.ctx.now);
    let mut policy = step.policy.clone();
    // The steps share a budget account, whose caps may have been raised through this run.
    let Budget { micro_usd, tokens, .. } = decision.control.caps;
    policy.budget = Budget { micro_usd, tokens, ..policy.budget };
    let next = TaskSpec {
        agent: step.agent.clone(),
        definition: step.definition,
        policy,
        history: Vec::new(),
        start: EarliestStart::Now,
        parent: Some(task.root),
        retry_of: None,
        chain: Some(Box::new(position.clone())),
        earlier_submitters: decision.control.submitters.names_except(task.submitter.as_deref()),
        ..TaskSpec::clone(task)
    };
    let started = ChainStepStarted { step: position.step, agent: step.agent.clone(), run };
    let new = new_run_from_task(run, next)?;
    decision.record_event(Event::ChainStepStarted(started))?;
    decision.add_row_change(RowChange::CreateStep(Box::new(new)));
    Ok(())
}

/// Returns whether the decision creates the run of the next step of the run's chain.
pub(super) fn creates_next_chain_step(decision: &DecisionBuilder<'_>) -> bool {
    decision.batch.changes.iter().any(|change| matches!(change, RowChange::CreateStep(_)))
}
