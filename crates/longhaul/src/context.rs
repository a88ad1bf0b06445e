//! Context providers of a program's own: what an agent is told of the world before it thinks.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use longhaul::context::{ContextError, ContextProvider, Glance, Perception};
//! use longhaul::{Agent, RawJson, Runtime, async_trait};
//!
//! #[derive(Debug)]
//! struct Board;
//!
//! #[async_trait]
//! impl ContextProvider for Board {
//!     async fn look(&self, _: &Glance) -> Result<Perception, ContextError> {
//!         let late = RawJson::of(&["IC 61"]);
//!         Ok(Perception { world: late, context: BTreeMap::new() })
//!     }
//! }
//!
//! let agent = Agent::new("clerk").prompt("Late: {{ perception }}").context_provider("board");
//! let runtime = Runtime::builder().agent(agent).context_provider("board", Board);
//! ```

pub use longhaul_core::port::context::{ContextError, ContextProvider, Glance, Perception};
pub use longhaul_engine::agent::wish::{Every, Eye, Sight};
pub use longhaul_engine::eyes::NamedEyes;
