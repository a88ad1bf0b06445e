//! API handlers that list, show, pause and resume lanes. The runs of a lane are executed one after
//! another.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::lane::LaneView;
use longhaul_api::list::List;
use longhaul_core::id::LaneKey;

use crate::api::create_run::parse_optional_name_field;
use crate::app::App;
use crate::body::{EmptyBody, OptionalJsonBody};
use crate::caller::{Operator, Viewer};
use crate::params::{NamePathParam, Query};
use crate::problem::Problem;
use crate::response::{ok_response, paginate};

/// Default and maximum number of lanes per page.
const LANES_DEFAULT: usize = 100;
const LANES_MAX: usize = 1_000;

/// Lists the lanes that contain runs or are paused, by name.
#[utoipa::path(
    get, path = "/v1/lanes", tag = "lanes", operation_id = "list_lanes",
    params(
        ("after" = Option<String>, Query, description = "The `next` of the previous page", min_length = 1, max_length = 256),
        ("limit" = Option<u32>, Query, description = "1 to 1,000", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "A page of lanes", body = List<LaneView>)),
)]
pub(crate) async fn list_lanes(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    let query = query.allow_only_params(&["after", "limit"])?;
    let limit = query.page_limit_param(LANES_DEFAULT, 1..=LANES_MAX)?;
    let after = query.param_value("after")?.map(str::to_owned);
    let after = parse_optional_name_field("after", after, LaneKey::new)?;
    let lanes = app.longhaul().list_lanes(after.as_ref(), limit + 1).await?;
    ok_response(&paginate(lanes, limit, |lane| lane.lane.clone()))
}

/// Shows a lane, whose runs are executed one after another.
#[utoipa::path(
    get, path = "/v1/lanes/{name}", tag = "lanes", operation_id = "show_lane",
    params(("name" = String, Path, description = "Name of the lane")),
    responses((status = 200, description = "The lane; it is empty if no run has entered it", body = LaneView)),
)]
pub(crate) async fn show_lane(
    State(app): State<App>,
    _: Viewer,
    NamePathParam(name): NamePathParam,
) -> Result<Response, Problem> {
    ok_response(&app.longhaul().lane(&parse_lane_key(name)?).await?)
}

/// Pauses a lane: runs that wait in it don't start, and a run that has started continues.
#[utoipa::path(
    post, path = "/v1/lanes/{name}/pause", tag = "lanes", operation_id = "pause_lane",
    params(("name" = String, Path, description = "Name of the lane")),
    request_body(content = Option<EmptyBody>),
    responses((status = 200, description = "The paused lane", body = LaneView)),
)]
pub(crate) async fn pause_lane(
    State(app): State<App>,
    Operator(caller): Operator,
    NamePathParam(name): NamePathParam,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    let lane = app.longhaul().pause_lane(&parse_lane_key(name)?).await?;
    tracing::info!(lane = lane.lane, caller = caller.principal.name, "lane paused");
    ok_response(&lane)
}

/// Resumes a paused lane.
#[utoipa::path(
    post, path = "/v1/lanes/{name}/resume", tag = "lanes", operation_id = "resume_lane",
    params(("name" = String, Path, description = "Name of the lane")),
    request_body(content = Option<EmptyBody>),
    responses((status = 200, description = "The lane", body = LaneView)),
)]
pub(crate) async fn resume_lane(
    State(app): State<App>,
    Operator(caller): Operator,
    NamePathParam(name): NamePathParam,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    let lane = app.longhaul().resume_lane(&parse_lane_key(name)?).await?;
    tracing::info!(lane = lane.lane, caller = caller.principal.name, "lane resumed");
    ok_response(&lane)
}

fn parse_lane_key(name: String) -> Result<LaneKey, Problem> {
    LaneKey::new(name).map_err(|error| {
        Problem::unprocessable(format!("the name of the lane is invalid: {error}"))
    })
}
