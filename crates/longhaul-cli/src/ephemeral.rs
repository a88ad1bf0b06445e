//! `longhaul run --ephemeral`: a run on an in-memory store. The runtime writes no files for it, but
//! tools may.

use clap::Args;
use longhaul::project::ProjectRuntime;
use longhaul_engine::agent::Agent;

use crate::client::NewTask;
use crate::environment;
use crate::error::CliError;
use crate::record_replay::CassetteArgs;
use crate::store_access::open_in_memory_as_driver;
use crate::submit::prepare_task;
use crate::task_args::TaskArgs;

/// Message printed when an ephemeral run is stopped before its end.
pub(crate) const STOPPED_MESSAGE: &str =
    "stopped: an ephemeral run ends with its command, and nothing is stored";

/// Returns the error message for an ephemeral run (one that stores nothing) that would have to
/// wait. `wait_reason` says why it would have to wait.
pub(crate) fn ephemeral_wait_error_message(wait_reason: &str) -> String {
    format!(
        "{wait_reason} An ephemeral run can't wait, because nothing is stored: run it on a \
         terminal, or without --ephemeral"
    )
}

/// Command-line options of a run that stores nothing.
#[derive(Debug, Args)]
pub(crate) struct EphemeralRunArgs {
    /// Store nothing: no store, no journal, no lock. Files that tools write are kept
    #[arg(long, conflicts_with_all = ["record", "thread", "inbox", "idempotency_key"])]
    ephemeral: bool,
}

impl EphemeralRunArgs {
    pub(crate) const fn is_enabled(&self) -> bool {
        self.ephemeral
    }

    /// Opens the project on an in-memory store and builds the task that an ephemeral run executes.
    pub(crate) fn open_runtime_and_prepare_task(
        &self,
        args: &TaskArgs,
        cassette: &CassetteArgs,
        silent: bool,
    ) -> anyhow::Result<(ProjectRuntime, NewTask)> {
        let process_env = environment::add_dotenv_variables(environment::current_process_env()?)?;
        let mut args_with_model = args.clone();
        if let Some(model) = cassette.replay_model_from_args(&process_env)? {
            args_with_model.set_model(model);
        }
        let task =
            prepare_task(&args_with_model, None, &process_env)?.print_notes_and_take_task(silent);
        let runtime = open_in_memory_as_driver(&process_env)?;
        if let Ok(agent) = runtime.longhaul.get_agent(args.agent_name()) {
            check_no_effect_keys(&agent)?;
            // Nobody could send a follow-up message.
            let mut agent = (*agent).clone();
            agent.keep_open = None;
            runtime.longhaul.register(agent);
        }
        Ok((runtime, task))
    }
}

/// Fails if the agent has effect keys (keys of effects that happen at most once over all runs),
/// because they need the store. The error contains the command that runs the agent in the store.
fn check_no_effect_keys(agent: &Agent) -> Result<(), CliError> {
    longhaul::ephemeral::check_no_effect_keys(agent).map_err(|error| {
        let command = format!("longhaul run {} ...", agent.name);
        CliError::usage_error(error.to_string()).with_hint("run the agent in the store", command)
    })
}
