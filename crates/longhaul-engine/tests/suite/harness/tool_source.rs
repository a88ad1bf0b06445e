//! A fake source of external tools.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::RunClaimId;
use longhaul_engine::services::ExternalToolSource;
use longhaul_engine::tools::registry::RegisteredTool;
use longhaul_testkit::latch::Latch;

use crate::suite::harness::tool::{EffectLog, FakeTool};

/// Name under which an agent requests these tools.
pub(crate) const SOURCE_NAME: &str = "mcp:shop";

/// A fake source of external tools. Cheap to clone; clones share state.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeToolSource(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    tools: Option<Vec<&'static str>>,
    effects: EffectLog,
    released: Vec<RunId>,
    /// Latch at which loading waits.
    load_latch: Option<Latch>,
    /// Latch at which releasing waits.
    release_latch: Option<Latch>,
    panics: bool,
}

impl FakeToolSource {
    /// Sets the tools that are loaded. `None` means that the server is unreachable.
    pub(crate) fn set_tools(&self, tools: Option<Vec<&'static str>>) {
        self.0.lock().unwrap().tools = tools;
    }

    /// Makes loading wait at this latch.
    pub(crate) fn block_load(&self, latch: &Latch) {
        self.0.lock().unwrap().load_latch = Some(latch.clone());
    }

    /// Makes releasing wait at this latch.
    pub(crate) fn block_release(&self, latch: &Latch) {
        self.0.lock().unwrap().release_latch = Some(latch.clone());
    }

    /// Makes loading panic.
    pub(crate) fn panic_on_load(&self) {
        self.0.lock().unwrap().panics = true;
    }

    pub(crate) fn effects(&self) -> EffectLog {
        self.0.lock().unwrap().effects.clone()
    }

    /// Returns the runs whose tools were released, in order.
    pub(crate) fn released_runs(&self) -> Vec<RunId> {
        self.0.lock().unwrap().released.clone()
    }
}

#[async_trait]
impl ExternalToolSource for FakeToolSource {
    async fn load_tools(
        &self,
        name: &str,
        _claim: RunClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        let latch = self.0.lock().unwrap().load_latch.clone();
        if let Some(latch) = latch {
            latch.wait().await;
        }
        let panics = self.0.lock().unwrap().panics;
        assert!(!panics, "a bug in the tool source");
        let state = self.0.lock().unwrap();
        let tools = (name == SOURCE_NAME).then_some(&state.tools)?;
        let Some(tools) = tools else {
            return Some(Err("The shop can't be reached. Start it.".into()));
        };
        let new_tool = |name: &&str| FakeTool::new(name, EffectClass::Pure, &state.effects);
        let tools = tools.iter().map(new_tool);
        let registered =
            tools.map(|new_tool| RegisteredTool::from_tool(Arc::new(new_tool)).unwrap());
        Some(Ok(registered.collect()))
    }

    async fn release_tools(&self, claim: RunClaimId) {
        let exit = {
            let mut state = self.0.lock().unwrap();
            state.released.push(claim.run);
            state.release_latch.clone()
        };
        if let Some(exit) = exit {
            exit.wait().await;
        }
    }
}
