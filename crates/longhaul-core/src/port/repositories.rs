//! The repositories port: access to remote git repositories with the credentials of this machine.
//!
//! Invariant: credentials never enter a sandbox.

use async_trait::async_trait;

use crate::port::sandbox::{Sandbox, SandboxError};
use crate::repo::RepoSource;

/// Access to remote git repositories.
#[async_trait]
pub trait Repositories: Send + Sync + std::fmt::Debug {
    /// Clones a repository into the work folder of a sandbox. Does nothing if the work folder
    /// already contains a repository. A clone that was interrupted is made again.
    async fn clone_to_sandbox(
        &self,
        repo: &RepoSource,
        sandbox: &dyn Sandbox,
    ) -> Result<(), SandboxError>;
}

/// A [`Repositories`] that refuses every repository.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRepositories;

#[async_trait]
impl Repositories for NoRepositories {
    async fn clone_to_sandbox(&self, _: &RepoSource, _: &dyn Sandbox) -> Result<(), SandboxError> {
        let message = "this worker can't clone git repositories: start a worker of a project";
        Err(SandboxError::Refused(message.to_owned()))
    }
}
