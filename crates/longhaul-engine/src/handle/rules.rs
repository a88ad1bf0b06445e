//! Lists and revokes remembered approvals: rules that a person adds by approving a call not only
//! once, but for the run, the agent or the project.

use longhaul_core::access::SYSTEM_PRINCIPAL;
use longhaul_core::id::RuleId;
use longhaul_core::policy::rule::{RememberedApprovalFilter, RememberedApprovalRow};
use longhaul_run::Rejection;
use longhaul_run::commands::RunCommand;

use crate::error::{Error, Result};
use crate::handle::Longhaul;

/// Number of remembered approvals that are read at once.
const RULES_PAGE: usize = 500;

impl Longhaul {
    /// Lists the remembered approvals (rules by which later calls are approved without asking) that
    /// match the filter, newest first.
    pub async fn list_rules(
        &self,
        filter: RememberedApprovalFilter,
    ) -> Result<Vec<RememberedApprovalRow>> {
        Ok(self.services.records.list_rules(filter).await?)
    }

    /// Returns the remembered approval (rule by which later calls are approved) with this id,
    /// active or revoked.
    pub async fn get_rule(&self, rule: RuleId) -> Result<RememberedApprovalRow> {
        let filter = RememberedApprovalFilter {
            rule: Some(rule),
            limit: 1,
            ..RememberedApprovalFilter::default()
        };
        let found = self.list_rules(filter).await?;
        found.into_iter().next().ok_or(Error::RuleNotFound(rule))
    }

    /// Revokes the remembered approvals that rest on a vote of this principal.
    pub(super) async fn revoke_rules_of_principal(&self, principal: &str) -> Result<()> {
        let mut filter =
            RememberedApprovalFilter { limit: RULES_PAGE, ..RememberedApprovalFilter::default() };
        loop {
            let page = self.list_rules(filter.clone()).await?;
            for row in page.iter().filter(|row| row.has_voter(principal)) {
                match self.revoke_rule(row.rule, SYSTEM_PRINCIPAL).await {
                    // The run has ended, or somebody else was faster.
                    Ok(_)
                    | Err(
                        Error::RunNotFound(_)
                        | Error::RuleNotFound(_)
                        | Error::Rejected(Rejection::Ended(_) | Rejection::RuleRevoked { .. }),
                    ) => {}
                    Err(error) => return Err(error),
                }
            }
            match page.last() {
                Some(last) if page.len() == RULES_PAGE => filter.after = Some(last.rule),
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// Revokes a remembered approval and returns it. Calls in later model replies need an approval
    /// again, but calls in replies that are already in a journal stay approved.
    pub async fn revoke_rule(&self, rule: RuleId, by: &str) -> Result<RememberedApprovalRow> {
        let row = self.get_rule(rule).await?;
        if let Some(revocation) = row.revoked {
            return Err(Rejection::RuleRevoked { rule, revocation }.into());
        }
        let is_revoked = match row.scope.run() {
            // The journal of the run tells its driver.
            Some(run) => {
                let command = RunCommand::RevokeRule { rule, by: by.to_owned() };
                self.send_command(run, command).await.map(|_| true)
            }
            None => {
                let by = self.redact(by.to_owned());
                Ok(self.services.records.revoke_rule(rule, &by).await?)
            }
        };
        let row = self.get_rule(rule).await?;
        match (is_revoked, &row.revoked) {
            (Ok(true), _) => Ok(row),
            // Somebody else was faster.
            (_, Some(revocation)) => {
                Err(Rejection::RuleRevoked { rule, revocation: revocation.clone() }.into())
            }
            (Ok(false), None) => Err(Error::RuleNotFound(rule)),
            (Err(error), None) => Err(error),
        }
    }
}
