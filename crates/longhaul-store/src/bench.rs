//! The raw limits that a store is measured against: what the disk can sync, and
//! what a bare loop over SQLite can insert.
//!
//! Never: reads a clock. Whoever measures hands the stopwatch in.
