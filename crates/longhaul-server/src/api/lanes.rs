//! API handlers for lanes, whose runs are executed one after another, and for spend caps.

use longhaul_api::lane::LaneView;
use longhaul_api::list::List;
use longhaul_api::operation::EmptyBody;
use longhaul_api::path::CapParam;
use longhaul_api::query::{LanesQuery, PagedQuery as _};
use longhaul_api::spend::{RaiseCapBody, SpendCapView};
use longhaul_core::id::LaneKey;

use crate::call::{Call, Replied, Reply, paginate};
use crate::params::page_limit;

/// Default number of lanes per page.
const LANES_DEFAULT: usize = 100;

pub(crate) async fn list_lanes(
    Call { ctx, query, .. }: Call<(), (), LanesQuery>,
) -> Replied<List<LaneView>> {
    let limit = page_limit(query.limit, LANES_DEFAULT, query.limit_max())?;
    let lanes = ctx.longhaul().list_lanes(query.after.as_ref(), limit + 1).await?;
    Ok(Reply::ok(paginate(lanes, limit, |lane| lane.lane.clone())))
}

pub(crate) async fn pause_lane(
    Call { ctx, path: lane, .. }: Call<LaneKey, EmptyBody>,
) -> Replied<LaneView> {
    let lane = ctx.longhaul().pause_lane(&lane).await?;
    tracing::info!(lane = lane.lane, caller = ctx.by(), "lane paused");
    Ok(Reply::ok(lane))
}

pub(crate) async fn resume_lane(
    Call { ctx, path: lane, .. }: Call<LaneKey, EmptyBody>,
) -> Replied<LaneView> {
    let lane = ctx.longhaul().resume_lane(&lane).await?;
    tracing::info!(lane = lane.lane, caller = ctx.by(), "lane resumed");
    Ok(Reply::ok(lane))
}

pub(crate) async fn raise_cap(
    Call { ctx, path: CapParam(name), body, .. }: Call<CapParam, RaiseCapBody>,
) -> Replied<SpendCapView> {
    let cap = ctx.longhaul().raise_cap(&name, &body).await?;
    tracing::info!(cap = cap.id, subject = body.subject, caller = ctx.by(), "cap raised");
    Ok(Reply::ok(cap))
}
