//! Lets somebody look at the world for a run, before it thinks or before a turn.
//!
//! Never: goes on blind. Where nobody could look, the run waits and says why.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use longhaul_core::event::turn::PerceptionUpdate;
use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock, Millis};
use longhaul_run::Input;
use longhaul_run::input::PerceptionRefresh;

use crate::drive::abort::{AbortSignals, Raced};
use crate::drive::context::DriveContext;
use crate::error::Error;
use crate::event_text;
use crate::panics;
use crate::prompt::{WORLD_UPDATE_HEADING, world_text};
use crate::prompt_setup::prepare_prompt;
use crate::redaction::Redaction;

/// Before each look so much time passes: one that fails is tried again, twice.
const RETRY_DELAYS: [Millis; 3] = [Millis::ZERO, Millis::from_secs(1), Millis::from_secs(4)];

/// When so much time is gone, no look is begun any more.
const RETRY_DEADLINE: Millis = Millis::from_secs(30);

/// A look may take this long: who has a bound of its own, of 30 s, has a moment more
/// to say how it ended.
const FETCH_TIMEOUT: Millis = Millis::from_secs(32);

/// The longest world that is taken in, and what comes with it for tools.
const WORLD_BYTES_MAX: usize = 1024 * 1024;
const CONTEXT_BYTES_MAX: usize = 64 * 1024;

/// What came of a look.
enum FetchOutcome {
    /// Nobody looks for this agent.
    NoProvider,
    /// This was seen.
    Fetched(Perception),
    /// There is something else to do; none: the run is not ours any more.
    Aborted(Option<Input>),
}

/// Looks, and makes the prompt. None: the run is not ours any more.
pub(super) async fn prepare_run(desk: &mut DriveContext) -> Result<Option<Input>, Error> {
    let seen = match fetch_perception(desk).await? {
        FetchOutcome::NoProvider => None,
        FetchOutcome::Fetched(seen) => Some(seen),
        FetchOutcome::Aborted(input) => return Ok(input),
    };
    let Some(capsule) = &desk.env else {
        return Ok(Some(Input::Advance));
    };
    let made = prepare_prompt(&desk.services, capsule, desk.session.run(), seen).await?;
    Ok(Some(match made {
        Ok((seen, blobs)) => Input::Prepared(Box::new(seen), blobs),
        Err(lack) => lack.into_input(),
    }))
}

/// Looks again before a turn. None: the run is not ours any more.
pub(super) async fn refresh_perception(desk: &mut DriveContext) -> Result<Option<Input>, Error> {
    let seen = match fetch_perception(desk).await? {
        FetchOutcome::NoProvider => return Ok(Some(Input::PerceptionRefreshed(Box::default()))),
        FetchOutcome::Fetched(seen) => seen,
        FetchOutcome::Aborted(input) => return Ok(input),
    };
    let before = desk.session.run().perception();
    let world = Hash::digest(seen.world.as_str().as_bytes());
    // What is as it was is not told again: the model has it.
    let is_new = before.world() != Some(world);
    let words = is_new.then(|| {
        let words = world_text(&seen.world);
        format!("{WORLD_UPDATE_HEADING}{words}").into()
    });
    let changed = is_new || *before.context() != seen.context;
    let context = seen.context;
    let seen = changed.then_some(PerceptionUpdate { world_hash: world, context });
    Ok(Some(Input::PerceptionRefreshed(Box::new(PerceptionRefresh {
        message: words,
        update: seen,
    }))))
}

async fn fetch_perception(desk: &mut DriveContext) -> Result<FetchOutcome, Error> {
    let Some(capsule) = &desk.env else {
        return Ok(FetchOutcome::Aborted(Some(Input::Advance)));
    };
    let Some(eye) = capsule.context_provider().cloned() else {
        return Ok(FetchOutcome::NoProvider);
    };
    let run = desk.session.run();
    let (agent, task) = (Arc::clone(&capsule.agent), run.task());
    let glance = ContextRequest {
        run: run.id(),
        agent: task.agent.clone(),
        event: event_text::event_kind(&agent, task).map(str::to_owned),
        input: task.input.clone(),
        actor: task.actor.clone(),
        resource: task.resource.clone(),
        thread: task.thread.clone(),
        turn: run.control().turn(),
    };
    if !desk.lease.may_begin().await {
        return Ok(FetchOutcome::Aborted(None));
    }
    let looking = pin!(fetch_with_retries(&*eye, &glance, &*desk.services.clock));
    let mut ears = AbortSignals::new(&mut desk.session, &desk.lease, &desk.shutdown);
    Ok(match ears.race(looking).await? {
        Raced::Done(Ok(seen)) => {
            FetchOutcome::Fetched(Redaction(&*desk.services.redact).perception(seen))
        }
        Raced::Done(Err(why)) => FetchOutcome::Aborted(Some(Input::MissingDependency(format!(
            "Nobody could look at the world for agent `{}`: {why}. Mend what looks for it, then \
             answer here: it is asked again.",
            agent.name
        )))),
        Raced::Aborted(cut) => FetchOutcome::Aborted(cut.input_after_perception()),
    })
}

/// Looks, a few times at most; the error says why the last look failed.
async fn fetch_with_retries(
    eye: &dyn ContextProvider,
    glance: &ContextRequest,
    clock: &dyn Clock,
) -> Result<Perception, String> {
    let enough = clock.monotonic().plus(RETRY_DEADLINE);
    let mut last = String::new();
    for pause in RETRY_DELAYS {
        if pause > Millis::ZERO {
            clock.sleep(pause).await;
        }
        match fetch_once(eye, glance, clock).await {
            Ok(seen) => return Ok(seen),
            Err(failed) => {
                last = failed.to_string();
                if failed.is_permanent || clock.monotonic() >= enough {
                    break;
                }
            }
        }
    }
    Err(last)
}

async fn fetch_once(
    eye: &dyn ContextProvider,
    glance: &ContextRequest,
    clock: &dyn Clock,
) -> Result<Perception, ContextError> {
    let looking = AssertUnwindSafe(async { eye.fetch(glance).await }).catch_unwind();
    let seen = tokio::select! {
        biased;
        seen = looking => seen,
        () = clock.sleep(FETCH_TIMEOUT) => {
            let why = format!("it took longer than {} s", FETCH_TIMEOUT.0 / 1_000);
            return Err(ContextError::transient(why));
        }
    };
    let seen = seen.map_err(|panic| {
        let why = format!("it panicked: {}", panics::panic_message(&*panic));
        ContextError::transient(why)
    })??;
    let context = seen.context.iter();
    let context: usize = context.map(|(name, value)| name.len() + value.as_str().len()).sum();
    for (what, bytes, max) in [
        ("world", seen.world.as_str().len(), WORLD_BYTES_MAX),
        ("context", context, CONTEXT_BYTES_MAX),
    ] {
        if bytes > max {
            let why = format!("the {what} that it saw is longer than {max} bytes");
            return Err(ContextError::permanent(why));
        }
    }
    Ok(seen)
}
