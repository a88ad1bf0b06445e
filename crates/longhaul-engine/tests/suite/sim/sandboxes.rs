//! Provider of sandboxes for the real driver. It fails at times, and waits after each effect, so that
//! a crash can happen before the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::sandbox::{
    ProviderStatus, Sandbox, SandboxError, SandboxInfo, SandboxSpec, Sandboxes,
};
use longhaul_engine::sandboxes::{SandboxRegistry, SandboxSettings};
use longhaul_testkit::fake_sandboxes::{FakeSandboxes, SandboxOp};
use longhaul_testkit::sim::sandboxes::{SIM_PROVIDER, SIM_SLOTS, fail_sometimes};

use crate::suite::sim::context::SimContext;

/// Returns the registry with the only provider.
pub(super) fn registry(ctx: &SimContext) -> SandboxRegistry {
    let mut registry = SandboxRegistry::new(SandboxSettings {
        provider: SIM_PROVIDER.to_owned(),
        max_running: SIM_SLOTS,
        ..SandboxSettings::default()
    });
    registry.register(Arc::new(SimSandboxes(ctx.clone())));
    registry
}

#[derive(Debug)]
struct SimSandboxes(SimContext);

impl SimSandboxes {
    fn inner(&self) -> &FakeSandboxes {
        &self.0.external.sandboxes
    }

    fn fail_sometimes(&self, op: SandboxOp, name: &str) {
        let random = &self.0.random;
        fail_sometimes(self.inner(), (op, name), &mut |bound| random.below(bound));
    }
}

#[async_trait]
impl Sandboxes for SimSandboxes {
    fn name(&self) -> &str {
        SIM_PROVIDER
    }

    fn host(&self) -> Option<String> {
        None
    }

    async fn status(&self) -> ProviderStatus {
        self.inner().status().await
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        self.fail_sometimes(SandboxOp::Create, &spec.name);
        let created = self.inner().create(spec).await;
        self.0.random.yield_some().await;
        created
    }

    async fn start(
        &self,
        handle: &str,
        spec: &SandboxSpec,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        self.fail_sometimes(SandboxOp::Start, &spec.name);
        let started = self.inner().start(handle, spec).await;
        self.0.random.yield_some().await;
        started
    }

    async fn get(&self, handle: &str) -> Result<SandboxInfo, SandboxError> {
        self.inner().get(handle).await
    }

    async fn list(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<SandboxInfo>, SandboxError> {
        let listed = self.inner().list(labels).await;
        self.0.random.yield_some().await;
        listed
    }

    async fn stop(&self, handle: &str) -> Result<(), SandboxError> {
        let stopped = self.inner().stop(handle).await;
        self.0.random.yield_some().await;
        stopped
    }

    async fn delete(&self, handle: &str) -> Result<(), SandboxError> {
        self.inner().delete(handle).await
    }
}
