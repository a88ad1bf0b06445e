//! Read-only queries: run views, lists of runs and lanes, the global log, and statistics of
//! an agent's runs over a time window.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_api::agent::{AgentStatsView, CostStats, OutcomeCounts, PerRunStats};
use longhaul_api::lane::LaneView;
use longhaul_api::run::{RunView, micro_usd_to_usd};
use longhaul_api::run_list::RunBriefView;
use longhaul_api::transcript::RunExplanation;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{AgentName, LaneKey, RunId, Seq};
use longhaul_core::policy::gate::{GateKind, GateRow, GateStatus};
use longhaul_core::port::records::{GlobalJournalPage, GlobalSeq, LaneRow};
use longhaul_core::port::store::{GateFilter, JournalReadRequest, RunCounts, RunFilter, RunRow};
use longhaul_core::status::Status;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::MicroUsd;
use longhaul_core::wait::WaitReason;
use longhaul_run::explain::{StateExplanation, explain_run_state};
use longhaul_run::{CHILD_DEPTH_MAX, Run};

use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::handle::inboxes::LiveWorkers;
use crate::replay::{replay_run, replay_run_state};
use crate::view::{describe_queue_wait, describe_start_time_wait, run_view};

/// Maximum number of open gates that are read to describe what the runs of a list wait for.
const GATES_MAX: usize = 1_000;

/// Maximum number of runs of a list whose journals are read to say until when they wait at a spend
/// cap.
const CAP_WAITS_MAX: usize = 100;

/// Maximum number of running runs of a list whose last events are read for their active time.
const ACTIVE_READS_MAX: usize = 100;

/// Maximum number of an agent's runs from which statistics are computed.
const RUNS_MAX: usize = 10_000;
/// Maximum number of runs that are read at once.
const PAGE_SIZE: usize = 1_000;

impl Longhaul {
    /// Returns the full view of a run, as the API shows it.
    pub async fn get_run(&self, run: RunId) -> Result<RunView> {
        self.get_run_with_worker_cache(run, &mut None).await
    }

    /// Returns the full view of a run. `workers` caches the live workers, which are read only if
    /// the run waits for a worker.
    pub(super) async fn get_run_with_worker_cache(
        &self,
        run: RunId,
        workers: &mut Option<LiveWorkers>,
    ) -> Result<RunView> {
        let row = self.run_row(run).await?;
        let (folded, now) = replay_run_state(&self.services, run).await?;
        let mut view = run_view(&row, &folded, now);
        if row.status.is_terminal() {
            view.late = self.services.records.late_tool_results(run).await?;
            // After the end, the journal no longer tells what happens with the sandbox.
            if view.sandbox.is_some() {
                view.sandbox = self.sandbox_of_ended_run(run).await?.or(view.sandbox);
            }
        }
        if describe_start_time_wait(&row, &folded, now).is_none()
            && let Some(unserved) = self.explain_unserved_run(&row, workers).await?
        {
            view.now = unserved.message;
        }
        let paused = self.paused_lanes(std::slice::from_ref(&row)).await?;
        if let Some(reason) = paused_lane_reason(&row, &paused) {
            view.now = reason;
        }
        if let Some(overdue) = self.explain_overdue_gate(&row).await? {
            view.now = overdue.message;
        }
        Ok(view)
    }

    /// Replays the journal of a run and returns the resulting state.
    pub async fn replay_run(&self, run: RunId) -> Result<Run> {
        Ok(replay_run(&self.services, run).await?.0)
    }

    /// Lists the runs that match the filter in short form, newest first.
    pub async fn list_brief_runs(&self, filter: RunFilter) -> Result<Vec<RunBriefView>> {
        let rows = self.services.store.list_runs(filter).await?;
        let has_waiting_run =
            rows.iter().any(|row| matches!(row.status, Status::Waiting | Status::Blocked));
        let mut gates: BTreeMap<(RunId, bool), GateRow> = BTreeMap::new();
        if has_waiting_run {
            let open = self.list_gates(GateFilter::open(None, GATES_MAX)).await?;
            // Gates come newest first and later ones overwrite earlier ones, so each run gets its
            // oldest open signal gate and its oldest open gate of another kind.
            let is_signal = |gate: &GateRow| gate.spec.kind == GateKind::Signal;
            gates.extend(open.into_iter().map(|gate| ((gate.run, is_signal(&gate)), gate)));
        }
        let paused = self.paused_lanes(&rows).await?;
        let mut workers = None;
        let mut cap_waits_left = CAP_WAITS_MAX;
        let mut active_reads_left = ACTIVE_READS_MAX;
        let mut runs = Vec::with_capacity(rows.len());
        for row in &rows {
            let unserved = self.explain_unserved_run(row, &mut workers).await?;
            let reason = unserved
                .map(|unserved| unserved.message)
                .or_else(|| paused_lane_reason(row, &paused));
            let at_cap = row.reason.as_deref() == Some("cap") && cap_waits_left > 0;
            let reason = match reason {
                None if at_cap => {
                    cap_waits_left -= 1;
                    self.spend_cap_wait_text(row).await?
                }
                reason => reason,
            };
            // A program may have raised a gate that the run does not wait for.
            let gate = match row.reason.as_deref() {
                Some("approval" | "question" | "blocked") => gates.get(&(row.id, false)),
                Some("signal") => gates.get(&(row.id, true)),
                Some(_) | None => None,
            };
            let now = reason.unwrap_or_else(|| current_activity_text(row, gate));
            let mut brief = RunBriefView::brief_view_of_row(row, now);
            if row.status == Status::Running && row.reason.is_none() && active_reads_left > 0 {
                active_reads_left -= 1;
                // The calls of a driven run have been running since then, which no event records yet.
                if let Some(last) = self.last_entry(row).await? {
                    brief.active_ms += self.store_time().await?.duration_since(last.at).0;
                }
            }
            runs.push(brief);
        }
        Ok(runs)
    }

    /// Counts all runs of the store, and sums up what they have cost.
    pub async fn count_runs(&self) -> Result<RunCounts> {
        Ok(self.services.records.count_runs().await?)
    }

    /// Returns the last entry of a run's journal.
    async fn last_entry(&self, row: &RunRow) -> Result<Option<JournalEntry>> {
        let before = Seq(row.last_seq.0.saturating_sub(1));
        Ok(self.read_run_journal(row.id, before, 1).await?.pop())
    }

    /// Describes until when a run waits at a spend cap. Returns `None` if the last event of the
    /// run's journal is not such a wait.
    async fn spend_cap_wait_text(&self, row: &RunRow) -> Result<Option<String>> {
        Ok(match self.last_entry(row).await?.map(|entry| entry.event) {
            Some(Event::RunWaiting(waiting)) => {
                waiting.wait.end_time().map(|until| format!("waits: spend cap until {until}"))
            }
            Some(_) | None => None,
        })
    }

    /// Returns the paused lanes that these runs wait for.
    async fn paused_lanes(&self, rows: &[RunRow]) -> Result<BTreeSet<LaneKey>> {
        let waiting = rows.iter().filter(|row| row.reason.as_deref() == Some("lane"));
        let lanes: BTreeSet<&LaneKey> = waiting.filter_map(|row| row.lane.as_ref()).collect();
        let mut paused = BTreeSet::new();
        for lane in lanes {
            if self.lane(lane).await?.paused {
                paused.insert(lane.clone());
            }
        }
        Ok(paused)
    }

    /// Returns the state of a lane. A lane that no run has entered is empty.
    pub async fn lane(&self, lane: &LaneKey) -> Result<LaneView> {
        let row = self.services.records.find_lane(lane).await?;
        Ok(LaneView::from(&row.unwrap_or_else(|| LaneRow::empty(lane.clone()))))
    }

    /// Lists the lanes that contain runs or are paused, in the order of their names.
    pub async fn list_lanes(&self, after: Option<&LaneKey>, limit: usize) -> Result<Vec<LaneView>> {
        let rows = self.services.records.list_lanes(after, limit).await?;
        Ok(rows.iter().map(LaneView::from).collect())
    }

    /// Reads the events of all journals after a global sequence number, in the order of writing.
    pub async fn all_events(&self, after: GlobalSeq, limit: usize) -> Result<GlobalJournalPage> {
        Ok(self.services.records.read_all_journals(after, limit).await?)
    }

    /// Returns the global sequence number of the last event of all journals.
    pub async fn last_global_seq(&self) -> Result<GlobalSeq> {
        Ok(self.services.records.last_global_seq().await?)
    }

    /// Whether any process currently drives the runs of the store. The store may know this without
    /// heartbeats, for example from a lock.
    pub async fn has_process_driving_runs(&self) -> Result<bool> {
        Ok(self.services.records.has_process_driving_runs().await?)
    }

    /// Whether a worker has sent a heartbeat within the duration of its lease, i.e. can still write
    /// to the store.
    pub async fn has_live_worker(&self) -> Result<bool> {
        Ok(!self.live_workers().await?.0.is_empty())
    }

    /// Returns the row of a run in the store.
    pub async fn run_row(&self, run: RunId) -> Result<RunRow> {
        self.services.store.get_run(run).await?.ok_or(Error::RunNotFound(run))
    }

    /// Explains why a run has its current status, and what to do next. For a run that waits for a
    /// child run, explains what the child waits for. For an ended run of a chain, explains the
    /// newest run of the chain.
    pub async fn explain_run(&self, run: RunId) -> Result<RunExplanation> {
        let (mut explanation, mut child) = self.explain_own_status(run).await?;
        if child.is_none() {
            child = self.newest_run_of_chain(run).await?;
        }
        for _ in 0..CHILD_DEPTH_MAX {
            let Some(id) = child else { break };
            let (child_explanation, next) = match self.explain_own_status(id).await {
                Ok(explained) => explained,
                Err(Error::RunNotFound(_)) => break,
                Err(error) => return Err(error),
            };
            explanation.message =
                format!("{} {id}: {}", explanation.message, child_explanation.message);
            explanation.command = child_explanation.command;
            child = next;
        }
        Ok(explanation)
    }

    /// Explains the status of a run itself, without its child runs. Also returns the child run that
    /// it waits for, or `None` if it waits for none.
    async fn explain_own_status(&self, run: RunId) -> Result<(RunExplanation, Option<RunId>)> {
        let (folded, now) = replay_run_state(&self.services, run).await?;
        let row = self.run_row(run).await?;
        let start_time = describe_start_time_wait(&row, &folded, now);
        let mut special = None;
        if start_time.is_none() {
            special = self.explain_unstarted_run(&row).await?;
        }
        if special.is_none() {
            special = self.explain_overdue_gate(&row).await?;
        }
        let StateExplanation { message, command } = match special {
            Some(special) => special,
            None => {
                let explanation = explain_run_state(&folded);
                // Waiting for a lane, a batch or a start time is recorded only in the row.
                let wait_message = start_time.or_else(|| describe_queue_wait(&row));
                let message = wait_message.unwrap_or(explanation.message);
                let command = self.raise_budget_command(&folded).await?;
                StateExplanation { message, command: command.unwrap_or(explanation.command) }
            }
        };
        let (status, reason) = (row.status, row.reason);
        let mut message = message;
        if let Some(WaitReason::SandboxSlot) = folded.control().driver.wait()
            && let Some(position) = self.services.records.slot_queue_position(run).await?
        {
            message = format!("{message} Its position in the queue is {position}.");
        }
        let child = match folded.control().driver.wait() {
            Some(WaitReason::Child(first)) => {
                let open = folded.control().children.iter().map(|child| child.id);
                Some(self.child_that_explains_wait(*first, open).await?)
            }
            Some(_) | None => None,
        };
        Ok((RunExplanation { run, status, reason, message, command }, child))
    }

    /// Returns the child run whose status explains best why its parent waits: one of `open` that
    /// needs a person, or else one that waits for a child of its own, or else `first`.
    async fn child_that_explains_wait(
        &self,
        first: RunId,
        open: impl Iterator<Item = RunId>,
    ) -> Result<RunId> {
        let mut waiting_child = None;
        for child in open {
            let Some(row) = self.services.store.get_run(child).await? else { continue };
            match (row.status, row.reason.as_deref()) {
                (Status::Blocked | Status::Paused, _)
                | (Status::Waiting, Some("approval" | "question" | "signal" | "budget")) => {
                    return Ok(child);
                }
                (Status::Waiting, Some("child")) => waiting_child = waiting_child.or(Some(child)),
                _ => {}
            }
        }
        Ok(waiting_child.unwrap_or(first))
    }

    /// Explains that a run waits at a gate whose deadline has passed. Returns `None` if it does not.
    async fn explain_overdue_gate(&self, row: &RunRow) -> Result<Option<StateExplanation>> {
        if !matches!(row.status, Status::Waiting | Status::Blocked) {
            return Ok(None);
        }
        let gates = self.list_gates(GateFilter::open(Some(row.id), GATES_MAX)).await?;
        let overdue = gates.iter().find(|gate| gate.status == GateStatus::Expired);
        Ok(overdue.map(|gate| StateExplanation {
            message: format!(
                "The gate {} has expired; a worker closes the gate and continues the run.",
                gate.spec.id
            ),
            command: format!("longhaul watch {}", row.id),
        }))
    }

    /// Reads at most `limit` entries of a run's journal after a sequence number.
    pub async fn read_run_journal(
        &self,
        run: RunId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<JournalEntry>> {
        let page =
            self.services.store.read_journal(JournalReadRequest { run, after, limit }).await?;
        if page.last_seq == Seq::START {
            return Err(Error::RunNotFound(run));
        }
        Ok(page.entries)
    }

    /// Returns the current time of the clock that the store uses for its rows.
    pub async fn store_time(&self) -> Result<Timestamp> {
        Ok(self.services.records.now().await?)
    }

    /// Returns statistics of the runs of an agent that were created within `window` before now.
    pub async fn agent_stats(&self, agent: &AgentName, window: Millis) -> Result<AgentStatsView> {
        let until = self.store_time().await?;
        let micros = i64::try_from(window.0.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let since = Timestamp::from_micros(until.as_micros().saturating_sub(micros).max(0));
        let mut rows: Vec<RunRow> = Vec::new();
        let mut truncated = false;
        loop {
            let filter = RunFilter {
                agent: Some(agent.clone()),
                after: rows.last().map(|row| row.id),
                limit: PAGE_SIZE,
                ..RunFilter::default()
            };
            let page = self.services.store.list_runs(filter).await?;
            let is_last = page.len() < PAGE_SIZE;
            let before = rows.len();
            // Runs are listed newest first, so the first older one ends the window.
            rows.extend(page.into_iter().take_while(|row| row.created_at >= since));
            if is_last || rows.len() < before + PAGE_SIZE {
                break;
            }
            if rows.len() >= RUNS_MAX {
                truncated = true;
                break;
            }
        }
        // An agent whose file is gone still has statistics.
        if let (true, Err(suggestion)) = (rows.is_empty(), self.get_agent(agent.as_str())) {
            return Err(Error::AgentNotFound { name: agent.to_string(), suggestion });
        }
        Ok(stats_of_runs(agent, &rows, (since, until), truncated))
    }
}

/// Explains that a run waits because its lane is paused. Returns `None` if it waits for something
/// else.
fn paused_lane_reason(row: &RunRow, paused: &BTreeSet<LaneKey>) -> Option<String> {
    let lane = row.lane.as_ref().filter(|lane| paused.contains(*lane))?;
    (row.reason.as_deref() == Some("lane")).then(|| format!("The lane `{lane}` is paused."))
}

/// Returns a few words about what a run does now, for lists of runs. `gate` is the gate that the run
/// waits for.
fn current_activity_text(row: &RunRow, gate: Option<&GateRow>) -> String {
    match (row.status, gate) {
        (Status::Waiting | Status::Blocked, Some(gate)) if gate.status == GateStatus::Expired => {
            "its gate has expired".to_owned()
        }
        (Status::Waiting | Status::Blocked, Some(gate)) => gate.spec.ask.clone(),
        (Status::Pending, _) | (Status::Waiting, None) => {
            describe_queue_wait(row).unwrap_or_else(|| match row.reason.as_deref() {
                Some("worker") | None => "waits for a worker".to_owned(),
                Some(reason) => format!("waits: {}", reason.replace('_', " ")),
            })
        }
        (Status::Running, _) => format!("turn {}", row.turns + 1),
        (Status::Blocked, None) => "a dependency is missing".to_owned(),
        (Status::Paused, _) => "paused by a person".to_owned(),
        (Status::Completed, _) => "done".to_owned(),
        (Status::Failed, _) => row.code.clone().unwrap_or_else(|| "failed".to_owned()),
        (Status::Cancelled, _) => "cancelled".to_owned(),
    }
}

fn stats_of_runs(
    agent: &AgentName,
    rows: &[RunRow],
    (since, until): (Timestamp, Timestamp),
    truncated: bool,
) -> AgentStatsView {
    let count = |status: Status| rows.iter().filter(|row| row.status == status).count() as u64;
    let ended: Vec<&RunRow> = rows.iter().filter(|row| row.status.is_terminal()).collect();
    let run_counts = OutcomeCounts {
        total: rows.len() as u64,
        completed: count(Status::Completed),
        failed: count(Status::Failed),
        cancelled: count(Status::Cancelled),
        open: (rows.len() - ended.len()) as u64,
    };
    let finished = run_counts.completed + run_counts.failed;
    let amounts = |amount: fn(&RunRow) -> u64| amount_stats(ended.iter().map(|row| amount(row)));
    let costs: Vec<u64> = ended.iter().filter_map(|row| row.cost).map(|cost| cost.0).collect();
    let unknown = (ended.len() - costs.len()) as u64;
    let PerRunStats { total, p50, p95 } = amount_stats(costs.into_iter());
    let [total, p50, p95] = [total, p50, p95].map(|cost| micro_usd_to_usd(MicroUsd(cost)));
    let cost_usd = CostStats { total, p50, p95, unknown };
    AgentStatsView {
        agent: agent.to_string(),
        since,
        until,
        truncated,
        runs: run_counts,
        success_rate: (finished > 0).then(|| run_counts.completed as f64 / finished as f64),
        turns: amounts(|row| u64::from(row.turns)),
        input_tokens: amounts(|row| row.usage.input_tokens),
        output_tokens: amounts(|row| row.usage.output_tokens),
        active_ms: amounts(|row| row.active.0),
        cost_usd,
    }
}

fn amount_stats(amounts: impl Iterator<Item = u64>) -> PerRunStats {
    let mut amounts: Vec<u64> = amounts.collect();
    amounts.sort_unstable();
    // Nearest rank: the smallest amount that at least this share of the runs does not exceed.
    let percentile = |percent: usize| {
        let rank = (amounts.len() * percent).div_ceil(100).max(1);
        amounts.get(rank - 1).copied().unwrap_or_default()
    };
    PerRunStats {
        total: amounts.iter().copied().fold(0, u64::saturating_add),
        p50: percentile(50),
        p95: percentile(95),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_percentile_is_one_of_the_amounts() {
        let stats = |amounts: &[u64]| {
            let PerRunStats { total, p50, p95 } = amount_stats(amounts.iter().copied());
            (total, p50, p95)
        };
        assert_eq!(stats(&[]), (0, 0, 0));
        assert_eq!(stats(&[7]), (7, 7, 7));
        assert_eq!(stats(&[3, 1, 2]), (6, 2, 3));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(stats(&hundred), (5_050, 50, 95));
    }
}
