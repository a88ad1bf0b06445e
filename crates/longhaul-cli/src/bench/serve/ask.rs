//! What is to be measured, as it was typed.
//!
//! Never: measures.

use clap::Args;

/// What is to be measured.
#[derive(Debug, Args)]
pub(crate) struct Ask {
    /// Runs in flight while it is measured
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// Requests of each kind
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub(crate) requests: u32,
    /// Connections that ask at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) connections: u32,
    /// Streams on which nothing happens
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub(crate) streams: u32,
    /// How big the store is before the server starts, in MB
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) store_mb: u32,
    /// The folder in which to measure; its disk counts
    #[arg(long)]
    pub(crate) dir: Option<std::path::PathBuf>,
}
