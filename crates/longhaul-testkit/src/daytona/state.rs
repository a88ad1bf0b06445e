//! The state of the fake: sandboxes with their transitions, volumes, snapshots and limits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use longhaul_core::time::Millis;
use serde_json::{Map, Value, json};

use crate::daytona::machine::{self, CommandHandle, Machine, MachineSpec};

/// Default of the vCPUs of all running sandboxes.
const CPU_QUOTA: u64 = 10;

/// All that the fake knows.
#[derive(Debug)]
pub(super) struct World {
    pub(super) sandboxes: BTreeMap<String, FakeSandbox>,
    /// Volumes by name, with the number of reads after which they are ready.
    pub(super) volumes: BTreeMap<String, u32>,
    pub(super) snapshots: BTreeSet<String>,
    pub(super) reads_per_state: u32,
    /// States of a new sandbox.
    pub(super) creation: Vec<&'static str>,
    pub(super) cpu_quota: u64,
    now: Millis,
    next_id: u64,
}

impl Default for World {
    fn default() -> Self {
        Self {
            sandboxes: BTreeMap::new(),
            volumes: BTreeMap::new(),
            snapshots: BTreeSet::new(),
            reads_per_state: 1,
            creation: vec!["creating", "started"],
            cpu_quota: CPU_QUOTA,
            now: Millis::ZERO,
            next_id: 0,
        }
    }
}

/// A sandbox.
#[derive(Debug)]
pub(super) struct FakeSandbox {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) state: &'static str,
    /// States that follow, one after each number of reads.
    next_states: VecDeque<&'static str>,
    reads_left: u32,
    /// The request that has created the sandbox.
    request: Value,
    pub(super) last_activity: Millis,
    machine: Option<Machine>,
    machine_spec: MachineSpec,
    /// Numbers of the commands of each session.
    pub(super) sessions: BTreeMap<String, Vec<u64>>,
    next_command: u64,
}

impl FakeSandbox {
    fn cpus(&self) -> u64 {
        self.request["cpu"].as_u64().unwrap_or(1)
    }

    /// Whether the sandbox counts for the limit of running ones.
    fn is_running(&self) -> bool {
        !matches!(self.state, "stopped" | "archived" | "error" | "build_failed")
    }

    /// Enters the first of these states, and later the others.
    fn change(&mut self, states: &[&'static str], reads: u32) {
        self.next_states = states.iter().copied().collect();
        self.enter_next(reads);
    }

    fn enter_next(&mut self, reads: u32) {
        let Some(state) = self.next_states.pop_front() else { return };
        self.state = state;
        self.reads_left = reads;
        match state {
            "started" => self.machine = Some(Machine::start(&self.machine_spec)),
            "stopping" | "stopped" | "destroying" | "error" => {
                self.machine = None;
                self.sessions.clear();
            }
            _ => {}
        }
    }

    fn is_changing(&self) -> bool {
        !self.next_states.is_empty()
    }

    /// Starts a command in the machine. `None` means that the sandbox is not started.
    pub(super) fn start_command(
        &mut self,
        script: &str,
        input: &[u8],
    ) -> Option<(u64, CommandHandle)> {
        self.next_command += 1;
        let id = self.next_command;
        Some((id, self.machine.as_ref()?.start_command(id, script, input)))
    }

    /// Returns the sandbox as the API describes it.
    pub(super) fn to_json(&self, origin: &str) -> Value {
        let request = &self.request;
        let mut body = json!({
            "id": self.id, "name": self.name, "organizationId": "org", "user": "daytona",
            "env": request["env"], "labels": request["labels"], "public": false,
            "networkBlockAll": request["networkBlockAll"] == true, "target": "us",
            "cpu": self.cpus(), "gpu": 0, "memory": 1, "disk": 3, "kvm": false,
            "state": self.state, "toolboxProxyUrl": format!("{origin}/toolbox"),
            "createdAt": "2026-01-01T00:00:00.000Z",
        });
        if matches!(self.state, "error" | "build_failed") {
            body["errorReason"] = json!("the build failed at line 1");
        }
        body
    }
}

impl World {
    /// Creates a sandbox below a directory, or returns the status and message of an error.
    pub(super) fn create(&mut self, dir: &Path, request: Value) -> Result<String, (u16, String)> {
        let name = request["name"].as_str().expect("a name").to_owned();
        if self.sandboxes.values().any(|sandbox| sandbox.name == name) {
            return Err((409, format!("Sandbox with name {name} already exists")));
        }
        self.check_quota(request["cpu"].as_u64().unwrap_or(1))?;
        let mut volumes = Vec::new();
        for volume in request["volumes"].as_array().into_iter().flatten() {
            let id = volume["volumeId"].as_str().expect("an id");
            let name = id.strip_prefix("vol-").unwrap_or(id);
            if self.volumes.get(name) != Some(&0) {
                return Err((400, format!("Volume {id} is not in a ready state")));
            }
            let path = volume["mountPath"].as_str().expect("a path").to_owned();
            volumes.push((volume_dir(dir, name), path));
        }
        self.next_id += 1;
        let id = format!("sb-{}", self.next_id);
        let root = dir.join(&id);
        machine::create_root(&root);
        let empty = Map::new();
        let env = request["env"].as_object().unwrap_or(&empty).iter();
        let env = env.map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()));
        let mut sandbox = FakeSandbox {
            id: id.clone(),
            name,
            state: "creating",
            next_states: VecDeque::new(),
            reads_left: 0,
            machine_spec: MachineSpec { root, env: env.collect(), volumes },
            request,
            last_activity: self.now,
            machine: None,
            sessions: BTreeMap::new(),
            next_command: 0,
        };
        sandbox.change(&self.creation, self.reads_per_state);
        self.sandboxes.insert(id.clone(), sandbox);
        Ok(id)
    }

    /// Returns the error of the API if so many more vCPUs are over the limit.
    fn check_quota(&self, cpus: u64) -> Result<(), (u16, String)> {
        let running = self.sandboxes.values().filter(|sandbox| sandbox.is_running());
        let quota = self.cpu_quota;
        match running.map(FakeSandbox::cpus).sum::<u64>() + cpus > quota {
            true => Err((400, format!("Total CPU limit exceeded. Maximum allowed: {quota}."))),
            false => Ok(()),
        }
    }

    /// Returns the id of the sandbox with this id or name.
    pub(super) fn find(&self, id_or_name: &str) -> Option<String> {
        let mut all = self.sandboxes.values();
        let found = all.find(|sandbox| sandbox.id == id_or_name || sandbox.name == id_or_name);
        found.map(|sandbox| sandbox.id.clone())
    }

    /// Counts a read of the state of a sandbox, which may change it.
    pub(super) fn count_read(&mut self, id: &str) {
        let (now, reads) = (self.now, self.reads_per_state);
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        if !sandbox.is_changing() {
            return;
        }
        sandbox.reads_left = sandbox.reads_left.saturating_sub(1);
        if sandbox.reads_left == 0 {
            sandbox.enter_next(reads);
            sandbox.last_activity = now;
        }
        if sandbox.state == "destroyed" {
            let sandbox = self.sandboxes.remove(id);
            // Processes that are being killed may still write.
            _ = sandbox.map(|sandbox| fs::remove_dir_all(sandbox.machine_spec.root));
        }
    }

    /// Carries out a request to change a sandbox, or returns the status and message of an error.
    pub(super) fn change(&mut self, id: &str, action: &str) -> Result<(), (u16, String)> {
        let sandbox = &self.sandboxes[id];
        let state = sandbox.state;
        if sandbox.is_changing() {
            return Err((409, "Sandbox state change in progress".to_owned()));
        }
        let states: &[&str] = match (action, state) {
            ("start", "started") => return Ok(()),
            ("start", "stopped") => &["starting", "started"],
            ("start", "archived") => &["restoring", "starting", "started"],
            ("start", "paused") => &["resuming", "started"],
            ("stop", "started" | "paused") => &["stopping", "stopped"],
            ("delete", _) => &["destroying", "destroyed"],
            _ => return Err((400, format!("Sandbox is in state {state}, can't {action}"))),
        };
        if action == "start" {
            self.check_quota(sandbox.cpus())?;
        }
        let reads = self.reads_per_state;
        self.sandboxes.entry(id.to_owned()).and_modify(|sandbox| sandbox.change(states, reads));
        Ok(())
    }

    pub(super) fn set_state(&mut self, name: &str, state: &'static str) {
        let id = self.find(name).expect("a sandbox with this name");
        let reads = self.reads_per_state;
        self.sandboxes.entry(id).and_modify(|sandbox| sandbox.change(&[state], reads));
    }

    pub(super) fn advance(&mut self, duration: Millis) {
        self.now = self.now.plus(duration);
        let (now, reads) = (self.now, self.reads_per_state);
        for sandbox in self.sandboxes.values_mut().filter(|sandbox| sandbox.state == "started") {
            // 0 means never; without a value it is 15 minutes.
            let minutes = sandbox.request["autoStopInterval"].as_u64().unwrap_or(15);
            let interval = Millis::from_secs(minutes * 60);
            if interval > Millis::ZERO && now.minus(sandbox.last_activity) >= interval {
                sandbox.change(&["stopping", "stopped"], reads);
            }
        }
    }

    /// Notes that a sandbox is in use.
    pub(super) fn touch(&mut self, id: &str) {
        let now = self.now;
        self.sandboxes.entry(id.to_owned()).and_modify(|sandbox| sandbox.last_activity = now);
    }
}

/// Returns the directory of a volume, which exists afterwards.
fn volume_dir(dir: &Path, name: &str) -> PathBuf {
    let dir = dir.join("volumes").join(name);
    fs::create_dir_all(&dir).expect("create a directory");
    dir
}
