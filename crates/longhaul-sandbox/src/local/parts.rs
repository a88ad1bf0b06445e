//! What the provider and its sandboxes consist of.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::port::sandbox::{SandboxInfo, SandboxSpec};

use crate::local::cgroup::{Cgroup, CgroupRoot};
use crate::local::egress::SandboxEgress;
use crate::local::layout::{Layout, ProviderDir};
use crate::local::options::LocalOptions;
use crate::local::probe::Probe;
use crate::local::spawner::Spawner;

/// Default maximum size of the files of a sandbox.
const DISK_BYTES_DEFAULT: u64 = 20 << 30;

/// What all sandboxes of the provider use.
#[derive(Debug)]
pub(crate) struct ProviderParts {
    pub(crate) options: LocalOptions,
    pub(crate) dir: ProviderDir,
    pub(crate) probe: Probe,
    pub(crate) cgroups: Option<CgroupRoot>,
    pub(crate) spawner: Spawner,
    /// Search path of the programs in sandboxes.
    pub(crate) search_path: OsString,
}

/// What a sandbox consists of.
#[derive(Debug)]
pub(crate) struct SandboxParts {
    pub(crate) provider: Arc<ProviderParts>,
    pub(crate) layout: Layout,
    pub(crate) info: SandboxInfo,
    pub(crate) spec: SandboxSpec,
    /// Volumes by their paths in the sandbox, with their directories on this machine.
    pub(crate) volumes: Vec<(String, PathBuf)>,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) egress: Option<SandboxEgress>,
}

impl SandboxParts {
    /// Returns the maximum size of the files of the sandbox.
    pub(crate) fn disk_bytes_max(&self) -> u64 {
        self.spec.limits.disk_bytes.unwrap_or(DISK_BYTES_DEFAULT)
    }
}
