//! The real driver in the simulation: polled by hand, over fakes that allow a crash at every await.
//!
//! The invariants are checked by the testkit.

mod context;
mod context_provider;
mod drive;
mod model;
mod random;
mod sandboxes;
mod tool;
mod yielding_store;

use std::sync::Arc;

use longhaul_core::id::AgentName;
use longhaul_core::port::redact::NoRedaction;
use longhaul_core::port::tool::Tool;
use longhaul_engine::agent::AgentDirectory;
use longhaul_engine::agent::config::{
    GradingConfig, PerceptionConfig, PerceptionInterval, PerceptionSource, SandboxConfig,
};
use longhaul_engine::agent::{Agent, AgentRegistry, EffectRule, RunPolicyDefaults};
use longhaul_engine::background::spend_caps::SpendCaps;
use longhaul_engine::changes::JournalChangeFeed;
use longhaul_engine::counters::EngineCounters;
use longhaul_engine::drive::deltas::ReplyDeltaBroadcast;
use longhaul_engine::id_gen::IdGenerator;
use longhaul_engine::notifier::DriverNotifier;
use longhaul_engine::services::{AgentDefinitionCache, NoExternalTools, Services};
use longhaul_engine::tools::registry::ToolRegistry;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::sim::driver;
use longhaul_testkit::sim::driver_factory::DriverFactory;
use longhaul_testkit::sim::external_world::ExternalWorld;
use longhaul_testkit::sim::script::EFFECT_KEY_TEMPLATE;

use crate::suite::sim::context::SimContext;
use crate::suite::sim::context_provider::SimContextProvider;
use crate::suite::sim::drive::EngineProcess;
use crate::suite::sim::model::SimModels;
use crate::suite::sim::tool::{SimTool, TOOLS};
use crate::suite::sim::yielding_store::YieldingStore;

/// The control tools that scripts use.
const CONTROL_TOOLS: [&str; 6] =
    ["ask_human", "report_blocked", "report_progress", "wait", "finish", "run_agent"];

/// Creates the engine's own drivers for the simulation.
pub(super) fn engine_factory() -> DriverFactory {
    DriverFactory {
        spawn: |services, clock| Box::new(spawn_process(services, clock)),
        definition: Some(agent().definition_blob()),
    }
}

fn agent() -> Agent {
    let names = TOOLS.iter().chain(&CONTROL_TOOLS);
    Agent {
        models: vec!["scripted/sim".into()],
        tools: names.map(|name| (*name).to_owned()).collect(),
        // A template that uses the results of earlier steps: the task text must stay the script.
        prompt: "You are simulated.{% if previous %} After {{ previous.agent }}.{% endif %}".into(),
        effects: vec![EffectRule {
            tool: "pay".into(),
            match_glob: None,
            class: None,
            key: Some(EFFECT_KEY_TEMPLATE.into()),
        }],
        // Whether context is fetched before each turn is decided by the seed.
        perception: Some(PerceptionConfig {
            source: PerceptionSource::Named("sim".into()),
            every: PerceptionInterval::Run,
        }),
        sandbox: Some(SandboxConfig::default()),
        // Whether results are graded is decided by the seed.
        outcome: Some(GradingConfig { rubric: "Good.".into(), grader: None, max_rounds: 3 }),
        ..Agent::new(AgentName::new("simulated").unwrap())
    }
}

fn spawn_process(sim_services: &driver::SimServices, clock: &SimClock) -> EngineProcess {
    let ctx = SimContext::new(sim_services);
    let yielding = Arc::new(YieldingStore::new(sim_services));
    // Every agent has `read_output`, but no script calls it.
    let names = TOOLS.iter().chain(&["read_output"]);
    let tools = names.map(|name| Arc::new(SimTool::new(name, &ctx)) as Arc<dyn Tool>);
    let mut agents = AgentRegistry::default();
    agents.register(agent());
    let services = Services {
        store: yielding.clone(),
        records: yielding.clone(),
        auth: sim_services.auth.clone(),
        schedules: sim_services.schedules.clone(),
        clock: Arc::new(clock.clone()),
        ids: Arc::new(SimIds(sim_services.world.clone())),
        models: Arc::new(SimModels::new(&ctx)),
        tools: Arc::new(ToolRegistry::new(tools).unwrap()),
        tool_source: Arc::new(NoExternalTools),
        context_providers: Arc::new(SimContextProvider(ctx.clone())),
        redact: Arc::new(NoRedaction),
        deltas: ReplyDeltaBroadcast::default(),
        changes: JournalChangeFeed::default(),
        notifier: DriverNotifier::default(),
        definitions: AgentDefinitionCache::default(),
        provider_blocks: longhaul_engine::drive::provider_blocks::BlockedProviderCache::default(),
        counters: EngineCounters::default(),
        caps: SpendCaps::new(sim_services.caps.clone()).unwrap(),
        sandboxes: sandboxes::registry(&ctx),
        repositories: Arc::new(longhaul_core::port::repositories::NoRepositories),
        agents: AgentDirectory::new(agents, RunPolicyDefaults::default()),
    };
    EngineProcess::new(services, ctx, yielding)
}

/// Generates the ids of child runs, the same ones for the same seed.
#[derive(Debug)]
struct SimIds(ExternalWorld);

impl IdGenerator for SimIds {
    fn next_id_bits(&self) -> u128 {
        self.0.next_child_id().bits()
    }

    fn random_bytes(&self) -> Option<[u8; 32]> {
        None
    }
}
