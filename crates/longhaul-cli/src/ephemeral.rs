//! `longhaul run --ephemeral`: a run over a store that is forgotten. History in,
//! result out.
//!
//! Never: a file of ours. Effects stay: a tool that writes has written.

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
use crate::store_access::drive_in_memory;
use crate::submit::prepare;
use crate::task_args::TaskArgs;

/// Stands for stdin where a file is named.
const STDIN: &str = "-";

/// What is said of a run that was left.
pub(crate) const STOPPED_MESSAGE: &str =
    "stopped: an ephemeral run ends with its command, and nothing of it is kept";

/// What is said of one that waits for somebody who can't come.
pub(crate) fn cannot_wait_message(sentence: &str) -> String {
    format!(
        "{sentence} An ephemeral run can't wait, since nothing of it is kept: run it on a \
         terminal, or without --ephemeral"
    )
}

/// That nothing is to be kept.
#[derive(Debug, Args)]
pub(crate) struct EphemeralArgs {
    /// Keep nothing: no store, no journal, no lock. What tools write stays
    #[arg(long, conflicts_with_all = ["record", "thread", "inbox", "idempotency_key"])]
    ephemeral: bool,
    /// A conversation to go on with, `-` for stdin: a JSON list of {"role": "user" or "assistant", "content": TEXT}
    #[arg(long, value_name = "FILE", requires = "ephemeral")]
    history: Option<PathBuf>,
}

impl EphemeralArgs {
    pub(crate) const fn is_enabled(&self) -> bool {
        self.ephemeral
    }

    /// The program over a store that is forgotten, and the task for it.
    pub(crate) fn open(
        &self,
        args: &TaskArgs,
        tape: &CassetteArgs,
        silent: bool,
    ) -> anyhow::Result<(ProjectRuntime, Task)> {
        let before = self.read_history(args.reads_stdin())?;
        let here = environment::with_dotenv(environment::process_env()?)?;
        let mut asked = args.clone();
        if let Some(model) = tape.replay_model(&here)? {
            asked.set_model(model);
        }
        let mut task = prepare(&asked, None, &here)?.into_task(silent);
        task.history = before;
        let house = drive_in_memory(&here)?;
        if let Ok(agent) = house.longhaul.agent(args.agent()) {
            // Who could follow up?
            let mut agent = (*agent).clone();
            agent.keep_open = None;
            house.longhaul.register(agent);
        }
        Ok((house, task))
    }

    /// What was said before; stdin may be taken.
    fn read_history(&self, is_taken: bool) -> anyhow::Result<Vec<Message>> {
        let Some(file) = &self.history else {
            return Ok(Vec::new());
        };
        let wrong = |why: String| CliError::usage(format!("--history {}: {why}", file.display()));
        if is_taken && file == Path::new(STDIN) {
            let why = "stdin is the input already: put one of them into a file";
            return Err(wrong(why.to_owned()).into());
        }
        let bytes = read_bounded(file).map_err(|error| wrong(format!("can't be read: {error}")))?;
        Ok(parse_history(&bytes).map_err(|bad| wrong(bad.to_string()))?)
    }
}

/// A file, and a little more than is allowed of one that is too long.
fn read_bounded(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = HISTORY_BYTES_MAX as u64 + 1;
    if file == Path::new(STDIN) {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        let file = std::fs::File::open(file)?;
        file.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
