//! Lists the rows of runs that match a filter, and counts the runs of the store.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use longhaul_core::id::RunId;
use longhaul_core::port::store::{RunCounts, RunFilter, RunRow, RunSort};
use longhaul_core::status::Status;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Timestamp;
use longhaul_core::usage::MicroUsd;

use crate::mem_store::rows::Tables;

impl Tables {
    /// Returns rows of runs in the order of the filter.
    pub(crate) fn list_runs(&self, filter: &RunFilter, now: Timestamp) -> Vec<RunRow> {
        let retried = self.retried_runs();
        let mut rows: Vec<RunRow> = self
            .heads
            .iter()
            .rev()
            .map(|(run, head)| (self.run_row(*run, head), &head.task))
            .filter(|(row, task)| {
                state_matches(filter, row, &retried) && task_matches(filter, task)
            })
            .map(|(row, _)| row)
            .filter(|row| time_matches(filter, row))
            .collect();
        let key = |row: &RunRow| Reverse((sort_amount(filter.sort, row, now), row.id));
        rows.sort_by_key(key);
        if let Some(head) = filter.after.and_then(|after| self.heads.get(&after)) {
            let after = filter.after.map(|after| key(&self.run_row(after, head)));
            rows.retain(|row| Some(key(row)) > after);
        } else if let Some(after) = filter.after {
            rows.retain(|row| filter.sort == RunSort::Created && row.id < after);
        }
        rows.truncate(filter.limit);
        rows
    }

    /// Counts all runs, and sums up what they have cost.
    pub(crate) fn count_runs(&self) -> RunCounts {
        let retried = self.retried_runs();
        let mut counts = RunCounts::default();
        for (run, head) in self.heads.iter() {
            let row = self.run_row(*run, head);
            counts.total += 1;
            counts.open += u64::from(!row.status.is_terminal());
            counts.waiting_for_person += u64::from(row.waits_for_person());
            counts.failed += u64::from(is_failed_and_not_retried(&row, &retried));
            counts.unpriced += u64::from(row.cost.is_none());
        }
        let costs = self.usage.iter().filter_map(|(_, entry)| entry.row.cost);
        counts.cost = MicroUsd(costs.map(|cost| cost.0).sum());
        counts
    }
}

fn is_failed_and_not_retried(row: &RunRow, retried: &BTreeSet<RunId>) -> bool {
    row.status == Status::Failed && !row.is_child() && !retried.contains(&row.id)
}

fn state_matches(filter: &RunFilter, row: &RunRow, retried: &BTreeSet<RunId>) -> bool {
    let reason = row.reason.as_ref().or(row.code.as_ref());
    let needs_person = || row.waits_for_person() || is_failed_and_not_retried(row, retried);
    let is_newest_of_chain = row.chain.as_ref().is_none_or(|chain| chain.current == row.id);
    (filter.statuses.is_empty() || filter.statuses.contains(&row.status))
        && (filter.reasons.is_empty() || reason.is_some_and(|code| filter.reasons.contains(code)))
        && !(filter.not_retried && retried.contains(&row.id))
        && (!filter.roots_only || (!row.is_child() && is_newest_of_chain))
        && (!filter.needs_person || needs_person())
}

fn task_matches(filter: &RunFilter, task: &TaskSpec) -> bool {
    let search = filter.search.as_ref().map(|text| text.to_lowercase());
    filter.agent.as_ref().is_none_or(|agent| task.agent == *agent)
        && (filter.lane.is_none() || filter.lane == task.lane)
        && filter.inbox.as_ref().is_none_or(|inbox| task.inbox == *inbox)
        && (filter.thread.is_none() || filter.thread == task.thread)
        && (filter.resource.is_none() || filter.resource == task.resource)
        && filter.tag.as_ref().is_none_or(|tag| task.tags.contains(tag))
        && filter.root.is_none_or(|root| task.root == root)
        && filter.parent.is_none_or(|parent| task.parent == Some(parent))
        && search.is_none_or(|text| task.searched_text().contains(&text))
}

fn time_matches(filter: &RunFilter, row: &RunRow) -> bool {
    filter.since.is_none_or(|since| row.created_at >= since)
        && filter.until.is_none_or(|until| row.created_at < until)
}

/// Returns the amount by which a list with this order is sorted, the largest first.
fn sort_amount(sort: RunSort, row: &RunRow, now: Timestamp) -> i64 {
    let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    match sort {
        RunSort::Created => 0,
        RunSort::Started => row.started_at.map_or(0, Timestamp::as_micros),
        RunSort::Cost => amount(row.cost.unwrap_or_default().0),
        RunSort::Active => amount(row.active.0),
        RunSort::Waiting => {
            let end = row.finished_at.unwrap_or(now);
            end.as_micros() - row.created_at.as_micros() - amount(row.active.0) * 1_000
        }
    }
}
