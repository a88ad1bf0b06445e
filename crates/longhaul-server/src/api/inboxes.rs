//! API handlers that list inboxes (named queues of tasks) and submit tasks to them. A task
//! must name an agent unless its inbox has a default agent.

use longhaul_api::inbox::{InboxView, NewTaskBody};
use longhaul_api::list::List;
use longhaul_api::query::{InboxesQuery, PagedQuery as _};
use longhaul_api::run::RunView;
use longhaul_core::id::InboxName;
use longhaul_engine::handle::build_inbox_task;

use crate::api::create_run::{submit_task, submitted_run_reply};
use crate::call::{Call, Replied, Reply, paginate};
use crate::idempotency::scoped_key;
use crate::params::page_limit;

/// Default number of inboxes per page.
const INBOXES_DEFAULT: usize = 100;

pub(crate) async fn list_inboxes(
    Call { ctx, query, .. }: Call<(), (), InboxesQuery>,
) -> Replied<List<InboxView>> {
    let limit = page_limit(query.limit, INBOXES_DEFAULT, query.limit_max())?;
    let _permit = ctx.app.acquire_read_permit().await?;
    let mut inboxes = ctx.longhaul().inboxes(&ctx.app.state.options.inboxes).await?;
    let after = query.after;
    inboxes.retain(|inbox| after.as_ref().is_none_or(|after| inbox.name.as_str() > after.as_str()));
    Ok(Reply::ok(paginate(inboxes, limit, |inbox| inbox.name.clone())))
}

pub(crate) async fn submit_task_to_inbox(
    Call { ctx, path: inbox, body, .. }: Call<InboxName, NewTaskBody>,
) -> Replied<RunView> {
    let mut task = build_inbox_task(inbox, body, &ctx.app.state.options.inboxes)?;
    task.submitter = Some(ctx.by().to_owned());
    let key = task.idempotency_key.take().or(ctx.idempotency_key()?);
    task.idempotency_key = scoped_key(&ctx.caller, key);
    Ok(submitted_run_reply(submit_task(&ctx, task).await?))
}
