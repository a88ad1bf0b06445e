//! `longhaul sandboxes shell`: a shell in a sandbox, for a person or a script on stdin.
//!
//! Each line is one command of `sh`, sent like `exec`: so it works with every provider, and the
//! journal of the run records the line. Only the folder is kept from line to line.

use std::io::Write as _;

use clap::Args;
use longhaul_api::operations::SHOW_SANDBOX;
use longhaul_api::sandbox::{SandboxExecBody, SandboxExecView, SandboxView};
use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::WORKSPACE;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::Client;
use crate::client::connect::with_client;
use crate::error::fail;
use crate::exit::Exit;
use crate::sandboxes::exec::{exec_in_sandbox, print_output, resolve_sandbox_id};
use crate::{output, sanitize};

pub(super) const HELP: &str = "Each line is a command of its own in `sh`, for which a key needs the role admin. The folder is kept
from line to line; variables and functions are not, and background processes end with their line.
Output appears when the command has ended, and a command reads no input: programs that need a
terminal, such as editors, don't work. Ctrl-C kills the command; Ctrl-D or `exit` ends the shell.

Examples:
  longhaul sandboxes shell r0t2v4x
  longhaul sandboxes shell r0t2v4x < commands.sh     one line after the other
  echo 'cd src && ls' | longhaul sandboxes shell r0t2v4x";

/// Script that runs the line `$1` in the folder `$2`, and prints `$3` and the folder in which the
/// line ended. Nothing is run if the folder no longer exists.
const SCRIPT: &str = r#"trap 'printf "%s%s" "$3" "$PWD"' EXIT; cd -- "$2" || exit; eval "$1""#;

/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: usize = 32 * 1024;

/// Maximum length of the path of the folder in bytes.
const FOLDER_BYTES_MAX: usize = 8 * 1024;

/// Number of characters of the id in the prompt, as in the examples.
const PROMPT_ID_CHARS: usize = 7;

#[derive(Debug, Args)]
pub(crate) struct ShellCommand {
    /// Id of the sandbox, or four or more of its first or last characters
    sandbox: String,
    /// Seconds after which the command of a line is killed, 600 at most
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

impl ShellCommand {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        with_client(async |client| {
            let id = resolve_sandbox_id(client, &self.sandbox).await?;
            let sandbox = client.send(SHOW_SANDBOX.at(id)).await?;
            if sandbox.state != SandboxState::Running {
                let message = format!("{id} is {}, not running", sandbox.state.as_str());
                return fail(message, "start it", format!("longhaul sandboxes start {id}"));
            }
            let shell = SandboxShell {
                client,
                // A program in the sandbox must not print it by chance.
                marker: format!("\u{1e}{id}-{}\u{1e}", SystemClock.monotonic_nanos()),
                sandbox,
                folder: ".".to_owned(),
                timeout: self.timeout,
            };
            shell.run_lines().await
        })
    }
}

/// A shell in a sandbox.
#[derive(Debug)]
struct SandboxShell<'a> {
    client: &'a Client,
    sandbox: SandboxView,
    /// Text that precedes the folder at the end of the output of each line.
    marker: String,
    /// Folder of the next line; relative to the work folder until the first line has run.
    folder: String,
    timeout: u64,
}

impl SandboxShell<'_> {
    /// Runs the lines of stdin until its end. Returns how the last one ended.
    async fn run_lines(mut self) -> anyhow::Result<Exit> {
        let is_interactive = output::is_interactive();
        // A script ends with Ctrl-C like any program.
        let mut interrupt = is_interactive.then(|| signal(SignalKind::interrupt())).transpose()?;
        if is_interactive {
            let SandboxView { id, provider, run, .. } = &self.sandbox;
            output::eprint_line(&format!(
                "{id} ({provider}), sandbox of {run}: each line is recorded in its journal. \
                 Ctrl-D ends the shell"
            ));
        }
        let mut lines = output::spawn_stdin_reader();
        let mut exit = Exit::Done;
        loop {
            if is_interactive {
                self.print_prompt();
            }
            let line = tokio::select! {
                line = lines.recv() => line,
                () = next_interrupt(&mut interrupt) => {
                    output::eprint_line("");
                    continue;
                }
            };
            let Some(line) = line else {
                if is_interactive {
                    output::eprint_line("");
                }
                return Ok(exit);
            };
            let line = line.text;
            // The rest of the line would be run as another command.
            if line.len() > LINE_BYTES_MAX {
                let message = format!("a line is longer than {LINE_BYTES_MAX} bytes");
                return fail(message, "write it to a file", "longhaul sandboxes shell --help");
            }
            match line.split_whitespace().next() {
                None => continue,
                Some("exit" | "logout") => return Ok(exit),
                Some(_) => {}
            }
            let ended = tokio::select! {
                ended = self.run_line(line) => Some(ended?),
                () = next_interrupt(&mut interrupt) => None,
            };
            exit = match &ended {
                Some(ended) if ended.exit == Some(0) => Exit::Done,
                Some(_) | None => Exit::RunFailed,
            };
            match ended {
                Some(ended) => print_output(&ended)?,
                None => output::eprint_line("\nThe command was killed: Ctrl-C."),
            }
        }
    }

    fn print_prompt(&self) {
        let id = self.sandbox.id.to_string();
        let id = &id[id.len().saturating_sub(PROMPT_ID_CHARS)..];
        let folder = match self.folder.as_str() {
            "." => WORKSPACE,
            folder => folder,
        };
        // Folders are named by programs in the sandbox.
        let prompt = sanitize::sanitize_line(&format!("{id}:{folder}$"));
        let mut err = std::io::stderr().lock();
        _ = write!(err, "{prompt} ").and_then(|()| err.flush());
    }

    /// Runs a line, and keeps the folder in which it ends.
    async fn run_line(&mut self, line: String) -> anyhow::Result<SandboxExecView> {
        let argv = ["/bin/sh", "-c", SCRIPT, "sh", &line, &self.folder, &self.marker];
        let body = SandboxExecBody {
            command: argv.map(str::to_owned).to_vec(),
            cwd: None,
            timeout: Some(self.timeout),
        };
        let mut ended = exec_in_sandbox(self.client, self.sandbox.id, &body).await?;
        if let Some(folder) = take_folder(&mut ended.stdout, &self.marker) {
            self.folder = folder;
        }
        Ok(ended)
    }
}

/// Removes the marker and the folder from the end of an output. `None` means that the line has ended
/// without printing them, for example because it was killed.
fn take_folder(stdout: &mut String, marker: &str) -> Option<String> {
    let start = stdout.rfind(marker)?;
    let folder = stdout.split_off(start).split_off(marker.len());
    (folder.starts_with('/') && folder.len() <= FOLDER_BYTES_MAX).then_some(folder)
}

/// Waits for Ctrl-C. Never returns if it ends the process.
async fn next_interrupt(interrupt: &mut Option<Signal>) {
    match interrupt {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_parsed() {
        for (stdout, expected, rest) in [
            ("a\nM/tmp", Some("/tmp"), "a\n"),
            ("M/a M/b\nc", Some("/b\nc"), "M/a "),
            ("M", None, ""),
            ("Mrelative", None, ""),
            ("text", None, "text"),
        ] {
            let mut output = stdout.to_owned();
            assert_eq!(take_folder(&mut output, "M").as_deref(), expected, "{stdout}");
            assert_eq!(output, rest, "{stdout}");
        }
    }
}
