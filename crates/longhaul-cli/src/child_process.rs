//! This program as a process of its own: a worker to be killed, a server or a mock to be measured.
//!
//! Invariant: it is never left behind. Whatever happens to its holder, it is killed and reaped.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use serde_json::Value;

/// How long a process may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// How often it is checked whether a process has ended.
const EXIT_POLL_INTERVAL: Millis = Millis(20);

/// A process under way.
#[derive(Debug)]
pub(crate) struct ChildProcess(Child);

impl ChildProcess {
    /// A command of this program, in a folder and with these variables only.
    pub(crate) fn command<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        args: &[&str],
        folder: &Path,
        env: impl IntoIterator<Item = (K, V)>,
    ) -> anyhow::Result<Command> {
        let binary = std::env::current_exe().context("this program can't find its own file")?;
        let mut command = Command::new(binary);
        command
            .args(args)
            .current_dir(folder)
            .env_clear()
            .envs(env)
            // Held open while its holder lives: however that one dies, the process ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(command)
    }

    /// Starts a process.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.spawn().context("this program can't be started")?;
        Ok(Self(child))
    }

    /// Starts a process, and waits until its output has a line of JSON that names its address.
    pub(crate) fn start_server(command: &mut Command) -> anyhow::Result<(Self, String)> {
        let mut process = Self::start(command)?;
        let stdout = process.0.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let stderr = process.0.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let output = stdout.or(stderr).context("its output can't be read")?;
        let (sender, lines) = mpsc::channel();
        // It reads on, so that the process never waits for a reader of its output.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                _ = sender.send(line);
            }
        });
        loop {
            let line = lines.recv_timeout(READY_TIMEOUT);
            let line = line.context("a process of this program did not become ready")?;
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if let (Some("ready"), Some(url)) = (line["message"].as_str(), line["url"].as_str()) {
                return Ok((process, url.to_owned()));
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Fails if it has ended by itself.
    pub(crate) fn check_running(&mut self) -> anyhow::Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a worker ended by itself, with {status}"),
        }
    }

    /// Kills it with SIGKILL and reaps it. Fails if it has ended by itself.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.check_running()?;
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Closes its stdin, so that it ends in good order, and waits for that.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        drop(self.0.stdin.take());
        self.wait().await?;
        Ok(())
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status),
                None => SystemClock.sleep(EXIT_POLL_INTERVAL).await,
            }
        }
    }

    /// What a process that has ended wrote to stderr, where that is piped.
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
        // Where it was reaped already, both do nothing.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
