//! Opens the project's store: to drive it, or to look in and say a word.
//!
//! Never: makes a store only to find it empty.

use std::sync::Arc;

use longhaul::assemble::{AssembleError, House, Opening, open, open_forgetting, store_file};
use longhaul::config::surroundings::Surroundings;
use longhaul_core::port::store::StoreError;
use longhaul_model::cassette::Recorder;
use longhaul_store::Role;
use longhaul_store::options::Fatal;

use crate::error::CliError;
use crate::{here, log, say};

/// A store in this process's hands, or in another's.
#[derive(Debug)]
pub(crate) enum Opened {
    /// This process drives it.
    Driving(House),
    /// Another does; this is who.
    Beside(House, String),
}

impl Opened {
    /// The store, and whether this process drives it. If another does, it is
    /// told who, unless nothing is to be told.
    pub(crate) fn look(&self, silent: bool) -> (&House, bool) {
        match self {
            Self::Driving(house) => (house, true),
            Self::Beside(house, holder) => {
                if !silent {
                    say::talk(&format!("driven by {holder}, followed from here"));
                }
                (house, false)
            }
        }
    }
}

/// Nothing was ever submitted here.
pub(crate) fn nothing_here() -> CliError {
    CliError::usage("there are no runs here yet: nothing was ever submitted")
        .hint("see it at work", "longhaul demo")
        .hint("look elsewhere", "LONGHAUL_STORE=sqlite:PATH longhaul ls")
}

/// Opens the store to say a word or to look; none when there is none.
pub(crate) fn look_if_there() -> anyhow::Result<Option<House>> {
    let here = here::surroundings()?;
    let config = here::config(&here)?;
    let file = store_file(&config)?;
    match file.try_exists() {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(error) => {
            let words = format!("`{}` can't be looked at: {error}", file.display());
            return Err(CliError::usage(words)
                .hint("see where it is set", "longhaul config show --origin")
                .into());
        }
    }
    Ok(Some(open(config, opening(Role::Outsider))?))
}

/// Opens the store beside whoever drives it, and makes it if need be.
pub(crate) fn beside() -> anyhow::Result<House> {
    let here = here::surroundings()?;
    Ok(open(here::config(&here)?, opening(Role::Outsider))?)
}

/// Opens the store to drive it; an error if another does.
pub(crate) fn drive() -> anyhow::Result<House> {
    let here = here::surroundings()?;
    Ok(open(here::config(&here)?, opening(Role::Driver))?)
}

/// Drives the store, with somebody who listens; the error says who else drives.
pub(crate) fn drive_recorded(
    here: &Surroundings,
    recorder: Arc<Recorder>,
) -> anyhow::Result<House> {
    let opening = Opening {
        recorder: Some(recorder),
        ..opening(Role::Driver)
    };
    Ok(open(here::config(here)?, opening)?)
}

/// Drives a store that is forgotten when this command ends.
pub(crate) fn drive_forgetting(here: &Surroundings) -> anyhow::Result<House> {
    Ok(open_forgetting(here::config(here)?, opening(Role::Driver))?)
}

/// Drives the store if nobody does, else stands beside who does.
pub(crate) fn drive_if_free(here: &Surroundings) -> anyhow::Result<Opened> {
    let config = here::config(here)?;
    match open(config.clone(), opening(Role::Driver)) {
        Ok(house) => Ok(Opened::Driving(house)),
        Err(AssembleError::Store(StoreError::Driven { holder, .. })) => {
            let house = open(config, opening(Role::Outsider))?;
            Ok(Opened::Beside(house, holder))
        }
        Err(error) => Err(error.into()),
    }
}

/// How this command opens a store.
pub(crate) fn opening(role: Role) -> Opening {
    let holder = std::env::args().nth(1).unwrap_or_default();
    Opening {
        role,
        holder: format!("longhaul {holder}"),
        fatal: Some(fatal()),
        recorder: None,
    }
}

/// After a failed sync nothing is known: the process ends, and the next one
/// reads what is really there.
fn fatal() -> Fatal {
    Arc::new(|why: &str| {
        log::failed(&anyhow::anyhow!(
            "the store failed, and nothing is known until it is read again: {why}"
        ));
        // Safe to try again: whatever was acknowledged stands.
        std::process::exit(5);
    })
}
