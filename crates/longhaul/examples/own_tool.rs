//! A tool of one's own with a typed input, and a question of which nothing is
//! kept.
//!
//! Never: asks a real model. A script stands for it, so that this runs anywhere.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul::stateless::{Ephemeral, OneModel, Outcome};
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::AgentName;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_engine::agent::Agent;
use longhaul_engine::clock::SystemClock;
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_tool::typed::{TypedTool, typed};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Journey {
    /// Where it begins, such as `Oslo`
    from: String,
    /// Where it ends
    to: String,
    /// With how many bags; none unless given
    #[schemars(range(max = 20))]
    bags: Option<u8>,
}

#[derive(Debug)]
struct Fare {
    per_letter: u32,
}

#[async_trait]
impl TypedTool for Fare {
    type Input = Journey;
    const NAME: &'static str = "fare";
    const DESCRIPTION: &'static str = "Says what a journey costs.";
    const CLASS: EffectClass = EffectClass::Pure;

    async fn call(
        &self,
        journey: Journey,
        around: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        if journey.from == journey.to {
            let words = "it ends where it begins; ask for another one";
            return Err(ToolFailure::new(words));
        }
        around.progress.report(Some(50), "counting letters");
        let letters = journey.from.chars().chain(journey.to.chars()).count();
        let bags = usize::from(journey.bags.unwrap_or_default());
        let crowns = (letters + bags) * self.per_letter as usize;
        Ok(ToolOutput::text(format!("{crowns} crowns")))
    }
}

/// What the model says, call by call.
const SCRIPT: &str = "
replies:
  - tools: [{ name: fare, input: { from: Oslo, to: Bergen, bags: 2 } }]
  - text: 'It costs {{ last_result }}.'
";

pub(crate) async fn answer() -> Result<Outcome, Box<dyn Error>> {
    let script = Script::parse("fares", SCRIPT)?;
    let model = ScriptedModel::new("fares", script, Arc::new(SystemClock));
    let models = OneModel::new("scripted/fares", Arc::new(model));
    let fare = typed(Fare { per_letter: 7 })?;
    let agent = Agent {
        tools: vec!["fare".to_owned()],
        prompt: "You sell tickets.".to_owned(),
        ..Agent::new(AgentName::new("clerk")?)
    };
    let clerk = Ephemeral::new(Arc::new(models), [fare])?;
    let first = clerk
        .ask(agent.clone(), Vec::new(), "Oslo to Bergen, two bags?")
        .await?;
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
