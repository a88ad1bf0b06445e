//! The engine in the hands of the simulation: the real drive, polled by hand,
//! over doubles that let a crash in at every wait.
//!
//! Never: a rule. What must hold is checked by the testkit.

mod drive;
mod eye;
mod luck;
mod model;
mod tool;
mod world;
mod yielding;

use std::sync::Arc;

use longhaul_core::id::AgentName;
use longhaul_core::port::redact::NoSecrets;
use longhaul_core::port::tool::Tool;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::wish::{Every, Eye, Sight};
use longhaul_engine::feed::Feed;
use longhaul_engine::mint::UuidMint;
use longhaul_engine::nudge::Nudges;
use longhaul_engine::ports::{Definitions, NoSupplies, Ports};
use longhaul_engine::tail::Tail;
use longhaul_engine::toolbox::Toolbox;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::sim::driver;
use longhaul_testkit::sim::staff::Staff;

use crate::suite::sim::drive::RealProcess;
use crate::suite::sim::eye::SimEye;
use crate::suite::sim::model::OneModel;
use crate::suite::sim::tool::{SimTool, TOOLS};
use crate::suite::sim::world::World;
use crate::suite::sim::yielding::Yielding;

/// The tools of scripts that the heart itself knows.
const CONTROL: [&str; 5] = [
    "ask_human",
    "report_blocked",
    "report_progress",
    "wait",
    "finish",
];

/// The engine's own drivers.
pub(super) fn engine() -> Staff {
    Staff {
        hire: |ports, clock| Box::new(hire(ports, clock)),
        definition: Some(agent().definition()),
    }
}

fn agent() -> Agent {
    let named = TOOLS.iter().chain(&CONTROL);
    Agent {
        models: vec!["scripted/sim".into()],
        tools: named.map(|name| (*name).to_owned()).collect(),
        prompt: "You are simulated.".into(),
        // Whether it looks before each turn is fate's to say.
        perception: Some(Sight {
            eye: Eye::Named("sim".into()),
            every: Every::Run,
        }),
        ..Agent::new(AgentName::new("simulated").unwrap())
    }
}

fn hire(around: &driver::Ports, clock: &SimClock) -> RealProcess {
    let world = World::new(around);
    let yielding = Arc::new(Yielding::new(around));
    // `read_output` is every agent's, and no script calls it.
    let names = TOOLS.iter().chain(&["read_output"]);
    let tools = names.map(|name| Arc::new(SimTool::new(name, &world)) as Arc<dyn Tool>);
    let ports = Ports {
        store: yielding.clone(),
        shelves: yielding.clone(),
        keyring: around.keyring.clone(),
        clock: Arc::new(clock.clone()),
        mint: Arc::new(UuidMint),
        models: Arc::new(OneModel::new(&world)),
        tools: Arc::new(Toolbox::new(tools).unwrap()),
        supplies: Arc::new(NoSupplies),
        eyes: Arc::new(SimEye(world.clone())),
        redact: Arc::new(NoSecrets),
        feed: Feed::default(),
        tail: Tail::default(),
        nudges: Nudges::default(),
        definitions: Definitions::default(),
    };
    RealProcess::new(ports, world, yielding)
}
