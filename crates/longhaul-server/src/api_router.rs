//! The handler of each API operation. From the operation and its handler come the route and, on
//! demand, the entry of the OpenAPI document.

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::{MethodFilter, on};
use longhaul_api::operation::{Method, Operation};
use longhaul_api::operations::*;
use longhaul_api::path::PathParams;
use serde::de::DeserializeOwned;
use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa::{IntoParams, ToSchema};

use crate::api::{
    agents, batches, chains, events, gates, health, inboxes, keys, lanes, rules, runs, schedules,
    send_event, spend, steer, threads,
};
use crate::app::App;
use crate::call::{Call, IntoReply};
use crate::openapi::{add_field_aliases, add_operation, empty_document, inline_schemas};
use crate::problem::Problem;

/// Adds one operation to the OpenAPI document.
type DescribeOperation = Box<dyn Fn(&mut OpenApi)>;

/// Routes of the API, and the functions that describe them.
pub(crate) struct ApiRoutes {
    pub(crate) router: Router<App>,
    descriptions: Vec<DescribeOperation>,
}

/// Returns the routes of all API operations.
pub(crate) fn api_routes() -> ApiRoutes {
    ApiRoutes { router: Router::new(), descriptions: Vec::new() }
        .operation(SUBMIT_RUN, runs::submit_run)
        .operation(LIST_RUNS, runs::list_runs)
        .operation(SUBMIT_BATCH, batches::submit_batch)
        .operation(SHOW_BATCH, batches::show_batch)
        .operation(SHOW_RUN, runs::show_run)
        .operation(SHOW_TRANSCRIPT, runs::show_transcript)
        .operation(WHY, runs::explain_run)
        .operation(READ_EVENTS, events::read_run_events)
        .operation(STEER, steer::send_steer)
        .operation(LIST_STEERS, steer::list_steers)
        .operation(UPDATE_STEER, steer::edit_queued_steer)
        .operation(WITHDRAW_STEER, steer::withdraw_steer)
        .operation(CANCEL_RUN, runs::cancel_run)
        .operation(CLOSE_RUN, runs::close_run)
        .operation(PAUSE_RUN, runs::pause_run)
        .operation(RESUME_RUN, runs::resume_run)
        .operation(RETRY_RUN, runs::retry_run)
        .operation(FREE_EFFECT_KEY, runs::free_effect_key)
        .operation(STREAM_ALL_EVENTS, events::stream_all_events)
        .operation(SEND_EVENT, send_event::send_event)
        .operation(LIST_GATES, gates::list_gates)
        .operation(RAISE_GATE, gates::raise_gate)
        .operation(SHOW_GATE, gates::show_gate)
        .operation(ANSWER_GATE, gates::answer_gate)
        .operation(CREATE_LINK, gates::create_gate_link)
        .operation(LIST_RULES, rules::list_rules)
        .operation(REVOKE_RULE, rules::revoke_rule)
        .operation(POST_TASK, inboxes::submit_task_to_inbox)
        .operation(LIST_INBOXES, inboxes::list_inboxes)
        .operation(SHOW_INBOX, inboxes::show_inbox)
        .operation(LIST_AGENTS, agents::list_agents)
        .operation(SHOW_AGENT, agents::show_agent)
        .operation(SHOW_AGENT_STATS, agents::show_agent_stats)
        .operation(LIST_CHAINS, chains::list_chains)
        .operation(SHOW_CHAIN, chains::show_chain)
        .operation(LIST_SCHEDULES, schedules::list_schedules)
        .operation(CREATE_SCHEDULE, schedules::create_schedule)
        .operation(SHOW_SCHEDULE, schedules::show_schedule)
        .operation(DELETE_SCHEDULE, schedules::delete_schedule)
        .operation(RUN_SCHEDULE, schedules::run_schedule)
        .operation(LIST_LANES, lanes::list_lanes)
        .operation(SHOW_LANE, lanes::show_lane)
        .operation(PAUSE_LANE, lanes::pause_lane)
        .operation(RESUME_LANE, lanes::resume_lane)
        .operation(LIST_THREAD_MESSAGES, threads::list_thread_messages)
        .operation(ADD_THREAD_MESSAGE, threads::add_thread_message)
        .operation(CLEAR_THREAD, threads::clear_thread)
        .operation(LIST_SPEND, spend::list_spend)
        .operation(RAISE_CAP, spend::raise_cap)
        .operation(LIST_KEYS, keys::list_keys)
        .operation(CREATE_KEY, keys::create_key)
        .operation(REVOKE_KEY, keys::revoke_key)
        .operation(CREATE_TICKET, keys::create_login_ticket)
        .public_operation(LIVE, health::show_liveness)
        .public_operation(READY, health::show_readiness)
        .public_operation(VERSION, health::show_version)
}

/// Builds the OpenAPI 3.1 document of the API.
pub fn openapi_document() -> Value {
    let mut document = empty_document();
    api_routes().descriptions.iter().for_each(|describe| describe(&mut document));
    add_field_aliases(&mut document);
    let mut document = serde_json::to_value(document).unwrap_or_default();
    inline_schemas(&mut document);
    document
}

impl ApiRoutes {
    /// Adds an operation with its handler, which is called only if the caller has the operation's
    /// role.
    fn operation<P, Q, B, A, R, F, Fut>(self, operation: Operation<P, Q, B, A>, handler: F) -> Self
    where
        P: PathParams + Send + 'static,
        Q: DeserializeOwned + IntoParams + Send + 'static,
        B: DeserializeOwned + ToSchema + Send + 'static,
        A: ToSchema + 'static,
        R: IntoReply<A> + 'static,
        F: Fn(Call<P, B, Q>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Problem>> + Send + 'static,
    {
        let endpoint = move |State(app): State<App>, request: Request| async move {
            let call = Call::from_request(app, request, operation).await?;
            handler(call).await?.into_response()
        };
        let router = self.router.route(operation.path, on(method_filter(&operation), endpoint));
        Self { router, ..self }.describe(operation)
    }

    /// Adds an operation that needs no key.
    fn public_operation<A, R, F, Fut>(
        self,
        operation: Operation<(), longhaul_api::operation::NoQuery, (), A>,
        handler: F,
    ) -> Self
    where
        A: ToSchema + 'static,
        R: IntoReply<A> + 'static,
        F: Fn(App) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Problem>> + Send + 'static,
    {
        let endpoint =
            move |State(app): State<App>| async move { handler(app).await?.into_response() };
        let router = self.router.route(operation.path, on(method_filter(&operation), endpoint));
        Self { router, ..self }.describe(operation)
    }

    fn describe<P, Q, B, A>(mut self, operation: Operation<P, Q, B, A>) -> Self
    where
        P: PathParams + 'static,
        Q: IntoParams + 'static,
        B: ToSchema + 'static,
        A: ToSchema + 'static,
    {
        let describe = move |document: &mut OpenApi| add_operation(document, &operation);
        self.descriptions.push(Box::new(describe));
        self
    }
}

const fn method_filter<P, Q, B, A>(operation: &Operation<P, Q, B, A>) -> MethodFilter {
    match operation.method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    }
}
