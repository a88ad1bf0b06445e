//! A running sandbox, accessed through the toolbox that Daytona runs in it.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    ExecExit, OutputReceiver, Sandbox, SandboxCommand, SandboxEntry, SandboxError, SandboxInfo,
};
use reqwest::{Method, Url};
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::api::Api;
use super::http::{self, ApiError, ApiRequest};
use super::scripts;
use super::wire::{ExecuteResult, Phase, RemoteSandbox};

/// Timeout of the short scripts that read a state or kill commands.
pub(super) const SCRIPT_TIMEOUT: Duration = Duration::from_secs(30);

/// A running sandbox of Daytona. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct DaytonaSandbox {
    pub(super) api: Api,
    toolbox: Url,
    info: SandboxInfo,
    /// Tasks that kill abandoned commands.
    pub(super) tasks: TaskTracker,
}

impl DaytonaSandbox {
    pub(super) fn new(
        api: Api,
        sandbox: &RemoteSandbox,
        tasks: TaskTracker,
    ) -> Result<Self, SandboxError> {
        let toolbox = api.client.toolbox_url(&sandbox.toolbox_proxy_url, &sandbox.id)?;
        Ok(Self { api, toolbox, info: sandbox.info(), tasks })
    }

    /// Creates the work folder if it is missing.
    pub(super) async fn prepare(&self) -> Result<(), SandboxError> {
        let result = self.run_script(scripts::PREPARE, SCRIPT_TIMEOUT).await?;
        match result.exit_code {
            0 => Ok(()),
            _ => Err(SandboxError::Refused(format!(
                "the sandbox can't be used: {}; correct the image",
                result.result.trim()
            ))),
        }
    }

    /// Returns the address of a resource of the toolbox.
    pub(super) fn url(&self, segments: &[&str]) -> Url {
        http::extend_url(&self.toolbox, segments)
    }

    /// Runs a script that may be run twice, and returns what it prints.
    pub(super) async fn run_script(
        &self,
        script: &str,
        timeout: Duration,
    ) -> Result<ExecuteResult, SandboxError> {
        // Some versions of the toolbox split the command at spaces instead of running a shell.
        let encoded = BASE64_STANDARD.encode(script);
        let command = format!("/bin/sh -c \"echo {encoded}|base64 -d|/bin/sh\"");
        let body = json!({ "command": command, "timeout": timeout.as_secs() });
        let request = ApiRequest::json(self.url(&["process", "execute"]), &body);
        self.checked(self.api.client.json(request).await).await
    }

    /// Turns the error of a toolbox into that of a sandbox. The errors of a toolbox that does not
    /// run depend on the proxy in front of it, so the state of the sandbox is read.
    pub(super) async fn checked<T>(&self, result: Result<T, ApiError>) -> Result<T, SandboxError> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let sandbox = self.api.sandbox(&self.info.handle).await?;
        Err(match sandbox.phase() {
            Phase::Started => match error {
                ApiError::Status { status: 400 | 403 | 404, message } => {
                    SandboxError::File(message)
                }
                error => error.into(),
            },
            Phase::Deleted => SandboxError::NotFound,
            Phase::Stopped | Phase::Paused | Phase::Changing | Phase::Failed => {
                SandboxError::Unavailable(sandbox.failure())
            }
        })
    }
}

#[async_trait]
impl Sandbox for DaytonaSandbox {
    fn info(&self) -> &SandboxInfo {
        &self.info
    }

    fn workspace_dir(&self) -> Option<&Path> {
        None
    }

    async fn exec(
        &self,
        command: SandboxCommand,
        on_output: OutputReceiver<'_>,
    ) -> Result<ExecExit, SandboxError> {
        self.run_command(&command, on_output).await
    }

    async fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, SandboxError> {
        self.read_file(path, max_bytes).await
    }

    async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError> {
        self.write_file(path, content.to_vec().into()).await
    }

    async fn list(&self, path: &str) -> Result<Vec<SandboxEntry>, SandboxError> {
        self.list_folder(path).await
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        self.upload_tree(from, to).await
    }

    async fn download(&self, from: &str, to: &Path) -> Result<(), SandboxError> {
        self.download_tree(from, to).await
    }

    async fn kill_commands_before(&self, epoch: Epoch) -> Result<(), SandboxError> {
        self.kill_older_commands(epoch).await
    }

    async fn keep_alive(&self) -> Result<(), SandboxError> {
        let url = self.api.url(&["sandbox", &self.info.handle, "last-activity"]);
        let request = ApiRequest::new(Method::POST, url);
        Ok(self.api.client.bytes(request, u64::from(u16::MAX)).await.map(drop)?)
    }
}
