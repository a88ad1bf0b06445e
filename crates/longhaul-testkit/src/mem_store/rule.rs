//! Remembered approvals: added once per scope and pattern, counted and revoked.

use longhaul_core::access::SYSTEM_PRINCIPAL;
use longhaul_core::id::{RuleId, RunId};
use longhaul_core::policy::gate::RulePattern;
use longhaul_core::policy::rule::{
    RULES_MAX, RememberedApprovalFilter, RememberedApprovalRevocation, RememberedApprovalRow,
    RememberedApprovalScope,
};
use longhaul_core::port::store::AppendRefusalReason;

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Adds a rule, unless an active one has the same scope and pattern or the limit is reached.
    pub(crate) fn add_rule(&mut self, row: RememberedApprovalRow) -> ChangeResult {
        let active = || self.tables.rules.iter().map(|(_, row)| row).filter(is_active);
        if active().any(|known| known.scope == row.scope && known.pattern == row.pattern) {
            return refuse(AppendRefusalReason::RuleExists);
        }
        let is_shared = |row: &RememberedApprovalRow| row.scope.run().is_none();
        if is_shared(&row) && active().filter(|row| is_shared(row)).count() >= RULES_MAX {
            return refuse(AppendRefusalReason::RulesFull);
        }
        self.tables.rules.insert(row.rule, row);
        Ok(())
    }

    pub(crate) fn count_rule_use(&mut self, rule: RuleId) {
        let now = self.now;
        self.tables.rules.update(&rule, |row| {
            row.used += 1;
            row.last_used = Some(now);
        });
    }

    /// Revokes a rule. Refused if it is not active.
    pub(crate) fn revoke_rule(&mut self, rule: RuleId, by: &str) -> ChangeResult {
        if !self.tables.rules.get(&rule).is_some_and(|row| is_active(&row)) {
            return refuse(AppendRefusalReason::RuleInactive);
        }
        let revocation = RememberedApprovalRevocation { by: by.to_owned(), at: self.now };
        self.tables.rules.update(&rule, |row| row.revoked = Some(revocation.clone()));
        Ok(())
    }

    /// Revokes the rules of a principal that apply to more than one run.
    pub(crate) fn revoke_shared_rules_of(&mut self, principal: &str) {
        let revoked = RememberedApprovalRevocation { by: SYSTEM_PRINCIPAL.into(), at: self.now };
        let rows = self.tables.rules.iter().map(|(_, row)| row).filter(is_active);
        let rows = rows.filter(|row| row.scope.run().is_none() && row.has_voter(principal));
        for rule in rows.map(|row| row.rule).collect::<Vec<_>>() {
            self.tables.rules.update(&rule, |row| row.revoked = Some(revoked.clone()));
        }
    }
}

impl Tables {
    /// Returns the rules that match a filter, newest first.
    pub(crate) fn rules_matching(
        &self,
        filter: &RememberedApprovalFilter,
    ) -> Vec<RememberedApprovalRow> {
        let is_ended = |run: RunId| self.heads.get(&run).is_none_or(|head| head.state.is_ended());
        let newest = self.rules.iter().rev().map(|(_, row)| row);
        let rows = newest.filter(|row| {
            let is_listed = filter.include_inactive
                || (is_active(row) && !row.scope.run().is_some_and(is_ended));
            let is_after = filter.after.is_none_or(|after| row.rule < after);
            filter.rule.map_or(is_listed && is_after, |rule| row.rule == rule)
        });
        rows.take(filter.limit).cloned().collect()
    }

    /// Returns the active rules with one of these scopes and one of these patterns.
    pub(crate) fn active_remembered_approvals(
        &self,
        scopes: &[RememberedApprovalScope],
        patterns: &[RulePattern],
    ) -> Vec<RememberedApprovalRow> {
        let rows = self.rules.iter().map(|(_, row)| row).filter(is_active);
        let rows =
            rows.filter(|row| scopes.contains(&row.scope) && patterns.contains(&row.pattern));
        rows.cloned().collect()
    }
}

fn is_active(row: &&RememberedApprovalRow) -> bool {
    row.revoked.is_none()
}
