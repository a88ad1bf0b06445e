//! All routes, and the guards before them.
//!
//! Never: a route of the API that is not described. They are added in one way.

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::{
    agents, answer, events, firehose, gates, health, inboxes, keys, lanes, links, run, runs, stand,
    steer, tickets,
};
use crate::app::App;
use crate::caller::Viewer;
use crate::guard::finish::finish;
use crate::guard::host::host;
use crate::guard::key::key;
use crate::guard::origin::origin;
use crate::guard::patience::patience;
use crate::once::once;
use crate::openapi::{Base, document};
use crate::page;
use crate::problem::Problem;
use crate::reply::ok;

/// The routes that are described.
pub(crate) fn described() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Base::openapi())
        .routes(routes!(runs::create, runs::list))
        .routes(routes!(run::show))
        .routes(routes!(run::transcript))
        .routes(routes!(run::why))
        .routes(routes!(events::read))
        .routes(routes!(steer::send, steer::list))
        .routes(routes!(steer::change, steer::withdraw))
        .routes(routes!(stand::cancel))
        .routes(routes!(stand::pause))
        .routes(routes!(stand::resume))
        .routes(routes!(firehose::follow))
        .routes(routes!(gates::list))
        .routes(routes!(gates::show))
        .routes(routes!(answer::answer))
        .routes(routes!(links::make))
        .routes(routes!(inboxes::post))
        .routes(routes!(agents::list))
        .routes(routes!(agents::show))
        .routes(routes!(lanes::list))
        .routes(routes!(keys::list, keys::make))
        .routes(routes!(keys::revoke))
        .routes(routes!(tickets::make))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(health::version))
}

/// Everything that is served, behind its guards. The last guard added is the
/// first that a request meets.
pub(crate) fn router(app: App) -> Router {
    described()
        .split_for_parts()
        .0
        .route("/openapi.json", get(openapi))
        .route("/", get(page::start::start))
        .route("/style.css", get(page::style::style))
        .route("/a/{token}", get(page::link::show).post(page::link::decide))
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .layer(from_fn_with_state(app.clone(), once))
        .layer(from_fn_with_state(app.clone(), key))
        .layer(from_fn_with_state(app.clone(), patience))
        .layer(from_fn(origin))
        .layer(from_fn_with_state(app.clone(), host))
        .layer(from_fn_with_state(app.clone(), finish))
        .with_state(app)
}

/// The description of the API.
async fn openapi(_: Viewer) -> Result<Response, Problem> {
    ok(&document())
}

async fn nothing(uri: Uri) -> Problem {
    let shown: String = uri.path().chars().take(80).collect();
    Problem::not_found("not_found", format!("there is nothing at `{shown}`"))
        .hint("GET /openapi.json lists what there is")
}

async fn not_so() -> Problem {
    let words = "this path takes another method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words)
        .hint("the `Allow` header and GET /openapi.json say which")
}
