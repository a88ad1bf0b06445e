//! A Docker engine for the tests: the one of `LONGHAUL_TEST_DOCKER`, or one that runs for a test.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use longhaul_core::port::sandbox::SandboxSpec;
use longhaul_sandbox::docker::{DockerOptions, DockerSandboxes};
use longhaul_testkit::conformance::sandboxes::fixture::SandboxHarness;

/// Image of busybox that `scripts/docker-engine` makes.
pub(super) const IMAGE: &str = "longhaul-test";

/// A Docker engine that ends with this value, if it was started for it.
#[derive(Debug)]
pub(super) struct RealEngine {
    pub(super) socket: PathBuf,
    process: Option<(Child, Option<ChildStdin>)>,
}

impl RealEngine {
    /// Returns the engine. `None` means that this machine has none, so that a test of it can't run.
    #[expect(clippy::print_stdout, reason = "a test that skips checks must print a notice")]
    pub(super) fn start() -> Option<Self> {
        if let Some(socket) = std::env::var_os("LONGHAUL_TEST_DOCKER") {
            return Some(Self { socket: socket.into(), process: None });
        }
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let is_installed = |name| std::env::split_paths(&paths).any(|dir| dir.join(name).exists());
        if !rustix::process::getuid().is_root() || !["dockerd", "busybox"].iter().all(is_installed)
        {
            println!(
                "no Docker engine can be started here: the checks of a real one are skipped. \
                 `scripts/docker-engine --install` installs what is missing"
            );
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/docker-engine");
        let mut process =
            Command::new(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut socket = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut socket).unwrap();
        assert!(!socket.is_empty(), "scripts/docker-engine failed: its message is above");
        let stdin = process.stdin.take();
        Some(Self { socket: socket.trim_end().into(), process: Some((process, stdin)) })
    }

    /// Returns a provider with a directory of its own, and a spec of its sandboxes.
    pub(super) fn harness(&self) -> SandboxHarness {
        let dir = tempfile::tempdir().unwrap();
        let provider = DockerSandboxes::new(options(&self.socket, &dir.path().join("sandboxes")));
        let empty = dir.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        let spec = SandboxSpec { image: Some(IMAGE.to_owned()), ..SandboxSpec::default() };
        SandboxHarness { spec, ..SandboxHarness::new(provider, empty) }.with_guard(dir)
    }
}

impl Drop for RealEngine {
    fn drop(&mut self) {
        if let Some((process, stdin)) = &mut self.process {
            // The script ends with its input.
            drop(stdin.take());
            _ = process.wait();
        }
    }
}

pub(super) fn options(socket: &Path, dir: &Path) -> DockerOptions {
    DockerOptions {
        socket: Some(socket.to_owned()),
        dir: dir.to_owned(),
        image: "missing-default-image".to_owned(),
        host: "test-host".to_owned(),
        runtime: None,
    }
}
