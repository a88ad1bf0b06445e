//! Client methods for remembered approvals.

use longhaul_api::rule::RuleView;
use longhaul_core::id::RuleId;
use longhaul_core::policy::rule::RememberedApprovalFilter;
use longhaul_engine::view::rule_view;

use crate::caller_name::caller_name;
use crate::client::RunClient;
use crate::error::HintResultExt as _;

impl RunClient {
    /// Returns remembered approvals, newest first.
    pub(crate) async fn list_rules(
        &self,
        filter: RememberedApprovalFilter,
    ) -> anyhow::Result<Vec<RuleView>> {
        Ok(match self {
            Self::Local(longhaul) => {
                longhaul.list_rules(filter).await?.into_iter().map(rule_view).collect()
            }
            Self::Remote(client) => client.list_rules(&filter).await?,
        })
    }

    /// Revokes a remembered approval.
    pub(crate) async fn revoke_rule(&self, rule: RuleId) -> anyhow::Result<RuleView> {
        match self {
            Self::Local(longhaul) => {
                let revoked = longhaul.revoke_rule(rule, &caller_name()).await;
                Ok(rule_view(revoked.fill_hint_placeholder("RULE", rule)?))
            }
            Self::Remote(client) => {
                client.revoke_rule(rule).await.fill_hint_placeholder("RULE", rule)
            }
        }
    }
}
