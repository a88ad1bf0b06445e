//! A program that is asked what the world looks like.
//!
//! Never: through a shell, and never with our environment.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul_core::time::{Clock, Millis};

use crate::command::{Command, CommandError};
use crate::context::response::{RESPONSE_BYTES_MAX, parse_perception, too_long_message};

/// So much of what a program says of itself is told.
const STDERR_BYTES_MAX: usize = 500;

/// A program that reads who looks on its standard input, and answers on its output.
#[derive(Clone)]
pub struct CommandContextProvider {
    /// The program and its words.
    pub argv: Vec<String>,
    /// Where it works.
    pub root: PathBuf,
    /// Who knows the time.
    pub clock: Arc<dyn Clock>,
    /// How long it may take.
    pub timeout: Millis,
}

impl fmt::Debug for CommandContextProvider {
    /// Words may be secrets.
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
    async fn fetch(&self, glance: &ContextRequest) -> Result<Perception, ContextError> {
        let program = self.argv.first().map_or("", String::as_str);
        let said = |why: String| format!("the program `{program}`: {why}");
        // What another try would not change is told at once.
        let lasts = |why: String| ContextError::permanent(said(why));
        let glance = serde_json::to_vec(glance).map_err(|why| lasts(why.to_string()))?;
        let command = Command {
            stdin: glance,
            keep_bytes: 2 * RESPONSE_BYTES_MAX,
            stdout_bytes_max: Some(RESPONSE_BYTES_MAX),
            timeout: self.timeout,
            ..Command::new(self.argv.clone(), &self.root)
        };
        let ended = command.run(&*self.clock).await;
        let ended = ended.map_err(|why| match &why {
            CommandError::SpawnFailed(..) | CommandError::WaitFailed(_) => {
                ContextError::transient(said(why.to_string()))
            }
            CommandError::Empty
            | CommandError::MissingDir(_)
            | CommandError::NotFound(_)
            | CommandError::NotExecutable(_) => lasts(why.to_string()),
        })?;
        // What its end says is of no use: it was stopped, or its pipe was closed.
        if ended.stdout.total_bytes() > RESPONSE_BYTES_MAX as u64 {
            return Err(lasts(too_long_message()));
        }
        if !ended.exit.is_success() {
            let words = ended.stderr.last_text(STDERR_BYTES_MAX);
            let why = match words.is_empty() {
                true => format!("it {} and said nothing on stderr", ended.exit),
                false => format!("it {}: {words}", ended.exit),
            };
            return Err(ContextError::transient(said(why)));
        }
        let answer = ended.stdout.complete().ok_or_else(|| lasts(too_long_message()))?;
        parse_perception(&answer).map_err(lasts)
    }
}
