//! Opens the project's store: to drive it, or to look in and say a word.
//!
//! Never: makes a store only to find it empty.

use std::sync::Arc;

use longhaul::assemble::{
    AssembleError, OpenOptions, ProjectRuntime, open, open_in_memory, store_file,
};
use longhaul::config::process_env::ProcessEnv;
use longhaul_core::port::store::StoreError;
use longhaul_model::cassette::Recorder;
use longhaul_store::OpenMode;
use longhaul_store::options::FatalHook;

use crate::error::CliError;
use crate::{environment, log, output};

/// A store in this process's hands, or in another's.
#[derive(Debug)]
pub(crate) enum StoreAccess {
    /// This process drives it.
    Driving(ProjectRuntime),
    /// Another does; this is who.
    Observing(ProjectRuntime, String),
}

impl StoreAccess {
    /// The store, and whether this process drives it. If another does, it is
    /// told who, unless nothing is to be told.
    pub(crate) fn runtime(&self, silent: bool) -> (&ProjectRuntime, bool) {
        match self {
            Self::Driving(house) => (house, true),
            Self::Observing(house, holder) => {
                if !silent {
                    output::stderr_line(&format!("driven by {holder}, followed from here"));
                }
                (house, false)
            }
        }
    }
}

/// Nothing was ever submitted here.
pub(crate) fn no_runs_error() -> CliError {
    CliError::usage("there are no runs here yet: nothing was ever submitted")
        .hint("see it at work", "longhaul demo")
        .hint("look elsewhere", "LONGHAUL_STORE=sqlite:PATH longhaul ls")
}

/// Opens the store to say a word or to look; none when there is none.
pub(crate) fn observe_if_exists() -> anyhow::Result<Option<ProjectRuntime>> {
    let here = environment::process_env()?;
    let config = environment::load_config(&here)?;
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
    Ok(Some(open(config, open_options(OpenMode::Outsider))?))
}

/// Opens the store beside whoever drives it, and makes it if need be.
pub(crate) fn observe_or_create() -> anyhow::Result<ProjectRuntime> {
    let here = environment::process_env()?;
    Ok(open(environment::load_config(&here)?, open_options(OpenMode::Outsider))?)
}

/// Opens the store to drive it; an error if another does.
pub(crate) fn open_as_driver() -> anyhow::Result<ProjectRuntime> {
    let here = environment::process_env()?;
    Ok(open(environment::load_config(&here)?, open_options(OpenMode::Driver))?)
}

/// Drives the store, with somebody who listens; the error says who else drives.
pub(crate) fn open_recording(
    here: &ProcessEnv,
    recorder: Arc<Recorder>,
) -> anyhow::Result<ProjectRuntime> {
    let opening = OpenOptions { recorder: Some(recorder), ..open_options(OpenMode::Driver) };
    Ok(open(environment::load_config(here)?, opening)?)
}

/// Drives a store that is forgotten when this command ends.
pub(crate) fn drive_in_memory(here: &ProcessEnv) -> anyhow::Result<ProjectRuntime> {
    Ok(open_in_memory(environment::load_config(here)?, open_options(OpenMode::Driver))?)
}

/// Drives the store if nobody does, else stands beside who does.
pub(crate) fn drive_or_observe(here: &ProcessEnv) -> anyhow::Result<StoreAccess> {
    let config = environment::load_config(here)?;
    match open(config.clone(), open_options(OpenMode::Driver)) {
        Ok(house) => Ok(StoreAccess::Driving(house)),
        Err(AssembleError::Store(StoreError::AlreadyDriven { holder, .. })) => {
            let house = open(config, open_options(OpenMode::Outsider))?;
            Ok(StoreAccess::Observing(house, holder))
        }
        Err(error) => Err(error.into()),
    }
}

/// How this command opens a store.
pub(crate) fn open_options(role: OpenMode) -> OpenOptions {
    let holder = std::env::args().nth(1).unwrap_or_default();
    OpenOptions {
        mode: role,
        holder: format!("longhaul {holder}"),
        on_fatal: Some(fatal_handler()),
        recorder: None,
    }
}

/// After a failed sync nothing is known: the process ends, and the next one
/// reads what is really there.
fn fatal_handler() -> FatalHook {
    Arc::new(|why: &str| {
        log::report_error(&anyhow::anyhow!(
            "the store failed, and nothing is known until it is read again: {why}"
        ));
        // Safe to try again: whatever was acknowledged stands.
        std::process::exit(5);
    })
}
