//! API handlers for schedules, which start agents at certain times.

use longhaul_api::operation::EmptyBody;
use longhaul_api::path::ScheduleParam;
use longhaul_api::run::RunView;
use longhaul_api::schedule::{NewScheduleBody, ScheduleChangeBody, ScheduleView};
use longhaul_core::port::auth::IdempotencyKey;

use crate::api::create_run::check_schedule_models_have_price;
use crate::call::{Call, Replied, Reply};

pub(crate) async fn create_schedule(
    Call { ctx, body, .. }: Call<(), NewScheduleBody>,
) -> Replied<ScheduleView> {
    check_schedule_models_have_price(&ctx, (body.agent.as_deref(), body.chain.as_deref()))?;
    let schedule = ctx.longhaul().create_schedule(body, Some(ctx.by())).await?;
    tracing::info!(schedule = schedule.name, caller = ctx.by(), "schedule created");
    Ok(Reply::created(format!("/v1/schedules/{}", schedule.name), schedule))
}

pub(crate) async fn delete_schedule(
    Call { ctx, path: ScheduleParam(name), .. }: Call<ScheduleParam>,
) -> Replied<ScheduleView> {
    let schedule = ctx.longhaul().delete_schedule(&name).await?;
    tracing::info!(schedule = name, caller = ctx.by(), "schedule deleted");
    Ok(Reply::ok(schedule))
}

pub(crate) async fn edit_schedule(
    Call { ctx, path: ScheduleParam(name), body, .. }: Call<ScheduleParam, ScheduleChangeBody>,
) -> Replied<ScheduleView> {
    let changed = body.clone().apply_to(ctx.longhaul().schedule(&name).await?);
    check_schedule_models_have_price(&ctx, (changed.agent.as_deref(), changed.chain.as_deref()))?;
    let schedule = ctx.longhaul().edit_schedule(&name, body, Some(ctx.by())).await?;
    tracing::info!(schedule = name, caller = ctx.by(), "schedule changed");
    Ok(Reply::ok(schedule))
}

pub(crate) async fn set_paused(
    Call { ctx, path: ScheduleParam(name), .. }: Call<ScheduleParam, EmptyBody>,
    paused: bool,
) -> Replied<ScheduleView> {
    let schedule = ctx.longhaul().set_schedule_paused(&name, paused).await?;
    tracing::info!(schedule = name, paused, caller = ctx.by(), "schedule paused or resumed");
    Ok(Reply::ok(schedule))
}

pub(crate) async fn run_schedule(
    Call { ctx, path: ScheduleParam(name), .. }: Call<ScheduleParam, EmptyBody>,
) -> Replied<RunView> {
    let schedule = ctx.longhaul().schedule(&name).await?;
    let target = (Some(schedule.agent.as_str()), schedule.chain.as_deref());
    check_schedule_models_have_price(&ctx, target)?;
    // Stored in the commit that creates the run, so that a crash before the response is stored does
    // not lead to a second run.
    let key = ctx.scoped_idempotency_key()?;
    let key = key.map(|key| IdempotencyKey { principal: ctx.by().to_owned(), key });
    let view = ctx.longhaul().run_schedule(&name, key, Some(ctx.by())).await?;
    tracing::info!(run = %view.id, schedule = name, caller = ctx.by(), "run submitted");
    Ok(Reply::created(format!("/v1/runs/{}", view.id), view))
}
