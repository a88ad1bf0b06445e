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
use crate::context::response::{
    RESPONSE_BYTES_MAX, parse_context_response, response_too_long_message,
};

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
        let describe = |why: String| format!("the program `{program}` failed: {why}");
        // Permanent errors are not retried.
        let permanent_error = |why: String| ContextError::permanent(describe(why));
        let request =
            serde_json::to_vec(request).map_err(|why| permanent_error(why.to_string()))?;
        let command = Command {
            stdin: request,
            keep_bytes: 2 * RESPONSE_BYTES_MAX,
            stdout_bytes_max: Some(RESPONSE_BYTES_MAX),
            timeout: self.timeout,
            ..Command::new(self.argv.clone(), &self.root)
        };
        let ended = command.run(&*self.clock).await;
        let ended = ended.map_err(|why| match &why {
            CommandError::SpawnFailed(..) | CommandError::WaitFailed(_) => {
                ContextError::transient(describe(why.to_string()))
            }
            CommandError::Empty
            | CommandError::MissingDir(_)
            | CommandError::NotFound(_)
            | CommandError::NotExecutable(_) => permanent_error(why.to_string()),
        })?;
        // Checked before the exit status, which only says that the program was killed or its pipe
        // was closed.
        if ended.stdout.total_bytes() > RESPONSE_BYTES_MAX as u64 {
            return Err(permanent_error(response_too_long_message()));
        }
        if !ended.exit.is_success() {
            let stderr = ended.stderr.tail_text(STDERR_BYTES_MAX);
            let how_it_ended = &ended.exit;
            let why = match stderr.is_empty() {
                true => format!("the process {how_it_ended} and printed nothing on stderr"),
                false => format!("the process {how_it_ended}: {stderr}"),
            };
            return Err(ContextError::transient(describe(why)));
        }
        let answer = ended
            .stdout
            .complete_output()
            .ok_or_else(|| permanent_error(response_too_long_message()))?;
        parse_context_response(&answer).map_err(permanent_error)
    }
}
