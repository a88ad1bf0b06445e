//! Tools of one's own with typed inputs, somebody who looks at the world for the
//! agent, and a question of which nothing is kept.
//!
//! Never: asks a real model. A script stands for it, so that this runs anywhere.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul::context::{
    ContextError, ContextProvider, ContextProviderRegistry, ContextRequest, Perception,
    PerceptionConfig, PerceptionInterval, PerceptionSource,
};
use longhaul::ephemeral::{Ephemeral, EphemeralOutcome, SingleModel};
use longhaul::schemars::{self, JsonSchema};
use longhaul::tools::{
    EffectClass, InDoubtPolicy, ToolContext, ToolFailure, ToolOutput, TypedTool, VerifyOutcome,
    typed,
};
use longhaul::{AgentDefinition, AgentName, Millis, RawJson, async_trait, models};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FareInput {
    /// Where it begins, such as `Oslo`
    from: String,
    /// Where it ends
    to: String,
    /// With how many bags; none unless given
    #[schemars(range(max = 20))]
    bags: Option<u8>,
}

#[derive(Debug)]
struct FareTool {
    per_char: u32,
}

#[async_trait]
impl TypedTool for FareTool {
    type Input = FareInput;
    const NAME: &'static str = "fare";
    const DESCRIPTION: &'static str = "Says what a journey costs.";
    const CLASS: EffectClass = EffectClass::Pure;

    async fn call(&self, journey: FareInput, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        if journey.from == journey.to {
            let words = "it ends where it begins; ask for another one";
            return Err(ToolFailure::new(words));
        }
        ctx.progress.report(Some(50), "counting letters");
        let letters = journey.from.chars().chain(journey.to.chars()).count();
        let bags = usize::from(journey.bags.unwrap_or_default());
        let crowns = (letters + bags) * self.per_char as usize;
        Ok(ToolOutput::text(format!("{crowns} crowns")))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SeatInput {
    /// Which train, such as `IC 61`
    train: String,
}

/// An office that knows its bookings by the keys of our calls.
#[derive(Debug, Default)]
struct BookSeat {
    bookings: Mutex<BTreeMap<String, String>>,
}

impl BookSeat {
    fn lock_bookings(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.bookings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TypedTool for BookSeat {
    type Input = SeatInput;
    const NAME: &'static str = "book";
    const DESCRIPTION: &'static str = "Books a seat on a train.";
    const CLASS: EffectClass = EffectClass::Once;
    const TIMEOUT: Option<Millis> = Some(Millis::from_secs(20));
    const VERIFIES: bool = true;
    const IN_DOUBT: Option<InDoubtPolicy> = Some(InDoubtPolicy::Ask);

    fn subjects(&self, seat: &SeatInput) -> Option<Vec<String>> {
        Some(vec![seat.train.clone()])
    }

    async fn call(&self, seat: SeatInput, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let Some(counter) = ctx.context.get("counter") else {
            return Err(ToolFailure::new("no counter is open"));
        };
        ctx.progress.report(None, "the office is asked");
        let booked = format!("{} at counter {}", seat.train, counter.as_str());
        self.lock_bookings().insert(ctx.idempotency_key.clone(), booked.clone());
        Ok(ToolOutput::text(booked))
    }

    async fn verify(&self, _seat: SeatInput, ctx: &ToolContext) -> VerifyOutcome {
        match self.lock_bookings().get(&ctx.idempotency_key) {
            Some(booked) => VerifyOutcome::Happened(ToolOutput::text(booked.as_str())),
            None => VerifyOutcome::NotHappened,
        }
    }
}

/// Looks at the board of a station.
#[derive(Debug)]
struct DepartureBoard;

#[async_trait]
impl ContextProvider for DepartureBoard {
    async fn fetch(&self, glance: &ContextRequest) -> Result<Perception, ContextError> {
        if glance.input.to_value().is_null() {
            return Err(ContextError::permanent("nobody asked anything"));
        }
        let world = json!({ "station": "Oslo S", "late": ["IC 61"] });
        Ok(Perception {
            world: RawJson::from_serialize(&world),
            context: BTreeMap::from([("counter".to_owned(), RawJson::from_serialize(&7))]),
        })
    }
}

/// What the model says, turn by turn.
const SCRIPT: &str = "
replies:
  - tools: [{ name: fare, input: { from: Oslo, to: Bergen, bags: 2 } }]
  - tools: [{ name: book, input: { train: IC 61 } }]
  - text: 'You have a seat: {{ last_result }}.'
";

pub(crate) async fn answer() -> Result<EphemeralOutcome, Box<dyn Error>> {
    let model = models::scripted("fares", SCRIPT)?;
    let models = SingleModel::new("scripted/fares", Arc::new(model));
    let tools = [typed(FareTool { per_char: 7 })?, typed(BookSeat::default())?];
    let mut eyes = ContextProviderRegistry::default();
    eyes.register("board", Arc::new(DepartureBoard));
    let agent = AgentDefinition {
        tools: vec!["fare".to_owned(), "book".to_owned()],
        context: vec!["counter".to_owned()],
        perception: Some(PerceptionConfig {
            source: PerceptionSource::Named("board".to_owned()),
            every: PerceptionInterval::Run,
        }),
        prompt: "You sell tickets at {{ perception.station }}. \
                 Late: {{ perception.late }}."
            .to_owned(),
        ..AgentDefinition::new(AgentName::new("clerk")?)
    };
    let clerk = Ephemeral::new(Arc::new(models), tools)?.context_providers(Arc::new(eyes));
    let first = clerk.ask(agent.clone(), Vec::new(), "Oslo to Bergen, two bags?").await?;
    // Nothing was kept: what was said before is handed in again.
    let second = clerk.ask(agent, first.messages, "Say it again.").await?;
    Ok(second)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what came of it")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let outcome = answer().await?;
    println!("{} ({:?})", outcome.text, outcome.tools_called);
    Ok(())
}
