//! A program that is asked what the world looks like.
//!
//! Never: through a shell, and never with our environment.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use longhaul_core::port::context::{ContextError, ContextProvider, Glance, Perception};
use longhaul_core::time::{Clock, Millis};

use crate::command::{Command, CommandError};
use crate::context::answer::{ANSWER_BYTES_MAX, read, too_long};

/// So much of what a program says of itself is told.
const WORDS_BYTES_MAX: usize = 500;

/// A program that reads who looks on its standard input, and answers on its output.
#[derive(Clone)]
pub struct CommandEye {
    /// The program and its words.
    pub argv: Vec<String>,
    /// Where it works.
    pub root: PathBuf,
    /// Who knows the time.
    pub clock: Arc<dyn Clock>,
    /// How long it may take.
    pub timeout: Millis,
}

impl fmt::Debug for CommandEye {
    /// Words may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandEye")
            .field("program", &self.argv.first())
            .field("root", &self.root)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ContextProvider for CommandEye {
    async fn look(&self, glance: &Glance) -> Result<Perception, ContextError> {
        let program = self.argv.first().map_or("", String::as_str);
        let said = |why: String| format!("the program `{program}`: {why}");
        // What another try would not change is told at once.
        let lasts = |why: String| ContextError::lasting(said(why));
        let glance = serde_json::to_vec(glance).map_err(|why| lasts(why.to_string()))?;
        let command = Command {
            stdin: glance,
            keep: 2 * ANSWER_BYTES_MAX,
            most: Some(ANSWER_BYTES_MAX),
            timeout: self.timeout,
            ..Command::new(self.argv.clone(), &self.root)
        };
        let ended = command.run(&*self.clock).await;
        let ended = ended.map_err(|why| match &why {
            CommandError::Refused(..) | CommandError::Lost(_) => {
                ContextError::passing(said(why.to_string()))
            }
            CommandError::Empty
            | CommandError::NoDir(_)
            | CommandError::Missing(_)
            | CommandError::Closed(_) => lasts(why.to_string()),
        })?;
        // What its end says is of no use: it was stopped, or its pipe was closed.
        if ended.stdout.bytes() > ANSWER_BYTES_MAX as u64 {
            return Err(lasts(too_long()));
        }
        if !ended.exit.is_good() {
            let words = ended.stderr.last(WORDS_BYTES_MAX);
            let why = match words.is_empty() {
                true => format!("it {} and said nothing on stderr", ended.exit),
                false => format!("it {}: {words}", ended.exit),
            };
            return Err(ContextError::passing(said(why)));
        }
        let answer = ended.stdout.whole().ok_or_else(|| lasts(too_long()))?;
        read(&answer).map_err(lasts)
    }
}
