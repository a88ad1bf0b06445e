//! A local provider in a temporary directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul_core::port::sandbox::{Sandbox, SandboxSpec, Sandboxes};
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_sandbox::local::{LocalOptions, LocalSandboxes};
use longhaul_testkit::conformance::sandboxes::fixture::SandboxHarness;

/// Size of the output that must not fill the memory.
const LONG_OUTPUT_BYTES: u64 = 10 << 30;

/// Clock that waits in real time. Its wall clock is fixed.
#[derive(Debug)]
pub(crate) struct WaitingClock;

#[async_trait::async_trait]
impl Clock for WaitingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000)
    }

    async fn sleep(&self, duration: Millis) {
        tokio::time::sleep(Duration::from_millis(duration.0)).await;
    }

    fn monotonic_nanos(&self) -> u64 {
        0
    }
}

/// Returns the options of a provider in this directory.
pub(crate) fn options(dir: &Path) -> LocalOptions {
    LocalOptions {
        dir: dir.join("sandboxes"),
        host: "this-machine".to_owned(),
        read_only: Vec::new(),
        launcher: None,
        project: None,
        clock: Arc::new(WaitingClock),
    }
}

/// Creates a provider that isolates with bubblewrap.
pub(crate) async fn new_harness() -> SandboxHarness {
    let temp = tempfile::tempdir().expect("create a temporary directory");
    let provider = LocalSandboxes::open(options(temp.path())).await.expect("open the provider");
    let host_dir = temp.path().join("host");
    std::fs::create_dir(&host_dir).expect("create a directory");
    let mut harness = SandboxHarness::new(provider, host_dir).with_guard(temp);
    if let Err(reason) = harness.provider.status().await.isolation {
        panic!("the tests need bubblewrap: {reason}");
    }
    harness.long_output_bytes = LONG_OUTPUT_BYTES;
    harness
}

/// Returns the path of an example of this crate, which is built with the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("the path of the tests");
    let dir = tests.ancestors().nth(2).expect("the directory of the build");
    dir.join("examples").join(name)
}

/// A local provider in a temporary directory.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) provider: LocalSandboxes,
    options: LocalOptions,
    temp: tempfile::TempDir,
    count: AtomicU32,
}

impl Local {
    /// Opens a provider that isolates with bubblewrap.
    pub(crate) async fn open() -> Self {
        let local = Self::open_with(|options| options).await;
        if let Err(reason) = local.provider.status().await.isolation {
            panic!("the tests need bubblewrap: {reason}");
        }
        local
    }

    /// Opens a provider with changed options.
    pub(crate) async fn open_with(change: impl FnOnce(LocalOptions) -> LocalOptions) -> Self {
        let temp = tempfile::tempdir().expect("create a temporary directory");
        let options = change(options(temp.path()));
        let provider = LocalSandboxes::open(options.clone()).await.expect("open the provider");
        Self { provider, options, temp, count: AtomicU32::new(0) }
    }

    /// Opens another provider with the same directory.
    pub(crate) async fn open_again(&self) -> LocalSandboxes {
        LocalSandboxes::open(self.options.clone()).await.expect("open the provider")
    }

    /// Returns a directory of this machine that no sandbox can see.
    pub(crate) fn host_dir(&self) -> &Path {
        self.temp.path()
    }

    pub(crate) fn sandboxes_dir(&self) -> &Path {
        &self.options.dir
    }

    /// Returns the spec of a new sandbox without network.
    pub(crate) fn new_spec(&self) -> SandboxSpec {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        SandboxSpec { name: format!("sandbox-{count}"), ..SandboxSpec::default() }
    }

    pub(crate) async fn create(&self) -> Arc<dyn Sandbox> {
        self.create_from(self.new_spec()).await
    }

    pub(crate) async fn create_from(&self, spec: SandboxSpec) -> Arc<dyn Sandbox> {
        self.provider.create(&spec).await.expect("create a sandbox")
    }
}
