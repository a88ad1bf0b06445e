//! The API routes with their OpenAPI descriptions. All API routes are added here, so none is
//! undocumented.

use longhaul_api::problem::Problem;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::{
    agents, batches, chains, events, gates, health, inboxes, keys, lanes, rules, runs, schedules,
    send_event, spend, steer, threads,
};
use crate::app::App;

/// Base OpenAPI document, to which the router adds its routes.
#[derive(Debug, OpenApi)]
#[openapi(
    components(schemas(Problem)),
    tags(
        (name = "runs", description = "Runs of agents"),
        (name = "steering", description = "Messages to running agents"),
        (name = "events", description = "Events of journals, as pages and streams"),
        (name = "gates", description = "Approvals and questions that wait for an answer"),
        (name = "rules", description = "Remembered approvals"),
        (name = "inboxes", description = "Tasks for agents"),
        (name = "agents", description = "Agents of the project"),
        (name = "chains", description = "Chains of the project"),
        (name = "schedules", description = "Schedules that start agents at certain times"),
        (name = "lanes", description = "Lanes: runs of one lane execute serially"),
        (name = "threads", description = "Threads: conversations that successive runs share"),
        (name = "spend", description = "Spend caps: money, tokens and runs per day, week or month"),
        (name = "keys", description = "API keys"),
        (name = "health", description = "Liveness, readiness and version"),
    ),
)]
struct ApiDoc;

/// Returns the router with all API routes and their OpenAPI descriptions.
pub(crate) fn api_router() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(runs::submit_run, runs::list_runs))
        .routes(routes!(batches::submit_batch))
        .routes(routes!(batches::show_batch))
        .routes(routes!(runs::show_run))
        .routes(routes!(runs::show_transcript))
        .routes(routes!(runs::explain_run))
        .routes(routes!(events::read_run_events))
        .routes(routes!(steer::send_steer, steer::list_steers))
        .routes(routes!(steer::edit_queued_steer, steer::withdraw_steer))
        .routes(routes!(runs::cancel_run))
        .routes(routes!(runs::close_run))
        .routes(routes!(runs::pause_run))
        .routes(routes!(runs::resume_run))
        .routes(routes!(runs::retry_run))
        .routes(routes!(events::stream_all_events))
        .routes(routes!(send_event::send_event))
        .routes(routes!(gates::list_gates, gates::raise_gate))
        .routes(routes!(gates::show_gate))
        .routes(routes!(gates::answer_gate))
        .routes(routes!(gates::create_gate_link))
        .routes(routes!(rules::list_rules))
        .routes(routes!(rules::revoke_rule))
        .routes(routes!(inboxes::submit_task_to_inbox))
        .routes(routes!(inboxes::list_inboxes))
        .routes(routes!(inboxes::show_inbox))
        .routes(routes!(agents::list_agents))
        .routes(routes!(agents::show_agent))
        .routes(routes!(agents::show_agent_stats))
        .routes(routes!(chains::list_chains))
        .routes(routes!(chains::show_chain))
        .routes(routes!(schedules::list_schedules, schedules::create_schedule))
        .routes(routes!(schedules::show_schedule, schedules::delete_schedule))
        .routes(routes!(schedules::run_schedule))
        .routes(routes!(lanes::list_lanes))
        .routes(routes!(lanes::show_lane))
        .routes(routes!(lanes::pause_lane))
        .routes(routes!(lanes::resume_lane))
        .routes(routes!(
            threads::list_thread_messages,
            threads::add_thread_message,
            threads::clear_thread
        ))
        .routes(routes!(spend::list_spend))
        .routes(routes!(spend::raise_cap))
        .routes(routes!(keys::list_keys, keys::create_key))
        .routes(routes!(keys::revoke_key))
        .routes(routes!(keys::create_login_ticket))
        .routes(routes!(health::show_liveness))
        .routes(routes!(health::show_readiness))
        .routes(routes!(health::show_version))
}
