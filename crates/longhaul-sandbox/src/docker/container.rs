//! The container of a sandbox: what it is created with, and what is checked before.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, ContainerStateStatusEnum, HostConfig, Mount, MountType,
};
use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::{
    Isolation, NetworkPolicy, SandboxError, SandboxSpec, SandboxVolume, WORKSPACE,
};

use super::exec::{INIT_MARK, MARK_VAR};

/// Label with the name of the sandbox. A container without it belongs to somebody else.
pub(super) const NAME_LABEL: &str = "longhaul.sandbox";
/// Home folder in the sandbox.
pub(super) const HOME: &str = "/home/agent";

/// Maximum number of characters of the name of a sandbox or a volume.
const NAME_CHARS_MAX: usize = 100;
const IMAGE_CHARS_MAX: usize = 500;
/// Maximum number of processes and threads, if the spec has none.
const DEFAULT_TASKS: u32 = 1_024;

/// User of the processes in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Directories of this machine that are folders of a sandbox.
#[derive(Debug, Clone)]
pub(super) struct HostDirs {
    pub(super) root: PathBuf,
    pub(super) workspace: PathBuf,
    pub(super) home: PathBuf,
}

impl HostDirs {
    /// Returns the directories of the sandbox with this name, which must have been checked.
    pub(super) fn new(dir: &Path, name: &str) -> Self {
        let root = dir.join(name);
        Self { workspace: root.join("workspace"), home: root.join("home"), root }
    }
}

/// Returns whether a text can be the name of a sandbox or a volume. Such a name can't lead out of a
/// directory or to another endpoint of the engine.
pub(super) fn is_valid_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric();
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| is_word(byte) || byte == b'-')
        && name.bytes().next().is_some_and(is_word)
}

/// Checks everything of a spec that the engine would not check, or would not explain.
pub(super) fn check_spec(spec: &SandboxSpec, image: &str) -> Result<(), SandboxError> {
    let names = spec.volumes.iter().map(|volume| &volume.name).chain([&spec.name]);
    if let Some(name) = names.into_iter().find(|name| !is_valid_name(name)) {
        return refuse(format!(
            "{name:?} is no name of a sandbox or volume: use at most {NAME_CHARS_MAX} letters, \
             digits and hyphens, and begin with a letter or digit"
        ));
    }
    if let Some(volume) = spec.volumes.iter().find(|volume| !is_valid_mount_path(&volume.path)) {
        return refuse(format!(
            "the volume `{}` can't be mounted at {:?}: use an absolute path without `..` that is \
             not {WORKSPACE}, {HOME} or a folder of the system, for example /cache",
            volume.name, volume.path
        ));
    }
    let is_image_char = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    if image.is_empty() || image.len() > IMAGE_CHARS_MAX || !image.bytes().all(is_image_char) {
        return refuse(format!("{image:?} is no name of an image; one is `debian:12-slim`"));
    }
    if !Isolation::Docker.is_at_least(spec.min_isolation) {
        return refuse(format!(
            "the sandbox needs the isolation `{}`, but a container has `{}`: lower `min_isolation`, \
             or use the provider daytona",
            spec.min_isolation.as_str(),
            Isolation::Docker.as_str()
        ));
    }
    if spec.network == NetworkPolicy::Host && !spec.secrets.is_empty() {
        return refuse(
            "secrets need a list of hosts as the network of the sandbox, because only the proxy \
             for that list puts them into requests"
                .to_owned(),
        );
    }
    network_mode(&spec.network).map(drop)
}

fn is_valid_mount_path(path: &str) -> bool {
    const RESERVED: [&str; 3] = ["/proc", "/sys", "/dev"];
    let mut parts = path.split('/').skip(1);
    path.starts_with('/')
        && path.len() <= 1_000
        && !path.contains(|char: char| char.is_control())
        && parts.all(|part| !matches!(part, "" | "." | ".."))
        && !RESERVED.iter().any(|reserved| Path::new(path).starts_with(reserved))
        && path != WORKSPACE
        && path != HOME
        && path.len() > 1
}

/// Returns the network of the container. `None` is the default of the engine.
///
/// The egress proxy of a list of hosts belongs here: a container without network, into which the
/// socket of the proxy and the relay are mounted.
fn network_mode(network: &NetworkPolicy) -> Result<Option<String>, SandboxError> {
    match network {
        NetworkPolicy::None => Ok(Some("none".to_owned())),
        NetworkPolicy::Host => Ok(None),
        NetworkPolicy::Hosts(_) => refuse(
            "the provider docker can't limit the network to a list of hosts: set `network` of the \
             sandbox to `none` or `host`, or use the provider local"
                .to_owned(),
        ),
    }
}

/// Returns the request that creates the container.
pub(super) fn create_body(
    spec: &SandboxSpec,
    image: &str,
    (dirs, user): (&HostDirs, User),
    runtime: Option<&str>,
) -> Result<ContainerCreateBody, SandboxError> {
    let mut labels: HashMap<_, _> = spec.labels.clone().into_iter().collect();
    labels.insert(NAME_LABEL.to_owned(), spec.name.clone());
    let env = vec![format!("HOME={HOME}"), format!("{MARK_VAR}={INIT_MARK}")];
    let strings = |list: &[&str]| Some(list.iter().map(|text| (*text).to_owned()).collect());
    Ok(ContainerCreateBody {
        image: Some(image.to_owned()),
        hostname: Some("sandbox".to_owned()),
        user: Some(format!("{}:{}", user.uid, user.gid)),
        // Runs until the container is stopped, whatever the image usually runs.
        entrypoint: strings(&["tail", "-f", "/dev/null"]),
        cmd: Some(Vec::new()),
        working_dir: Some(WORKSPACE.to_owned()),
        env: Some(env),
        labels: Some(labels),
        host_config: Some(HostConfig {
            // Removes the zombies that commands leave behind.
            init: Some(true),
            mounts: Some(mounts(&spec.volumes, dirs)),
            cap_drop: strings(&["ALL"]),
            security_opt: strings(&["no-new-privileges"]),
            network_mode: network_mode(&spec.network)?,
            runtime: runtime.map(str::to_owned),
            ..limits(spec)
        }),
        ..ContainerCreateBody::default()
    })
}

fn limits(spec: &SandboxSpec) -> HostConfig {
    let memory = spec.limits.memory_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    HostConfig {
        pids_limit: Some(spec.limits.tasks.unwrap_or(DEFAULT_TASKS).into()),
        memory,
        // No swap in addition to the memory.
        memory_swap: memory,
        nano_cpus: spec.limits.cpus.map(|cpus| (cpus * 1e9) as i64),
        ..HostConfig::default()
    }
}

fn mounts(volumes: &[SandboxVolume], dirs: &HostDirs) -> Vec<Mount> {
    let mount = |typ, source: String, target: &str| Mount {
        typ: Some(typ),
        source: Some(source),
        target: Some(target.to_owned()),
        ..Mount::default()
    };
    let bind = |source: &Path, target| {
        mount(MountType::BIND, source.to_string_lossy().into_owned(), target)
    };
    let binds = [bind(&dirs.workspace, WORKSPACE), bind(&dirs.home, HOME)];
    // The prefix keeps a spec from using a volume of another program.
    let volumes = volumes
        .iter()
        .map(|volume| mount(MountType::VOLUME, format!("longhaul-{}", volume.name), &volume.path));
    binds.into_iter().chain(volumes).collect()
}

/// Returns the state of a sandbox whose container has this state.
pub(super) fn sandbox_state(status: Option<ContainerStateStatusEnum>) -> SandboxState {
    use ContainerStateStatusEnum as Status;
    match status {
        Some(Status::RUNNING) => SandboxState::Running,
        Some(Status::RESTARTING) => SandboxState::Starting,
        Some(Status::REMOVING | Status::STOPPING) => SandboxState::Stopping,
        Some(Status::PAUSED | Status::EXITED | Status::DEAD | Status::CREATED | Status::EMPTY)
        | None => SandboxState::Stopped,
    }
}

fn refuse<T>(message: String) -> Result<T, SandboxError> {
    Err(SandboxError::Refused(message))
}
