//! Opens the project's store, either to drive (execute) its runs or only to inspect them and send
//! commands.
//!
//! Invariant: a store is never created only to be read.

use std::sync::Arc;

use longhaul::Error;
use longhaul::project::{ProjectOpenOptions, ProjectRuntime, open_runtime, open_runtime_in_memory};
use longhaul_core::port::store::StoreError;
use longhaul_model::cassette::CassetteRecorder;
use longhaul_project::agents::loaded_agents::LoadedAgents;
use longhaul_project::assemble::sqlite_store_path;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_store::OpenMode;
use longhaul_store::options::FatalHook;

use crate::error::CliError;
use crate::{environment, log, output};

/// A project with its open store, and whether this process or another one drives (executes) the
/// runs of the store.
#[derive(Debug)]
pub(crate) enum StoreAccess {
    /// This process drives (executes) the runs of the store.
    Driving(ProjectRuntime),
    /// Another process drives (executes) the runs of the store; the text names that process.
    Observing(ProjectRuntime, String),
}

impl StoreAccess {
    /// Returns the opened project. If another process drives the runs of its store, prints which
    /// one, unless `silent`.
    pub(crate) fn note_driver_and_get_runtime(&self, silent: bool) -> &ProjectRuntime {
        match self {
            Self::Driving(runtime) => runtime,
            Self::Observing(runtime, holder) => {
                if !silent {
                    output::eprint_line(&format!(
                        "the store is driven by {holder}; following the run"
                    ));
                }
                runtime
            }
        }
    }
}

/// Returns the error for a folder in which no run was ever submitted.
pub(crate) fn no_runs_error() -> CliError {
    CliError::usage_error("there are no runs here yet: nothing was ever submitted")
        .with_hint("try the demo", "longhaul demo")
        .with_hint("use another store", "LONGHAUL_STORE=sqlite:PATH longhaul ls")
}

/// Opens an existing store to inspect it and send commands. `None` means that there is no store.
pub(crate) fn open_existing_store_as_observer() -> anyhow::Result<Option<ProjectRuntime>> {
    let process_env = environment::current_process_env()?;
    let config = environment::load_config(&process_env)?;
    let file = sqlite_store_path(&config)?;
    match file.try_exists() {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(error) => {
            let message = format!("`{}` can't be accessed: {error}", file.display());
            return Err(CliError::usage_error(message)
                .with_hint("see where it is set", "longhaul config show --origin")
                .into());
        }
    }
    Ok(Some(open_runtime(config, store_open_options(OpenMode::Outsider))?))
}

/// Opens the store without driving (executing) its runs; creates the store if necessary.
pub(crate) fn open_or_create_store_as_observer() -> anyhow::Result<ProjectRuntime> {
    let process_env = environment::current_process_env()?;
    Ok(open_runtime(
        environment::load_config(&process_env)?,
        store_open_options(OpenMode::Outsider),
    )?)
}

/// Opens the store of a project to drive its runs, with the loaded agents of the project. Fails if
/// another process drives the store.
pub(crate) fn open_store_as_driver(loaded: LoadedAgents) -> anyhow::Result<ProjectRuntime> {
    let process_env = environment::current_process_env()?;
    let options =
        ProjectOpenOptions { loaded_agents: Some(loaded), ..store_open_options(OpenMode::Driver) };
    Ok(open_runtime(environment::load_config(&process_env)?, options)?)
}

/// Opens the store to drive (execute) its runs and record their model calls. Fails if another
/// process already drives them.
pub(crate) fn open_store_as_recording_driver(
    process_env: &ProcessEnv,
    recorder: Arc<CassetteRecorder>,
) -> anyhow::Result<ProjectRuntime> {
    let options =
        ProjectOpenOptions { recorder: Some(recorder), ..store_open_options(OpenMode::Driver) };
    Ok(open_runtime(environment::load_config(process_env)?, options)?)
}

/// Opens an in-memory store to drive (execute) its runs. The store is lost when this command ends.
pub(crate) fn open_in_memory_as_driver(process_env: &ProcessEnv) -> anyhow::Result<ProjectRuntime> {
    Ok(open_runtime_in_memory(
        environment::load_config(process_env)?,
        store_open_options(OpenMode::Driver),
    )?)
}

/// Opens the store of a project with its loaded agents to drive its runs, or only to inspect them
/// if another process drives the store. `None` for the agents means that they are loaded.
pub(crate) fn open_store_as_driver_or_observer(
    process_env: &ProcessEnv,
    loaded_agents: Option<LoadedAgents>,
) -> anyhow::Result<StoreAccess> {
    let config = environment::load_config(process_env)?;
    let options = ProjectOpenOptions { loaded_agents, ..store_open_options(OpenMode::Driver) };
    match open_runtime(config.clone(), options) {
        Ok(runtime) => Ok(StoreAccess::Driving(runtime)),
        Err(Error::Store(StoreError::AlreadyDriven { holder, .. })) => {
            let runtime = open_runtime(config, store_open_options(OpenMode::Outsider))?;
            Ok(StoreAccess::Observing(runtime, holder))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the options with which this command opens a store.
pub(crate) fn store_open_options(mode: OpenMode) -> ProjectOpenOptions {
    let subcommand = std::env::args().nth(1).unwrap_or_default();
    ProjectOpenOptions {
        mode,
        holder: format!("longhaul {subcommand}"),
        on_fatal: Some(exit_on_fsync_failure_hook()),
        recorder: None,
        loaded_agents: None,
    }
}

/// Returns the handler for a failed sync to disk. What is on disk is unknown then, so the process
/// exits, and the next process reads what was really written.
fn exit_on_fsync_failure_hook() -> FatalHook {
    Arc::new(|reason: &str| {
        log::report_error(&anyhow::anyhow!("the store failed and must be opened again: {reason}"));
        // Exit code 5 means safe to retry: acknowledged writes are on disk.
        std::process::exit(5);
    })
}
