//! Typed tools and a context provider of a program, used in ephemeral runs, which store nothing.
//!
//! A script replaces the model, so this runs anywhere.

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
use longhaul::{AgentDefinition, AgentName, IdError, Millis, RawJson, async_trait, models};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FareInput {
    /// Station of departure, such as `Oslo`
    from: String,
    /// Destination
    to: String,
    /// Number of bags; default 0
    #[schemars(range(max = 20))]
    bags: Option<u8>,
}

/// Calculates the price of a ticket.
#[derive(Debug)]
struct FareTool;

#[async_trait]
impl TypedTool for FareTool {
    type Input = FareInput;
    const NAME: &'static str = "fare";
    const DESCRIPTION: &'static str = "Returns the price of a ticket.";
    const CLASS: EffectClass = EffectClass::Pure;

    async fn call(&self, input: FareInput, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        if input.from == input.to {
            let message = "departure and destination are the same; choose another destination";
            return Err(ToolFailure::new(message));
        }
        ctx.progress.report(Some(50), "calculating the price");
        let price = 40 + 5 * u32::from(input.bags.unwrap_or_default());
        Ok(ToolOutput::text(format!("{price} euros")))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BookingInput {
    /// The train, such as `IC 61`
    train: String,
}

/// A booking system that stores each booking under the idempotency key of its call.
#[derive(Debug, Default)]
struct BookingTool {
    bookings: Mutex<BTreeMap<String, String>>,
}

impl BookingTool {
    fn lock_bookings(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.bookings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TypedTool for BookingTool {
    type Input = BookingInput;
    const NAME: &'static str = "book";
    const DESCRIPTION: &'static str = "Books a seat on a train.";
    const CLASS: EffectClass = EffectClass::Once;
    const TIMEOUT: Option<Millis> = Some(Millis::from_secs(20));
    const VERIFIES: bool = true;
    const IN_DOUBT: Option<InDoubtPolicy> = Some(InDoubtPolicy::Ask);

    fn rule_match_texts(&self, input: &BookingInput) -> Option<Vec<String>> {
        Some(vec![input.train.clone()])
    }

    async fn call(
        &self,
        input: BookingInput,
        ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let Some(counter) = ctx.context.get("counter") else {
            return Err(ToolFailure::new("no ticket counter is open"));
        };
        ctx.progress.report(None, "booking the seat");
        let booking = format!("{} at counter {}", input.train, counter.as_str());
        let key = ctx.idempotency_key.clone();
        self.lock_bookings().insert(key, booking.clone());
        Ok(ToolOutput::text(booking))
    }

    async fn verify(&self, _input: BookingInput, ctx: &ToolContext) -> VerifyOutcome {
        match self.lock_bookings().get(&ctx.idempotency_key) {
            Some(booking) => VerifyOutcome::Happened(ToolOutput::text(booking.as_str())),
            None => VerifyOutcome::NotHappened,
        }
    }
}

/// Reads the departure board of a station.
#[derive(Debug)]
struct DepartureBoard;

#[async_trait]
impl ContextProvider for DepartureBoard {
    async fn fetch(&self, request: &ContextRequest) -> Result<Perception, ContextError> {
        if request.input.to_value().is_null() {
            return Err(ContextError::permanent("the run has no input"));
        }
        let world = json!({ "station": "Oslo S", "late": ["IC 61"] });
        Ok(Perception {
            world: RawJson::from_serialize(&world),
            context: BTreeMap::from([("counter".to_owned(), RawJson::from_serialize(&7))]),
        })
    }
}

/// The model's replies, one per turn.
const SCRIPT: &str = "
replies:
  - tools: [{ name: fare, input: { from: Oslo, to: Bergen, bags: 2 } }]
  - tools: [{ name: book, input: { train: IC 61 } }]
  - text: 'You have a seat: {{ last_result }}.'
";

fn ticket_agent() -> Result<AgentDefinition, IdError> {
    Ok(AgentDefinition {
        tools: vec!["fare".to_owned(), "book".to_owned()],
        context: vec!["counter".to_owned()],
        perception: Some(PerceptionConfig {
            source: PerceptionSource::Named("departures".to_owned()),
            every: PerceptionInterval::Run,
        }),
        prompt: "You sell tickets at {{ perception.station }}. \
                 Late: {{ perception.late }}."
            .to_owned(),
        ..AgentDefinition::new(AgentName::new("tickets")?)
    })
}

pub(crate) async fn answer() -> Result<EphemeralOutcome, Box<dyn Error>> {
    let model = models::scripted("tickets", SCRIPT)?;
    let models = SingleModel::new("scripted/tickets", Arc::new(model));
    let tools = [typed(FareTool)?, typed(BookingTool::default())?];
    let mut providers = ContextProviderRegistry::default();
    providers.register("departures", Arc::new(DepartureBoard));
    let client = Ephemeral::new(Arc::new(models), tools)?.context_providers(Arc::new(providers));
    let agent = ticket_agent()?;
    let question = "Oslo to Bergen, two bags?";
    let first = client.ask(agent.clone(), Vec::new(), question).await?;
    // Nothing was stored, so the messages so far are passed in as the history.
    let second = client.ask(agent, first.messages, "Repeat that.").await?;
    Ok(second)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example prints its result")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let outcome = answer().await?;
    println!("{} ({:?})", outcome.text, outcome.tools_called);
    Ok(())
}
