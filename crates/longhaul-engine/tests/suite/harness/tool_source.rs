//! Tools that somebody else brings, as a test wants them.
//!
//! Never: brings what the test took away.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::ClaimId;
use longhaul_engine::services::ExternalToolSource;
use longhaul_engine::tool_registry::RegisteredTool;
use longhaul_testkit::latch::Latch;

use crate::suite::harness::tool::{EffectLog, FakeTool};

/// The name under which an agent asks for them.
pub(crate) const SOURCE_NAME: &str = "mcp:shop";

/// Tools that somebody brings. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeToolSource(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    tools: Option<Vec<&'static str>>,
    effects: EffectLog,
    released: Vec<RunId>,
    /// Whoever asks waits here first.
    load_latch: Option<Latch>,
    /// Whoever closes waits here afterwards.
    release_latch: Option<Latch>,
    panics: bool,
}

impl FakeToolSource {
    /// Brings these from now on; none: nobody can be reached.
    pub(crate) fn set_tools(&self, tools: Option<Vec<&'static str>>) {
        self.0.lock().unwrap().tools = tools;
    }

    /// Whoever asks waits at this door from now on.
    pub(crate) fn block_load(&self, door: &Latch) {
        self.0.lock().unwrap().load_latch = Some(door.clone());
    }

    /// Whoever closes waits at this door from now on.
    pub(crate) fn block_release(&self, door: &Latch) {
        self.0.lock().unwrap().release_latch = Some(door.clone());
    }

    /// Whoever asks meets a mistake from now on.
    pub(crate) fn panic_on_load(&self) {
        self.0.lock().unwrap().panics = true;
    }

    pub(crate) fn effects(&self) -> EffectLog {
        self.0.lock().unwrap().effects.clone()
    }

    /// The runs that were let go of, in order.
    pub(crate) fn released_runs(&self) -> Vec<RunId> {
        self.0.lock().unwrap().released.clone()
    }
}

#[async_trait]
impl ExternalToolSource for FakeToolSource {
    async fn load(
        &self,
        name: &str,
        _stay: ClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        let door = self.0.lock().unwrap().load_latch.clone();
        if let Some(door) = door {
            door.wait().await;
        }
        let panics = self.0.lock().unwrap().panics;
        assert!(!panics, "a shop with a mistake");
        let kept = self.0.lock().unwrap();
        let tools = (name == SOURCE_NAME).then_some(&kept.tools)?;
        let Some(tools) = tools else {
            return Some(Err("The shop can't be reached. Start it.".into()));
        };
        let hand = |name: &&str| FakeTool::new(name, EffectClass::Pure, &kept.effects);
        let tools = tools.iter().map(hand);
        let equipped = tools.map(|hand| RegisteredTool::new(Arc::new(hand)).unwrap());
        Some(Ok(equipped.collect()))
    }

    async fn release(&self, stay: ClaimId) {
        let exit = {
            let mut kept = self.0.lock().unwrap();
            kept.released.push(stay.run);
            kept.release_latch.clone()
        };
        if let Some(exit) = exit {
            exit.wait().await;
        }
    }
}
