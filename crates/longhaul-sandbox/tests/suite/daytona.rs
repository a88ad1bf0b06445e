//! The provider of sandboxes at Daytona, against a fake of Daytona that really runs the commands.
//! All requests and responses are validated against Daytona's API descriptions.

mod faults;
mod harness;
mod lifecycle;
mod requests;
mod spec;

use longhaul_testkit::conformance::sandboxes::fixture::SandboxHarness;

/// Number of bytes of the check on long output. More than is stored in the sandbox at a time.
const LONG_OUTPUT_BYTES: u64 = 40 << 20;

longhaul_testkit::sandbox_conformance!(conformance, fresh);

async fn fresh() -> SandboxHarness {
    let fake = harness::CheckedFake::start().await;
    let dir = tempfile::tempdir().expect("create a directory");
    let mut harness = SandboxHarness::new(fake.provider(), dir.path().to_owned());
    harness.long_output_bytes = LONG_OUTPUT_BYTES;
    harness.with_guard((fake, dir))
}
