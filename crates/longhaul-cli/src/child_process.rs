//! A child process that runs this program: a worker to be killed.
//!
//! Invariant: the process is killed and reaped when its handle is dropped.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, bail};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;

/// Interval between checks whether a process has exited.
const EXIT_POLL_INTERVAL: Millis = Millis(20);

/// A running child process, which is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct ChildProcess(Child);

impl ChildProcess {
    /// Starts a worker in a folder, with only these environment variables.
    pub(crate) fn start_worker<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        folder: &Path,
        env: impl IntoIterator<Item = (K, V)>,
        stderr: impl Into<Stdio>,
    ) -> anyhow::Result<Self> {
        let binary =
            std::env::current_exe().context("the path of this executable can't be determined")?;
        let child = Command::new(binary)
            .args(["worker", "--quiet", "--until-eof"])
            .current_dir(folder)
            .env_clear()
            .envs(env)
            // Kept open while this process lives. When it dies, the child sees EOF and exits.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Ctrl-C at the terminal is for this process, which stops the worker itself.
            .process_group(0)
            .spawn();
        Ok(Self(child.context("the child process can't be started")?))
    }

    /// Fails if the process has exited.
    pub(crate) fn check_running(&mut self) -> anyhow::Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a worker exited unexpectedly: {status}"),
        }
    }

    /// Kills the process with SIGKILL and reaps it. Fails if the process had already exited.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.check_running()?;
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Closes the process's stdin, so that it shuts down cleanly, and waits until it exits.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        drop(self.0.stdin.take());
        self.wait().await?;
        Ok(())
    }

    /// Waits until the process exits.
    pub(crate) async fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status),
                None => SystemClock.sleep(EXIT_POLL_INTERVAL).await,
            }
        }
    }

    /// Returns what an exited process wrote to stderr, if stderr is piped.
    pub(crate) fn read_stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            _ = stderr.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // No effect if the process was reaped already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
