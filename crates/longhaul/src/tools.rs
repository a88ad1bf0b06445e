//! Tools that a program implements for its agents.
//!
//! A tool whose input is a Rust type implements [`TypedTool`]; [`typed`] turns it into the [`Tool`]
//! that [`Agent::tool`](crate::Agent::tool) accepts. A tool whose schema is known only at run time
//! implements [`Tool`] itself.
//!
//! ```
//! use longhaul::schemars::{self, JsonSchema};
//! use longhaul::tools::{self, EffectClass, ToolContext, ToolFailure, ToolOutput, TypedTool};
//! use longhaul::{Agent, async_trait};
//!
//! #[derive(Debug, serde::Deserialize, JsonSchema)]
//! struct FareInput {
//!     /// Where the journey starts, such as `Oslo`
//!     from: String,
//! }
//!
//! #[derive(Debug)]
//! struct FareTool;
//!
//! #[async_trait]
//! impl TypedTool for FareTool {
//!     type Input = FareInput;
//!     const NAME: &'static str = "fare";
//!     const DESCRIPTION: &'static str = "Returns the price of a journey.";
//!     const CLASS: EffectClass = EffectClass::Pure;
//!
//!     async fn call(&self, journey: FareInput, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
//!         Ok(ToolOutput::text(format!("{} crowns", journey.from.len() * 7)))
//!     }
//! }
//!
//! let clerk = Agent::new("clerk").tool(tools::typed(FareTool));
//! ```

pub use longhaul_core::event::tool::{ToolOutput, ToolQuestion, ToolSuspension, VerifyOutcome};
pub use longhaul_core::id::{CallId, ToolName};
pub use longhaul_core::message::Part;
pub use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
pub use longhaul_core::policy::effect_facts::{
    ANY_HOST, FileContent, PredictedEffects, PredictedFileChange,
};
pub use longhaul_core::port::image_sink::ImageSink;
pub use longhaul_core::port::tool::{
    PartialToolOutput, Progress, SuspendedCallWait, SuspendedToolCall, Tool, ToolContext,
    ToolFailure, ToolQuestionAnswer, ToolReply, ToolResumption, ToolSpec,
};
pub use longhaul_core::raw::BlobRef;
pub use longhaul_engine::tools::registry::ToolRegistrationError;
pub use longhaul_tool::typed::{TypedTool, TypedToolError as ToolInputError, typed};
