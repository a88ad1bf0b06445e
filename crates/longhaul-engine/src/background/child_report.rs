//! Reports the end of a child run to its parent: the outcome, as the parent's model reads it.

use longhaul_core::change::Blob;
use longhaul_core::event::environment::ChildEnded;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::port::records::DueTimer;
use longhaul_core::status::{RunError, RunOutcome, RunOutput};
use longhaul_run::commands::RunCommand;
use longhaul_run::state::control::OpenChildRun;

use crate::drive::truncate::truncate_output_and_get_full_text;
use crate::error::{Error, Result};
use crate::replay::replay_run_state;
use crate::services::Services;

/// Maximum size in bytes of a child's structured result. A larger one is not copied to the parent.
const DATA_BYTES_MAX: usize = 16 * 1024;

/// Returns the command that reports the outcome of the run `child` to its parent, whose timer `due`
/// has fired. A child whose journal was deleted or can't be read counts as failed, so that the
/// parent continues.
pub(crate) async fn child_end_command(
    services: &Services,
    due: &DueTimer,
    child: RunId,
) -> Result<RunCommand> {
    let failed = |code, message| RunOutcome::Failed(RunError::new(code, message, ""));
    let deleted =
        || failed("run_deleted", "its journal has been deleted, so its result is unknown");
    let mut submitters = Vec::new();
    let outcome = match replay_run_state(services, child).await {
        Ok((run, _)) => {
            submitters = run.submitters().names_except(None);
            run.outcome().cloned().unwrap_or_else(deleted)
        }
        Err(Error::RunNotFound(_)) => deleted(),
        Err(Error::InvalidJournal(_)) => {
            failed("invalid_journal", "its journal can't be read, so its result is unknown")
        }
        Err(error) => return Err(error),
    };
    let (parent, _) = replay_run_state(services, due.run).await?;
    let known = parent.submitters().names_except(None);
    submitters.retain(|name| !known.contains(name));
    let open = parent.control().children.iter().find(|open| open.id == child);
    let (outcome, full) = match (outcome, open) {
        (RunOutcome::Completed(output), Some(OpenChildRun { call: Some(call), .. })) => {
            truncate_child_output(*call, output)
        }
        // The result of a grading run is bounded by its schema.
        (outcome, _) => (outcome, None),
    };
    let full_ref = full.as_ref().map(|blob| blob.blob_ref);
    let ended = Box::new(ChildEnded { child, outcome, full: full_ref, submitters });
    Ok(RunCommand::ChildEnded { ended, full, timer: due.timer })
}

/// Returns the outcome of a completed child with a long text truncated, and the full text as a blob
/// to be stored. `None` means that the text was not truncated.
fn truncate_child_output(call: CallId, output: RunOutput) -> (RunOutcome, Option<Blob>) {
    let data = output.data.filter(|data| data.as_str().len() <= DATA_BYTES_MAX);
    let (shown, full) = truncate_output_and_get_full_text(call, ToolOutput::text(output.text));
    let text = shown.joined_text();
    (RunOutcome::Completed(RunOutput { text, data, ..RunOutput::default() }), full)
}
