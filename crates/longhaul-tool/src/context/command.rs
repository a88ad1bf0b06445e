//! Runs a program as a context provider, which describes the current state of the world to a run.
//!
//! Invariant: the program runs without a shell and does not inherit our environment.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::time::{Clock, Millis};

use crate::command::{Command, CommandError};
use crate::context::response::{RESPONSE_BYTES_MAX, parse_response, too_long_message};

/// Maximum number of stderr bytes in an error message.
const STDERR_BYTES_MAX: usize = 500;

/// A context provider: a program that reads the request as JSON on stdin and writes its response to
/// stdout.
#[derive(Clone)]
pub struct CommandContextProvider {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Working directory of the program.
    pub root: PathBuf,
    /// Clock that measures the timeout.
    pub clock: Arc<dyn Clock>,
    /// Timeout after which the program is killed.
    pub timeout: Millis,
}

impl fmt::Debug for CommandContextProvider {
    /// Shows no arguments, because they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandContextProvider")
            .field("program", &self.argv.first())
            .field("root", &self.root)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ContextProvider for CommandContextProvider {
    async fn fetch(&self, request: &ContextRequest) -> Result<Perception, ContextError> {
        let program = self.argv.first().map_or("", String::as_str);
        let describe = |reason: String| format!("the program `{program}` failed: {reason}");
        // Permanent errors are not retried.
        let permanent_error = |reason: String| ContextError::permanent(describe(reason));
        let request =
            serde_json::to_vec(request).map_err(|error| permanent_error(error.to_string()))?;
        let command = Command {
            stdin: request,
            keep_bytes: 2 * RESPONSE_BYTES_MAX,
            stdout_bytes_max: Some(RESPONSE_BYTES_MAX),
            timeout: self.timeout,
            ..Command::new(self.argv.clone(), &self.root)
        };
        let output = command.run(&*self.clock).await;
        let output = output.map_err(|error| match &error {
            CommandError::SpawnFailed(..) | CommandError::WaitFailed(_) => {
                ContextError::transient(describe(error.to_string()))
            }
            CommandError::Empty
            | CommandError::MissingDir(_)
            | CommandError::NotFound(_)
            | CommandError::NotExecutable(_) => permanent_error(error.to_string()),
        })?;
        // Checked before the exit status, which only says that the program was killed or its pipe
        // was closed.
        if output.stdout.total_bytes() > RESPONSE_BYTES_MAX as u64 {
            return Err(permanent_error(too_long_message()));
        }
        if !output.exit.is_success() {
            let stderr = output.stderr.tail_text(STDERR_BYTES_MAX);
            let exit = &output.exit;
            let reason = match stderr.is_empty() {
                true => format!("the process {exit} and printed nothing on stderr"),
                false => format!("the process {exit}: {stderr}"),
            };
            return Err(ContextError::transient(describe(reason)));
        }
        let answer =
            output.stdout.complete_output().ok_or_else(|| permanent_error(too_long_message()))?;
        parse_response(&answer).map_err(permanent_error)
    }
}
