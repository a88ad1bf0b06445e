//! Providers of sandboxes, i.e. isolated environments in which the tools of a run work.
//!
//! With the feature `sandbox`, a project has the providers `local`, `docker` and `daytona`. A program
//! adds a provider of its own with
//! [`RuntimeBuilder::sandboxes`](crate::RuntimeBuilder::sandboxes). Agents name the provider in
//! `sandbox: { provider: NAME }`.

pub use longhaul_core::change::SandboxState;
pub use longhaul_core::port::sandbox::{
    ExecExit, ExecStatus, Isolation, NetworkPolicy, OutputReceiver, OutputStream, ProviderStatus,
    Sandbox, SandboxCommand, SandboxEntry, SandboxEntryKind, SandboxError, SandboxInfo,
    SandboxLimits, SandboxSecret, SandboxSpec, SandboxVolume, Sandboxes, WORKSPACE,
};
