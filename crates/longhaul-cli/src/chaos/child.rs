//! A worker in a process of its own, to be killed.
//!
//! Never: left behind. Whatever happens to whoever holds it, it is killed and reaped.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Child as Process, Command, Stdio};

use anyhow::Context as _;

use crate::chaos::scratch::Scratch;

/// What its workers say on stderr stands in this file of the folder.
pub(crate) const LOG: &str = "worker.log";

/// A worker under way.
#[derive(Debug)]
pub(crate) struct Child(Process);

impl Child {
    /// Starts this very binary as the worker of that project.
    pub(crate) fn start(scratch: &Scratch) -> anyhow::Result<Self> {
        let binary = std::env::current_exe().context("this program can't find its own file")?;
        let log = scratch.root().join(LOG);
        let log = File::options().create(true).append(true).open(log)?;
        let child = Command::new(binary)
            .args(["worker", "--quiet", "--until-eof"])
            .current_dir(scratch.root())
            .env_clear()
            .envs(&scratch.here.env)
            // Held open while we live: however we die, it ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C at the terminal is for us: we kill it ourselves.
            .process_group(0)
            .spawn();
        Ok(Self(child.context("a worker can't be started")?))
    }

    /// An error if it has ended by itself.
    pub(crate) fn lives(&mut self) -> anyhow::Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("a worker ended by itself, with {status}"),
        }
    }

    /// Kills it with SIGKILL and reaps it.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.lives()?;
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have been reaped already; then both say so and do nothing.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
