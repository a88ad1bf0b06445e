//! This very binary in a process of its own.
//!
//! Invariant: it is never left behind. Whatever happens to its holder, it is killed and reaped.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

/// How long a process may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A process under way.
#[derive(Debug)]
pub(crate) struct OwnProcess(Child);

impl OwnProcess {
    /// This binary, to be given arguments.
    pub(crate) fn command() -> anyhow::Result<Command> {
        let binary = std::env::current_exe().context("this program can't find its own file")?;
        let mut command = Command::new(binary);
        // Held open while we live: however we die, it ends.
        command.stdin(Stdio::piped());
        Ok(command)
    }

    /// Starts it, and waits until it prints a line of JSON that holds its address.
    pub(crate) fn start(
        command: &mut Command,
        address: impl Fn(&Value) -> Option<&str>,
    ) -> anyhow::Result<(Self, String)> {
        let mut child = command.spawn().context("this program can't be started")?;
        let output: Option<Box<dyn Read + Send>> = match (child.stdout.take(), child.stderr.take())
        {
            (Some(stdout), _) => Some(Box::new(stdout)),
            (None, Some(stderr)) => Some(Box::new(stderr)),
            (None, None) => None,
        };
        let process = Self(child);
        let output = output.context("its output can't be read")?;
        let (sender, lines) = mpsc::channel();
        // It reads on, so that the process never waits for whoever reads its output.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                _ = sender.send(line);
            }
        });
        loop {
            let line = lines.recv_timeout(READY_TIMEOUT);
            let line = line.context("a process of this program did not become ready")?;
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(url) = address(&line) {
                return Ok((process, url.to_owned()));
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
