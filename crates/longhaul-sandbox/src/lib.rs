//! Providers of sandboxes: isolated environments in which the tools of a run work.
//!
//! A provider implements the [port of sandboxes](longhaul_core::port::sandbox). It does not know
//! runs: the engine decides when a sandbox is created, stopped and deleted.

pub mod daytona;
pub mod docker;
pub mod egress;
pub mod launch;
pub mod local;
