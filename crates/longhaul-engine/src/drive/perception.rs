//! Asks an agent's context provider for the state of the world (the perception), before the first
//! turn or before every turn.
//!
//! If the provider fails, the run is blocked with the reason; it does not continue without
//! perception.

use std::pin::pin;
use std::sync::Arc;

use longhaul_core::event::run::RunPrepared;
use longhaul_core::event::turn::PerceptionUpdate;
use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock, Millis};
use longhaul_run::RunInput;
use longhaul_run::input::PerceptionRefresh;

use crate::drive::abort::{AbortSignals, Abortable};
use crate::drive::context::DriveContext;
use crate::error::Result;
use crate::guard::redaction::Redaction;
use crate::panics::guard;
use crate::prompt::setup::build_run_prepared_event;
use crate::prompt::{WORLD_UPDATE_HEADING, event_text, format_world_state};

/// Delay before each attempt to fetch the perception (the state of the world) from a context
/// provider. The first attempt has no delay.
const RETRY_DELAYS: [Millis; 3] = [Millis::ZERO, Millis::from_secs(1), Millis::from_secs(4)];

/// Total time after which fetching the perception (the state of the world) is not attempted again.
const RETRY_DEADLINE: Millis = Millis::from_secs(30);

/// Timeout of one attempt to fetch the perception (the state of the world). It is slightly longer
/// than the providers' own timeout of 30 s, so that the providers can report the timeout
/// themselves.
const FETCH_TIMEOUT: Millis = Millis::from_secs(32);

/// Maximum size in bytes of the state of the world that a context provider returns, and of the
/// context values that it returns for tools.
const WORLD_BYTES_MAX: usize = 1024 * 1024;
const CONTEXT_BYTES_MAX: usize = 64 * 1024;

/// A perception (the state of the world) and the time that the context provider needed. `None` if the
/// agent has no context provider. The error is the input for the state machine after fetching was
/// aborted. `None` as an error means that this driver has lost its claim on the run.
type ContextFetch = Result<Option<(Perception, Millis)>, Option<RunInput>>;

/// Fetches the perception (the state of the world) from the context provider and renders the
/// prompt. `None` means that this driver has lost its claim on the run.
pub(super) async fn prepare_run_prompt(ctx: &mut DriveContext) -> Result<Option<RunInput>> {
    let (perception, active) = match fetch_context_from_provider(ctx).await? {
        Ok(fetched) => fetched.unzip(),
        Err(input) => return Ok(input),
    };
    let active = active.unwrap_or_default();
    let Some(env) = &ctx.env else { return Ok(Some(RunInput::Advance)) };
    let result =
        build_run_prepared_event(&ctx.services, env, ctx.session.run(), perception).await?;
    Ok(Some(match result {
        Ok((prepared, blobs)) => {
            let prepared = RunPrepared { perception_active: active, ..prepared };
            RunInput::Prepared(Box::new(prepared), blobs)
        }
        Err(blocker) => blocker.into_input(),
    }))
}

/// Fetches the perception (the state of the world) again before a turn. `None` means that this
/// driver has lost its claim on the run.
pub(super) async fn refetch_context(ctx: &mut DriveContext) -> Result<Option<RunInput>> {
    let (perception, active) = match fetch_context_from_provider(ctx).await? {
        Ok(Some(fetched)) => fetched,
        Ok(None) => return Ok(Some(RunInput::PerceptionRefreshed(Box::default()))),
        Err(input) => return Ok(input),
    };
    let before = ctx.session.run().perception();
    let world_hash = Hash::digest(perception.world.as_str().as_bytes());
    // An unchanged world is not repeated: the model has seen it.
    let is_new = before.world != Some(world_hash);
    let message = is_new.then(|| {
        let world_text = format_world_state(&perception.world);
        format!("{WORLD_UPDATE_HEADING}{world_text}").into()
    });
    let changed = is_new || *before.context != perception.context;
    let context = perception.context;
    let update = changed.then_some(PerceptionUpdate { world_hash, context });
    let refresh = PerceptionRefresh { message, update, active };
    Ok(Some(RunInput::PerceptionRefreshed(Box::new(refresh))))
}

async fn fetch_context_from_provider(ctx: &mut DriveContext) -> Result<ContextFetch> {
    let Some(env) = &ctx.env else { return Ok(Err(Some(RunInput::Advance))) };
    let Some(provider) = env.context_provider.clone() else { return Ok(Ok(None)) };
    let run = ctx.session.run();
    let (agent, task) = (Arc::clone(&env.agent), run.task());
    let request = ContextRequest {
        run: run.id(),
        agent: task.agent.clone(),
        event: event_text::event_kind(&agent, task).map(str::to_owned),
        input: task.input.clone(),
        actor: task.actor.clone(),
        resource: task.resource.clone(),
        thread: task.thread.clone(),
        turn: run.control().turn(),
    };
    if !ctx.lease.wait_until_valid().await {
        return Ok(Err(None));
    }
    let started = ctx.services.clock.monotonic_time();
    let fetch = pin!(fetch_context_with_retries(&*provider, &request, &*ctx.services.clock));
    let mut signals = AbortSignals::new(&mut ctx.session, &ctx.lease, &ctx.shutdown);
    Ok(match signals.wait_unless_aborted(fetch).await? {
        Abortable::Done(Ok(perception)) => {
            let elapsed = ctx.services.clock.monotonic_time().minus(started);
            let perception = Redaction(&*ctx.services.redact).redact_perception(perception);
            Ok(Some((perception, elapsed)))
        }
        Abortable::Done(Err(error)) => Err(Some(RunInput::MissingDependency(format!(
            "Context for agent `{}` could not be fetched: {error}. Fix the context provider, \
                 then resume the run or answer here to retry.",
            agent.name
        )))),
        Abortable::Aborted(reason) => Err(reason.input_after_abort()),
    })
}

/// Fetches the perception (the state of the world) with a few retries. The error says why the last
/// attempt failed.
async fn fetch_context_with_retries(
    provider: &dyn ContextProvider,
    request: &ContextRequest,
    clock: &dyn Clock,
) -> Result<Perception, String> {
    let deadline = clock.monotonic_time().plus(RETRY_DEADLINE);
    let mut last_error = String::new();
    for pause in RETRY_DELAYS {
        if pause > Millis::ZERO {
            clock.sleep(pause).await;
        }
        match fetch_context_once(provider, request, clock).await {
            Ok(perception) => return Ok(perception),
            Err(error) => {
                last_error = error.to_string();
                if error.is_permanent || clock.monotonic_time() >= deadline {
                    break;
                }
            }
        }
    }
    Err(last_error)
}

async fn fetch_context_once(
    provider: &dyn ContextProvider,
    request: &ContextRequest,
    clock: &dyn Clock,
) -> Result<Perception, ContextError> {
    let result = guard(clock, FETCH_TIMEOUT, async { provider.fetch(request).await }).await;
    let failed = |error| ContextError::transient(format!("fetching the perception {error}"));
    let result = result.map_err(failed)??;
    let context = result.context.iter();
    let context: usize = context.map(|(name, value)| name.len() + value.as_str().len()).sum();
    for (field, bytes, max) in [
        ("world", result.world.as_str().len(), WORLD_BYTES_MAX),
        ("context", context, CONTEXT_BYTES_MAX),
    ] {
        if bytes > max {
            let reason =
                format!("the field `{field}` of the perception is longer than {max} bytes");
            return Err(ContextError::permanent(reason));
        }
    }
    Ok(result)
}
