//! API handlers for remembered approvals: rules that are added when a person approves a call for
//! the rest of the run, for the agent or for the project.

use longhaul_api::list::List;
use longhaul_api::query::{PagedQuery as _, RulesQuery};
use longhaul_api::rule::RuleView;
use longhaul_core::id::RuleId;
use longhaul_core::policy::rule::RememberedApprovalFilter;
use longhaul_engine::view::rule_view;

use crate::call::{Call, Reply};
use crate::params::page_limit;
use crate::problem::Problem;
use crate::response::paginate;

/// Default number of remembered approvals per page.
const RULES_DEFAULT: usize = 100;

pub(crate) async fn list_rules(
    Call { ctx, query, .. }: Call<(), (), RulesQuery>,
) -> Result<Reply<List<RuleView>>, Problem> {
    let limit = page_limit(query.limit, RULES_DEFAULT, query.limit_max())?;
    let filter = RememberedApprovalFilter {
        rule: None,
        include_inactive: query.all,
        after: query.after,
        limit: limit + 1,
    };
    let rows = ctx.longhaul().list_rules(filter).await?;
    let views: Vec<RuleView> = rows.into_iter().map(rule_view).collect();
    Ok(Reply::ok(paginate(views, limit, |rule| rule.id.to_string())))
}

pub(crate) async fn revoke_rule(
    Call { ctx, path: rule, .. }: Call<RuleId>,
) -> Result<Reply<RuleView>, Problem> {
    let revoked = ctx.longhaul().revoke_rule(rule, ctx.by()).await?;
    tracing::info!(%rule, caller = ctx.by(), "remembered approval revoked");
    Ok(Reply::ok(rule_view(revoked)))
}
