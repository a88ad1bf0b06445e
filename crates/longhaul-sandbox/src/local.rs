//! Sandboxes that are processes of this machine, isolated by bubblewrap.
//!
//! A sandbox is a directory with the folders of its programs. Each command is a process tree of its
//! own in new namespaces, which see these folders and the programs of the machine, and nothing else
//! of it. The kernel is shared with the machine: for hostile programs use a provider with stronger
//! isolation.
//!
//! Landlock, which could isolate on machines without user namespaces, is not supported. There a
//! sandbox is refused, unless its spec accepts no isolation.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::{
    Isolation, NetworkPolicy, ProviderStatus, Sandbox, SandboxError, SandboxInfo, SandboxSpec,
    Sandboxes,
};

use crate::local::cgroup::{Cgroup, CgroupRoot};
use crate::local::egress::SandboxEgress;
use crate::local::layout::{Layout, ProviderDir, SandboxFile, check_name, is_name};
use crate::local::parts::{ProviderParts, SandboxParts};
use crate::local::probe::Probe;
use crate::local::sandbox::LocalSandbox;
use crate::local::spawner::Spawner;

pub use crate::local::options::LocalOptions;

mod bwrap;
mod cgroup;
mod command;
mod egress;
mod exec;
pub(crate) mod files;
pub(crate) mod layout;
mod options;
mod parts;
pub(crate) mod path;
mod probe;
mod sandbox;
mod seccomp;
mod spawner;
pub(crate) mod tree;

/// Provider of sandboxes on this machine.
#[derive(Debug)]
pub struct LocalSandboxes {
    shared: Arc<ProviderParts>,
}

impl LocalSandboxes {
    /// Opens the provider, tries out how well it can isolate on this machine, and removes what a
    /// crash has left of deleted sandboxes.
    ///
    /// # Errors
    ///
    /// The directory of the provider can't be created or written.
    pub async fn open(options: LocalOptions) -> Result<Self, SandboxError> {
        let dir = ProviderDir::open(&options.dir)?;
        dir.delete_leftovers().await;
        let cgroups = CgroupRoot::find();
        if let Some(root) = &cgroups {
            root.remove_leftovers(&dir);
        }
        let probe = Probe::run(&options, &dir).await;
        let shared = ProviderParts {
            search_path: bwrap::search_path(&options.read_only),
            spawner: Spawner::start()?,
            cgroups,
            options,
            dir,
            probe,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the isolation of a new sandbox, or an error if it is weaker than its spec accepts.
    fn isolation(&self, spec: &SandboxSpec) -> Result<Isolation, SandboxError> {
        let reason = match &self.shared.probe.bwrap {
            Ok(_) if Isolation::Bubblewrap.is_at_least(spec.min_isolation) => {
                return Ok(Isolation::Bubblewrap);
            }
            Ok(_) => {
                return Err(SandboxError::Refused(format!(
                    "the provider `local` isolates with bubblewrap, which is weaker than the \
                     required isolation `{}`; use another provider, or set `isolation: bubblewrap` \
                     in the agent's file",
                    spec.min_isolation.as_str()
                )));
            }
            Err(reason) => reason,
        };
        match spec.min_isolation {
            Isolation::None | Isolation::Container => Ok(spec.min_isolation),
            Isolation::Landlock | Isolation::Bubblewrap | Isolation::Docker | Isolation::Remote => {
                Err(SandboxError::Refused(reason.clone()))
            }
        }
    }

    /// Checks that the provider can do what the spec says.
    fn check_spec(&self, spec: &SandboxSpec) -> Result<Isolation, SandboxError> {
        check_name(&spec.name, "sandbox")?;
        for volume in &spec.volumes {
            check_name(&volume.name, "volume")?;
            path::check_volume_path(&volume.path)?;
        }
        exec::check_environment(&spec.env)?;
        let placeholders = spec.secrets.iter();
        let placeholders = placeholders.map(|secret| (secret.name.clone(), String::new()));
        exec::check_environment(&placeholders.collect())?;
        let isolation = self.isolation(spec)?;
        let is_open = spec.network == NetworkPolicy::Host && spec.secrets.is_empty();
        if isolation != Isolation::Bubblewrap && !(is_open && spec.volumes.is_empty()) {
            return Err(SandboxError::Refused(format!(
                "without bubblewrap no network, secrets and volumes can be kept from a sandbox; \
                 set `network: host` without secrets and caches in the agent's file, or: {}",
                self.shared.probe.bwrap.as_ref().err().map_or("", String::as_str)
            )));
        }
        egress::check_network(&self.shared.options, spec)?;
        Ok(isolation)
    }

    /// Opens the sandbox in this layout, which is marked as running.
    fn open_sandbox(
        &self,
        layout: Layout,
        file: SandboxFile,
        spec: &SandboxSpec,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let cgroup = self.shared.cgroups.as_ref();
        let cgroup = cgroup.map(|root| root.create(&layout, &spec.limits)).transpose()?;
        let volumes = spec.volumes.iter().map(|volume| {
            let dir = self.shared.dir.create_volume(&volume.name)?;
            Ok((volume.path.clone(), dir))
        });
        let parts = SandboxParts {
            info: file.info(&spec.name),
            volumes: volumes.collect::<Result<_, SandboxError>>()?,
            provider: Arc::clone(&self.shared),
            egress: SandboxEgress::open(&self.shared.options, &self.shared.dir, spec)?,
            spec: spec.clone(),
            cgroup,
            layout,
        };
        Ok(Arc::new(LocalSandbox::new(parts)))
    }

    /// Marks a sandbox as stopped and kills its processes.
    async fn stop_sandbox(&self, layout: &Layout) -> Result<(), SandboxError> {
        let found = self.shared.dir.change_state(layout, SandboxState::Stopped).await?;
        if found.is_none() {
            return Err(SandboxError::NotFound);
        }
        // No command starts after the change of the state, so that one pass kills all.
        command::kill_all(layout, u64::MAX).await?;
        if let Some(root) = &self.shared.cgroups {
            Cgroup::remove(root, layout);
        }
        Ok(())
    }
}

#[async_trait]
impl Sandboxes for LocalSandboxes {
    fn name(&self) -> &str {
        "local"
    }

    fn host(&self) -> Option<String> {
        Some(self.shared.options.host.clone())
    }

    async fn status(&self) -> ProviderStatus {
        let probe = &self.shared.probe;
        let mut notes = vec![match &self.shared.cgroups {
            Some(root) => format!("memory, tasks and CPU are limited by {root}"),
            None => "memory is limited per process, tasks per command and CPU not at all, because \
                     this process can't create control groups; start it as a systemd service with \
                     `Delegate=yes`"
                .to_owned(),
        }];
        notes.extend(probe.bwrap.is_ok().then(|| probe::LEVEL_NOTE.to_owned()));
        ProviderStatus {
            isolation: probe.bwrap.as_ref().map(|_| Isolation::Bubblewrap).map_err(Clone::clone),
            notes,
        }
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let isolation = self.check_spec(spec)?;
        let file = SandboxFile {
            labels: spec.labels.clone(),
            state: SandboxState::Running,
            isolation,
            created_at: self.shared.options.clock.now(),
        };
        let layout = self.shared.dir.layout(&spec.name);
        let file = self.shared.dir.create_sandbox(&layout, file).await?;
        self.open_sandbox(layout, file, spec)
    }

    async fn start(
        &self,
        handle: &str,
        spec: &SandboxSpec,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let layout = self.known_layout(handle)?;
        let spec = SandboxSpec { name: handle.to_owned(), ..spec.clone() };
        layout.load()?.ok_or(SandboxError::NotFound)?;
        self.check_spec(&spec)?;
        let file = self.shared.dir.change_state(&layout, SandboxState::Running).await?;
        self.open_sandbox(layout, file.ok_or(SandboxError::NotFound)?, &spec)
    }

    async fn get(&self, handle: &str) -> Result<SandboxInfo, SandboxError> {
        let file = self.known_layout(handle)?.load()?.ok_or(SandboxError::NotFound)?;
        Ok(file.info(handle))
    }

    async fn list(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<SandboxInfo>, SandboxError> {
        let mut infos = self.shared.dir.list()?;
        infos
            .retain(|info| labels.iter().all(|(name, value)| info.labels.get(name) == Some(value)));
        Ok(infos)
    }

    async fn stop(&self, handle: &str) -> Result<(), SandboxError> {
        self.stop_sandbox(&self.known_layout(handle)?).await
    }

    async fn delete(&self, handle: &str) -> Result<(), SandboxError> {
        let Ok(layout) = self.known_layout(handle) else {
            return Ok(());
        };
        match self.stop_sandbox(&layout).await {
            Ok(()) => self.shared.dir.delete_sandbox(&layout).await,
            Err(SandboxError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl LocalSandboxes {
    /// Returns the layout of a sandbox with this handle, if the handle can belong to one.
    fn known_layout(&self, handle: &str) -> Result<Layout, SandboxError> {
        match is_name(handle) {
            true => Ok(self.shared.dir.layout(handle)),
            false => Err(SandboxError::NotFound),
        }
    }
}
