//! `longhaul run --ephemeral`: a run on an in-memory store. The runtime writes no files for it, but
//! tools may.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use longhaul::assemble::ProjectRuntime;
use longhaul_api::history::{HISTORY_BYTES_MAX, parse_history};
use longhaul_core::message::Message;
use longhaul_engine::Task;

use crate::environment;
use crate::error::CliError;
use crate::record_replay::CassetteArgs;
use crate::store_access::open_in_memory_as_driver;
use crate::submit::prepare_task;
use crate::task_args::TaskArgs;

/// Value of `--history` that stands for stdin instead of a file.
const STDIN: &str = "-";

/// Message printed when an ephemeral run is stopped before its end.
pub(crate) const STOPPED_MESSAGE: &str =
    "stopped: an ephemeral run ends with its command, and nothing is stored";

/// Returns the message for an ephemeral run that would have to wait, with the reason.
pub(crate) fn cannot_wait_message(reason: &str) -> String {
    format!(
        "{reason} An ephemeral run can't wait, because nothing is stored: run it on a \
         terminal, or without --ephemeral"
    )
}

/// Command-line options of a run that stores nothing.
#[derive(Debug, Args)]
pub(crate) struct EphemeralArgs {
    /// Store nothing: no store, no journal, no lock. Files that tools write are kept
    #[arg(long, conflicts_with_all = ["record", "thread", "inbox", "idempotency_key"])]
    ephemeral: bool,
    /// File with the conversation to continue, or `-` for stdin: a JSON list of {"role": "user" or
    /// "assistant", "content": TEXT}
    #[arg(long, value_name = "FILE", requires = "ephemeral")]
    history: Option<PathBuf>,
}

impl EphemeralArgs {
    pub(crate) const fn is_enabled(&self) -> bool {
        self.ephemeral
    }

    /// Opens the project on an in-memory store and prepares the task for an ephemeral run.
    pub(crate) fn prepare_run(
        &self,
        args: &TaskArgs,
        cassette: &CassetteArgs,
        silent: bool,
    ) -> anyhow::Result<(ProjectRuntime, Task)> {
        let before = self.read_history(args.reads_stdin())?;
        let process_env = environment::with_dotenv(environment::process_env()?)?;
        let mut args_with_model = args.clone();
        if let Some(model) = cassette.find_replay_model(&process_env)? {
            args_with_model.set_model(model);
        }
        let mut task =
            prepare_task(&args_with_model, None, &process_env)?.into_task_printing_notes(silent);
        task.history = before;
        let runtime = open_in_memory_as_driver(&process_env)?;
        if let Ok(agent) = runtime.longhaul.agent(args.agent_name()) {
            // Nobody could send a follow-up message.
            let mut agent = (*agent).clone();
            agent.keep_open = None;
            runtime.longhaul.register(agent);
        }
        Ok((runtime, task))
    }

    /// Reads the earlier conversation from the file in `--history`. Fails if `--history` is `-` but
    /// stdin already provides the task's input.
    fn read_history(&self, is_stdin_taken: bool) -> anyhow::Result<Vec<Message>> {
        let Some(file) = &self.history else {
            return Ok(Vec::new());
        };
        let wrong =
            |why: String| CliError::usage_error(format!("--history {}: {why}", file.display()));
        if is_stdin_taken && file == Path::new(STDIN) {
            let why = "stdin is used for the input already: put one of them in a file";
            return Err(wrong(why.to_owned()).into());
        }
        let bytes =
            read_history_file(file).map_err(|error| wrong(format!("can't be read: {error}")))?;
        Ok(parse_history(&bytes).map_err(|bad| wrong(bad.to_string()))?)
    }
}

/// Reads a history file. Reads at most one byte more than is allowed, so that the caller detects a
/// file that is too long.
fn read_history_file(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let max = HISTORY_BYTES_MAX as u64 + 1;
    if file == Path::new(STDIN) {
        std::io::stdin().lock().take(max).read_to_end(&mut bytes)?;
    } else {
        let file = std::fs::File::open(file)?;
        file.take(max).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
