//! API handlers that list, show, pause and resume lanes. The runs of a lane are executed one after
//! another.

use longhaul_api::lane::LaneView;
use longhaul_api::list::List;
use longhaul_api::operation::EmptyBody;
use longhaul_api::query::{LanesQuery, PagedQuery as _};
use longhaul_core::id::LaneKey;

use crate::call::{Call, Reply};
use crate::params::page_limit;
use crate::problem::Problem;
use crate::response::paginate;

/// Default number of lanes per page.
const LANES_DEFAULT: usize = 100;

pub(crate) async fn list_lanes(
    Call { ctx, query, .. }: Call<(), (), LanesQuery>,
) -> Result<Reply<List<LaneView>>, Problem> {
    let limit = page_limit(query.limit, LANES_DEFAULT, query.limit_max())?;
    let lanes = ctx.longhaul().list_lanes(query.after.as_ref(), limit + 1).await?;
    Ok(Reply::ok(paginate(lanes, limit, |lane| lane.lane.clone())))
}

pub(crate) async fn show_lane(
    Call { ctx, path: lane, .. }: Call<LaneKey>,
) -> Result<Reply<LaneView>, Problem> {
    Ok(Reply::ok(ctx.longhaul().lane(&lane).await?))
}

pub(crate) async fn pause_lane(
    Call { ctx, path: lane, .. }: Call<LaneKey, EmptyBody>,
) -> Result<Reply<LaneView>, Problem> {
    let lane = ctx.longhaul().pause_lane(&lane).await?;
    tracing::info!(lane = lane.lane, caller = ctx.by(), "lane paused");
    Ok(Reply::ok(lane))
}

pub(crate) async fn resume_lane(
    Call { ctx, path: lane, .. }: Call<LaneKey, EmptyBody>,
) -> Result<Reply<LaneView>, Problem> {
    let lane = ctx.longhaul().resume_lane(&lane).await?;
    tracing::info!(lane = lane.lane, caller = ctx.by(), "lane resumed");
    Ok(Reply::ok(lane))
}
