//! The engine: claims runs, drives them, and offers the [`Longhaul`] handle to people and programs.
//!
//! All waiting happens in this crate. What a run does next is decided by the pure state machine in
//! `longhaul-run`. Stores, model providers and sandboxes are passed in as trait objects.

pub mod agent;
pub mod agent_directory;
mod append_refusals;
mod blob_texts;
mod blocker;
pub mod changes;
mod child_report;
mod child_tools;
mod claim_release;
mod classify;
pub mod clock;
mod compactor;
pub mod context_providers;
mod control_tools;
pub mod counters;
pub mod crash_guard;
pub mod deltas;
pub mod drive;
pub mod drive_permit;
mod effect_facts;
pub mod error;
mod event_text;
pub mod handle;
pub mod hooks;
pub mod id_gen;
mod identifiers;
pub mod lease;
pub mod notifier;
pub mod outbox;
mod output_schema;
mod panics;
mod polling;
mod prompt;
mod prompt_setup;
pub mod provider_blocks;
pub mod read_output;
mod recorded_outputs;
pub mod redaction;
mod replay;
mod run_env;
mod run_session;
mod schedule;
mod scheduler;
pub mod secret;
pub mod services;
pub mod shutdown;
pub mod spend_caps;
mod stalled;
mod summary;
pub mod sweep;
pub mod task;
mod template;
mod template_errors;
mod thread_window;
pub mod tool_registry;
pub mod validation;
pub mod view;
pub mod worker;

pub use error::Error;
pub use handle::Longhaul;
pub use longhaul_run::RUN_AGENT;
pub use task::Task;
