//! Models that a program implements, and the scripted model, which needs no API key.
//!
//! ```
//! use longhaul::{Agent, Runtime, models};
//!
//! # fn example() -> Result<(), longhaul::Error> {
//! let script = models::scripted("greeter", "replies: [{ text: 'Hello {{ input }}' }]")?;
//! let runtime = Runtime::builder()
//!     .model("greeter", script)
//!     .agent(Agent::new("host").model("greeter"));
//! # Ok(())
//! # }
//! # example().unwrap();
//! ```

use std::sync::Arc;

use longhaul_engine::clock::SystemClock;

pub use longhaul_core::failure::{Failure, FailureClass};
pub use longhaul_core::message::{
    Block, ImageRef, Message, Part, Reply, StopReason, TextBlock, ThinkingBlock, ToolCall,
    ToolResult,
};
pub use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
pub use longhaul_core::raw::StoredText;
pub use longhaul_core::usage::{BudgetAmount, MicroUsd, ModelPricing, Price, Usage};
pub use longhaul_model::scripted::{Script, ScriptError, ScriptedModel};

/// Creates a model that plays this script instead of calling a provider: for tests and first steps.
/// `docs/guide.md` describes the format of scripts.
///
/// ```
/// let script = "replies: [{ tools: [{ name: search, input: { q: rust } }] }, { text: Found it. }]";
/// let model = longhaul::models::scripted("searcher", script)?;
/// # Ok::<(), longhaul::models::ScriptError>(())
/// ```
///
/// # Errors
/// The script is not valid YAML of that format.
pub fn scripted(model_name: &str, script: &str) -> Result<ScriptedModel, ScriptError> {
    let script = Script::parse_yaml(model_name, script)?;
    Ok(ScriptedModel::new(model_name, script, Arc::new(SystemClock)))
}
