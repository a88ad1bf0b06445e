//! Opens the project's store, either to drive (execute) its runs or only to inspect them and send
//! commands.
//!
//! Invariant: a store is never created only to be read.

use std::sync::Arc;

use longhaul::Error;
use longhaul::project::{ProjectOpenOptions, ProjectRuntime, open_runtime};
use longhaul_core::port::store::StoreError;
use longhaul_project::agents::loaded_agents::LoadedAgents;
use longhaul_project::assemble::sqlite_store_path;
use longhaul_project::config::settings::Config;
use longhaul_store::OpenMode;
use longhaul_store::options::FatalHook;

use crate::error::{CliError, fail};
use crate::{environment, log, output};

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
            return fail(message, "see where it is set", "longhaul config show --origin");
        }
    }
    Ok(Some(open_runtime(config, store_open_options(OpenMode::Outsider))?))
}

/// Opens the store of a project with its loaded agents to drive its runs, or only to inspect them
/// if another process drives the store; then a note says which one, unless `silent`. Prints the
/// notes about the settings.
pub(crate) fn open_store_as_driver_or_observer(
    config: Config,
    loaded_agents: LoadedAgents,
    silent: bool,
) -> anyhow::Result<ProjectRuntime> {
    environment::print_notes(&config);
    let options = ProjectOpenOptions {
        loaded_agents: Some(loaded_agents),
        ..store_open_options(OpenMode::Driver)
    };
    match open_runtime(config.clone(), options) {
        Err(Error::Store(StoreError::AlreadyDriven { holder, .. })) => {
            let runtime = open_runtime(config, store_open_options(OpenMode::Outsider))?;
            if !silent {
                output::eprint_line(&format!(
                    "the store is driven by {holder}; this command only follows its run"
                ));
            }
            Ok(runtime)
        }
        result => Ok(result?),
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
        // Everything acknowledged is on disk.
        std::process::exit(5);
    })
}
