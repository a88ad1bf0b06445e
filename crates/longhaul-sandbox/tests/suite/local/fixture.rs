//! A local provider in a temporary directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
