//! The sandbox providers of a process, the settings of their sandboxes, and running sandboxes as
//! tools see them.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use longhaul_core::event::environment::SandboxEvent;
use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    EPOCH_VAR, ExecExit, NetworkPolicy, OutputReceiver, Sandbox, SandboxCommand, SandboxEntry,
    SandboxError, SandboxInfo, SandboxLimits, SandboxSecret, SandboxSpec, SandboxVolume, Sandboxes,
};
use longhaul_core::time::{Clock, Millis};
use longhaul_run::input::SandboxPlan;
use tokio::sync::Notify;

use crate::agent::Agent;
use crate::agent::check::SHELL_TOOL;
use crate::agent::config::{IsolationLevel, SandboxConfig};
use crate::panics::guard;
use crate::tools::registry::ToolRegistry;

/// Label of a sandbox with the store that it belongs to.
const STORE_LABEL: &str = "longhaul.store";

/// Label of a sandbox with its id.
pub(crate) const ID_LABEL: &str = "longhaul.id";

/// Interval at which a provider is told that a sandbox with a running command is in use.
const KEEP_ALIVE_INTERVAL: Millis = Millis::from_secs(60);

/// Directories of package managers that sandboxes can share: the name in an agent file, the path in
/// the sandbox, and the environment variable that names the path.
pub const SANDBOX_CACHES: [(&str, &str, &str); 4] = [
    ("cargo", "/cache/cargo", "CARGO_HOME"),
    ("go", "/cache/go", "GOMODCACHE"),
    ("npm", "/cache/npm", "npm_config_cache"),
    ("pip", "/cache/pip", "PIP_CACHE_DIR"),
];

/// Settings of all sandboxes of a process, which agents can override.
#[derive(Debug, Clone)]
pub struct SandboxSettings {
    /// Provider of agents that name none.
    pub provider: String,
    /// Maximum number of sandboxes that run concurrently at one provider.
    pub max_running: u32,
    /// Time without use after which a sandbox is stopped. `None` means never.
    pub idle_stop: Option<Millis>,
    /// Time without use after which a provider stops a sandbox on its own. `None` means never.
    pub auto_stop: Option<Millis>,
    /// Time for which the files of a sandbox are kept after the end of its run. `None` means for
    /// ever.
    pub keep: Option<Millis>,
    /// Image of agents that name none.
    pub image: Option<String>,
    /// Secrets that programs in sandboxes may use.
    pub secrets: Vec<SandboxSecret>,
    /// Text that identifies the store, so that several stores can share a provider.
    pub store: String,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            provider: "local".to_owned(),
            max_running: 10,
            idle_stop: Some(Millis::from_secs(2 * 60)),
            auto_stop: Some(Millis::from_secs(60 * 60)),
            keep: Some(Millis::from_secs(24 * 60 * 60)),
            image: None,
            secrets: Vec::new(),
            store: "default".to_owned(),
        }
    }
}

/// The sandbox providers of a process. Cheap to clone; clones share the providers.
#[derive(Debug, Clone, Default)]
pub struct SandboxRegistry {
    providers: BTreeMap<String, Arc<dyn Sandboxes>>,
    settings: Arc<SandboxSettings>,
    /// Signal that a sandbox has become idle or is needed.
    pub(crate) changed: Arc<Notify>,
    /// Whether a driver of this process has opened a sandbox.
    pub(crate) is_used: Arc<AtomicBool>,
}

impl SandboxRegistry {
    /// Creates a registry without providers.
    pub fn new(settings: SandboxSettings) -> Self {
        Self { settings: Arc::new(settings), ..Self::default() }
    }

    /// Registers a provider under its name, replacing an existing provider with the same name.
    pub fn register(&mut self, provider: Arc<dyn Sandboxes>) {
        self.providers.insert(provider.name().to_owned(), provider);
    }

    /// Returns the providers, ordered by name.
    pub fn providers(&self) -> impl Iterator<Item = &Arc<dyn Sandboxes>> {
        self.providers.values()
    }

    pub fn settings(&self) -> &SandboxSettings {
        &self.settings
    }

    /// Returns the provider with this name. The error is a message for people.
    pub fn find_provider(&self, name: &str) -> Result<&Arc<dyn Sandboxes>, String> {
        self.providers.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
            format!(
                "This worker has no sandbox provider `{name}`. It has: {}. Change `provider` under \
                 `sandbox` of the agent or under `[sandbox]` in longhaul.toml, or start a worker \
                 that has the provider.",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )
        })
    }

    /// Returns the labels that all sandboxes of the store have.
    pub(crate) fn store_labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(STORE_LABEL.to_owned(), self.settings.store.clone())])
    }

    /// Returns the handle of a sandbox. If its creation was not answered, it is found by its label.
    pub(crate) async fn find_handle(
        &self,
        provider: &dyn Sandboxes,
        event: &SandboxEvent,
    ) -> Result<String, SandboxError> {
        if !event.handle.is_empty() {
            return Ok(event.handle.clone());
        }
        let mut labels = self.store_labels();
        labels.insert(ID_LABEL.to_owned(), event.sandbox.to_string());
        let name = sandbox_name(event);
        let found = provider.list(&labels).await?.into_iter().find(|info| info.name == name);
        Ok(found.ok_or(SandboxError::NotFound)?.handle)
    }

    /// Returns what is recorded about a new sandbox of the agent.
    pub(crate) fn plan(&self, config: &SandboxConfig) -> Result<SandboxPlan, String> {
        let settings = &self.settings;
        let provider = config.provider.as_ref().unwrap_or(&settings.provider);
        let event = SandboxEvent {
            provider: provider.clone(),
            host: self.find_provider(provider)?.host(),
            idle_stop: config.idle_stop.or(settings.idle_stop),
            keep: config.keep.or(settings.keep),
            ..SandboxEvent::default()
        };
        Ok(SandboxPlan { event, capacity: settings.max_running })
    }

    /// Returns everything that the provider needs to know about a sandbox of the agent.
    pub(crate) fn spec(&self, config: &SandboxConfig, event: &SandboxEvent) -> SandboxSpec {
        let settings = &self.settings;
        let mut labels = self.store_labels();
        labels.insert(ID_LABEL.to_owned(), event.sandbox.to_string());
        let caches = SANDBOX_CACHES
            .iter()
            .filter(|(name, ..)| config.cache.iter().any(|cache| cache == name));
        let volume = |name: &str, path: &str| SandboxVolume {
            name: format!("{}-{name}", settings.store),
            path: path.to_owned(),
        };
        let cache_volumes =
            caches.clone().map(|(name, path, _)| volume(&format!("cache-{name}"), path));
        let own_volume = config.volume.iter().map(|own| volume(&own.name, &own.path));
        let secrets =
            settings.secrets.iter().map(|secret| (secret.name.clone(), secret.placeholder()));
        let cache_vars = caches.map(|(_, path, var)| ((*var).to_owned(), (*path).to_owned()));
        SandboxSpec {
            name: sandbox_name(event),
            labels,
            image: config.image.clone().or_else(|| settings.image.clone()),
            env: cache_vars.chain(secrets).collect(),
            volumes: own_volume.chain(cache_volumes).collect(),
            limits: SandboxLimits {
                memory_bytes: config
                    .memory_mb
                    .map(|megabytes| megabytes.saturating_mul(1024 * 1024)),
                cpus: config.cpus,
                ..SandboxLimits::default()
            },
            network: network_policy(&config.network),
            min_isolation: config.min_isolation(),
            auto_stop: config.auto_stop.or(settings.auto_stop),
            secrets: settings.secrets.clone(),
        }
    }
}

/// Returns the result of work on a sandbox, or an error after this time.
pub(crate) async fn with_timeout<T>(
    (clock, timeout): (&dyn Clock, Millis),
    work: impl Future<Output = Result<T, SandboxError>>,
) -> Result<T, SandboxError> {
    let unavailable =
        |error: crate::panics::GuardError| SandboxError::Unavailable(error.to_string());
    guard(clock, timeout, work).await.map_err(unavailable)?
}

/// Returns the name of a sandbox at its provider. It is derived from the id, so that a sandbox whose
/// creation was not answered is found again.
fn sandbox_name(event: &SandboxEvent) -> String {
    format!("lh-{}", event.sandbox.to_string().replace('_', "-"))
}

fn network_policy(network: &[String]) -> NetworkPolicy {
    match network {
        [] => NetworkPolicy::None,
        [only] if only == "none" => NetworkPolicy::None,
        [only] if only == "host" => NetworkPolicy::Host,
        hosts => NetworkPolicy::Hosts(hosts.to_vec()),
    }
}

impl Agent {
    /// Returns the settings of the sandbox in which the tools of the agent work. `None` means that
    /// they work on this machine.
    pub fn sandbox_config(&self) -> Option<&SandboxConfig> {
        self.sandbox.as_ref().filter(|sandbox| sandbox.isolation != IsolationLevel::None)
    }

    /// Returns the agent as it executes runs without a git repository: without the tools that need
    /// one, and without a sandbox that only runs with a repository have.
    pub(crate) fn without_repo(mut self: Arc<Self>, tools: &ToolRegistry) -> Arc<Self> {
        let needs_repo = |name: &str| {
            let tool = tools.find_tool(name).and_then(|registered| registered.tool.as_ref());
            tool.is_some_and(|tool| tool.needs_repo())
        };
        let loses_sandbox = self.sandbox.as_ref().is_some_and(|sandbox| sandbox.only_for_repo);
        if loses_sandbox || self.tools.iter().any(|name| needs_repo(name)) {
            let agent = Arc::make_mut(&mut self);
            agent.tools.retain(|name| !(needs_repo(name) || loses_sandbox && name == SHELL_TOOL));
            agent.sandbox = agent.sandbox.take().filter(|_| !loses_sandbox);
        }
        self
    }
}

/// A running sandbox under one claim of its run, as tools see it. Commands carry the epoch of the
/// claim, and keep the sandbox alive while they run.
#[derive(Debug)]
pub(crate) struct ClaimedSandbox {
    inner: Arc<dyn Sandbox>,
    epoch: Epoch,
    clock: Arc<dyn Clock>,
    is_lost: AtomicBool,
}

impl ClaimedSandbox {
    pub(crate) const fn new(inner: Arc<dyn Sandbox>, epoch: Epoch, clock: Arc<dyn Clock>) -> Self {
        Self { inner, epoch, clock, is_lost: AtomicBool::new(false) }
    }

    /// Returns whether the provider no longer knows the sandbox.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    fn check<T>(&self, result: Result<T, SandboxError>) -> Result<T, SandboxError> {
        if matches!(result, Err(SandboxError::NotFound)) {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Tells the provider from time to time that the sandbox is in use, until the future is dropped.
    async fn keep_alive_forever(&self) {
        loop {
            self.clock.sleep(KEEP_ALIVE_INTERVAL).await;
            if let Err(error) = self.inner.keep_alive().await {
                tracing::warn!(sandbox = %self.inner.info().name, %error, "a sandbox in use could not be kept alive");
            }
        }
    }
}

#[async_trait]
impl Sandbox for ClaimedSandbox {
    fn info(&self) -> &SandboxInfo {
        self.inner.info()
    }

    fn workspace_dir(&self) -> Option<&Path> {
        self.inner.workspace_dir()
    }

    async fn exec(
        &self,
        mut command: SandboxCommand,
        on_output: OutputReceiver<'_>,
    ) -> Result<ExecExit, SandboxError> {
        command.epoch = self.epoch;
        command.env.insert(EPOCH_VAR.to_owned(), self.epoch.to_string());
        let exec = pin!(self.inner.exec(command, on_output));
        let result = tokio::select! {
            biased;
            result = exec => result,
            () = self.keep_alive_forever() => Err(SandboxError::Unavailable(String::new())),
        };
        self.check(result)
    }

    async fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, SandboxError> {
        self.check(self.inner.read(path, max_bytes).await)
    }

    async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError> {
        self.check(self.inner.write(path, content).await)
    }

    async fn list(&self, path: &str) -> Result<Vec<SandboxEntry>, SandboxError> {
        self.check(self.inner.list(path).await)
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        self.check(self.inner.upload(from, to).await)
    }

    async fn download(&self, from: &str, to: &Path) -> Result<(), SandboxError> {
        self.check(self.inner.download(from, to).await)
    }

    async fn kill_commands_before(&self, epoch: Epoch) -> Result<(), SandboxError> {
        self.check(self.inner.kill_commands_before(epoch).await)
    }

    async fn keep_alive(&self) -> Result<(), SandboxError> {
        self.check(self.inner.keep_alive().await)
    }
}
