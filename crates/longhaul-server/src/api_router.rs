//! The routes of the API, each with its description.
//!
//! Never: a route without one. They are added here and in no other way.

use longhaul_api::problem::Problem;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::{agents, events, gates, health, inboxes, keys, lanes, runs, steer};
use crate::app::App;

/// What the router's own collection starts from.
#[derive(Debug, OpenApi)]
#[openapi(
    components(schemas(Problem)),
    tags(
        (name = "runs", description = "What agents do"),
        (name = "steering", description = "Messages to runs that are under way"),
        (name = "events", description = "Journals as pages and streams"),
        (name = "gates", description = "What waits for an answer"),
        (name = "inboxes", description = "Tasks for agents"),
        (name = "agents", description = "Who can be asked"),
        (name = "lanes", description = "Runs that go one after another"),
        (name = "keys", description = "Who may come in"),
        (name = "health", description = "Whether it lives and works"),
    ),
)]
struct ApiDoc;

/// The routes that are described.
pub(crate) fn api_router() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(runs::create, runs::list))
        .routes(routes!(runs::show))
        .routes(routes!(runs::transcript))
        .routes(routes!(runs::why))
        .routes(routes!(events::read))
        .routes(routes!(steer::send, steer::list))
        .routes(routes!(steer::update, steer::withdraw))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::pause))
        .routes(routes!(runs::resume))
        .routes(routes!(events::stream_all_events))
        .routes(routes!(gates::list))
        .routes(routes!(gates::show))
        .routes(routes!(gates::answer))
        .routes(routes!(gates::create_link))
        .routes(routes!(inboxes::post))
        .routes(routes!(agents::list))
        .routes(routes!(agents::show))
        .routes(routes!(lanes::list))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(keys::create_ticket))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(health::version))
}
