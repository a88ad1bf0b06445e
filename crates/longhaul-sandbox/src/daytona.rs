//! Sandboxes of Daytona, on machines of its own.
//!
//! The image must contain a POSIX shell, `tar` and `base64`, and its user must be able to create the
//! work folder, directly or by `sudo`. Secrets are refused: Daytona replaces placeholders only by
//! secrets of its own vault.

mod api;
mod create_request;
mod exec;
mod files;
mod http;
mod scripts;
mod toolbox;
mod transfer;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_core::port::sandbox::{
    Isolation, ProviderStatus, Sandbox, SandboxError, SandboxInfo, SandboxSpec, Sandboxes,
};
use reqwest::Method;
use tokio_util::task::TaskTracker;

use self::api::{Api, Poll};
use self::http::{ApiClient, ApiRequest};
use self::toolbox::DaytonaSandbox;
use self::wire::{Phase, RemoteSandbox};

/// Default of [`DaytonaOptions::change_timeout`]. The first sandbox of an image is built meanwhile.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(900);

/// Maximum number of times that a sandbox is started because it has stopped again.
const STARTS_MAX: u32 = 3;

/// How Daytona is reached.
#[derive(Clone)]
pub struct DaytonaOptions {
    /// Address of the API, such as `https://app.daytona.io/api`.
    pub url: String,
    pub api_key: String,
    /// Region of new sandboxes. `None` means the default of the organization.
    pub target: Option<String>,
    /// Certificates, in PEM, of authorities that are trusted in addition to those of the machine.
    pub ca_pem: Option<Vec<u8>>,
    /// Maximum time for a sandbox to start, stop or disappear.
    pub change_timeout: Duration,
}

impl DaytonaOptions {
    /// Creates options for Daytona's own service.
    pub fn new(api_key: String) -> Self {
        let url = "https://app.daytona.io/api".to_owned();
        Self { url, api_key, target: None, ca_pem: None, change_timeout: CHANGE_TIMEOUT }
    }
}

impl fmt::Debug for DaytonaOptions {
    /// Formats the options without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("DaytonaOptions");
        out.field("url", &self.url).field("target", &self.target).finish_non_exhaustive()
    }
}

/// The provider of sandboxes at Daytona.
#[derive(Debug)]
pub struct DaytonaSandboxes {
    api: Api,
    target: Option<String>,
    change_timeout: Duration,
    /// Tasks that kill abandoned commands.
    tasks: TaskTracker,
}

impl DaytonaSandboxes {
    /// Creates the provider. Nothing is sent to Daytona yet.
    ///
    /// # Errors
    /// Returns an error if an option can't be used.
    pub fn new(options: &DaytonaOptions) -> Result<Self, SandboxError> {
        Ok(Self {
            api: Api::new(ApiClient::new(options)?),
            target: options.target.clone(),
            change_timeout: options.change_timeout,
            tasks: TaskTracker::new(),
        })
    }

    /// Waits until the commands of all abandoned calls are killed.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Waits for a change of a sandbox, up to the timeout.
    async fn within_timeout<T>(
        &self,
        change: &str,
        work: impl Future<Output = Result<T, SandboxError>> + Send,
    ) -> Result<T, SandboxError> {
        tokio::time::timeout(self.change_timeout, work).await.unwrap_or_else(|_| {
            Err(SandboxError::Unavailable(format!(
                "the sandbox is not {change} after {} s; its state is shown at \
                 https://app.daytona.io/dashboard/sandboxes",
                self.change_timeout.as_secs()
            )))
        })
    }

    /// Starts a sandbox if needed, and returns it once it is started.
    async fn start_and_wait(&self, handle: &str) -> Result<RemoteSandbox, SandboxError> {
        let mut poll = Poll::default();
        let mut starts = 0;
        loop {
            let sandbox = self.api.sandbox(handle).await?;
            match sandbox.phase() {
                Phase::Started => return Ok(sandbox),
                Phase::Deleted => return Err(SandboxError::NotFound),
                Phase::Failed => return Err(SandboxError::Refused(sandbox.failure())),
                Phase::Stopped | Phase::Paused if starts == STARTS_MAX => {
                    return Err(SandboxError::Unavailable(sandbox.failure()));
                }
                Phase::Stopped | Phase::Paused => {
                    // 409 means that the state is changing at this time.
                    let is_sent = self.api.change(Method::POST, &[&sandbox.id, "start"]).await?;
                    starts += u32::from(is_sent);
                }
                Phase::Changing => {}
            }
            poll.wait().await;
        }
    }

    async fn stop_and_wait(&self, handle: &str) -> Result<(), SandboxError> {
        let mut poll = Poll::default();
        loop {
            let sandbox = self.api.sandbox(handle).await?;
            match sandbox.phase() {
                Phase::Stopped | Phase::Failed => return Ok(()),
                Phase::Deleted => return Err(SandboxError::NotFound),
                Phase::Started | Phase::Paused => {
                    match self.api.change(Method::POST, &[&sandbox.id, "stop"]).await {
                        // A stop of a sandbox that is already stopped is refused. The state shows
                        // whether that was the reason.
                        Err(error @ SandboxError::Refused(_)) => {
                            let now = self.api.sandbox(handle).await?.phase();
                            if matches!(now, Phase::Started | Phase::Paused) {
                                return Err(error);
                            }
                        }
                        result => _ = result?,
                    }
                }
                Phase::Changing => {}
            }
            poll.wait().await;
        }
    }

    async fn delete_and_wait(&self, handle: &str) -> Result<(), SandboxError> {
        let mut poll = Poll::default();
        let mut is_sent = false;
        loop {
            let sandbox = match self.api.sandbox(handle).await {
                Err(SandboxError::NotFound) => return Ok(()),
                result => result?,
            };
            if sandbox.state == "destroyed" {
                return Ok(());
            }
            if !is_sent && sandbox.phase() != Phase::Deleted {
                match self.api.change(Method::DELETE, &[&sandbox.id]).await {
                    Err(SandboxError::NotFound) => return Ok(()),
                    result => is_sent = result?,
                }
            }
            poll.wait().await;
        }
    }

    /// Requests a sandbox, or finds the one with this name, and returns its handle.
    async fn request_sandbox(&self, spec: &SandboxSpec) -> Result<String, SandboxError> {
        let source = self.api.image_source(spec.image.as_deref()).await?;
        let mut volumes = Vec::new();
        for volume in &spec.volumes {
            volumes.push((self.api.volume(&volume.name).await?, volume.path.clone()));
        }
        let mut body = create_request::build(spec, &source, &volumes)?;
        if let Some(target) = &self.target {
            body["target"] = target.as_str().into();
        }
        let mut poll = Poll::default();
        loop {
            let request = ApiRequest::json(self.api.url(&["sandbox"]), &body);
            let error = match self.api.client.json::<RemoteSandbox>(request).await {
                Ok(sandbox) => return Ok(sandbox.id),
                Err(error) => error,
            };
            if !error.is_status(409) {
                return Err(error.into());
            }
            match self.api.sandbox(&spec.name).await {
                // The name is free once the old sandbox is gone.
                Err(SandboxError::NotFound) => {}
                Ok(found) if found.phase() == Phase::Deleted => {}
                result => return result.map(|found| found.id),
            }
            poll.wait().await;
        }
    }

    async fn open(&self, handle: &str) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let sandbox = self.start_and_wait(handle).await?;
        let sandbox = DaytonaSandbox::new(self.api.clone(), &sandbox, self.tasks.clone())?;
        sandbox.prepare().await?;
        Ok(Arc::new(sandbox))
    }
}

#[async_trait]
impl Sandboxes for DaytonaSandboxes {
    fn name(&self) -> &'static str {
        "daytona"
    }

    fn host(&self) -> Option<String> {
        None
    }

    async fn status(&self) -> ProviderStatus {
        let result = self.api.page(&[("limit", "1")]).await;
        let note = "Daytona can't use secrets for hosts: an agent with such secrets is refused.";
        ProviderStatus {
            isolation: result.map(|_| Isolation::Remote).map_err(|error| error.to_string()),
            notes: vec![note.to_owned()],
        }
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        create_request::check_name(&spec.name)?;
        let created = async {
            let handle = self.request_sandbox(spec).await?;
            self.open(&handle).await
        };
        self.within_timeout("started", created).await
    }

    async fn start(
        &self,
        handle: &str,
        _spec: &SandboxSpec,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        self.within_timeout("started", self.open(handle)).await
    }

    async fn get(&self, handle: &str) -> Result<SandboxInfo, SandboxError> {
        let sandbox = self.api.sandbox(handle).await?;
        match sandbox.state.as_str() {
            "destroyed" => Err(SandboxError::NotFound),
            _ => Ok(sandbox.info()),
        }
    }

    async fn list(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<SandboxInfo>, SandboxError> {
        let found = self.api.sandboxes(labels).await?;
        let found = found.iter().filter(|sandbox| sandbox.has_labels(labels));
        Ok(found.map(RemoteSandbox::info).collect())
    }

    async fn stop(&self, handle: &str) -> Result<(), SandboxError> {
        self.within_timeout("stopped", self.stop_and_wait(handle)).await
    }

    async fn delete(&self, handle: &str) -> Result<(), SandboxError> {
        self.within_timeout("deleted", self.delete_and_wait(handle)).await
    }
}
