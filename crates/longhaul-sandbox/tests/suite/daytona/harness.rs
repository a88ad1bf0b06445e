//! The fake of Daytona, and what the tests have in common.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use longhaul_core::port::sandbox::{
    ExecStatus, OutputStream, Sandbox, SandboxCommand, SandboxSpec, Sandboxes as _,
};
use longhaul_sandbox::daytona::{DaytonaOptions, DaytonaSandboxes};
use longhaul_testkit::daytona::{API_KEY, FakeDaytona};

use super::spec;

/// A fake whose exchanges are validated when it is dropped.
#[derive(Debug)]
pub(crate) struct CheckedFake(FakeDaytona);

impl CheckedFake {
    pub(crate) async fn start() -> Self {
        Self(FakeDaytona::start().await)
    }

    pub(crate) fn options(&self) -> DaytonaOptions {
        DaytonaOptions { url: self.url(), ..DaytonaOptions::new(API_KEY.to_owned()) }
    }

    pub(crate) fn provider(&self) -> DaytonaSandboxes {
        DaytonaSandboxes::new(&self.options()).expect("valid options")
    }

    /// Creates a sandbox with this name.
    pub(crate) async fn create(&self, name: &str) -> (DaytonaSandboxes, Arc<dyn Sandbox>) {
        let provider = self.provider();
        let sandbox = provider.create(&spec(name)).await.expect("create a sandbox");
        (provider, sandbox)
    }

    /// Returns how many requests with this method had this path, in which `*` is any segment.
    pub(crate) fn count(&self, method: &str, path: &str) -> usize {
        let exchanges = self.exchanges();
        let is_match = |actual: &str| {
            let (actual, path): (Vec<_>, Vec<_>) =
                (actual.split('/').collect(), path.split('/').collect());
            actual.len() == path.len()
                && actual
                    .iter()
                    .zip(path)
                    .all(|(segment, pattern)| pattern == "*" || *segment == pattern)
        };
        let matching = exchanges
            .iter()
            .filter(|exchange| exchange.method == method && is_match(&exchange.path));
        matching.count()
    }

    /// Returns the body of the last request that created a sandbox.
    pub(crate) fn create_request(&self) -> serde_json::Value {
        let exchanges = self.exchanges();
        let mut creates = exchanges
            .iter()
            .filter(|exchange| exchange.method == "POST" && exchange.path == "/sandbox");
        creates.next_back().expect("a request").request.clone()
    }
}

impl Deref for CheckedFake {
    type Target = FakeDaytona;

    fn deref(&self) -> &FakeDaytona {
        &self.0
    }
}

impl Drop for CheckedFake {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.pending_faults(), 0, "a fault has not happened");
            spec::check(&self.exchanges());
        }
    }
}

/// Returns the spec of a sandbox with this name.
pub(crate) fn spec(name: &str) -> SandboxSpec {
    let labels = BTreeMap::from([("longhaul".to_owned(), "test".to_owned())]);
    SandboxSpec { name: name.to_owned(), labels, ..SandboxSpec::default() }
}

/// Runs a script that must succeed, and returns its standard output.
pub(crate) async fn run(sandbox: &dyn Sandbox, script: &str) -> String {
    let mut stdout = Vec::new();
    let mut on_output = |stream, bytes: &[u8]| {
        if stream == OutputStream::Stdout {
            stdout.extend_from_slice(bytes);
        }
    };
    let exit = sandbox.exec(SandboxCommand::shell(script), &mut on_output).await.expect("run");
    assert_eq!(exit.status, ExecStatus::Exited(0), "{script}");
    String::from_utf8(stdout).expect("text")
}
