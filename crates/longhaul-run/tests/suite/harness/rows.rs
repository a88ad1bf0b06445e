//! In-memory rows beside a journal, as a store keeps them.

use std::collections::BTreeMap;

use longhaul_core::change::{
    BudgetHold, GateTransition, RowChange, RunSchedulingUpdate, SteerRow, SteerStatus,
    TimerDueTime, TimerKind, TimerUpdate,
};
use longhaul_core::event::{Event, RunsToWake};
use longhaul_core::id::{CallId, RuleId, RunId, TimerId};
use longhaul_core::policy::budget::{BudgetAccount, BudgetRaise, raised_cap};
use longhaul_core::policy::effect_key::{
    ClaimedEffectKey, EffectKeyChange, EffectKeyHolder, EffectKeyState,
};
use longhaul_core::policy::gate::{GateRow, GateStatus, RecordedAnswer};
use longhaul_core::policy::rule::{RememberedApprovalRevocation, RememberedApprovalRow};
use longhaul_core::port::records::DueTimer;
use longhaul_core::raw::Hash;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::{BudgetAmount, MicroUsd, RemainingBudget, Usage};
use longhaul_run::state::budget::UsageTotals;
use longhaul_run::state::control::ControlState;

use super::Author;
use super::amounts::{minus, plus};
use super::sandboxes::SandboxRows;

/// Scheduling state of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Ready,
    Leased,
    Parked,
    Paused,
    Ended,
}

/// Reason why a row refuses a batch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RowConflict {
    OverBudget(BudgetAccount),
    KeyTaken(ClaimedEffectKey),
    KeyNotHeld,
    NoSlot,
    Row(&'static str),
}

/// Budget account with the totals of all holds and settlements.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Account {
    pub(crate) cap: RemainingBudget,
    pub(crate) held: BudgetAmount,
    pub(crate) spent: BudgetAmount,
    pub(crate) lost: BudgetAmount,
    pub(crate) held_ever: BudgetAmount,
    pub(crate) settled_ever: BudgetAmount,
    pub(crate) held_by_others: BudgetAmount,
    pub(crate) spent_by_others: BudgetAmount,
}

impl Account {
    fn raise_caps(&mut self, raise: BudgetRaise) {
        self.cap.micro_usd = raised_cap(self.cap.micro_usd, raise.micro_usd);
        self.cap.tokens = raised_cap(self.cap.tokens, raise.tokens);
    }

    /// Returns the account of the whole tree.
    fn of_tree(&self) -> BudgetAccount {
        BudgetAccount {
            cap_micro_usd: self.cap.micro_usd,
            cap_tokens: self.cap.tokens,
            spent: self.spent.plus(self.spent_by_others),
            lost: self.lost,
            held: self.held.plus(self.held_by_others),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunUsage {
    pub(crate) usage: Usage,
    pub(crate) cost: MicroUsd,
    pub(crate) unpriced: bool,
    pub(crate) turns: u32,
    pub(crate) active: Millis,
}

/// All rows of the run.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    pub(crate) run: RunId,
    pub(crate) submitter: Option<String>,
    pub(crate) head: Head,
    /// True if the run is parked and has released its lane.
    pub(crate) has_released_lane: bool,
    pub(crate) epoch: u64,
    pub(crate) gates: Vec<GateRow>,
    pub(crate) timers: BTreeMap<TimerId, (Timestamp, TimerKind)>,
    pub(crate) steers: Vec<SteerRow>,
    pub(crate) rules: Vec<RememberedApprovalRow>,
    pub(crate) account: Account,
    pub(crate) used: RunUsage,
    pub(crate) remembered: usize,
    pub(crate) keys: BTreeMap<Hash, ClaimedEffectKey>,
    pub(crate) sandboxes: SandboxRows,
    /// True if the run waits for a key that another run holds.
    waits_for_key: bool,
    /// True if another run has woken this run, which no event says.
    pub(crate) is_woken_by_key: bool,
    /// Child runs that were created.
    pub(crate) children: Vec<RunId>,
    /// Timers that were set for other runs.
    pub(crate) sent: Vec<(RunId, TimerKind)>,
    /// Amount that the run waits for, while other runs of its tree hold too much of the budget.
    waits_for: Option<BudgetAmount>,
}

impl Rows {
    pub(crate) fn new(task: &TaskSpec) -> Self {
        let account = Account {
            cap: RemainingBudget {
                micro_usd: task.policy.budget.micro_usd,
                tokens: task.policy.budget.tokens,
            },
            ..Account::default()
        };
        Self {
            run: task.root,
            submitter: task.submitter.clone(),
            head: Head::Ready,
            has_released_lane: false,
            epoch: 0,
            gates: Vec::new(),
            timers: BTreeMap::new(),
            steers: Vec::new(),
            rules: Vec::new(),
            account,
            used: RunUsage::default(),
            remembered: 0,
            keys: BTreeMap::new(),
            sandboxes: SandboxRows::default(),
            waits_for_key: false,
            is_woken_by_key: false,
            children: Vec::new(),
            sent: Vec::new(),
            waits_for: None,
        }
    }

    /// Sets what the copied events of a fork have used.
    pub(crate) fn set_used(&mut self, copied: &ControlState) {
        let UsageTotals { usage, cost, unpriced, active, lost, .. } = copied.totals;
        self.used = RunUsage { turns: copied.turns, usage, cost, unpriced, active };
        let tokens = usage.total_tokens();
        self.account.spent = BudgetAmount { micro_usd: cost, tokens };
        self.account.lost = lost;
    }

    /// Returns whether an author of this kind may write now.
    pub(crate) fn admits(&self, author: Author) -> bool {
        match author {
            Author::Driver => self.head == Head::Leased,
            Author::Closer => matches!(self.head, Head::Ready | Head::Parked | Head::Paused),
            // Timers are delivered even to a run that has ended.
            Author::Outsider => true,
        }
    }

    /// Applies the effect of an outsider's events on an idle run.
    pub(crate) fn wake_from(&mut self, events: &[Event]) {
        for event in events {
            let woken_runs = event.runs_woken_by_outside_append();
            assert_ne!(woken_runs, None, "an outsider may not append {}", event.kind());
            match (self.head, woken_runs) {
                (Head::Parked, Some(RunsToWake::Parked | RunsToWake::ParkedOrPaused))
                | (Head::Paused, Some(RunsToWake::ParkedOrPaused)) => self.head = Head::Ready,
                _ => {}
            }
        }
    }

    fn update_scheduling(&mut self, to: &RunSchedulingUpdate) {
        self.sandboxes.update_queue(to);
        self.has_released_lane = matches!(to, RunSchedulingUpdate::Park { release_lane: true, .. });
        self.head = match to {
            RunSchedulingUpdate::Park { .. } => Head::Parked,
            RunSchedulingUpdate::Pause => Head::Paused,
            RunSchedulingUpdate::Release => Head::Ready,
            RunSchedulingUpdate::End { .. } => Head::Ended,
        };
    }

    pub(crate) fn change(&mut self, change: RowChange, now: Timestamp) -> Result<(), RowConflict> {
        match change {
            RowChange::UpdateScheduling(to) => self.update_scheduling(&to),
            RowChange::RaiseGate(spec) => {
                assert!(self.gate_index(spec.id).is_none(), "a gate is raised only once");
                self.gates.push(GateRow {
                    run: self.run,
                    status: GateStatus::Open,
                    raised_at: now,
                    deadline: spec.timeout.map(|timeout| now.plus(timeout)),
                    submitter: self.submitter.clone(),
                    answers: Vec::new(),
                    spec: *spec,
                });
            }
            RowChange::UpdateGate(update) => {
                return self.close_gate(update.gate, update.transition, now);
            }
            RowChange::SetTimer(to) => return self.set_timer(to, now),
            RowChange::QueueSteer(row) => {
                let waiting = self.steers.iter().filter(|row| is_queued(row)).count();
                if waiting >= longhaul_core::change::STEERS_MAX {
                    return Err(RowConflict::Row("steers full"));
                }
                self.steers.push(row);
            }
            RowChange::UpdateSteer(to) => {
                let mut rows = self.steers.iter_mut();
                let row = rows.find(|row| row.steer == to.steer);
                let Some(row) = row.filter(|row| is_queued(row)) else {
                    return Err(RowConflict::Row("steer settled"));
                };
                if let Some((text, delivery)) = to.edit {
                    row.text = text;
                    row.delivery = delivery;
                }
                row.status = to.status;
            }
            RowChange::Hold(hold) => return self.hold(hold),
            RowChange::Settle(settled) => {
                let account = &mut self.account;
                account.held = minus(account.held, settled.held);
                account.spent = plus(account.spent, settled.spent);
                account.lost = plus(account.lost, settled.lost);
                account.settled_ever = plus(account.settled_ever, settled.held);
            }
            RowChange::WaitForHolds(needed) => self.queue_run_for_budget(needed),
            RowChange::WaitForHigherCaps { micro_usd, tokens } => {
                assert_eq!(RemainingBudget { micro_usd, tokens }, self.account.cap);
            }
            RowChange::AddUsage(row) => {
                let used = &mut self.used;
                used.usage = used.usage.plus(row.usage);
                used.cost = used.cost.plus(row.cost.unwrap_or_default());
                used.unpriced |= !row.model.is_empty() && row.cost.is_none();
                used.turns += row.turns;
                used.active = used.active.plus(row.active);
            }
            RowChange::AddRule(row) => self.rules.push(*row),
            RowChange::UseRule(rule) => self.count_rule_use(rule),
            RowChange::RevokeRule { rule, by } => return self.revoke_rule(rule, by, now),
            RowChange::UpdateKey(to) => return self.update_effect_key(to),
            RowChange::RaiseBudget(raise) => self.account.raise_caps(raise),
            RowChange::AppendThread(row) => self.remembered += row.messages.len(),
            RowChange::CreateRun(new) | RowChange::CreateStep(new) => self.add_child(new.id),
            RowChange::PutBlob(_) | RowChange::PutDefinition(_) => {}
            other => return self.sandboxes.change(other),
        }
        Ok(())
    }

    /// Keys as the store keeps them. The runs of other holders are not simulated here.
    fn update_effect_key(&mut self, change: EffectKeyChange) -> Result<(), RowConflict> {
        match change {
            EffectKeyChange::Claim(claim) => {
                let claimed = self.keys.get(&claim.key).copied();
                if let Some(claimed) = claimed.filter(|claimed| !claim.may_change_key(claimed)) {
                    return Err(RowConflict::KeyTaken(claimed));
                }
                let held = ClaimedEffectKey {
                    key: claim.key,
                    holder: claim.holder,
                    state: EffectKeyState::Held,
                };
                self.keys.insert(claim.key, held);
            }
            EffectKeyChange::Wait { key, holder } => {
                let held = ClaimedEffectKey { key, holder, state: EffectKeyState::Held };
                if self.keys.get(&key) != Some(&held) {
                    return Err(RowConflict::KeyNotHeld);
                }
                self.waits_for_key = true;
            }
            EffectKeyChange::Settle { claim, state } => {
                let key = claim.key;
                if self.keys.get(&key).is_some_and(|claimed| claim.may_change_key(claimed)) {
                    match state {
                        Some(state) => {
                            let holder = claim.holder;
                            self.keys.insert(key, ClaimedEffectKey { key, holder, state });
                        }
                        None => _ = self.keys.remove(&key),
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets another run claim, settle or free a key. A key that this run holds, or that is done, stays
    /// as it is. The run is woken if it waits for a key.
    pub(crate) fn change_key_of_other_run(&mut self, state: &str, key: &str) {
        let holder =
            EffectKeyHolder { run: RunId::from_bits(99), call: CallId { turn: 1, index: 1 } };
        let key = Hash::digest(key.as_bytes());
        let is_own = |claimed: &ClaimedEffectKey| {
            claimed.holder != holder || claimed.state == EffectKeyState::Done
        };
        if self.keys.get(&key).is_some_and(is_own) {
            return;
        }
        let state = match state {
            "held" => Some(EffectKeyState::Held),
            "done" => Some(EffectKeyState::Done),
            "unknown" => Some(EffectKeyState::Unknown),
            _ => None,
        };
        self.keys.remove(&key);
        self.keys.extend(state.map(|state| (key, ClaimedEffectKey { key, holder, state })));
        if state != Some(EffectKeyState::Held) {
            self.wake_after_key_change();
        }
    }

    /// Frees the keys that another run holds.
    pub(crate) fn free_keys_of_other_run(&mut self) {
        let run = self.run;
        self.keys.retain(|_, claimed| {
            claimed.holder.run == run || claimed.state == EffectKeyState::Done
        });
        self.wake_after_key_change();
    }

    fn wake_after_key_change(&mut self) {
        if std::mem::take(&mut self.waits_for_key) && self.head == Head::Parked {
            (self.head, self.is_woken_by_key) = (Head::Ready, true);
        }
    }

    fn add_child(&mut self, child: RunId) {
        assert!(!self.children.contains(&child), "a run is created only once");
        self.children.push(child);
    }

    fn count_rule_use(&mut self, rule: RuleId) {
        self.rules.iter_mut().find(|known| known.rule == rule).unwrap().used += 1;
    }

    /// Returns the rules that nobody has revoked.
    pub(crate) fn active_remembered_approvals(
        &self,
    ) -> impl Iterator<Item = &RememberedApprovalRow> {
        self.rules.iter().filter(|rule| rule.revoked.is_none())
    }

    pub(crate) fn revoke_rule(
        &mut self,
        rule: RuleId,
        by: String,
        at: Timestamp,
    ) -> Result<(), RowConflict> {
        let mut rules = self.rules.iter_mut();
        let active = rules.find(|known| known.rule == rule && known.revoked.is_none());
        active.ok_or(RowConflict::Row("rule revoked"))?.revoked =
            Some(RememberedApprovalRevocation { by, at });
        Ok(())
    }

    fn gate_index(&self, gate: longhaul_core::id::GateId) -> Option<usize> {
        self.gates.iter().position(|row| row.spec.id == gate)
    }

    fn close_gate(
        &mut self,
        gate: longhaul_core::id::GateId,
        transition: GateTransition,
        now: Timestamp,
    ) -> Result<(), RowConflict> {
        let index = self.gate_index(gate).ok_or(RowConflict::Row("no gate"))?;
        let row = &mut self.gates[index];
        if row.status != GateStatus::Open {
            return Err(RowConflict::Row("gate closed"));
        }
        let (status, answer) = match transition {
            GateTransition::Voted(answer) => (GateStatus::Open, Some(answer)),
            GateTransition::Answered(answer) | GateTransition::AnsweredByMessage(answer) => {
                (GateStatus::Answered, Some(answer))
            }
            GateTransition::Expired => (GateStatus::Expired, None),
            GateTransition::Withdrawn => (GateStatus::Withdrawn, None),
        };
        row.status = status;
        let given = answer.map(|answer| RecordedAnswer { at: now, answer });
        row.answers.extend(given);
        Ok(())
    }

    fn set_timer(&mut self, to: TimerUpdate, now: Timestamp) -> Result<(), RowConflict> {
        match to {
            TimerUpdate::Arm { run, kind, .. } if run != self.run => self.sent.push((run, kind)),
            TimerUpdate::Arm { timer, due, kind, .. } => {
                let due = match due {
                    TimerDueTime::Now => now,
                    TimerDueTime::After(delay) => now.plus(delay),
                    TimerDueTime::At(at) => at,
                };
                self.timers.insert(timer, (due, kind));
            }
            TimerUpdate::Consume(timer) => {
                let spent = self.timers.remove(&timer);
                spent.ok_or(RowConflict::Row("timer spent"))?;
            }
            TimerUpdate::Cancel(timer) => drop(self.timers.remove(&timer)),
            TimerUpdate::StopAutoApproval(_) => {
                self.timers.retain(|_, (_, kind)| !matches!(kind, TimerKind::GateAutoApprove(_)));
            }
        }
        Ok(())
    }

    fn hold(&mut self, hold: BudgetHold) -> Result<(), RowConflict> {
        let tree = self.account.of_tree();
        if !hold.fits_without_warning(&tree) {
            return Err(RowConflict::OverBudget(tree));
        }
        let account = &mut self.account;
        account.held = account.held.plus(hold.amount);
        account.held_ever = account.held_ever.plus(hold.amount);
        Ok(())
    }

    /// Sets what the other runs of the tree hold and have spent, and wakes the run if it waits for
    /// them.
    pub(crate) fn set_others(&mut self, held: u64, spent: u64) {
        let money = |micros| BudgetAmount { micro_usd: MicroUsd(micros), tokens: 0 };
        self.account.held_by_others = money(held);
        self.account.spent_by_others = money(spent);
        self.wake_if_budget_fits();
    }

    fn queue_run_for_budget(&mut self, needed: BudgetAmount) {
        assert_eq!(self.head, Head::Parked, "a run waits for holds after it was parked");
        self.waits_for = Some(needed);
        self.wake_if_budget_fits();
    }

    fn wake_if_budget_fits(&mut self) {
        let tree = self.account.of_tree();
        let must_wait = |needed: &BudgetAmount| {
            !tree.unreserved_budget().covers(*needed) && tree.unspent_budget().covers(*needed)
        };
        if self.head == Head::Parked
            && self.waits_for.take_if(|needed| !must_wait(needed)).is_some()
        {
            self.head = Head::Ready;
        }
    }

    /// Returns the timer that is due first.
    pub(crate) fn first_timer(&self) -> Option<(Timestamp, TimerId)> {
        let due = self.timers.iter().map(|(timer, (due, _))| (*due, *timer));
        due.min()
    }

    /// Returns a timer in the form that the sweep reports.
    pub(crate) fn due_timer(&self, timer: TimerId) -> Option<DueTimer> {
        let (due, kind) = self.timers.get(&timer)?.clone();
        let gate = kind.gate().and_then(|gate| {
            let is_open = |row: &&GateRow| row.spec.id == gate && row.status == GateStatus::Open;
            self.gates.iter().find(is_open).cloned().map(Box::new)
        });
        Some(DueTimer {
            timer,
            run: self.run,
            kind,
            due,
            run_ended: self.head == Head::Ended,
            open_gate: gate,
        })
    }
}

pub(crate) fn is_queued(row: &SteerRow) -> bool {
    row.status == SteerStatus::Queued
}
