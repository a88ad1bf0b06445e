//! I9: every started child run exists once, its end is reported to its parent once, and the runs of
//! a tree spend no more than their root may.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::RunId;
use longhaul_core::task::TaskSpec;

pub(super) fn check(journals: &[(RunId, Vec<JournalEntry>)]) -> Result<(), String> {
    let tasks = tasks_of(journals);
    for (run, entries) in journals {
        check_reports(*run, entries, &tasks)?;
    }
    for (run, task) in &tasks {
        // Runs of chains have a check of their own.
        let Some(parent) = task.parent.filter(|_| task.chain.is_none()) else { continue };
        let entries = journals.iter().find(|(id, _)| *id == parent).map(|(_, entries)| entries);
        let starts = entries.map_or(0, |entries| count(entries, |event| starts_child(event, *run)));
        if starts != 1 {
            return Err(format!("I9: {run} was started {starts}x by its parent {parent}"));
        }
    }
    check_trees(journals, &tasks)
}

/// Returns for each run the highest cap that child runs and runs of its chain have set for its
/// account.
pub(super) fn raises_by_others(journals: &[(RunId, Vec<JournalEntry>)]) -> BTreeMap<RunId, u64> {
    let tasks = tasks_of(journals);
    let mut raises: BTreeMap<RunId, u64> = BTreeMap::new();
    for (run, entries) in journals {
        if let Some(task) =
            tasks.get(run).filter(|task| task.parent.is_some() || task.chain.is_some())
        {
            let raise = raises.entry(account_of(task, &tasks)).or_default();
            *raise = highest_raise(entries).max(*raise);
        }
    }
    let account_raise = |task| raises.get(&account_of(task, &tasks)).copied().unwrap_or_default();
    tasks.iter().map(|(run, task)| (*run, account_raise(task))).collect()
}

fn tasks_of(journals: &[(RunId, Vec<JournalEntry>)]) -> BTreeMap<RunId, &TaskSpec> {
    journals.iter().filter_map(|(run, entries)| Some((*run, task_of(entries)?))).collect()
}

/// Returns the run whose account a run uses: its root, or the first run of the root's task.
fn account_of(task: &TaskSpec, tasks: &BTreeMap<RunId, &TaskSpec>) -> RunId {
    let root = tasks.get(&task.root).copied().unwrap_or(task);
    root.earlier_account().unwrap_or(task.root)
}

/// Checks that a run has learned of each of its children's ends once, at most, and of all of them if
/// it completed.
fn check_reports(
    run: RunId,
    entries: &[JournalEntry],
    tasks: &BTreeMap<RunId, &TaskSpec>,
) -> Result<(), String> {
    let completed = entries.iter().any(|entry| matches!(entry.event, Event::RunCompleted(_)));
    for entry in entries {
        let Event::ChildStarted(started) = &entry.event else { continue };
        let child = started.child;
        let task = tasks.get(&child).ok_or_else(|| format!("I9: {child} does not exist"))?;
        // A retry has copied the starts of the run that it retries.
        if task.parent != Some(run) {
            continue;
        }
        let ends = count(
            entries,
            |event| matches!(event, Event::ChildEnded(ended) if ended.child == child),
        );
        if ends > 1 || (completed && ends == 0) {
            return Err(format!("I9: the end of {child} was reported {ends}x to {run}"));
        }
    }
    Ok(())
}

/// Checks that the runs of a tree, with their retries, have spent no more than the highest cap that
/// their account has had.
fn check_trees(
    journals: &[(RunId, Vec<JournalEntry>)],
    tasks: &BTreeMap<RunId, &TaskSpec>,
) -> Result<(), String> {
    let mut used: BTreeMap<RunId, u64> = BTreeMap::new();
    let mut caps: BTreeMap<RunId, Option<u64>> = BTreeMap::new();
    for (run, entries) in journals {
        let Some(task) = tasks.get(run) else { continue };
        let account = account_of(task, tasks);
        *used.entry(account).or_default() += spent_after_fork(entries);
        let cap = caps
            .entry(account)
            .or_insert_with(|| tasks.get(&account)?.policy.budget.micro_usd.map(|cap| cap.0));
        *cap = cap.map(|cap| cap.max(highest_raise(entries)));
    }
    for (account, cap) in caps {
        let used = used.get(&account).copied().unwrap_or_default();
        if cap.is_some_and(|cap| used > cap) {
            return Err(format!("I9: the tree of {account} has used {used} of {cap:?}"));
        }
    }
    Ok(())
}

/// Returns the money that a run has used, without what a retry has copied.
fn spent_after_fork(entries: &[JournalEntry]) -> u64 {
    let is_fork = |entry: &JournalEntry| matches!(entry.event, Event::RunForked(_));
    let own_start = entries.iter().position(is_fork).map_or(0, |index| index + 1);
    entries[own_start..].iter().map(|entry| spent(&entry.event)).sum()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only money matters here")]
fn spent(event: &Event) -> u64 {
    match event {
        Event::TurnCompleted(data) => data.cost.unwrap_or_default().0,
        Event::TurnInterrupted(data) => data.cost.unwrap_or_default().0,
        Event::MemoryCompacted(data) => data.cost.unwrap_or_default().0,
        Event::TurnFailed(data) => data.charged.micro_usd.0,
        _ => 0,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only raises matter here")]
fn highest_raise(entries: &[JournalEntry]) -> u64 {
    let raises = entries.iter().filter_map(|entry| match &entry.event {
        Event::RunResumed(data) => data.raise?.micro_usd,
        Event::BudgetRaised(data) => data.raise.micro_usd,
        _ => None,
    });
    raises.map(|cap| cap.0).max().unwrap_or_default()
}

fn task_of(entries: &[JournalEntry]) -> Option<&TaskSpec> {
    let Event::RunCreated(created) = &entries.first()?.event else {
        return None;
    };
    Some(&created.task)
}

fn starts_child(event: &Event, child: RunId) -> bool {
    matches!(event, Event::ChildStarted(started) if started.child == child)
}

fn count(entries: &[JournalEntry], matches: impl Fn(&Event) -> bool) -> usize {
    entries.iter().filter(|entry| matches(&entry.event)).count()
}
