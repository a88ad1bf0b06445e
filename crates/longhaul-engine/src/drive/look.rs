//! Lets somebody look at the world for a run, before it thinks or before a turn.
//!
//! Never: goes on blind. Where nobody could look, the run waits and says why.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use longhaul_core::event::turn::Seen;
use longhaul_core::port::context::{ContextError, ContextProvider, Glance, Perception};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock, Millis};
use longhaul_run::Input;
use longhaul_run::input::Looked;

use crate::clean::Cleaner;
use crate::drive::attend::{Ears, First};
use crate::drive::desk::Desk;
use crate::error::Error;
use crate::events;
use crate::mishap;
use crate::perceive::perceive;
use crate::prompt::{WORLD, world_words};

/// Before each look so much time passes: one that fails is tried again, twice.
const PAUSES: [Millis; 3] = [Millis::ZERO, Millis::from_secs(1), Millis::from_secs(4)];

/// When so much time is gone, no look is begun any more.
const LOOKS_TIMEOUT: Millis = Millis::from_secs(30);

/// A look may take this long: who has a bound of its own, of 30 s, has a moment more
/// to say how it ended.
const LOOK_TIMEOUT: Millis = Millis::from_secs(32);

/// The longest world that is taken in, and what comes with it for tools.
const WORLD_BYTES_MAX: usize = 1024 * 1024;
const CONTEXT_BYTES_MAX: usize = 64 * 1024;

/// What came of a look.
enum Glanced {
    /// Nobody looks for this agent.
    Nobody,
    /// This was seen.
    Saw(Perception),
    /// There is something else to do; none: the run is not ours any more.
    Else(Option<Input>),
}

/// Looks, and makes the prompt. None: the run is not ours any more.
pub(super) async fn look(desk: &mut Desk) -> Result<Option<Input>, Error> {
    let seen = match glance(desk).await? {
        Glanced::Nobody => None,
        Glanced::Saw(seen) => Some(seen),
        Glanced::Else(input) => return Ok(input),
    };
    let Some(capsule) = &desk.capsule else {
        return Ok(Some(Input::GoOn));
    };
    let made = perceive(&desk.ports, capsule, desk.ledger.run(), seen).await?;
    Ok(Some(match made {
        Ok((seen, blobs)) => Input::Perceived(Box::new(seen), blobs),
        Err(lack) => lack.told(),
    }))
}

/// Looks again before a turn. None: the run is not ours any more.
pub(super) async fn look_again(desk: &mut Desk) -> Result<Option<Input>, Error> {
    let seen = match glance(desk).await? {
        Glanced::Nobody => return Ok(Some(Input::Looked(Box::default()))),
        Glanced::Saw(seen) => seen,
        Glanced::Else(input) => return Ok(input),
    };
    let before = desk.ledger.run().sights();
    let world = Hash::of(seen.world.as_str().as_bytes());
    // What is as it was is not told again: the model has it.
    let is_new = before.world() != Some(world);
    let words = is_new.then(|| {
        let words = world_words(&seen.world);
        format!("{WORLD}{words}").into()
    });
    let changed = is_new || *before.context() != seen.context;
    let context = seen.context;
    let seen = changed.then_some(Seen { world, context });
    Ok(Some(Input::Looked(Box::new(Looked { words, seen }))))
}

async fn glance(desk: &mut Desk) -> Result<Glanced, Error> {
    let Some(capsule) = &desk.capsule else {
        return Ok(Glanced::Else(Some(Input::GoOn)));
    };
    let Some(eye) = capsule.eye().cloned() else {
        return Ok(Glanced::Nobody);
    };
    let run = desk.ledger.run();
    let (agent, task) = (Arc::clone(&capsule.agent), run.task());
    let glance = Glance {
        run: run.id(),
        agent: task.agent.clone(),
        event: events::kind(&agent, task).map(str::to_owned),
        input: task.input.clone(),
        actor: task.actor.clone(),
        resource: task.resource.clone(),
        thread: task.thread.clone(),
        turn: run.control().turn(),
    };
    if !desk.lease.may_begin().await {
        return Ok(Glanced::Else(None));
    }
    let looking = pin!(try_to_look(&*eye, &glance, &*desk.ports.clock));
    let mut ears = Ears::new(&mut desk.ledger, &desk.lease, &desk.stop);
    Ok(match ears.attend(looking).await? {
        First::Done(Ok(seen)) => Glanced::Saw(Cleaner(&*desk.ports.redact).seen(seen)),
        First::Done(Err(why)) => Glanced::Else(Some(Input::Missing(format!(
            "Nobody could look at the world for agent `{}`: {why}. Mend what looks for it, then \
             answer here: it is asked again.",
            agent.name
        )))),
        First::Cut(cut) => Glanced::Else(cut.after_look()),
    })
}

/// Looks, a few times at most; the error says why the last look failed.
async fn try_to_look(
    eye: &dyn ContextProvider,
    glance: &Glance,
    clock: &dyn Clock,
) -> Result<Perception, String> {
    let enough = clock.monotonic().plus(LOOKS_TIMEOUT);
    let mut last = String::new();
    for pause in PAUSES {
        if pause > Millis::ZERO {
            clock.sleep(pause).await;
        }
        match look_once(eye, glance, clock).await {
            Ok(seen) => return Ok(seen),
            Err(failed) => {
                last = failed.to_string();
                if failed.lasts || clock.monotonic() >= enough {
                    break;
                }
            }
        }
    }
    Err(last)
}

async fn look_once(
    eye: &dyn ContextProvider,
    glance: &Glance,
    clock: &dyn Clock,
) -> Result<Perception, ContextError> {
    let looking = AssertUnwindSafe(async { eye.look(glance).await }).catch_unwind();
    let seen = tokio::select! {
        biased;
        seen = looking => seen,
        () = clock.sleep(LOOK_TIMEOUT) => {
            let why = format!("it took longer than {} s", LOOK_TIMEOUT.0 / 1_000);
            return Err(ContextError::passing(why));
        }
    };
    let seen = seen.map_err(|panic| {
        let why = format!("it panicked: {}", mishap::words(&*panic));
        ContextError::passing(why)
    })??;
    let context = seen.context.iter();
    let context: usize = context
        .map(|(name, value)| name.len() + value.as_str().len())
        .sum();
    for (what, bytes, max) in [
        ("world", seen.world.as_str().len(), WORLD_BYTES_MAX),
        ("context", context, CONTEXT_BYTES_MAX),
    ] {
        if bytes > max {
            let why = format!("the {what} that it saw is longer than {max} bytes");
            return Err(ContextError::lasting(why));
        }
    }
    Ok(seen)
}
