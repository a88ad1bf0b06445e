//! API handlers that read, extend and clear threads (conversations that successive runs share).

use longhaul_api::query::ThreadQuery;
use longhaul_api::transcript::{
    ClearedThreadView, NewThreadMessageBody, ThreadCountView, ThreadMessagesView,
};
use longhaul_core::id::ThreadKey;

use crate::call::{Call, Replied, Reply};
use crate::error_mapping::result_read_problem_after_commit;
use crate::params::page_limit;

/// Default and maximum number of messages in a response.
const MESSAGES_DEFAULT: usize = 50;
const MESSAGES_MAX: usize = 1_000;

pub(crate) async fn list_thread_messages(
    Call { ctx, path: thread, query, .. }: Call<ThreadKey, (), ThreadQuery>,
) -> Replied<ThreadMessagesView> {
    let limit_max = if ctx.app.state.in_process { usize::MAX } else { MESSAGES_MAX };
    let limit = page_limit(query.limit, MESSAGES_DEFAULT, limit_max)?;
    let permit = ctx.app.acquire_transcript_permit().await?;
    Ok(Reply::ok(ctx.longhaul().thread(&thread, limit).await?).holding(permit))
}

pub(crate) async fn add_thread_message(
    Call { ctx, path: thread, body, .. }: Call<ThreadKey, NewThreadMessageBody>,
) -> Replied<ThreadCountView> {
    let (longhaul, effect) = ctx.longhaul_of_request();
    if effect.is_none() {
        longhaul.append_to_thread(&thread, vec![body.into()]).await?;
    }
    tracing::info!(%thread, caller = ctx.by(), "message added to a thread");
    let count = longhaul.thread_message_count(&thread).await;
    let count = count.map_err(result_read_problem_after_commit)?;
    Ok(Reply::ok(ThreadCountView { thread: thread.to_string(), count }))
}

pub(crate) async fn clear_thread(
    Call { ctx, path: thread, .. }: Call<ThreadKey>,
) -> Replied<ClearedThreadView> {
    let deleted = ctx.longhaul().thread_message_count(&thread).await?;
    ctx.longhaul().clear_thread(&thread).await?;
    tracing::info!(%thread, caller = ctx.by(), "thread cleared");
    Ok(Reply::ok(ClearedThreadView { thread: thread.to_string(), deleted }))
}
