//! Tools that somebody else brings, as a test wants them.
//!
//! Never: brings what the test took away.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::Stay;
use longhaul_engine::ports::Supplies;
use longhaul_engine::toolbox::Equipped;
use longhaul_testkit::door::Door;

use crate::suite::house::tool::{Deeds, Hand};

/// The name under which an agent asks for them.
pub(crate) const NAME: &str = "mcp:shop";

/// Tools that somebody brings. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stock(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    tools: Option<Vec<&'static str>>,
    deeds: Deeds,
    let_go: Vec<RunId>,
    /// Whoever asks waits here first.
    door: Option<Door>,
    /// Whoever closes waits here afterwards.
    exit: Option<Door>,
    panics: bool,
}

impl Stock {
    /// Brings these from now on; none: nobody can be reached.
    pub(crate) fn brings(&self, tools: Option<Vec<&'static str>>) {
        self.0.lock().unwrap().tools = tools;
    }

    /// Whoever asks waits at this door from now on.
    pub(crate) fn behind(&self, door: &Door) {
        self.0.lock().unwrap().door = Some(door.clone());
    }

    /// Whoever closes waits at this door from now on.
    pub(crate) fn leaving_by(&self, door: &Door) {
        self.0.lock().unwrap().exit = Some(door.clone());
    }

    /// Whoever asks meets a mistake from now on.
    pub(crate) fn panics(&self) {
        self.0.lock().unwrap().panics = true;
    }

    pub(crate) fn deeds(&self) -> Deeds {
        self.0.lock().unwrap().deeds.clone()
    }

    /// The runs that were let go of, in order.
    pub(crate) fn let_go_of(&self) -> Vec<RunId> {
        self.0.lock().unwrap().let_go.clone()
    }
}

#[async_trait]
impl Supplies for Stock {
    async fn find(&self, name: &str, _stay: Stay) -> Option<Result<Vec<Equipped>, String>> {
        let door = self.0.lock().unwrap().door.clone();
        if let Some(door) = door {
            door.pass().await;
        }
        let panics = self.0.lock().unwrap().panics;
        assert!(!panics, "a shop with a mistake");
        let kept = self.0.lock().unwrap();
        let tools = (name == NAME).then_some(&kept.tools)?;
        let Some(tools) = tools else {
            return Some(Err("The shop can't be reached. Start it.".into()));
        };
        let hand = |name: &&str| Hand::new(name, EffectClass::Pure, &kept.deeds);
        let tools = tools.iter().map(hand);
        let equipped = tools.map(|hand| Equipped::new(Arc::new(hand)).unwrap());
        Some(Ok(equipped.collect()))
    }

    async fn let_go(&self, stay: Stay) {
        let exit = {
            let mut kept = self.0.lock().unwrap();
            kept.let_go.push(stay.run);
            kept.exit.clone()
        };
        if let Some(exit) = exit {
            exit.pass().await;
        }
    }
}
