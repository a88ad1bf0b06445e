//! Limits of memory, processes and CPU by control groups, version 1 or 2, where this process may
//! create some.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

use longhaul_core::port::sandbox::{SandboxError, SandboxLimits};

use crate::local::layout::{Layout, ProviderDir, io_error, is_name};

/// Default maximum number of processes and threads of a sandbox.
pub(crate) const TASKS_DEFAULT: u32 = 2_000;
/// Prefix of the names of control groups of sandboxes.
const NAME_PREFIX: &str = "longhaul-";
/// Period over which CPU time is limited, in microseconds.
const CPU_PERIOD_MICROS: u32 = 100_000;

/// Directories below which this process can create control groups.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CgroupRoot {
    /// One directory for each controller.
    V1 {
        memory: PathBuf,
        pids: PathBuf,
        cpu: Option<PathBuf>,
    },
    V2(PathBuf),
}

impl fmt::Display for CgroupRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V1 { .. } => f.write_str("control groups of version 1"),
            Self::V2(_) => f.write_str("control groups of version 2"),
        }
    }
}

impl CgroupRoot {
    /// Looks for directories in which this process can create control groups.
    pub(crate) fn find() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::find_below(Path::new("/sys/fs/cgroup"), &own)
    }

    /// Looks below this mount point. `own` lists the control groups of this process.
    pub(crate) fn find_below(mount: &Path, own: &str) -> Option<Self> {
        let own_path = |controller: &str| {
            let mut lines = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            lines.find(|(names, _)| names.split(',').any(|name| name == controller))
        };
        if mount.join("cgroup.controllers").exists() {
            let path = own_path("")?.1;
            return writable_ancestor(mount, path, has_controllers).map(Self::V2);
        }
        let find = |controller: &str| {
            let path = own_path(controller).map_or("/", |(_, path)| path);
            writable_ancestor(&mount.join(controller), path, |_| true)
        };
        Some(Self::V1 { memory: find("memory")?, pids: find("pids")?, cpu: find("cpu") })
    }

    /// Creates the control group of a sandbox with these limits, or changes its limits.
    pub(crate) fn create(
        &self,
        layout: &Layout,
        limits: &SandboxLimits,
    ) -> Result<Cgroup, SandboxError> {
        let group = self.group(layout);
        for dir in &group.dirs {
            match fs::create_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(io_error("create the control group", dir, &error));
                }
                _ => {}
            }
        }
        for (file, value) in self.settings(&group, limits) {
            fs::write(&file, value).map_err(|error| io_error("set the limit", &file, &error))?;
        }
        for file in ["memory.memsw.limit_in_bytes", "memory.swap.max"] {
            let Some(bytes) = limits.memory_bytes else { break };
            let value = if file == "memory.swap.max" { 0 } else { bytes };
            // Kernels without an account of swap space have neither file.
            _ = fs::write(group.dirs[0].join(file), value.to_string());
        }
        Ok(group)
    }

    /// Returns the files with limits, and the limits.
    fn settings(&self, group: &Cgroup, limits: &SandboxLimits) -> Vec<(PathBuf, String)> {
        let tasks = limits.tasks.unwrap_or(TASKS_DEFAULT).to_string();
        let quota =
            limits.cpus.map(|cpus| (cpus * f64::from(CPU_PERIOD_MICROS)).max(1_000.0) as u64);
        let memory = limits.memory_bytes.map(|bytes| bytes.to_string());
        match (self, group.dirs.as_slice()) {
            (Self::V1 { .. }, [memory_dir, pids_dir, cpu_dir @ ..]) => {
                let mut settings = vec![(pids_dir.join("pids.max"), tasks)];
                settings
                    .extend(memory.map(|bytes| (memory_dir.join("memory.limit_in_bytes"), bytes)));
                if let (Some(quota), [cpu_dir]) = (quota, cpu_dir) {
                    let period = CPU_PERIOD_MICROS.to_string();
                    settings.push((cpu_dir.join("cpu.cfs_period_us"), period));
                    settings.push((cpu_dir.join("cpu.cfs_quota_us"), quota.to_string()));
                }
                settings
            }
            (_, dirs) => {
                let file = |name: &str| dirs.iter().map(|dir| dir.join(name)).collect::<PathBuf>();
                let mut settings = vec![(file("pids.max"), tasks)];
                settings.extend(memory.map(|bytes| (file("memory.max"), bytes)));
                let cpu = quota.map(|quota| format!("{quota} {CPU_PERIOD_MICROS}"));
                settings.extend(cpu.map(|cpu| (file("cpu.max"), cpu)));
                settings
            }
        }
    }

    /// Removes the empty control groups of sandboxes in this directory that no longer exist. A crash
    /// between the end of a sandbox and the removal of its group leaves one behind.
    pub(crate) fn remove_leftovers(&self, provider: &ProviderDir) {
        for entry in self.dirs().flat_map(fs::read_dir).flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let sandbox = name.strip_prefix(NAME_PREFIX).and_then(|rest| rest.rsplit_once('-'));
            let Some((sandbox, _)) = sandbox.filter(|(sandbox, _)| is_name(sandbox)) else {
                continue;
            };
            let layout = provider.layout(sandbox);
            if group_name(&layout) == name && matches!(layout.load(), Ok(None)) {
                // The kernel keeps a group that has processes.
                _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// Returns the directories in which groups are created, that of the memory first.
    fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        let dirs = match self {
            Self::V1 { memory, pids, cpu } => [Some(memory), Some(pids), cpu.as_ref()],
            Self::V2(dir) => [Some(dir), None, None],
        };
        dirs.into_iter().flatten()
    }

    fn group(&self, layout: &Layout) -> Cgroup {
        let name = group_name(layout);
        Cgroup { dirs: self.dirs().map(|dir| dir.join(&name)).collect() }
    }
}

/// Returns the name of the control group of a sandbox. Another provider on this machine may have a
/// sandbox with the same name, so the name contains a hash of the directory.
fn group_name(layout: &Layout) -> String {
    let mut hasher = DefaultHasher::new();
    layout.dir().hash(&mut hasher);
    let name = layout.dir().file_name().unwrap_or_default().to_string_lossy();
    format!("{NAME_PREFIX}{name}-{:08x}", hasher.finish() as u32)
}

/// Control group of a sandbox.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// Directory of each controller, that of the memory first.
    dirs: Vec<PathBuf>,
}

impl Cgroup {
    /// Returns the files to which a process writes its id to join the group.
    pub(crate) fn member_files(&self) -> impl Iterator<Item = PathBuf> {
        self.dirs.iter().map(|dir| dir.join("cgroup.procs"))
    }

    /// Returns how many processes of the group were killed because it used too much memory.
    pub(crate) fn memory_kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let texts =
            files.iter().filter_map(|file| fs::read_to_string(self.dirs[0].join(file)).ok());
        let count = |text: String| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
        };
        texts.filter_map(count).sum()
    }

    /// Removes the control group of a sandbox without processes.
    pub(crate) fn remove(root: &CgroupRoot, layout: &Layout) {
        for dir in root.group(layout).dirs {
            // An empty group costs nothing, and the next start uses it.
            _ = fs::remove_dir(dir);
        }
    }
}

/// Returns the nearest ancestor of a control group in which groups can be created.
fn writable_ancestor(
    mount: &Path,
    own: &str,
    is_usable: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let own = mount.join(own.trim_start_matches('/'));
    let ancestors = own.ancestors().take_while(|dir| dir.starts_with(mount));
    let is_writable = |dir: &Path| {
        let probe = dir.join(format!("longhaul-probe-{}", std::process::id()));
        fs::create_dir(&probe).is_ok() && fs::remove_dir(&probe).is_ok()
    };
    let mut usable = ancestors.filter(|dir| is_usable(dir) && is_writable(dir));
    usable.next().map(Path::to_owned)
}

/// Returns whether the groups in this one of version 2 can limit memory and processes.
fn has_controllers(dir: &Path) -> bool {
    let controllers = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    let mut required = ["memory", "pids"].into_iter();
    required.all(|name| controllers.split_whitespace().any(|found| found == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_deleted_sandboxes_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        let provider = ProviderDir::open(&temp.path().join("own")).unwrap();
        let other = ProviderDir::open(&temp.path().join("other")).unwrap();
        let existing = provider.layout("existing");
        fs::create_dir(existing.dir()).unwrap();
        let file = r#"{"labels":{},"state":"stopped","isolation":"bubblewrap","created_at":"2026-01-01T00:00:00.000000Z"}"#;
        fs::write(existing.dir().join("sandbox.json"), file).unwrap();
        assert!(existing.load().unwrap().is_some());

        let groups = ["memory", "pids"].map(|controller| temp.path().join(controller));
        let [memory, pids] = groups.clone();
        let root = CgroupRoot::V1 { memory, pids, cpu: None };
        let kept = [
            group_name(&existing),
            group_name(&other.layout("gone")),
            group_name(&provider.layout("busy")),
            "longhaul-probe-1".to_owned(),
            "longhaul-gone-00000000".to_owned(),
        ];
        for group in &groups {
            for name in kept.iter().chain([&group_name(&provider.layout("gone"))]) {
                fs::create_dir_all(group.join(name)).unwrap();
            }
            // A group with processes can't be removed, like a directory that is not empty.
            fs::create_dir(group.join(&kept[2]).join("process")).unwrap();
        }
        root.remove_leftovers(&provider);
        for group in &groups {
            let entries = fs::read_dir(group).unwrap().flatten();
            let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
            let mut names: Vec<String> = entries.map(name).collect();
            names.sort();
            let mut expected = kept.clone();
            expected.sort();
            assert_eq!(names, expected);
        }
    }
}
