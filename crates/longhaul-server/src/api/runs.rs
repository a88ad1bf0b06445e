//! API handlers that list, show, cancel, close, pause, resume, retry and fork runs.
//!
//! Invariant: a change is acknowledged only after it is on disk.

use axum::http::StatusCode;
use longhaul_api::fork::ForkBody;
use longhaul_api::operation::EmptyBody;
use longhaul_api::query::{PagedQuery as _, RunsQuery};
use longhaul_api::run::{CancelBody, FreeKeyBody, ResumeBody, RunView};
use longhaul_api::run_list::{DeletedRunView, FullOrBriefRun, RunCountsView, RunList};
use longhaul_core::access::Role;
use longhaul_core::change::LateToolResult;
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::BudgetPatch;
use longhaul_core::policy::effect_key::EffectKeyHolder;
use longhaul_core::port::store::RunFilter;
use longhaul_engine::handle::SubmitOutcome;
use longhaul_engine::{Error, Longhaul};

use crate::api::create_run::require_approver_for_unpriced_model;
use crate::call::{Call, Context, Replied, Reply, paginate};
use crate::error_mapping::{committed_but_unreadable_problem, result_read_problem_after_commit};
use crate::params::page_limit;
use crate::problem::Problem;

/// Default number of runs per page.
const RUNS_DEFAULT: usize = 20;

pub(crate) async fn list_runs(
    Call { ctx, query, .. }: Call<(), (), RunsQuery>,
) -> Replied<RunList> {
    let limit = page_limit(query.limit, RUNS_DEFAULT, query.limit_max())?;
    let brief = query.brief;
    let filter = RunFilter::try_from(query).map_err(Problem::unprocessable)?;
    let filter = RunFilter { limit: limit + 1, ..filter };
    let rows = ctx.longhaul().list_brief_runs(filter).await?;
    let rows = paginate(rows, limit, |row| row.id.to_string());
    if brief {
        let data = rows.data.into_iter().map(|row| FullOrBriefRun::Brief(Box::new(row))).collect();
        return Ok(Reply::ok(RunList { data, next: rows.next }));
    }
    let _permit = ctx.app.acquire_read_permit().await?;
    let mut data = Vec::with_capacity(rows.data.len());
    for row in &rows.data {
        data.push(FullOrBriefRun::Full(Box::new(ctx.longhaul().get_run(row.id).await?)));
    }
    Ok(Reply::ok(RunList { data, next: rows.next }))
}

pub(crate) async fn count_runs(Call { ctx, .. }: Call<()>) -> Replied<RunCountsView> {
    Ok(Reply::ok(ctx.longhaul().count_runs().await?.into()))
}

pub(crate) async fn delete_run(
    Call { ctx, path: run, .. }: Call<RunId>,
) -> Replied<DeletedRunView> {
    let deleted = ctx.longhaul().delete_run(run).await?;
    tracing::info!(%run, runs = deleted.runs.len(), caller = ctx.by(), "run deleted");
    Ok(Reply::ok(deleted))
}

pub(crate) async fn cancel_run(
    Call { ctx, path: run, body, .. }: Call<RunId, CancelBody>,
) -> Replied<RunView> {
    let reason = match body.reason.trim() {
        "" => format!("cancelled by {}", ctx.by()),
        reason_text => reason_text.to_owned(),
    };
    let log = "cancel requested";
    change_run(&ctx, (run, log), async |longhaul| longhaul.cancel_run(run, ctx.by(), &reason).await)
        .await
}

pub(crate) async fn close_run(
    Call { ctx, path: run, .. }: Call<RunId, EmptyBody>,
) -> Replied<RunView> {
    let log = "run closed";
    change_run(&ctx, (run, log), async |longhaul| longhaul.close_run(run, ctx.by()).await).await
}

pub(crate) async fn pause_run(
    Call { ctx, path: run, .. }: Call<RunId, EmptyBody>,
) -> Replied<RunView> {
    let log = "pause requested";
    change_run(&ctx, (run, log), async |longhaul| longhaul.pause_run(run, ctx.by()).await).await
}

pub(crate) async fn resume_run(
    Call { ctx, path: run, body, .. }: Call<RunId, ResumeBody>,
) -> Replied<RunView> {
    let raise = match body.budget {
        None => None,
        Some(caps) => {
            ctx.require_role(Role::Approver)?;
            Some(BudgetPatch::try_from(caps).map_err(Problem::unprocessable)?.caps)
        }
    };
    let log = "run resumed";
    change_run(&ctx, (run, log), async |longhaul| longhaul.resume_run(run, raise, ctx.by()).await)
        .await
}

pub(crate) async fn retry_run(
    Call { ctx, path: run, .. }: Call<RunId, EmptyBody>,
) -> Replied<RunView> {
    let (longhaul, _) = ctx.longhaul_of_request();
    let unpriced = longhaul.unpriced_model_of_retry(run, ctx.by()).await?;
    require_approver_for_unpriced_model(&ctx, unpriced)?;
    let outcome = longhaul.retry(run, ctx.by()).await?;
    let Some(&new) = outcome.run_ids().first() else {
        return Err(Problem::internal_error());
    };
    tracing::info!(%run, %new, caller = ctx.by(), "run retried");
    if let SubmitOutcome::Existing(_) = outcome {
        return reply_with_updated_run(&ctx, new).await;
    }
    let view = longhaul.get_run(new).await.map_err(result_read_problem_after_commit)?;
    Ok(Reply::created(format!("/v1/runs/{new}"), view))
}

pub(crate) async fn fork_run(
    Call { ctx, path: run, body, .. }: Call<RunId, ForkBody>,
) -> Replied<RunView> {
    let longhaul = ctx.longhaul();
    // The process that drives the run may have other keys and models than a command beside it.
    let checked_model = body.model.as_deref().filter(|_| !ctx.app.state.in_process);
    if let Some(Err(error)) =
        checked_model.map(|model| longhaul.services().models.resolve_model_name(Some(model)))
    {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Err(Problem::new(status, error.code(), error.to_string()));
    }
    // The conversation is in memory until the fork is created.
    let _permit = ctx.app.acquire_transcript_permit().await?;
    let unpriced = longhaul.unpriced_model_of_fork(run, &body, ctx.by()).await?;
    require_approver_for_unpriced_model(&ctx, unpriced)?;
    let key = ctx.scoped_idempotency_key()?;
    let outcome = longhaul.fork(run, body, ctx.by(), key).await?;
    let Some(&new) = outcome.run_ids().first() else {
        return Err(Problem::internal_error());
    };
    tracing::info!(%run, %new, caller = ctx.by(), "run forked");
    let view = longhaul.get_run(new).await.map_err(result_read_problem_after_commit)?;
    Ok(Reply::created(format!("/v1/runs/{new}"), view))
}

pub(crate) async fn free_effect_key(
    Call { ctx, path: run, body, .. }: Call<RunId, FreeKeyBody>,
) -> Replied<LateToolResult> {
    let FreeKeyBody { call, note } = body;
    let holder = EffectKeyHolder { run, call };
    let freed = ctx.longhaul().free_effect_key(holder, note.trim(), ctx.by()).await?;
    tracing::info!(%run, %call, caller = ctx.by(), "effect key freed");
    Ok(Reply::ok(freed))
}

/// Changes a run with `change`, which returns the changed run: the newest run of its chain if the
/// run has ended, and otherwise the run itself. Replies with that run. Changes nothing if an earlier
/// attempt of the request has changed the run. `log` is the line for the log.
async fn change_run(
    ctx: &Context,
    (run, log): (RunId, &str),
    change: impl AsyncFnOnce(&Longhaul) -> Result<RunId, Error>,
) -> Replied<RunView> {
    let (longhaul, effect) = ctx.longhaul_of_request();
    let run = match effect {
        None => change(&longhaul).await?,
        Some(_) => {
            let newest = longhaul.newest_run_of_chain(run).await;
            newest.map_err(result_read_problem_after_commit)?.unwrap_or(run)
        }
    };
    tracing::info!(%run, caller = ctx.by(), "{log}");
    reply_with_updated_run(ctx, run).await
}

/// Returns the reply with the run as it is after the request's change was committed.
async fn reply_with_updated_run(ctx: &Context, run: RunId) -> Replied<RunView> {
    let permit = ctx.app.acquire_read_permit().await;
    let _permit = permit.map_err(|_| committed_but_unreadable_problem())?;
    let view = ctx.longhaul().get_run(run).await.map_err(result_read_problem_after_commit)?;
    Ok(Reply::ok(view))
}
