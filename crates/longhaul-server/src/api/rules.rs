//! API handlers for remembered approvals: rules that are added when a person approves a call for
//! the rest of the run, for the agent or for the project.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::rule::RuleView;
use longhaul_core::policy::rule::RememberedApprovalFilter;
use longhaul_engine::view::rule_view;

use crate::app::App;
use crate::caller::{Approver, Viewer};
use crate::openapi_types::RuleIdSchema;
use crate::params::{Query, RulePath};
use crate::problem::Problem;
use crate::response::{ok_response, paginate};

/// Default and maximum number of remembered approvals per page.
const RULES_DEFAULT: usize = 100;
const RULES_PER_PAGE_MAX: usize = 1_000;

/// Lists remembered approvals, newest first.
#[utoipa::path(
    get, path = "/v1/rules", tag = "rules", operation_id = "list_rules",
    params(
        ("all" = Option<bool>, Query, description = "Also list revoked approvals and approvals of ended runs"),
        ("after" = inline(Option<RuleIdSchema>), Query, description = "The `next` of the previous page"),
        ("limit" = Option<u32>, Query, description = "1 to 1,000", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "A page of remembered approvals", body = List<RuleView>)),
)]
pub(crate) async fn list_rules(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    let query = query.allow_only_params(&["all", "after", "limit"])?;
    let limit = query.page_limit_param(RULES_DEFAULT, 1..=RULES_PER_PAGE_MAX)?;
    let filter = RememberedApprovalFilter {
        rule: None,
        include_inactive: query.parse_param("all")?.unwrap_or(false),
        after: query.parse_param("after")?,
        limit: limit + 1,
    };
    let rows = app.longhaul().list_rules(filter).await?;
    let views: Vec<RuleView> = rows.into_iter().map(rule_view).collect();
    ok_response(&paginate(views, limit, |rule| rule.id.to_string()))
}

/// Revokes a remembered approval. Tool calls in later replies of the model need an approval again.
#[utoipa::path(
    delete, path = "/v1/rules/{id}", tag = "rules", operation_id = "revoke_rule",
    params(("id" = inline(RuleIdSchema), Path, description = "Id of the remembered approval")),
    responses((status = 200, description = "The revoked approval", body = RuleView)),
)]
pub(crate) async fn revoke_rule(
    State(app): State<App>,
    caller: Approver,
    RulePath(rule): RulePath,
) -> Result<Response, Problem> {
    let revoked = app.longhaul().revoke_rule(rule, caller.name()).await?;
    tracing::info!(%rule, caller = caller.name(), "remembered approval revoked");
    ok_response(&rule_view(revoked))
}
