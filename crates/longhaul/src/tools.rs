//! Tools of a program's own: what an agent can do.
//!
//! A tool whose input is a Rust type is a [`TypedTool`], and [`typed`] makes the [`Tool`] of it
//! that [`Agent::tool`](crate::Agent::tool) takes. A tool whose schema is known only at run time
//! implements [`Tool`] itself.
//!
//! ```
//! use longhaul::schemars::{self, JsonSchema};
//! use longhaul::tools::{self, EffectClass, ToolContext, ToolFailure, ToolOutput, TypedTool};
//! use longhaul::{Agent, async_trait};
//!
//! #[derive(Debug, serde::Deserialize, JsonSchema)]
//! struct Journey {
//!     /// Where it begins, such as `Oslo`
//!     from: String,
//! }
//!
//! #[derive(Debug)]
//! struct Fare;
//!
//! #[async_trait]
//! impl TypedTool for Fare {
//!     type Input = Journey;
//!     const NAME: &'static str = "fare";
//!     const DESCRIPTION: &'static str = "Says what a journey costs.";
//!     const CLASS: EffectClass = EffectClass::Pure;
//!
//!     async fn call(&self, journey: Journey, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
//!         Ok(ToolOutput::text(format!("{} crowns", journey.from.len() * 7)))
//!     }
//! }
//!
//! let clerk = Agent::new("clerk").tool(tools::typed(Fare));
//! ```

pub use longhaul_core::event::tool::{Finding, ToolOutput};
pub use longhaul_core::id::{CallId, ToolName};
pub use longhaul_core::message::Part;
pub use longhaul_core::policy::effect::{EffectClass, InDoubt};
pub use longhaul_core::port::easel::Easel;
pub use longhaul_core::port::tool::{Progress, SoFar, Tool, ToolCard, ToolContext, ToolFailure};
pub use longhaul_core::raw::BlobRef;
pub use longhaul_engine::toolbox::BadTool;
pub use longhaul_tool::typed::{BadTool as BadInput, TypedTool, typed};
