//! API handler that lists the lanes with at least one run. The runs of a lane are executed one
//! after another.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::lane::LaneView;
use longhaul_api::list::List;
use longhaul_core::id::LaneKey;

use crate::api::create_run::parse_name;
use crate::app::App;
use crate::caller::Viewer;
use crate::params::Query;
use crate::problem::Problem;
use crate::response::{ok_response, paginate};

/// Default and maximum number of lanes per page.
const LANES_DEFAULT: usize = 100;
const LANES_MAX: usize = 1_000;

/// Lists the lanes with at least one run, by name.
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
    let limit = query.page_limit(LANES_DEFAULT, 1..=LANES_MAX)?;
    let after = query.param_value("after")?.map(str::to_owned);
    let after = parse_name("after", after, LaneKey::new)?;
    let lanes = app.longhaul().lanes(after.as_ref(), limit + 1).await?;
    ok_response(&paginate(lanes, limit, |lane| lane.lane.clone()))
}
