//! The sandbox providers of a project. A provider is opened when a run first needs it, because
//! opening it starts programs or connects to a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::sandbox::{
    ProviderStatus, Sandbox, SandboxError, SandboxInfo, SandboxSecret, SandboxSpec, Sandboxes,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::Clock;
use longhaul_engine::sandboxes::{SandboxRegistry, SandboxSettings};
use tokio::sync::OnceCell;

use crate::config::settings::Config;

/// Returns the sandbox providers of a project, with their settings.
pub fn sandbox_registry(config: &Config, clock: &Arc<dyn Clock>) -> SandboxRegistry {
    let mut registry = SandboxRegistry::new(sandbox_settings(config));
    for provider in providers::all(config, clock) {
        registry.register(Arc::new(provider));
    }
    registry
}

fn sandbox_settings(config: &Config) -> SandboxSettings {
    let defaults = SandboxSettings::default();
    let text = |path| config.text(path).map(str::to_owned);
    // Several projects can share a provider, such as the Docker engine of the machine.
    let data = config.data_folder();
    let data = data.canonicalize().unwrap_or(data);
    let hash = Hash::digest(data.as_os_str().as_encoded_bytes()).to_string();
    let digits = hash.chars().filter(char::is_ascii_hexdigit).rev().take(12);
    SandboxSettings {
        provider: text("sandbox.provider").unwrap_or(defaults.provider),
        max_running: config
            .integer("sandbox.max_running")
            .map_or(defaults.max_running, |number| u32::try_from(number).unwrap_or(u32::MAX)),
        idle_stop: config.duration("sandbox.idle_stop").or(defaults.idle_stop),
        auto_stop: config.duration("sandbox.auto_stop").or(defaults.auto_stop),
        keep: config.duration("sandbox.keep").or(defaults.keep),
        image: text("sandbox.image"),
        secrets: sandbox_secrets(config),
        store: digits.collect(),
    }
}

/// Returns the secrets that programs in sandboxes may send to certain hosts.
fn sandbox_secrets(config: &Config) -> Vec<SandboxSecret> {
    let names = config.secret_names();
    let secrets = names.iter().filter_map(|name| {
        let hosts = config.text_list(&format!("secrets.{name}.hosts"));
        let value = config.env.var(name).filter(|_| !hosts.is_empty())?;
        Some(SandboxSecret { name: name.clone(), value: value.to_owned(), hosts })
    });
    secrets.collect()
}

/// Returns why a list of hosts in an agent file is not valid.
pub(crate) fn host_list_problem(hosts: &[String]) -> Option<String> {
    providers::host_list_problem(hosts)
}

/// Opens a provider.
type OpenProvider = Box<dyn Fn() -> OpeningProvider + Send + Sync>;

type OpeningProvider = futures_util::future::BoxFuture<'static, OpenedProvider>;

type OpenedProvider = Result<Arc<dyn Sandboxes>, SandboxError>;

/// A provider that is opened at its first use.
struct LazySandboxes {
    name: &'static str,
    open: OpenProvider,
    opened: OnceCell<Arc<dyn Sandboxes>>,
}

impl std::fmt::Debug for LazySandboxes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazySandboxes").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LazySandboxes {
    /// Returns the provider. A failure is not remembered, because a person may remove its cause.
    async fn provider(&self) -> Result<&dyn Sandboxes, SandboxError> {
        let provider = self.opened.get_or_try_init(|| (self.open)()).await?;
        Ok(&**provider)
    }
}

#[async_trait]
impl Sandboxes for LazySandboxes {
    fn name(&self) -> &str {
        self.name
    }

    fn host(&self) -> Option<String> {
        self.opened.get().and_then(|provider| provider.host())
    }

    async fn status(&self) -> ProviderStatus {
        match self.provider().await {
            Ok(provider) => provider.status().await,
            Err(error) => ProviderStatus { isolation: Err(error.to_string()), notes: Vec::new() },
        }
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        self.provider().await?.create(spec).await
    }

    async fn start(
        &self,
        handle: &str,
        spec: &SandboxSpec,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        self.provider().await?.start(handle, spec).await
    }

    async fn get(&self, handle: &str) -> Result<SandboxInfo, SandboxError> {
        self.provider().await?.get(handle).await
    }

    async fn list(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<SandboxInfo>, SandboxError> {
        self.provider().await?.list(labels).await
    }

    async fn stop(&self, handle: &str) -> Result<(), SandboxError> {
        self.provider().await?.stop(handle).await
    }

    async fn delete(&self, handle: &str) -> Result<(), SandboxError> {
        self.provider().await?.delete(handle).await
    }
}

#[cfg(feature = "sandbox")]
mod providers {
    use longhaul_sandbox::daytona::{DaytonaOptions, DaytonaSandboxes};
    use longhaul_sandbox::docker::{DockerOptions, DockerSandboxes};
    use longhaul_sandbox::egress::HostList;
    use longhaul_sandbox::launch;
    use longhaul_sandbox::local::{LocalOptions, LocalSandboxes};

    use super::*;

    /// Image of the containers of agents that name none.
    const DOCKER_IMAGE: &str = "debian:stable-slim";

    pub(super) fn all(config: &Config, clock: &Arc<dyn Clock>) -> Vec<LazySandboxes> {
        vec![local(config, clock), docker(config), daytona(config)]
    }

    pub(super) fn host_list_problem(hosts: &[String]) -> Option<String> {
        HostList::parse(hosts).err()
    }

    fn lazy(
        name: &'static str,
        open: impl Fn() -> OpeningProvider + Send + Sync + 'static,
    ) -> LazySandboxes {
        LazySandboxes { name, open: Box::new(open), opened: OnceCell::new() }
    }

    fn docker(config: &Config) -> LazySandboxes {
        let options = DockerOptions {
            socket: None,
            dir: config.data_folder().join("sandboxes-docker"),
            image: DOCKER_IMAGE.to_owned(),
            host: host_name(),
            runtime: None,
        };
        lazy("docker", move || {
            let provider = DockerSandboxes::new(options.clone());
            Box::pin(async move { Ok(Arc::new(provider) as Arc<dyn Sandboxes>) })
        })
    }

    fn daytona(config: &Config) -> LazySandboxes {
        let key = config.env.var("DAYTONA_API_KEY").map(str::to_owned);
        let url = config.env.var("DAYTONA_API_URL").map(str::to_owned);
        let target = config.env.var("DAYTONA_TARGET").map(str::to_owned);
        lazy("daytona", move || {
            let provider = key.clone().ok_or_else(|| {
                SandboxError::Refused(
                    "the provider `daytona` needs an API key: set DAYTONA_API_KEY".to_owned(),
                )
            });
            let (url, target) = (url.clone(), target.clone());
            let provider = provider.and_then(|key| {
                let options = DaytonaOptions::new(key);
                let url = url.unwrap_or_else(|| options.url.clone());
                DaytonaSandboxes::new(&DaytonaOptions { url, target, ..options })
            });
            Box::pin(async move { Ok(Arc::new(provider?) as Arc<dyn Sandboxes>) })
        })
    }

    fn host_name() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    fn local(config: &Config, clock: &Arc<dyn Clock>) -> LazySandboxes {
        let options = LocalOptions {
            dir: config.data_folder().join("sandboxes"),
            host: host_name(),
            read_only: Vec::new(),
            launcher: launch::launcher_path(),
            project: Some(config.root.clone()),
            clock: Arc::clone(clock),
        };
        lazy("local", move || {
            let options = options.clone();
            Box::pin(async move {
                let provider = LocalSandboxes::open(options).await?;
                Ok(Arc::new(provider) as Arc<dyn Sandboxes>)
            })
        })
    }
}

#[cfg(not(feature = "sandbox"))]
mod providers {
    use super::*;

    /// Returns no provider: this build has none.
    pub(super) fn all(_: &Config, _: &Arc<dyn Clock>) -> Vec<LazySandboxes> {
        Vec::new()
    }

    pub(super) const fn host_list_problem(_: &[String]) -> Option<String> {
        None
    }
}
