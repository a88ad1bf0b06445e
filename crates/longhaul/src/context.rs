//! Context providers that a program implements: they supply information about the outside world to
//! an agent's prompt.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use longhaul::context::{ContextError, ContextProvider, ContextRequest, Perception};
//! use longhaul::{Agent, RawJson, Runtime, async_trait};
//!
//! #[derive(Debug)]
//! struct DepartureBoard;
//!
//! #[async_trait]
//! impl ContextProvider for DepartureBoard {
//!     async fn fetch(&self, _: &ContextRequest) -> Result<Perception, ContextError> {
//!         let late = RawJson::from_serialize(&["IC 61"]);
//!         Ok(Perception { world: late, context: BTreeMap::new() })
//!     }
//! }
//!
//! let agent = Agent::new("clerk").prompt("Late: {{ perception }}").context_provider("board");
//! let runtime = Runtime::builder().agent(agent).context_provider("board", DepartureBoard);
//! ```

pub use longhaul_core::port::context::{ContextError, ContextProvider, ContextRequest, Perception};
pub use longhaul_engine::agent::config::{PerceptionConfig, PerceptionInterval, PerceptionSource};
pub use longhaul_engine::services::ContextProviderRegistry;
