//! I9: no call starts that a rule asks about, unless a person has approved this call or a remembered
//! approval covers it that was active when the model replied. Each use is counted once.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::environment::{ChildStarted, RuleUsed};
use longhaul_core::event::tool::ToolStarted;
use longhaul_core::id::{AgentName, CallId, GateId, RuleId};
use longhaul_core::policy::gate::{GateDecision, GateRule, GateRuleAction, GateTimeoutAction};
use longhaul_core::policy::rule::{
    RememberedApprovalFilter, RememberedApprovalRow, RememberedApprovalScope,
};
use longhaul_core::time::Timestamp;

use crate::sim::SimError;
use crate::sim::check::SimHistory;
use crate::sim::driver::SimServices;

/// Checks the approvals of all calls against the journals and the rows of the rules.
pub async fn check_rules(services: &SimServices, history: &SimHistory) -> Result<(), SimError> {
    let filter = RememberedApprovalFilter {
        include_inactive: true,
        limit: 10_000,
        ..RememberedApprovalFilter::default()
    };
    let rows = services.records.list_rules(filter).await?;
    let rows: BTreeMap<RuleId, RememberedApprovalRow> =
        rows.into_iter().map(|row| (row.rule, row)).collect();
    let mut uses: BTreeMap<RuleId, u64> = BTreeMap::new();
    for (run, entries) in &history.journals {
        let mut approval_check = ApprovalCheck::default();
        for entry in entries {
            let used_rule = approval_check.check_entry(entry, &rows);
            let used_rule =
                used_rule.map_err(|error| format!("{run}: I9: {error} at {}", entry.seq))?;
            // The uses of a failed run are counted in its own journal.
            if matches!(entry.event, Event::RunForked(_)) {
                approval_check.uses.clear();
            }
            approval_check.uses.extend(used_rule);
        }
        for rule in approval_check.uses {
            *uses.entry(rule).or_default() += 1;
        }
    }
    for row in rows.values() {
        let used = uses.get(&row.rule).copied().unwrap_or_default();
        if row.used != used {
            return Err(format!("I9: {} counts {} of {used} uses", row.rule, row.used).into());
        }
    }
    Ok(())
}

/// What the journal of a run says about approvals so far.
#[derive(Debug, Default)]
struct ApprovalCheck {
    agent: Option<AgentName>,
    rules: Vec<GateRule>,
    turn_started: Timestamp,
    /// Calls that a rule asks about, with the time at which their turn started.
    asked: BTreeMap<CallId, (GateRule, Timestamp)>,
    gates: BTreeMap<GateId, CallId>,
    approved: BTreeSet<CallId>,
    uses: Vec<RuleId>,
    /// Rules that were revoked in this journal.
    revoked: BTreeSet<RuleId>,
}

impl ApprovalCheck {
    /// Checks one entry. Returns the rule that it uses.
    fn check_entry(
        &mut self,
        entry: &JournalEntry,
        rows: &BTreeMap<RuleId, RememberedApprovalRow>,
    ) -> Result<Option<RuleId>, String> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only approvals matter here")]
        match &entry.event {
            Event::RunCreated(data) => {
                self.agent = Some(data.task.agent.clone());
                self.rules.clone_from(&data.task.policy.rules);
            }
            Event::TurnStarted(_) => self.turn_started = entry.at,
            Event::TurnCompleted(data) => {
                for (index, call) in (1..).zip(&data.calls) {
                    // The patterns of the simulated rules are plain names of tools.
                    let rule = self.rules.iter().find(|rule| rule.tool == call.tool.as_str());
                    if let Some(rule) = rule
                        && matches!(rule.action, GateRuleAction::Ask(_))
                    {
                        let id = CallId { turn: data.turn, index };
                        self.asked.insert(id, (rule.clone(), self.turn_started));
                    }
                }
            }
            Event::GateRaised(data) => {
                self.gates.extend(data.gate.call.map(|call| (data.gate.id, call)));
            }
            Event::GateAnswered(data) => {
                if let GateDecision::Approve | GateDecision::Edit(_) = data.answer.decision {
                    self.approved.extend(self.gates.get(&data.gate));
                }
            }
            Event::GateExpired(data) if data.on_timeout == GateTimeoutAction::Approve => {
                self.approved.extend(self.gates.get(&data.gate));
            }
            Event::RuleRevoked(data) => _ = self.revoked.insert(data.rule),
            Event::RuleUsed(data) => {
                self.check_use(data, rows)?;
                self.approved.insert(data.call);
                return Ok(Some(data.rule));
            }
            Event::ToolStarted(ToolStarted { call, .. })
            | Event::ChildStarted(ChildStarted { call: Some(call), .. })
                if self.asked.contains_key(call) && !self.approved.contains(call) =>
            {
                return Err(format!("{call} starts without an approval"));
            }
            _ => {}
        }
        Ok(None)
    }

    fn check_use(
        &self,
        used: &RuleUsed,
        rows: &BTreeMap<RuleId, RememberedApprovalRow>,
    ) -> Result<(), String> {
        let row = rows.get(&used.rule).ok_or_else(|| format!("{} is missing", used.rule))?;
        let asked = self.asked.get(&used.call);
        let (rule, since) = asked.ok_or_else(|| format!("nobody asks about {}", used.call))?;
        let needs_approval_per_run = rule.approvers.count > 1 || rule.approvers.not_submitter;
        let is_allowed = !rule.always
            && row.pattern.tool == rule.tool
            && row.pattern.match_glob == rule.match_glob
            && (!needs_approval_per_run || matches!(row.scope, RememberedApprovalScope::Run(_)))
            && row.scope.agent().is_none_or(|agent| Some(agent) == self.agent.as_ref());
        let was_revoked = self.revoked.contains(&used.rule)
            || row.revoked.as_ref().is_some_and(|revoked| revoked.at < *since);
        match is_allowed && !was_revoked {
            true => Ok(()),
            false => Err(format!("{} does not cover {}", used.rule, used.call)),
        }
    }
}
