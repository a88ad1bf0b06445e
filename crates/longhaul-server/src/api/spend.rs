//! API handlers that list spend caps and raise one.

use longhaul_api::list::List;
use longhaul_api::operation::NoFilter;
use longhaul_api::path::CapParam;
use longhaul_api::spend::{RaiseCapBody, SpendCapView};

use crate::call::{Call, Reply};
use crate::problem::Problem;

pub(crate) async fn list_spend(
    Call { ctx, .. }: Call<(), (), NoFilter>,
) -> Result<Reply<List<SpendCapView>>, Problem> {
    Ok(Reply::ok(List { data: ctx.longhaul().list_spend_caps().await?, next: None }))
}

pub(crate) async fn raise_cap(
    Call { ctx, path: CapParam(name), body, .. }: Call<CapParam, RaiseCapBody>,
) -> Result<Reply<SpendCapView>, Problem> {
    let cap = ctx.longhaul().raise_cap(&name, &body).await?;
    tracing::info!(cap = cap.id, subject = body.subject, caller = ctx.by(), "cap raised");
    Ok(Reply::ok(cap))
}
