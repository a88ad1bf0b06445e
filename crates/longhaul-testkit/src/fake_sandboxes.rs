//! Fake provider of sandboxes, in memory. A test tells it which calls fail or wait, and sees the
//! calls that were made.
//!
//! Invariant: a call that fails with [`SandboxError::Unavailable`] has had its effect, and only its
//! answer is lost. Any other failed call has had none.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    ExecExit, ExecStatus, Isolation, OutputReceiver, OutputStream, ProviderStatus, Sandbox,
    SandboxCommand, SandboxEntry, SandboxError, SandboxInfo, SandboxSpec, SandboxState, Sandboxes,
};

use tokio::sync::watch;

use crate::latch::Latch;

/// Name of the provider.
pub const FAKE_PROVIDER: &str = "fake";

/// Kind of a call to the provider or to one of its sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxOp {
    Create,
    Start,
    List,
    Stop,
    Delete,
    Exec,
    KillCommandsBefore,
    KeepAlive,
}

/// A call to the provider or to one of its sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxCall {
    pub op: SandboxOp,
    /// Name of the sandbox, or the unknown handle. Empty if the call is not about one sandbox.
    pub sandbox: String,
    /// Epoch of a command. `None` for calls without an epoch.
    pub epoch: Option<Epoch>,
}

/// A provider of sandboxes without isolation. Cheap to clone; clones share the sandboxes.
#[derive(Debug, Clone, Default)]
pub struct FakeSandboxes {
    state: Arc<Mutex<State>>,
    call_count: Arc<watch::Sender<usize>>,
}

#[derive(Debug, Default)]
struct State {
    sandboxes: BTreeMap<String, FakeState>,
    calls: Vec<SandboxCall>,
    failures: Vec<(SandboxOp, SandboxError)>,
    latches: Vec<(SandboxOp, Latch)>,
    running_max: usize,
}

#[derive(Debug, Clone, Default)]
struct FakeState {
    labels: BTreeMap<String, String>,
    is_running: bool,
    files: BTreeMap<String, Vec<u8>>,
    /// Number of commands that run now.
    commands: usize,
    /// Commands of earlier claims are refused.
    first_epoch: Epoch,
}

impl FakeSandboxes {
    fn with_state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the next call of this kind fail.
    pub fn fail_next(&self, op: SandboxOp, error: SandboxError) {
        self.with_state(|state| state.failures.push((op, error)));
    }

    /// Lets the next call of this kind wait at the returned latch after it has had its effect.
    pub fn block_next(&self, op: SandboxOp) -> Latch {
        let latch = Latch::closed();
        self.with_state(|state| state.latches.push((op, latch.clone())));
        latch
    }

    /// Returns all calls so far, in order.
    pub fn calls(&self) -> Vec<SandboxCall> {
        self.with_state(|state| state.calls.clone())
    }

    /// Returns how many calls of this kind there were so far.
    pub fn count(&self, op: SandboxOp) -> usize {
        self.with_state(|state| state.calls.iter().filter(|call| call.op == op).count())
    }

    /// Returns the names of the sandboxes that exist.
    pub fn names(&self) -> Vec<String> {
        self.with_state(|state| state.sandboxes.keys().cloned().collect())
    }

    /// Returns the names of the sandboxes that run.
    pub fn running(&self) -> Vec<String> {
        self.with_state(|state| {
            let running = state.sandboxes.iter().filter(|(_, sandbox)| sandbox.is_running);
            running.map(|(name, _)| name.clone()).collect()
        })
    }

    /// Returns how many sandboxes ran concurrently at most.
    pub fn running_max(&self) -> usize {
        self.with_state(|state| state.running_max)
    }

    /// Returns how many commands run now.
    pub fn commands(&self) -> usize {
        self.with_state(|state| state.sandboxes.values().map(|sandbox| sandbox.commands).sum())
    }

    /// Removes a sandbox, as if its machine had been lost.
    pub fn lose(&self, name: &str) {
        self.with_state(|state| state.sandboxes.remove(name));
    }

    /// Records a call, lets `effect` change the provider unless the call fails, and waits if the
    /// test wants so.
    async fn call<T>(
        &self,
        (op, sandbox, epoch): (SandboxOp, &str, Option<Epoch>),
        effect: impl FnOnce(&mut State) -> Result<T, SandboxError>,
    ) -> Result<T, SandboxError> {
        let (result, latch) = self.with_state(|state| {
            state.calls.push(SandboxCall { op, sandbox: name_of(sandbox).to_owned(), epoch });
            let failure = state.failures.iter().position(|(failing, _)| *failing == op);
            let failure = failure.map(|index| state.failures.remove(index).1);
            let result = match failure {
                None => effect(state),
                Some(error @ SandboxError::Unavailable(_)) => effect(state).and(Err(error)),
                Some(error) => Err(error),
            };
            let running = state.sandboxes.values().filter(|sandbox| sandbox.is_running).count();
            state.running_max = state.running_max.max(running);
            let latch = state.latches.iter().position(|(blocked, _)| *blocked == op);
            (result, latch.map(|index| state.latches.remove(index).1))
        });
        self.call_count.send_modify(|count| *count += 1);
        if let Some(latch) = latch {
            latch.wait().await;
        }
        result
    }

    /// Waits for the next call of any kind.
    pub async fn next_call(&self) {
        // An error is impossible: `self` holds the sender.
        _ = self.call_count.subscribe().changed().await;
    }

    /// Waits until a call has made the condition true. Panics after a timeout.
    pub async fn wait_until(&self, is_true: impl Fn(&Self) -> bool) {
        let mut calls = self.call_count.subscribe();
        let waiting = calls.wait_for(|_| is_true(self));
        let result = tokio::time::timeout(TIMEOUT, waiting).await;
        assert!(result.is_ok(), "the condition never came true: {:?}", self.calls());
    }

    fn connect(&self, info: SandboxInfo) -> Arc<dyn Sandbox> {
        Arc::new(FakeSandbox { provider: self.clone(), info })
    }
}

/// Timeout for a condition to come true.
const TIMEOUT: Duration = Duration::from_secs(20);

const HANDLE_PREFIX: &str = "handle-of-";

impl State {
    fn find(&mut self, handle: &str) -> Result<&mut FakeState, SandboxError> {
        let name = handle.strip_prefix(HANDLE_PREFIX).ok_or(SandboxError::NotFound)?;
        self.sandboxes.get_mut(name).ok_or(SandboxError::NotFound)
    }

    fn running(&mut self, handle: &str) -> Result<&mut FakeState, SandboxError> {
        let sandbox = self.find(handle)?;
        let stopped = || SandboxError::Unavailable("the sandbox does not run".to_owned());
        if sandbox.is_running { Ok(sandbox) } else { Err(stopped()) }
    }
}

fn name_of(handle: &str) -> &str {
    handle.strip_prefix(HANDLE_PREFIX).unwrap_or(handle)
}

impl FakeState {
    fn info(&self, name: &str) -> SandboxInfo {
        SandboxInfo {
            handle: format!("{HANDLE_PREFIX}{name}"),
            name: name.to_owned(),
            labels: self.labels.clone(),
            state: if self.is_running { SandboxState::Running } else { SandboxState::Stopped },
            isolation: Isolation::Remote,
            created_at: None,
        }
    }
}

#[async_trait]
impl Sandboxes for FakeSandboxes {
    fn name(&self) -> &str {
        FAKE_PROVIDER
    }

    fn host(&self) -> Option<String> {
        None
    }

    async fn status(&self) -> ProviderStatus {
        ProviderStatus { isolation: Ok(Isolation::Remote), notes: Vec::new() }
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let created = self.call((SandboxOp::Create, &spec.name, None), |state| {
            let sandbox = state.sandboxes.entry(spec.name.clone()).or_default();
            (sandbox.labels, sandbox.is_running) = (spec.labels.clone(), true);
            Ok(sandbox.info(&spec.name))
        });
        Ok(self.connect(created.await?))
    }

    async fn start(
        &self,
        handle: &str,
        _spec: &SandboxSpec,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let started = self.call((SandboxOp::Start, handle, None), |state| {
            let sandbox = state.find(handle)?;
            sandbox.is_running = true;
            Ok(sandbox.info(name_of(handle)))
        });
        Ok(self.connect(started.await?))
    }

    async fn get(&self, handle: &str) -> Result<SandboxInfo, SandboxError> {
        self.with_state(|state| state.find(handle).map(|sandbox| sandbox.info(name_of(handle))))
    }

    async fn list(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<SandboxInfo>, SandboxError> {
        let listed = self.call((SandboxOp::List, "", None), |state| {
            let has_labels = |sandbox: &FakeState| {
                labels.iter().all(|(key, value)| sandbox.labels.get(key) == Some(value))
            };
            let sandboxes = state.sandboxes.iter().filter(|(_, sandbox)| has_labels(sandbox));
            Ok(sandboxes.map(|(name, sandbox)| sandbox.info(name)).collect())
        });
        listed.await
    }

    async fn stop(&self, handle: &str) -> Result<(), SandboxError> {
        let stopped = self.call((SandboxOp::Stop, handle, None), |state| {
            state.find(handle)?.is_running = false;
            Ok(())
        });
        stopped.await
    }

    async fn delete(&self, handle: &str) -> Result<(), SandboxError> {
        let deleted = self.call((SandboxOp::Delete, handle, None), |state| {
            state.sandboxes.remove(name_of(handle));
            Ok(())
        });
        deleted.await
    }
}

/// A running sandbox of the provider.
#[derive(Debug)]
struct FakeSandbox {
    provider: FakeSandboxes,
    info: SandboxInfo,
}

/// Counts a command of a sandbox as long as it runs.
struct RunningCommand<'a>(&'a FakeSandbox);

impl Drop for RunningCommand<'_> {
    fn drop(&mut self) {
        let Self(sandbox) = self;
        sandbox.provider.with_state(|state| {
            if let Ok(found) = state.find(&sandbox.info.handle) {
                found.commands -= 1;
            }
        });
    }
}

fn missing_file(path: &str) -> SandboxError {
    SandboxError::File(format!("there is no file {path}"))
}

#[async_trait]
impl Sandbox for FakeSandbox {
    fn info(&self) -> &SandboxInfo {
        &self.info
    }

    fn workspace_dir(&self) -> Option<&Path> {
        None
    }

    async fn exec(
        &self,
        command: SandboxCommand,
        on_output: OutputReceiver<'_>,
    ) -> Result<ExecExit, SandboxError> {
        let mut running = None;
        let call = (SandboxOp::Exec, self.info.handle.as_str(), Some(command.epoch));
        let executed = self.provider.call(call, |state| {
            let sandbox = state.running(&self.info.handle)?;
            if command.epoch < sandbox.first_epoch {
                return Err(SandboxError::Refused("A newer claim uses the sandbox.".to_owned()));
            }
            sandbox.commands += 1;
            running = Some(RunningCommand(self));
            Ok(())
        });
        executed.await?;
        on_output(OutputStream::Stdout, b"done in the sandbox\n");
        drop(running);
        // The sandbox may have been lost while the command ran.
        self.provider.with_state(|state| state.find(&self.info.handle).map(|_| ()))?;
        Ok(ExecExit { status: ExecStatus::Exited(0), refusals: Default::default() })
    }

    async fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, SandboxError> {
        self.provider.with_state(|state| {
            let sandbox = state.running(&self.info.handle)?;
            let content = sandbox.files.get(path).ok_or_else(|| missing_file(path))?;
            let is_small = content.len() as u64 <= max_bytes;
            let too_large = || SandboxError::File(format!("{path} has too many bytes"));
            if is_small { Ok(content.clone()) } else { Err(too_large()) }
        })
    }

    async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError> {
        self.provider.with_state(|state| {
            let sandbox = state.running(&self.info.handle)?;
            sandbox.files.insert(path.to_owned(), content.to_vec());
            Ok(())
        })
    }

    async fn list(&self, path: &str) -> Result<Vec<SandboxEntry>, SandboxError> {
        Err(missing_file(path))
    }

    async fn upload(&self, _from: &Path, to: &str) -> Result<(), SandboxError> {
        Err(SandboxError::Refused(format!("A fake sandbox can't receive {to}.")))
    }

    async fn download(&self, from: &str, _to: &Path) -> Result<(), SandboxError> {
        Err(SandboxError::Refused(format!("A fake sandbox can't send {from}.")))
    }

    async fn kill_commands_before(&self, epoch: Epoch) -> Result<(), SandboxError> {
        let call = (SandboxOp::KillCommandsBefore, self.info.handle.as_str(), Some(epoch));
        let killed = self.provider.call(call, |state| {
            let sandbox = state.running(&self.info.handle)?;
            sandbox.first_epoch = sandbox.first_epoch.max(epoch);
            Ok(())
        });
        killed.await
    }

    async fn keep_alive(&self) -> Result<(), SandboxError> {
        let call = (SandboxOp::KeepAlive, self.info.handle.as_str(), None);
        self.provider.call(call, |state| state.running(&self.info.handle).map(|_| ())).await
    }
}
