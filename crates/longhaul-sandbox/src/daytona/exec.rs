//! Commands in a sandbox: a session of the toolbox runs each of them, and their output is read from
//! files in the sandbox.
//!
//! The logs of sessions are not used: the toolbox splits them into lines, which changes binary
//! output, and returns all of a log each time.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    ExecExit, ExecStatus, OutputReceiver, OutputStream, SandboxCommand, SandboxError,
};
use reqwest::Method;
use serde_json::json;
use tokio::runtime::Handle;

use super::http::ApiRequest;
use super::scripts::{self, OutputPosition};
use super::toolbox::{DaytonaSandbox, SCRIPT_TIMEOUT};
use super::wire::RemoteSession;

/// Number of polls, of five seconds each, after which a command that has not begun is given up.
const STARTING_POLLS_MAX: u32 = 6;

/// Delay between two polls of a command that writes output all the time.
const OUTPUT_DELAY: Duration = Duration::from_millis(50);

/// Maximum size of the response of a request without content.
const EMPTY_BYTES_MAX: u64 = 1 << 16;

/// Exit codes above this one mean that a signal killed the command: the shell adds the signal.
const SIGNAL_BASE: i32 = 128;
const SIGNAL_MAX: i32 = 64;

impl DaytonaSandbox {
    pub(super) async fn run_command(
        &self,
        command: &SandboxCommand,
        on_output: OutputReceiver<'_>,
    ) -> Result<ExecExit, SandboxError> {
        let name = format!("{}{}-{}", scripts::COMMAND_PREFIX, command.epoch.0, random_hex()?);
        let script = scripts::run(&name, command)?;
        let mut job = Job { sandbox: self, name, positions: [(0, 0); 2], is_running: true };
        let work = async {
            job.start(script, &command.stdin).await?;
            job.follow(on_output).await
        };
        let code = match command.timeout {
            None => Some(work.await?),
            Some(limit) => {
                let limit = Duration::from_millis(limit.0);
                tokio::time::timeout(limit, work).await.ok().transpose()?
            }
        };
        let status = match code {
            Some(code) if (1..=SIGNAL_MAX).contains(&(code - SIGNAL_BASE)) => {
                ExecStatus::Signaled(code - SIGNAL_BASE)
            }
            Some(code) => ExecStatus::Exited(code),
            None => {
                self.kill(&job.name, u64::MAX).await?;
                job.poll(on_output).await?;
                ExecStatus::TimedOut
            }
        };
        job.is_running = false;
        Ok(ExecExit { status, refusals: BTreeSet::new() })
    }

    pub(super) async fn kill_older_commands(&self, epoch: Epoch) -> Result<(), SandboxError> {
        self.kill(scripts::COMMAND_PREFIX, epoch.0).await?;
        let request = ApiRequest::new(Method::GET, self.url(&["process", "session"]));
        let sessions: Vec<RemoteSession> =
            self.checked(self.api.client.json(request).await).await?;
        for session in sessions {
            let name = session.session_id.strip_prefix(scripts::COMMAND_PREFIX);
            let started_at = name.and_then(|name| name.split_once('-')?.0.parse::<u64>().ok());
            if started_at.is_some_and(|started_at| started_at < epoch.0) {
                self.delete_session(&session.session_id).await?;
            }
        }
        Ok(())
    }

    async fn kill(&self, prefix: &str, epoch_limit: u64) -> Result<(), SandboxError> {
        let script = scripts::kill(prefix, epoch_limit);
        match self.run_script(&script, SCRIPT_TIMEOUT).await?.exit_code {
            0 => Ok(()),
            _ => Err(SandboxError::Unavailable(
                "processes of a command start faster than they are killed; stop the sandbox"
                    .to_owned(),
            )),
        }
    }

    /// Deletes a session of the toolbox, which kills the processes that the session still has.
    async fn delete_session(&self, name: &str) -> Result<(), SandboxError> {
        let url = self.url(&["process", "session", name]);
        let request = ApiRequest::new(Method::DELETE, url);
        match self.api.client.bytes(request, EMPTY_BYTES_MAX).await {
            Err(error) if error.is_status(404) => Ok(()),
            result => self.checked(result.map(drop)).await,
        }
    }

    /// Deletes what a command has left, and kills it if it has not ended.
    async fn clean_up(&self, name: &str, is_running: bool) -> Result<(), SandboxError> {
        if is_running {
            self.kill(name, u64::MAX).await?;
        }
        self.delete_session(name).await?;
        self.run_script(&scripts::remove(name), SCRIPT_TIMEOUT).await.map(drop)
    }
}

/// A command that was started or is about to be. When it is dropped, a task deletes what is left of
/// the command.
#[derive(Debug)]
struct Job<'a> {
    sandbox: &'a DaytonaSandbox,
    /// Name of the command and of its session.
    name: String,
    /// Positions up to which both streams were received.
    positions: [OutputPosition; 2],
    is_running: bool,
}

/// What a poll has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobState {
    Starting,
    Running,
    /// The command has written more than fits into a response.
    HasMore,
    Ended(i32),
}

impl Job<'_> {
    async fn start(&self, script: String, stdin: &[u8]) -> Result<(), SandboxError> {
        let sandbox = self.sandbox;
        let dir = scripts::command_dir(&self.name);
        if !stdin.is_empty() {
            sandbox.write_file(&format!("{dir}/stdin"), stdin.to_vec().into()).await?;
        }
        sandbox.write_file(&format!("{dir}/run"), script.into()).await?;
        let url = sandbox.url(&["process", "session"]);
        let request = ApiRequest::json(url, &json!({ "sessionId": self.name }));
        let created = match sandbox.api.client.bytes(request, EMPTY_BYTES_MAX).await {
            // The response to the first attempt was lost.
            Err(error) if error.is_status(409) => Ok(Vec::new()),
            result => result,
        };
        sandbox.checked(created).await?;
        let url = sandbox.url(&["process", "session", &self.name, "exec"]);
        let body = json!({ "command": scripts::start(&self.name), "runAsync": true });
        let request = ApiRequest::json(url, &body);
        sandbox.checked(sandbox.api.client.bytes(request, EMPTY_BYTES_MAX).await).await?;
        Ok(())
    }

    /// Passes on the output of the command until it has ended, and returns its exit code.
    async fn follow(&mut self, on_output: OutputReceiver<'_>) -> Result<i32, SandboxError> {
        let mut starting_polls = 0;
        loop {
            match self.poll(on_output).await? {
                JobState::Ended(code) => return Ok(code),
                JobState::HasMore => continue,
                JobState::Running => {}
                JobState::Starting if starting_polls == STARTING_POLLS_MAX => {
                    return Err(SandboxError::Unavailable(
                        "the toolbox of the sandbox does not start the command; stop the sandbox"
                            .to_owned(),
                    ));
                }
                JobState::Starting => starting_polls += 1,
            }
            tokio::time::sleep(OUTPUT_DELAY).await;
        }
    }

    /// Waits up to five seconds for output or the end of the command. The command has ended once
    /// all its output was received.
    async fn poll(&mut self, on_output: OutputReceiver<'_>) -> Result<JobState, SandboxError> {
        let script = scripts::poll(&self.name, self.positions);
        let text = self.sandbox.run_script(&script, SCRIPT_TIMEOUT).await?.result;
        let invalid =
            || SandboxError::Unavailable("its toolbox gives an invalid result".to_owned());
        let (head, rest) = text.split_once('\n').ok_or_else(invalid)?;
        let mut fields = head.split(' ');
        let state = fields.next().unwrap_or_default();
        let numbers: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        let [code, out_file, out_offset, err_file, err_offset] = numbers[..] else {
            return Err(invalid());
        };
        let (out, err) = rest.split_once(".\n").unwrap_or_default();
        let mut is_full = false;
        for (index, (stream, encoded, (file, offset))) in [
            (OutputStream::Stdout, out, (out_file, out_offset)),
            (OutputStream::Stderr, err, (err_file, err_offset)),
        ]
        .into_iter()
        .enumerate()
        {
            let chunk = decode(encoded).ok_or_else(invalid)?;
            self.positions[index] = (file, offset + chunk.len() as u64);
            is_full |= chunk.len() as u64 == scripts::CHUNK_BYTES;
            if !chunk.is_empty() {
                on_output(stream, &chunk);
            }
        }
        match state {
            "end" => Ok(JobState::Ended(i32::try_from(code).unwrap_or(-1))),
            "run" if is_full => Ok(JobState::HasMore),
            "run" => Ok(JobState::Running),
            "new" => Ok(JobState::Starting),
            _ => Err(SandboxError::Unavailable(
                "the files of the command in /tmp of the sandbox were deleted".to_owned(),
            )),
        }
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        let sandbox = self.sandbox.clone();
        let (name, is_running) = (std::mem::take(&mut self.name), self.is_running);
        let clean_up = async move {
            if let Err(error) = sandbox.clean_up(&name, is_running).await {
                tracing::warn!(command = name, %error, "can't clean up after a command");
            }
        };
        // Without a runtime nothing can be sent; a later claim kills the command.
        if let Ok(runtime) = Handle::try_current() {
            self.sandbox.tasks.spawn_on(clean_up, &runtime);
        }
    }
}

/// Decodes base64 that is broken into lines.
pub(super) fn decode(encoded: &str) -> Option<Vec<u8>> {
    let joined: String = encoded.split_ascii_whitespace().collect();
    BASE64_STANDARD.decode(joined).ok()
}

/// Returns a random number with 16 digits.
pub(super) fn random_hex() -> Result<String, SandboxError> {
    let random = getrandom::u64().map_err(|error| {
        SandboxError::Unavailable(format!("this machine gives no random numbers: {error}"))
    })?;
    Ok(format!("{random:016x}"))
}
