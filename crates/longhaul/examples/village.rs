//! A small game world with three characters. Each of them is an agent that perceives its
//! surroundings on a grid, acts with the skills `move`, `say` and `trade`, does something on its own
//! at idle ticks with a cheap model, and reacts to a player with a better one. All runs of a
//! character are in one lane, so it does one thing at a time.
//!
//! Scripts replace the models, so this runs anywhere. With `MOONSHOT_API_KEY` or `KIMI_API_KEY` set,
//! real models play the characters.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul::context::{ContextError, ContextProvider, ContextRequest, Perception};
use longhaul::schemars::{self, JsonSchema};
use longhaul::tools::{EffectClass, Tool, ToolContext, ToolFailure, ToolOutput, TypedTool, typed};
use longhaul::{
    Agent, Error, Overlap, RawJson, Runtime, RuntimeBuilder, Schedule, async_trait, models,
};
use serde::Deserialize;
use serde_json::json;

/// Width and height of the grid.
const GRID_SIZE: i32 = 6;

/// Distance up to which a character perceives others.
const PERCEPTION_RADIUS: i32 = 2;

/// A character in the world. The player is one, too.
#[derive(Debug, Clone)]
struct Character {
    position: (i32, i32),
    gold: u32,
    items: Vec<String>,
}

/// State of the game. In a real program it is a database or a game server.
#[derive(Debug, Default)]
struct World {
    characters: BTreeMap<String, Character>,
    /// Results by idempotency key: an action that is repeated after a crash happens once.
    done: BTreeMap<String, String>,
}

impl World {
    fn character(&mut self, name: &str) -> Result<&mut Character, ToolFailure> {
        let found = self.characters.get_mut(name);
        found.ok_or_else(|| ToolFailure::new(format!("there is nobody named {name}")))
    }

    /// Returns what a character perceives: its own state, and everybody close to it.
    fn perceive(&self, name: &str) -> Option<serde_json::Value> {
        let observer = self.characters.get(name)?;
        let distance = |other: &Character| {
            let (x, y) =
                (other.position.0 - observer.position.0, other.position.1 - observer.position.1);
            x.abs().max(y.abs())
        };
        let others = self.characters.iter().filter(|(other, _)| *other != name);
        let others = others.filter(|(_, other)| distance(other) <= PERCEPTION_RADIUS);
        let others = others.map(|(other, state)| {
            json!({ "name": other, "position": state.position, "items": state.items })
        });
        Some(json!({
            "position": observer.position, "gold": observer.gold, "items": observer.items,
            "nearby": others.collect::<Vec<_>>(),
        }))
    }
}

/// The world, shared by the context provider and the tools.
#[derive(Debug, Clone, Default)]
struct SharedWorld(Arc<Mutex<World>>);

impl SharedWorld {
    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs an action of the run's character, once per call.
    fn act(
        &self,
        ctx: &ToolContext,
        action: impl FnOnce(&mut World, &str) -> Result<String, ToolFailure>,
    ) -> Result<ToolOutput, ToolFailure> {
        // The context provider says who acts; the model can't choose somebody else.
        let name = ctx.context.get("character").map(RawJson::to_value);
        let name = name.as_ref().and_then(|name| name.as_str());
        let name = name.ok_or_else(|| ToolFailure::new("no character acts"))?;
        let mut world = self.lock();
        if let Some(result) = world.done.get(&ctx.idempotency_key) {
            return Ok(ToolOutput::text(result.as_str()));
        }
        let result = action(&mut world, name)?;
        world.done.insert(ctx.idempotency_key.clone(), result.clone());
        Ok(ToolOutput::text(result))
    }
}

#[async_trait]
impl ContextProvider for SharedWorld {
    async fn fetch(&self, request: &ContextRequest) -> Result<Perception, ContextError> {
        let name = request.agent.as_str();
        let unknown = || ContextError::permanent(format!("{name} is not in the world"));
        let world_view = self.lock().perceive(name).ok_or_else(unknown)?;
        let character = RawJson::from_serialize(&name);
        Ok(Perception {
            world: RawJson::from_serialize(&world_view),
            context: BTreeMap::from([("character".to_owned(), character)]),
        })
    }
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Direction {
    North,
    East,
    South,
    West,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MoveInput {
    /// Direction of the step
    direction: Direction,
}

#[derive(Debug)]
struct MoveTool(SharedWorld);

#[async_trait]
impl TypedTool for MoveTool {
    type Input = MoveInput;
    const NAME: &'static str = "move";
    const DESCRIPTION: &'static str = "Moves you one step.";
    const CLASS: EffectClass = EffectClass::Keyed;

    async fn call(&self, input: MoveInput, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let (x, y) = match input.direction {
            Direction::North => (0, -1),
            Direction::East => (1, 0),
            Direction::South => (0, 1),
            Direction::West => (-1, 0),
        };
        self.0.act(ctx, |world, name| {
            let character = world.character(name)?;
            let position = (character.position.0 + x, character.position.1 + y);
            if ![position.0, position.1].iter().all(|part| (0..GRID_SIZE).contains(part)) {
                return Err(ToolFailure::new("the world ends there; choose another direction"));
            }
            character.position = position;
            Ok(format!("you are at {position:?}"))
        })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SpeakInput {
    /// Sentence for everybody nearby
    #[schemars(length(max = 200))]
    text: String,
}

#[derive(Debug)]
struct SpeakTool(SharedWorld);

#[async_trait]
impl TypedTool for SpeakTool {
    type Input = SpeakInput;
    const NAME: &'static str = "say";
    const DESCRIPTION: &'static str = "Says something to everybody nearby.";
    const CLASS: EffectClass = EffectClass::Keyed;

    async fn call(&self, input: SpeakInput, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        self.0.act(ctx, |_, name| {
            println!("{name}: {}", input.text);
            Ok("done".to_owned())
        })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TradeInput {
    /// Name of the buyer
    buyer: String,
    /// Item that you sell
    item: String,
    /// Price in gold
    price: u32,
}

#[derive(Debug)]
struct TradeTool(SharedWorld);

#[async_trait]
impl TypedTool for TradeTool {
    type Input = TradeInput;
    const NAME: &'static str = "trade";
    const DESCRIPTION: &'static str = "Sells one of your items to somebody.";
    const CLASS: EffectClass = EffectClass::Keyed;

    async fn call(&self, input: TradeInput, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let TradeInput { buyer, item, price } = input;
        self.0.act(ctx, |world, seller| {
            let seller_state = world.character(seller)?;
            let Some(index) = seller_state.items.iter().position(|owned| *owned == item) else {
                return Err(ToolFailure::new(format!("you have no {item}")));
            };
            let buyer_state = world.character(&buyer)?;
            let Some(remaining_gold) = buyer_state.gold.checked_sub(price) else {
                return Err(ToolFailure::new(format!(
                    "{buyer} has only {} gold",
                    buyer_state.gold
                )));
            };
            buyer_state.gold = remaining_gold;
            buyer_state.items.push(item.clone());
            let seller_state = world.character(seller)?;
            seller_state.gold += price;
            seller_state.items.remove(index);
            Ok(format!("{item} for {price} gold"))
        })
    }
}

/// A character that an agent plays: its prompt, and the scripts for idle ticks and conversations.
struct Role {
    name: &'static str,
    personality: &'static str,
    idle: &'static str,
    conversation: &'static str,
}

const ROLES: [Role; 3] = [
    Role {
        name: "smith",
        personality: "You forge swords and sell each for 5 gold.",
        idle: "replies: [{ tools: [{ name: move, input: { direction: east } }] }, { text: 'Back to work.' }]",
        conversation: "
replies:
  - tools: [{ name: trade, input: { buyer: Ada, item: sword, price: 5 } }]
  - text: 'Sold: {{ last_result }}.'
",
    },
    Role {
        name: "baker",
        personality: "You bake bread and praise it.",
        idle: "replies: [{ tools: [{ name: say, input: { text: 'Fresh bread!' } }] }, { text: 'Nobody comes.' }]",
        conversation: "replies: [{ text: 'The best bread far and wide.' }]",
    },
    Role {
        name: "guard",
        personality: "You patrol and distrust everybody.",
        idle: "replies: [{ tools: [{ name: move, input: { direction: south } }] }, { text: 'All quiet.' }]",
        conversation: "replies: [{ tools: [{ name: say, input: { text: 'Halt!' } }] }, { text: 'I watch you.' }]",
    },
];

/// Returns the agent of a role, with its model for idle ticks and its model for everything else.
fn agent(role: &Role, tools: &[Arc<dyn Tool>], [idle, conversation]: [String; 2]) -> Agent {
    let prompt = format!(
        "You are the {} of a small town. {}\nYou are at {{{{ perception.position }}}} and see \
         {{{{ perception.nearby }}}}.\nStay in character. Keep responses under 200 characters.",
        role.name, role.personality
    );
    let agent = Agent::new(role.name)
        .model(conversation)
        .prompt(prompt)
        .context_provider("world")
        .context("character")
        .define(|agent| {
            agent.idle_models = vec![idle];
            agent.lane = Some(format!("npc-{}", role.name));
        });
    tools.iter().fold(agent, |agent, tool| agent.tool(Arc::clone(tool)))
}

fn create_world() -> SharedWorld {
    let world = SharedWorld::default();
    for (name, position, items) in [
        ("smith", (1, 1), vec!["sword"]),
        ("baker", (2, 1), vec!["bread"]),
        ("guard", (4, 4), Vec::new()),
        ("Ada", (1, 2), Vec::new()),
    ] {
        let items = items.into_iter().map(str::to_owned).collect();
        let character = Character { position, gold: 10, items };
        world.lock().characters.insert(name.to_owned(), character);
    }
    world
}

async fn open(world: &SharedWorld) -> Result<Runtime, Error> {
    let keys = ["MOONSHOT_API_KEY", "KIMI_API_KEY"];
    let is_real = keys.iter().any(|key| std::env::var_os(key).is_some());
    let tools = [
        typed(MoveTool(world.clone()))?,
        typed(SpeakTool(world.clone()))?,
        typed(TradeTool(world.clone()))?,
    ];
    let mut builder: RuntimeBuilder =
        Runtime::builder().store("sqlite::memory:").context_provider("world", world.clone());
    for role in &ROLES {
        let models = match is_real {
            true => ["moonshot/kimi-k2-0905-chat", "moonshot/kimi-k2.5"].map(str::to_owned),
            false => {
                let names = ["idle", "talk"].map(|kind| format!("{}-{kind}", role.name));
                for (name, script) in names.iter().zip([role.idle, role.conversation]) {
                    builder = builder.model(name, models::scripted(name, script)?);
                }
                names
            }
        };
        builder = builder.agent(agent(role, &tools, models));
    }
    builder.open().await
}

/// Lets every character do something on its own, then the player buys a sword, and returns what the
/// characters answered.
async fn play(runtime: &Runtime) -> Result<Vec<String>, Error> {
    let mut runs = Vec::new();
    for role in &ROLES {
        let name = format!("{}-idle", role.name);
        let idle = Schedule::every(&name, Duration::from_secs(30), role.name);
        runtime.schedules().add(idle.event("idle_tick").overlap(Overlap::Skip)).await?;
        // The first tick happens now, and not only after the interval.
        runs.push((role.name, runtime.schedules().run(&name).await?));
    }
    let player = json!({ "name": "Ada" });
    let approach = runtime.event("guard", "player_proximity").actor(&player);
    runs.push(("guard", approach.send().await?));
    let request = json!({ "message": "A sword, please." });
    let request = runtime.event("smith", "player_action").actor(&player).payload(request);
    runs.push(("smith", request.send().await?));
    let mut texts = Vec::new();
    for (name, run) in runs {
        texts.push(format!("{name}: {}", run.wait().await?.text()?));
    }
    Ok(texts)
}

/// Plays one round and returns the answers, and the player's gold and items at the end.
pub(crate) async fn play_round() -> Result<(Vec<String>, u32, Vec<String>), Error> {
    let world = create_world();
    let runtime = open(&world).await?;
    let worker = runtime.worker().max_concurrent(4).spawn();
    let texts = play(&runtime).await;
    worker.stop().await?;
    let player = world.lock().characters.get("Ada").cloned();
    let (gold, items) = player.map_or((0, Vec::new()), |player| (player.gold, player.items));
    Ok((texts?, gold, items))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    let (texts, gold, items) = play_round().await?;
    for text in texts {
        println!("{text}");
    }
    println!("Ada has {gold} gold and {items:?}");
    Ok(())
}
