//! API handlers for sandboxes, in which the tools of runs work.

use longhaul_api::list::List;
use longhaul_api::operation::EmptyBody;
use longhaul_api::query::{PagedQuery as _, SandboxesQuery};
use longhaul_api::sandbox::{SandboxExecBody, SandboxExecView, SandboxView};
use longhaul_core::change::SandboxFilter;
use longhaul_core::id::SandboxId;

use crate::call::{Call, Replied, Reply, paginate};
use crate::params::page_limit;
use crate::problem::Problem;

/// Default number of sandboxes per page.
const SANDBOXES_DEFAULT: usize = 100;

/// Maximum number of arguments of a command, and its maximum length in bytes.
const COMMAND_MAX: (usize, usize) = (1_000, 64 * 1024);

pub(crate) async fn list_sandboxes(
    Call { ctx, query, .. }: Call<(), (), SandboxesQuery>,
) -> Replied<List<SandboxView>> {
    let limit = page_limit(query.limit, SANDBOXES_DEFAULT, query.limit_max())?;
    let filter = SandboxFilter {
        owner: query.run,
        with_gone: query.all,
        after: query.after,
        limit: limit + 1,
    };
    let sandboxes = ctx.longhaul().list_sandboxes(filter).await?;
    Ok(Reply::ok(paginate(sandboxes, limit, |sandbox| sandbox.id.to_string())))
}

pub(crate) async fn start_sandbox(
    Call { ctx, path: id, .. }: Call<SandboxId, EmptyBody>,
) -> Replied<SandboxView> {
    let sandbox = ctx.longhaul().start_sandbox(id, ctx.by()).await?;
    tracing::info!(sandbox = %id, caller = ctx.by(), "sandbox started");
    Ok(Reply::ok(sandbox))
}

pub(crate) async fn stop_sandbox(
    Call { ctx, path: id, .. }: Call<SandboxId, EmptyBody>,
) -> Replied<SandboxView> {
    let sandbox = ctx.longhaul().stop_sandbox(id, ctx.by()).await?;
    tracing::info!(sandbox = %id, caller = ctx.by(), "sandbox stopped");
    Ok(Reply::ok(sandbox))
}

pub(crate) async fn delete_sandbox(
    Call { ctx, path: id, .. }: Call<SandboxId>,
) -> Replied<SandboxView> {
    let sandbox = ctx.longhaul().delete_sandbox(id, ctx.by()).await?;
    tracing::info!(sandbox = %id, caller = ctx.by(), "sandbox deleted");
    Ok(Reply::ok(sandbox))
}

pub(crate) async fn exec_in_sandbox(
    Call { ctx, path: id, body, .. }: Call<SandboxId, SandboxExecBody>,
) -> Replied<SandboxExecView> {
    let (arguments_max, bytes_max) = COMMAND_MAX;
    let bytes = body.command.iter().map(String::len).sum::<usize>();
    if body.command.is_empty() || body.command.len() > arguments_max || bytes > bytes_max {
        return Err(Problem::unprocessable(format!(
            "`command` must have 1 to {arguments_max} arguments of {bytes_max} bytes in total"
        )));
    }
    tracing::info!(sandbox = %id, caller = ctx.by(), "command in a sandbox");
    Ok(Reply::ok(ctx.longhaul().exec_in_sandbox(id, body, ctx.by()).await?))
}
