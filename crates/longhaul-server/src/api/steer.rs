//! API handlers for messages to a run: send, update and withdraw. A message can be updated or
//! withdrawn until the run has read it.
//!
//! Invariant: a message is acknowledged only after it is on disk.

use axum::http::StatusCode;
use longhaul_api::steer::{SteerBody, SteerChange, SteerReceipt, SteerView};
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::raw::Hash;

use crate::call::{Call, Context, Replied, Reply};
use crate::problem::Problem;

pub(crate) async fn send_steer(
    Call { ctx, path: run, body: SteerBody { text, delivery }, .. }: Call<RunId, SteerBody>,
) -> Replied<SteerReceipt> {
    let longhaul = ctx.longhaul();
    let by = ctx.by().to_owned();
    let queued = match ctx.scoped_idempotency_key()? {
        None => longhaul.steer(run, text.clone(), delivery, &by).await?,
        // The id is derived from the request, so a retry does not add a second message, even if
        // the server died before it stored its response.
        Some(key) => {
            let steer = derive_steer_id(&format!("{run}\n{by}\n{key}\n{delivery:?}\n{text}"));
            let message = SteerMessage { steer, text: text.clone(), delivery, by, is_task: false };
            longhaul.steer_idempotently(run, message).await?
        }
    };
    tracing::info!(run = %queued.run, steer = %queued.id, caller = ctx.by(), "message queued for the run");
    let receipt = longhaul.receipt_for_steer_message(queued, (&text, delivery)).await?;
    Ok(Reply::with_status(receipt, StatusCode::ACCEPTED))
}

fn derive_steer_id(request_key: &str) -> SteerId {
    let hash = Hash::digest(request_key.as_bytes());
    let bits = hash.bytes().iter().take(16);
    SteerId::from_bits(bits.fold(0, |bits, byte| bits << 8 | u128::from(*byte)))
}

pub(crate) async fn edit_queued_steer(
    Call { ctx, path: (run, steer), body, .. }: Call<(RunId, SteerId), SteerChange>,
) -> Replied<SteerView> {
    let existing = find_steer(&ctx, run, steer).await?;
    let message = SteerMessage {
        steer,
        text: body.text.unwrap_or(existing.text),
        delivery: body.delivery.unwrap_or(existing.delivery),
        by: ctx.by().to_owned(),
        is_task: false,
    };
    ctx.longhaul().update_steer(run, message).await?;
    Ok(Reply::ok(find_steer(&ctx, run, steer).await?))
}

pub(crate) async fn withdraw_steer(
    Call { ctx, path: (run, steer), .. }: Call<(RunId, SteerId)>,
) -> Replied<SteerView> {
    find_steer(&ctx, run, steer).await?;
    ctx.longhaul().withdraw_steer(run, steer, ctx.by()).await?;
    Ok(Reply::ok(find_steer(&ctx, run, steer).await?))
}

async fn find_steer(ctx: &Context, run: RunId, steer: SteerId) -> Result<SteerView, Problem> {
    let run = ctx.longhaul().run_of_steer(run, steer).await?;
    let steers = ctx.longhaul().list_steers(run).await?;
    let found = steers.into_iter().find(|message| message.id == steer);
    found.ok_or_else(|| longhaul_engine::Error::SteerNotFound(steer).into())
}
