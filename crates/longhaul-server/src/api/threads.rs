//! API handlers that read, extend and clear threads (conversations that successive runs share).

use axum::extract::State;
use axum::response::Response;
use longhaul_api::thread::{
    ClearedThreadView, NewThreadMessageBody, ThreadCountView, ThreadMessagesView,
};

use crate::app::App;
use crate::body::Json;
use crate::caller::{Operator, Viewer};
use crate::error_mapping::result_read_problem_after_commit;
use crate::idempotency::EngineHandleForRequest;
use crate::params::{Query, ThreadPath};
use crate::problem::Problem;
use crate::response::{ok_response, ok_response_with_memory_permit};

/// Default and maximum number of messages in a response.
const MESSAGES_DEFAULT: usize = 50;
const MESSAGES_MAX: usize = 1_000;

/// Shows the newest messages of a thread (a conversation that successive runs share), oldest first.
#[utoipa::path(
    get, path = "/v1/threads/{thread}/messages", tag = "threads", operation_id = "list_thread_messages",
    params(
        ("thread" = String, Path, description = "Name of the thread"),
        ("limit" = Option<u32>, Query, description = "1 to 1,000", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "The newest messages, and how many the thread has", body = ThreadMessagesView)),
)]
pub(crate) async fn list_thread_messages(
    State(app): State<App>,
    _: Viewer,
    ThreadPath(thread): ThreadPath,
    query: Query,
) -> Result<Response, Problem> {
    let query = query.allow_only_params(&["limit"])?;
    let limit = query.page_limit_param(MESSAGES_DEFAULT, 1..=MESSAGES_MAX)?;
    let permit = app.acquire_transcript_permit().await?;
    let view: ThreadMessagesView = app.longhaul().thread(&thread, limit).await?;
    ok_response_with_memory_permit(&view, permit)
}

/// Adds a message to a thread. Runs that start later see it.
#[utoipa::path(
    post, path = "/v1/threads/{thread}/messages", tag = "threads", operation_id = "add_thread_message",
    params(("thread" = String, Path, description = "Name of the thread")),
    request_body = NewThreadMessageBody,
    responses((status = 200, description = "The number of messages of the thread", body = ThreadCountView)),
)]
pub(crate) async fn add_thread_message(
    EngineHandleForRequest { longhaul, effect, .. }: EngineHandleForRequest,
    caller: Operator,
    ThreadPath(thread): ThreadPath,
    Json(body): Json<NewThreadMessageBody>,
) -> Result<Response, Problem> {
    if effect.is_none() {
        longhaul.append_to_thread(&thread, vec![body.into()]).await?;
    }
    tracing::info!(%thread, caller = caller.name(), "message added to a thread");
    let count = longhaul.thread_message_count(&thread).await;
    let count = count.map_err(result_read_problem_after_commit)?;
    ok_response(&ThreadCountView { thread: thread.to_string(), count })
}

/// Deletes all messages of a thread. The journals of its runs are kept.
#[utoipa::path(
    delete, path = "/v1/threads/{thread}/messages", tag = "threads", operation_id = "clear_thread",
    params(("thread" = String, Path, description = "Name of the thread")),
    responses((status = 200, description = "The number of deleted messages", body = ClearedThreadView)),
)]
pub(crate) async fn clear_thread(
    State(app): State<App>,
    caller: Operator,
    ThreadPath(thread): ThreadPath,
) -> Result<Response, Problem> {
    let deleted = app.longhaul().thread_message_count(&thread).await?;
    app.longhaul().clear_thread(&thread).await?;
    tracing::info!(%thread, caller = caller.name(), "thread cleared");
    ok_response(&ClearedThreadView { thread: thread.to_string(), deleted })
}
