//! The parts of Daytona's API that several operations use: sandboxes, volumes and snapshots.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_core::port::sandbox::SandboxError;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::create_request::{self, ImageSource};
use super::http::{ApiClient, ApiError, ApiRequest};
use super::wire::{RemoteSandbox, RemoteVolume, SandboxPage};

/// Delay before the state is read again, at first and at most.
const POLL_DELAY: Duration = Duration::from_millis(50);
const POLL_DELAY_MAX: Duration = Duration::from_secs(2);

/// Maximum number of pages of a list.
const PAGES_MAX: usize = 100;

/// Delays between reads of a state that changes.
#[derive(Debug)]
pub(super) struct Poll {
    delay: Duration,
}

impl Default for Poll {
    fn default() -> Self {
        Self { delay: POLL_DELAY }
    }
}

impl Poll {
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.delay).await;
        self.delay = (self.delay * 2).min(POLL_DELAY_MAX);
    }
}

/// Daytona's API. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Api {
    pub(super) client: ApiClient,
}

impl Api {
    pub(super) fn new(client: ApiClient) -> Self {
        Self { client }
    }

    pub(super) fn url(&self, segments: &[&str]) -> Url {
        self.client.url(segments)
    }

    /// Returns the sandbox with this id or name.
    pub(super) async fn sandbox(&self, handle: &str) -> Result<RemoteSandbox, SandboxError> {
        // Another path would be another request.
        if create_request::check_name(handle).is_err() {
            return Err(SandboxError::NotFound);
        }
        let url = self.url(&["sandbox", handle]);
        Ok(self.client.json(ApiRequest::new(Method::GET, url)).await?)
    }

    /// Requests a change of a sandbox. Returns whether Daytona has accepted the request: while the
    /// state changes, it has to be sent again later.
    pub(super) async fn change(
        &self,
        method: Method,
        segments: &[&str],
    ) -> Result<bool, SandboxError> {
        let url = self.url(&[&["sandbox"], segments].concat());
        match self.client.json::<Value>(ApiRequest::new(method, url)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_status(409) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists the sandboxes with these labels.
    pub(super) async fn sandboxes(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<RemoteSandbox>, SandboxError> {
        let labels = json!(labels).to_string();
        let mut found = Vec::new();
        let mut cursor = String::new();
        for _ in 0..PAGES_MAX {
            let mut query = vec![("limit", "200"), ("labels", labels.as_str())];
            if !cursor.is_empty() {
                query.push(("cursor", &cursor));
            }
            let page = self.page(&query).await?;
            found.extend(page.items);
            cursor = match page.next_cursor {
                Some(next) if !next.is_empty() => next,
                Some(_) | None => return Ok(found),
            };
        }
        Err(SandboxError::Unavailable("Daytona's list of sandboxes has no end".to_owned()))
    }

    pub(super) async fn page(&self, query: &[(&str, &str)]) -> Result<SandboxPage, SandboxError> {
        let mut url = self.url(&["sandbox"]);
        url.query_pairs_mut().extend_pairs(query);
        Ok(self.client.json(ApiRequest::new(Method::GET, url)).await?)
    }

    /// Returns what a sandbox of this image is created from: a snapshot, if there is one with this
    /// name.
    pub(super) async fn image_source(
        &self,
        image: Option<&str>,
    ) -> Result<ImageSource, SandboxError> {
        let Some(image) = image else { return Ok(ImageSource::Default) };
        create_request::check_image(image)?;
        let url = self.url(&["snapshots", image]);
        match self.client.json::<Value>(ApiRequest::new(Method::GET, url)).await {
            Ok(_) => Ok(ImageSource::Snapshot(image.to_owned())),
            Err(error) if error.is_status(404) => Ok(ImageSource::Image(image.to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the id of the volume with this name once it can be used. A missing volume is
    /// created.
    pub(super) async fn volume(&self, name: &str) -> Result<String, SandboxError> {
        create_request::check_name(name)?;
        let mut poll = Poll::default();
        loop {
            let volume = match self.volume_by_name(name).await {
                Err(error) if error.is_status(404) => self.create_volume(name).await?,
                result => Some(result?),
            };
            match volume.as_ref().map_or("", |volume| volume.state.as_str()) {
                "ready" => return Ok(volume.map(|volume| volume.id).unwrap_or_default()),
                "error" => {
                    let reason = volume.and_then(|volume| volume.error_reason).unwrap_or_default();
                    return Err(SandboxError::Refused(format!(
                        "Daytona can't create the volume {name}: {reason}; delete it at \
                         https://app.daytona.io/dashboard/volumes"
                    )));
                }
                _ => poll.wait().await,
            }
        }
    }

    async fn volume_by_name(&self, name: &str) -> Result<RemoteVolume, ApiError> {
        let url = self.url(&["volumes", "by-name", name]);
        self.client.json(ApiRequest::new(Method::GET, url)).await
    }

    /// Creates a volume. `None` means that another worker does so at the same time.
    async fn create_volume(&self, name: &str) -> Result<Option<RemoteVolume>, SandboxError> {
        let request = ApiRequest::json(self.url(&["volumes"]), &json!({ "name": name }));
        match self.client.json(request).await {
            Ok(volume) => Ok(Some(volume)),
            Err(error) if error.is_status(409) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
