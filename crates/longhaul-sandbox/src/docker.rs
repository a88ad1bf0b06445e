//! Sandboxes that are containers of a Docker engine on this machine, or of Podman, which speaks the
//! same protocol.
//!
//! The work folder and the home folder are directories of this machine that are mounted into the
//! container. Everything else is in the container and ends with it, except for volumes.

mod archive;
mod container;
mod engine;
mod exec;
mod host_files;
mod kill_script;
mod sandbox;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
};
use futures_util::TryStreamExt as _;
use longhaul_core::port::sandbox::{
    Isolation, ProviderStatus, Sandbox, SandboxError, SandboxInfo, SandboxSpec, Sandboxes,
};
use rustix::process::{getgid, getuid};

use container::{HostDirs, NAME_LABEL, User};
use engine::{Engine, error_of, is_conflict, is_not_found, shorten};
use exec::Commands;
use sandbox::DockerSandbox;

/// Maximum time for pulling an image.
const PULL_TIMEOUT: Duration = Duration::from_secs(900);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of times that a state of a container is awaited.
const POLLS_MAX: u32 = 300;

/// Settings of the provider.
#[derive(Debug, Clone)]
pub struct DockerOptions {
    /// Unix socket of the engine. `None` means the one of `DOCKER_HOST`, or else the first usual
    /// socket that exists.
    pub socket: Option<PathBuf>,
    /// Directory of this machine for the files of the sandboxes.
    pub dir: PathBuf,
    /// Image of sandboxes whose spec has none. Images need `/bin/sh` and `tail`.
    pub image: String,
    /// Name of this machine.
    pub host: String,
    /// Runtime of the containers, such as `runsc` for gVisor. `None` means the engine's default.
    pub runtime: Option<String>,
}

/// The provider of sandboxes that are containers.
#[derive(Debug)]
pub struct DockerSandboxes {
    options: DockerOptions,
    engine: Arc<Engine>,
}

impl DockerSandboxes {
    /// Creates the provider. It connects to the engine when it is first used.
    pub fn new(options: DockerOptions) -> Self {
        let engine = Arc::new(Engine::new(options.socket.clone()));
        Self { options, engine }
    }

    /// Returns the container of a sandbox. A container without our label is none of ours.
    async fn inspect(&self, handle: &str) -> Result<ContainerInspectResponse, SandboxError> {
        if !container::is_valid_name(handle) {
            return Err(SandboxError::NotFound);
        }
        let inspected = self.engine.client().await?.inspect_container(handle, None).await;
        let container = inspected.map_err(|error| error_of("describe a container", &error))?;
        let labels = container.config.as_ref().and_then(|config| config.labels.as_ref());
        match labels.and_then(|labels| labels.get(NAME_LABEL)) {
            Some(name) if name == handle => Ok(container),
            _ => Err(SandboxError::NotFound),
        }
    }

    /// Returns the user of the processes in containers: this one, so that both can access the
    /// files of the other.
    async fn container_user(&self) -> Result<User, SandboxError> {
        let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
        // Root of a rootless engine is this user.
        let is_root = uid == 0 || engine::is_rootless(&self.engine.system_info().await?);
        Ok(if is_root { User { uid: 0, gid: 0 } } else { User { uid, gid } })
    }

    fn create_dirs(&self, name: &str) -> Result<HostDirs, SandboxError> {
        let root = std::path::absolute(&self.options.dir).and_then(|dir| {
            let dirs = HostDirs::new(&dir, name);
            std::fs::create_dir_all(&dirs.workspace)?;
            std::fs::create_dir_all(&dirs.home)?;
            Ok(dirs)
        });
        root.map_err(|error| {
            SandboxError::Unavailable(format!(
                "the folders of a sandbox can't be created in {} ({error}): check its owner and \
                 the free space",
                self.options.dir.display()
            ))
        })
    }

    /// Creates the container of a sandbox. Returns whether there was none.
    async fn create_container(&self, spec: &SandboxSpec, user: User) -> Result<bool, SandboxError> {
        let client = self.engine.client().await?;
        let image = spec.image.as_deref().unwrap_or(&self.options.image);
        let mut is_pulled = false;
        for _ in 0..POLLS_MAX {
            let dirs = self.create_dirs(&spec.name)?;
            let runtime = self.options.runtime.as_deref();
            let body = container::create_body(spec, image, (&dirs, user), runtime)?;
            let options = CreateContainerOptionsBuilder::new().name(&spec.name).build();
            let Err(error) = client.create_container(Some(options), body).await else {
                return Ok(true);
            };
            if is_not_found(&error) && !is_pulled {
                self.pull(image).await?;
                is_pulled = true;
                continue;
            }
            if !is_conflict(&error) {
                return Err(match error_of("create a container", &error) {
                    SandboxError::NotFound => missing_image(image, "it can't be found"),
                    error => error,
                });
            }
            match self.inspect(&spec.name).await {
                Ok(found) if !is_being_removed(&found) => return Ok(false),
                // It is gone, or soon will be.
                Ok(_) => {}
                Err(SandboxError::NotFound) => {
                    if client.inspect_container(&spec.name, None).await.is_ok() {
                        return Err(SandboxError::Refused(format!(
                            "the name of the sandbox belongs to a container that is not one of \
                             Longhaul: rename or remove it with `docker rename {0} NEW` or \
                             `docker rm {0}`",
                            spec.name
                        )));
                    }
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let text = format!("the removal of the old container {} does not end", spec.name);
        Err(SandboxError::Unavailable(text))
    }

    async fn pull(&self, image: &str) -> Result<(), SandboxError> {
        tracing::info!(image, "pulling the image of a sandbox");
        // Without a tag the engine would pull all of them.
        let name = image.rsplit('/').next().unwrap_or_default();
        let tag = if name.contains([':', '@']) { "" } else { ":latest" };
        let options = CreateImageOptionsBuilder::new().from_image(&format!("{image}{tag}")).build();
        let client = self.engine.client().await?;
        let progress = client.create_image(Some(options), None, None);
        let progress = progress.try_for_each(|progress| {
            tracing::debug!(image, status = progress.status, layer = progress.id, "pulling");
            std::future::ready(Ok(()))
        });
        match tokio::time::timeout(PULL_TIMEOUT, progress).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(missing_image(image, &shorten(&error.to_string()))),
            Err(_) => Err(SandboxError::Unavailable(format!(
                "pulling the image `{image}` takes too long: try `docker pull {image}`"
            ))),
        }
    }

    /// Starts the container of a sandbox if it does not run, and connects to it.
    async fn open(
        &self,
        handle: &str,
        (spec, user): (&SandboxSpec, User),
    ) -> Result<DockerSandbox, SandboxError> {
        let found = self.inspect(handle).await?;
        let dirs = self.dirs(handle)?;
        if !dirs.workspace.is_dir() || !dirs.home.is_dir() {
            return Err(SandboxError::NotFound);
        }
        let client = self.engine.client().await?;
        if is_paused(&found) {
            let resumed = client.unpause_container(handle).await;
            resumed.map_err(|error| error_of("resume a container", &error))?;
        }
        let started = client.start_container(handle, None).await;
        started.map_err(|error| start_error(&error))?;
        let found = self.inspect(handle).await?;
        let mut env = spec.env.clone();
        let secrets = spec.secrets.iter();
        env.extend(secrets.map(|secret| (secret.name.clone(), secret.placeholder())));
        let container = found.id.clone().unwrap_or_else(|| handle.to_owned());
        let commands = Commands { engine: Arc::clone(&self.engine), container, env };
        Ok(DockerSandbox { info: info(handle, found), dirs, commands, user })
    }

    fn dirs(&self, handle: &str) -> Result<HostDirs, SandboxError> {
        let dir = std::path::absolute(&self.options.dir);
        dir.map(|dir| HostDirs::new(&dir, handle))
            .map_err(|error| SandboxError::Unavailable(format!("no current directory: {error}")))
    }

    /// Removes a container, and returns once it is gone.
    async fn remove_container(&self, handle: &str) -> Result<(), SandboxError> {
        let client = self.engine.client().await?;
        for _ in 0..POLLS_MAX {
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            match client.remove_container(handle, Some(options)).await {
                Err(error) if is_not_found(&error) => return Ok(()),
                // After a success too, because the name is free only when the container is gone. A
                // conflict means that it is being removed.
                Ok(()) => {}
                Err(error) if is_conflict(&error) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(error) => return Err(error_of("remove a container", &error)),
            }
        }
        let text = format!("the removal of the container {handle} does not end");
        Err(SandboxError::Unavailable(text))
    }
}

#[async_trait]
impl Sandboxes for DockerSandboxes {
    fn name(&self) -> &str {
        "docker"
    }

    fn host(&self) -> Option<String> {
        Some(self.options.host.clone())
    }

    async fn status(&self) -> ProviderStatus {
        let info = match self.engine.system_info().await {
            Ok(info) => info,
            Err(error) => {
                return ProviderStatus { isolation: Err(error.to_string()), notes: Vec::new() };
            }
        };
        let version = info.server_version.clone().unwrap_or_else(|| "unknown".to_owned());
        let rights = if engine::is_rootless(&info) { "without root" } else { "as root" };
        let mut notes = vec![format!("The Docker engine has version {version} and runs {rights}.")];
        let has_gvisor = info.runtimes.iter().flatten().any(|(name, _)| name.contains("runsc"));
        notes.push(match (&self.options.runtime, has_gvisor) {
            (Some(runtime), _) => format!("Containers run with the runtime `{runtime}`."),
            (None, true) => {
                "Containers share the kernel of this machine. Set `runtime` to `runsc` \
                             to run them with gVisor."
                    .to_owned()
            }
            (None, false) => "Containers share the kernel of this machine. Install gVisor as the \
                              runtime `runsc` for programs that you don't trust."
                .to_owned(),
        });
        ProviderStatus { isolation: Ok(Isolation::Docker), notes }
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let image = spec.image.as_deref().unwrap_or(&self.options.image);
        container::check_spec(spec, image)?;
        let user = self.container_user().await?;
        let is_new = self.create_container(spec, user).await?;
        let opened = self.open(&spec.name, (spec, user)).await;
        if is_new && matches!(opened, Err(SandboxError::Refused(_))) {
            // Otherwise the next call would find it and fail again, also with another image.
            self.remove_container(&spec.name).await?;
        }
        let sandbox = opened?;
        if user.uid != 0 {
            for volume in &spec.volumes {
                sandbox.files().own_folder(&volume.path).await?;
            }
        }
        Ok(Arc::new(sandbox))
    }

    async fn start(
        &self,
        handle: &str,
        spec: &SandboxSpec,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        self.inspect(handle).await?;
        let user = self.container_user().await?;
        Ok(Arc::new(self.open(handle, (spec, user)).await?))
    }

    async fn get(&self, handle: &str) -> Result<SandboxInfo, SandboxError> {
        Ok(info(handle, self.inspect(handle).await?))
    }

    async fn list(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<SandboxInfo>, SandboxError> {
        let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
        let labels = labels.chain([NAME_LABEL.to_owned()]).collect();
        let filters = HashMap::from([("label".to_owned(), labels)]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let listed = self.engine.client().await?.list_containers(Some(options)).await;
        let listed = listed.map_err(|error| error_of("list its containers", &error))?;
        let mut sandboxes = Vec::new();
        for container in listed {
            let name = container.labels.and_then(|mut labels| labels.remove(NAME_LABEL));
            match self.get(&name.unwrap_or_default()).await {
                Ok(info) => sandboxes.push(info),
                // It was deleted meanwhile.
                Err(SandboxError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sandboxes)
    }

    async fn stop(&self, handle: &str) -> Result<(), SandboxError> {
        let found = self.inspect(handle).await?;
        let client = self.engine.client().await?;
        if is_paused(&found) {
            let resumed = client.unpause_container(handle).await;
            resumed.map_err(|error| error_of("resume a container", &error))?;
        }
        let at_once = StopContainerOptionsBuilder::new().t(0).build();
        let stopped = client.stop_container(handle, Some(at_once)).await;
        stopped.map_err(|error| error_of("stop a container", &error))?;
        for _ in 0..POLLS_MAX {
            let state = self.inspect(handle).await?.state;
            if state.and_then(|state| state.running) != Some(true) {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let text = format!("the container {handle} does not stop: try `docker kill {handle}`");
        Err(SandboxError::Unavailable(text))
    }

    async fn delete(&self, handle: &str) -> Result<(), SandboxError> {
        if !container::is_valid_name(handle) {
            return Ok(());
        }
        match self.inspect(handle).await {
            Ok(_) => self.remove_container(handle).await?,
            Err(SandboxError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let dirs = self.dirs(handle)?;
        let removed = tokio::task::spawn_blocking(move || host_files::remove_tree(&dirs.root));
        let removed = removed.await.unwrap_or_else(|error| Err(error.into()));
        removed.map_err(|error| {
            SandboxError::Unavailable(format!(
                "the files of the sandbox {handle} in {} can't be deleted: {error}",
                self.options.dir.display()
            ))
        })
    }
}

fn is_paused(container: &ContainerInspectResponse) -> bool {
    container.state.as_ref().and_then(|state| state.paused) == Some(true)
}

fn is_being_removed(container: &ContainerInspectResponse) -> bool {
    use ContainerStateStatusEnum::{DEAD, REMOVING};
    let status = container.state.as_ref().and_then(|state| state.status);
    matches!(status, Some(REMOVING | DEAD))
}

fn info(handle: &str, container: ContainerInspectResponse) -> SandboxInfo {
    let labels = container.config.and_then(|config| config.labels).unwrap_or_default();
    let labels = labels.into_iter().filter(|(name, _)| name != NAME_LABEL);
    SandboxInfo {
        handle: handle.to_owned(),
        name: handle.to_owned(),
        labels: labels.collect(),
        state: container::sandbox_state(container.state.and_then(|state| state.status)),
        isolation: Isolation::Docker,
        created_at: container.created.and_then(|created| created.parse().ok()),
    }
}

fn missing_image(image: &str, reason: &str) -> SandboxError {
    SandboxError::Refused(format!(
        "the image `{image}` is not on this machine and can't be pulled ({reason}): run \
         `docker pull {image}`, or set another `image`"
    ))
}

/// Returns the error of a container that does not start. Most often its image lacks a program.
fn start_error(error: &bollard::errors::Error) -> SandboxError {
    let message = engine::answer(error).map(|(_, message)| message).unwrap_or_default();
    if message.contains("executable file not found") || message.contains("no such file") {
        return SandboxError::Refused(format!(
            "the container of the sandbox does not start ({}): use an image with `/bin/sh` and \
             `tail`, such as `debian:12-slim`",
            shorten(message)
        ));
    }
    error_of("start a container", error)
}
