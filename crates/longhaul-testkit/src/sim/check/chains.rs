//! I11: every run of a chain is opened once, by the append that completes the run before it; its step
//! is the one that the outputs of the earlier runs lead to; and the stored state of a chain is that of
//! its last run. That the runs of a chain share a budget and keep their lane is checked with the trees
//! and the lanes.

use std::collections::BTreeMap;

use longhaul_core::chain::{
    Chain, ChainRepeatEndCondition, ChainStepCondition, CompletedChainStep, PositionInChain,
};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::environment::ChainStepStarted;
use longhaul_core::id::RunId;
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use longhaul_core::task::TaskSpec;
use serde_json::Value;

use crate::sim::SimError;
use crate::sim::check::SimHistory;
use crate::sim::driver::SimServices;

type Journals<'a> = BTreeMap<RunId, &'a [JournalEntry]>;

/// Checks all chains against the journals and the rows of their runs.
pub async fn check_chains(services: &SimServices, history: &SimHistory) -> Result<(), SimError> {
    let journals: Journals<'_> =
        history.journals.iter().map(|(run, entries)| (*run, entries.as_slice())).collect();
    let mut last_runs: BTreeMap<RunId, Vec<RunId>> = BTreeMap::new();
    for (run, entries) in &journals {
        let Some((task, position)) = position_of(entries) else { continue };
        check_run(*run, task, position, &journals)
            .map_err(|error| format!("I11: {run}: {error}"))?;
        if started_step(entries).is_none() && !is_retried(*run, &journals) {
            last_runs.entry(position.first_run).or_default().push(*run);
        }
    }
    for (run, entries) in &journals {
        let Some((_, position)) = position_of(entries) else { continue };
        let [last] = last_runs.get(&position.first_run).map_or(&[][..], Vec::as_slice) else {
            return Err(format!("I11: {run}: its chain has other than one last run").into());
        };
        let row = services.store.get_run(*run).await?.and_then(|row| row.chain);
        let stored = row.map(|chain| (chain.current, chain.current_status));
        let status = services.store.get_run(*last).await?.map(|row| row.status);
        if stored != status.map(|status| (*last, status)) {
            return Err(format!("I11: {run}: {stored:?} is stored, and {last} is the last").into());
        }
    }
    Ok(())
}

/// Checks how a run was opened, and which run it has opened.
fn check_run(
    run: RunId,
    task: &TaskSpec,
    position: &PositionInChain,
    journals: &Journals<'_>,
) -> Result<(), String> {
    let entries = journals.get(&run).copied().unwrap_or_default();
    let path = path_of(run, position);
    let openers = journals
        .values()
        .filter(|entries| started_step(entries).is_some_and(|step| step.run == run))
        .count();
    let is_opened_by_step = task.retry_of.is_none() && path.len() > 1;
    if openers != usize::from(is_opened_by_step) {
        return Err(format!("{openers} runs have opened it"));
    }
    let repeats = (1..).zip(&position.chain.steps).filter_map(|(end, step)| {
        let repeat = step.repeat?;
        Some((end - repeat.from) * repeat.max as usize)
    });
    if path.len() > position.chain.steps.len() + repeats.sum::<usize>() {
        return Err(format!("it is run {} of its chain", path.len()));
    }
    let expected =
        completed_output(entries).and_then(|_| step_after(&position.chain, &path, journals));
    match (started_step(entries), expected) {
        (None, None) => Ok(()),
        (Some(started), Some(step)) if started.step == step => {
            check_opened_run(entries, started, &path, journals)
        }
        (started, expected) => Err(format!("it opened {started:?} and not step {expected:?}")),
    }
}

/// Checks that a run was opened by the last append of the journal, with its place in the chain.
fn check_opened_run(
    entries: &[JournalEntry],
    started: &ChainStepStarted,
    path: &[CompletedChainStep],
    journals: &Journals<'_>,
) -> Result<(), String> {
    let run = started.run;
    let opened = journals.get(&run).copied().unwrap_or_default();
    let Some((task, position)) = position_of(opened) else {
        return Err(format!("the next run {run} does not exist"));
    };
    let [.., start, end] = entries else { return Err("it has no events".to_owned()) };
    let is_last_append = matches!(&start.event, Event::ChainStepStarted(last) if last == started)
        && matches!(end.event, Event::RunCompleted(_))
        && start.at == end.at
        && opened.first().is_some_and(|created| created.at == end.at);
    let root = position_of(entries).map(|(task, _)| task.root);
    match is_last_append && position.completed == path && Some(task.root) == root {
        true => Ok(()),
        false => Err(format!("the next run {run} was opened at another time or place")),
    }
}

/// Returns the step that the outputs of a path lead to. `None` means that the chain ends.
fn step_after(
    chain: &Chain,
    path: &[CompletedChainStep],
    journals: &Journals<'_>,
) -> Option<usize> {
    let is_step_back = |pair: &[CompletedChainStep]| pair[1].step <= pair[0].step;
    let current = path.last()?.step;
    let output_of = |completed: &CompletedChainStep| {
        completed_output(journals.get(&completed.run)?)?.data.as_ref().map(RawJson::to_value)
    };
    let last = path.last().and_then(output_of).unwrap_or_default();
    if let Some(repeat) = chain.steps.get(current)?.repeat {
        let rounds =
            path.windows(2).filter(|pair| pair[0].step == current && is_step_back(pair)).count();
        let round_start = path.windows(2).rposition(is_step_back).map_or(0, |index| index + 1);
        let (field, repeat_value) = match repeat.until {
            ChainRepeatEndCondition::NoIssues => ("issues_found", true),
            ChainRepeatEndCondition::Success => ("success", false),
        };
        let newest = path[round_start..]
            .iter()
            .rev()
            .find_map(|completed| output_of(completed)?.get(field).and_then(Value::as_bool));
        if rounds < repeat.max as usize && newest == Some(repeat_value) {
            return Some(repeat.from);
        }
    }
    let is_met = |condition| match condition {
        ChainStepCondition::Always => true,
        ChainStepCondition::OnSuccess => last["success"] != Value::Bool(false),
        ChainStepCondition::OnIssuesFound => last["issues_found"] == Value::Bool(true),
    };
    (current + 1..chain.steps.len()).find(|index| is_met(chain.steps[*index].condition))
}

fn position_of(entries: &[JournalEntry]) -> Option<(&TaskSpec, &PositionInChain)> {
    let Event::RunCreated(created) = &entries.first()?.event else {
        return None;
    };
    Some((&created.task, created.task.chain.as_ref()?))
}

/// Returns the runs of a chain up to this one.
fn path_of(run: RunId, position: &PositionInChain) -> Vec<CompletedChainStep> {
    let current = CompletedChainStep { step: position.step, run };
    position.completed.iter().copied().chain([current]).collect()
}

/// Returns the output that a run has completed with. `None` means that it did not complete.
fn completed_output(entries: &[JournalEntry]) -> Option<&RunOutput> {
    let Event::RunCompleted(completed) = &entries.last()?.event else {
        return None;
    };
    Some(&completed.output)
}

fn started_step(entries: &[JournalEntry]) -> Option<&ChainStepStarted> {
    entries.iter().find_map(|entry| {
        let Event::ChainStepStarted(started) = &entry.event else {
            return None;
        };
        Some(started)
    })
}

fn is_retried(run: RunId, journals: &Journals<'_>) -> bool {
    journals.values().any(|entries| {
        position_of(entries)
            .and_then(|(task, _)| task.retry_of)
            .is_some_and(|retried| retried.run == run)
    })
}
