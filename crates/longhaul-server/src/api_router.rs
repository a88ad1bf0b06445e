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
use utoipa::{IntoParams, ToSchema};

use crate::api::{
    agents, create_run, events, gates, health, inboxes, keys, lanes, runs, sandboxes, schedules,
    steer, threads,
};
use crate::app::App;
use crate::call::{Call, IntoReply, Reply};
use crate::openapi::Document;
use crate::problem::Problem;

/// Adds one operation to the OpenAPI document.
type DescribeOperation = Box<dyn Fn(&mut Document)>;

/// Routes of the API, and the functions that describe them.
pub(crate) struct ApiRoutes {
    pub(crate) router: Router<App>,
    descriptions: Vec<DescribeOperation>,
}

/// Returns the routes of all API operations.
pub(crate) fn api_routes() -> ApiRoutes {
    let routes = ApiRoutes { router: Router::new(), descriptions: Vec::new() };
    add_run_operations(routes)
        .operation(LIST_GATES, gates::list_gates)
        .operation(RAISE_GATE, gates::raise_gate)
        .operation(SHOW_GATE, |call| async move {
            let gate = call.longhaul().get_gate(call.path).await?;
            Ok(Reply::ok(call.longhaul().describe_gate(&gate).await?))
        })
        .operation(ANSWER_GATE, gates::answer_gate)
        .operation(SEND_SIGNAL, gates::send_signal)
        .operation(CREATE_LINK, gates::create_gate_link)
        .operation(LIST_RULES, gates::list_rules)
        .operation(REVOKE_RULE, gates::revoke_rule)
        .operation(POST_TASK, inboxes::submit_task_to_inbox)
        .operation(LIST_INBOXES, inboxes::list_inboxes)
        .operation(SHOW_INBOX, |call| async move {
            let _permit = call.ctx.app.acquire_read_permit().await?;
            let agents = &call.ctx.app.state.options.inboxes;
            Ok(Reply::ok(call.longhaul().inbox(&call.path, agents).await?))
        })
        .operation(LIST_AGENTS, agents::list_agents)
        .operation(SHOW_AGENT, agents::show_agent)
        .operation(SHOW_AGENT_STATS, agents::show_agent_stats)
        .operation(LIST_CHAINS, |call| async move { Ok(Reply::list(call.longhaul().chains())) })
        .operation(SHOW_CHAIN, agents::show_chain)
        .operation(LIST_SCHEDULES, |call| async move {
            Ok(Reply::list(call.longhaul().schedules().await?))
        })
        .operation(CREATE_SCHEDULE, schedules::create_schedule)
        .operation(SHOW_SCHEDULE, |call| async move {
            Ok(Reply::ok(call.longhaul().schedule(&call.path.0).await?))
        })
        .operation(DELETE_SCHEDULE, schedules::delete_schedule)
        .operation(EDIT_SCHEDULE, schedules::edit_schedule)
        .operation(PAUSE_SCHEDULE, |call| schedules::set_paused(call, true))
        .operation(RESUME_SCHEDULE, |call| schedules::set_paused(call, false))
        .operation(RUN_SCHEDULE, schedules::run_schedule)
        .operation(LIST_LANES, lanes::list_lanes)
        .operation(SHOW_LANE, |call| async move {
            Ok(Reply::ok(call.longhaul().lane(&call.path).await?))
        })
        .operation(PAUSE_LANE, lanes::pause_lane)
        .operation(RESUME_LANE, lanes::resume_lane)
        .operation(LIST_SANDBOXES, sandboxes::list_sandboxes)
        .operation(SHOW_SANDBOX, |call| async move {
            Ok(Reply::ok(call.longhaul().get_sandbox(call.path).await?))
        })
        .operation(START_SANDBOX, sandboxes::start_sandbox)
        .operation(STOP_SANDBOX, sandboxes::stop_sandbox)
        .operation(DELETE_SANDBOX, sandboxes::delete_sandbox)
        .operation(EXEC_IN_SANDBOX, sandboxes::exec_in_sandbox)
        .operation(LIST_THREAD_MESSAGES, threads::list_thread_messages)
        .operation(ADD_THREAD_MESSAGE, threads::add_thread_message)
        .operation(CLEAR_THREAD, threads::clear_thread)
        .operation(LIST_SPEND, |call| async move {
            Ok(Reply::ok(call.longhaul().spend(call.query.since).await?))
        })
        .operation(RAISE_CAP, lanes::raise_cap)
        .operation(LIST_KEYS, |call| async move {
            Ok(Reply::list(call.longhaul().list_api_keys().await?))
        })
        .operation(CREATE_KEY, keys::create_key)
        .operation(REVOKE_KEY, keys::revoke_key)
        .operation(CREATE_TICKET, keys::create_login_ticket)
        .public_operation(LIVE, health::show_liveness)
        .public_operation(READY, health::show_readiness)
        .public_operation(VERSION, health::show_version)
}

fn add_run_operations(routes: ApiRoutes) -> ApiRoutes {
    routes
        .operation(STREAM_ALL_EVENTS, events::stream_all_events)
        .operation(SEND_EVENT, create_run::send_event)
        .operation(SUBMIT_RUN, create_run::submit_run)
        .operation(LIST_RUNS, runs::list_runs)
        .operation(COUNT_RUNS, runs::count_runs)
        .operation(DELETE_RUN, runs::delete_run)
        .operation(SUBMIT_BATCH, create_run::submit_batch)
        .operation(SHOW_BATCH, |call| async move {
            let permit = call.ctx.app.acquire_read_permit().await?;
            Ok(Reply::ok(call.longhaul().batch(call.path).await?).holding(permit))
        })
        .operation(SHOW_RUN, |call| async move {
            let _permit = call.ctx.app.acquire_read_permit().await?;
            Ok(Reply::ok(call.longhaul().get_run(call.path).await?))
        })
        .operation(SHOW_TRANSCRIPT, |call| async move {
            // The view is in memory until it is sent.
            let permit = call.ctx.app.acquire_transcript_permit().await?;
            Ok(Reply::ok(call.longhaul().transcript(call.path).await?).holding(permit))
        })
        .operation(WHY, |call| async move {
            let _permit = call.ctx.app.acquire_read_permit().await?;
            Ok(Reply::ok(call.longhaul().explain_run(call.path).await?))
        })
        .operation(READ_EVENTS, events::read_run_events)
        .operation(STEER, steer::send_steer)
        .operation(LIST_STEERS, |call| async move {
            let _permit = call.ctx.app.acquire_read_permit().await?;
            Ok(Reply::list(call.longhaul().list_steers(call.path).await?))
        })
        .operation(UPDATE_STEER, steer::edit_queued_steer)
        .operation(WITHDRAW_STEER, steer::withdraw_steer)
        .operation(CANCEL_RUN, runs::cancel_run)
        .operation(CLOSE_RUN, runs::close_run)
        .operation(PAUSE_RUN, runs::pause_run)
        .operation(RESUME_RUN, runs::resume_run)
        .operation(RETRY_RUN, runs::retry_run)
        .operation(FORK_RUN, runs::fork_run)
        .operation(DIFF_RUNS, |call| async move {
            let _permit = call.ctx.app.acquire_read_permit().await?;
            let (run, other) = call.path;
            Ok(Reply::ok(call.longhaul().diff_runs(run, other).await?))
        })
        .operation(RUN_FILES, |call| async move {
            let _permit = call.ctx.app.acquire_read_permit().await?;
            Ok(Reply::ok(call.longhaul().run_files(call.path, call.query.turn).await?))
        })
        .operation(FREE_EFFECT_KEY, runs::free_effect_key)
}

/// Builds the OpenAPI 3.1 document of the API.
pub fn openapi_document() -> Value {
    let mut document = Document::default();
    api_routes().descriptions.iter().for_each(|describe| describe(&mut document));
    document.into_json()
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
        let describe = move |document: &mut Document| document.add_operation(&operation);
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
