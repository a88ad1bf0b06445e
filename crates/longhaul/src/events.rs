//! The journal entries of a run, as `RunHandle::events` returns them.
//!
//! ```no_run
//! # async fn example(run: longhaul::RunHandle) -> Result<(), longhaul::Error> {
//! let mut events = run.events();
//! while let Some(entry) = events.next().await {
//!     let entry = entry?;
//!     println!("{} {}", entry.seq, entry.event.kind());
//! }
//! # Ok(())
//! # }
//! ```

pub use longhaul_core::event::entry::JournalEntry;
pub use longhaul_core::event::{Event, environment, gate, run, steer, tool, turn};
pub use longhaul_core::id::Seq;
