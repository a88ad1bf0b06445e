//! The line to servers of tools, as the rest of the program sees it.
//!
//! Never: a wire format. Who speaks it stands behind this.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{ClaimId, Tool};
use longhaul_core::time::Millis;

/// Who speaks with servers, each by its name.
#[async_trait]
pub trait McpClient: Send + Sync + std::fmt::Debug {
    /// The tools of a server, or the one of this name. The error is a reason in
    /// a few words.
    async fn tools(
        &self,
        server: &str,
        tool: Option<&str>,
        stay: ClaimId,
    ) -> Result<Vec<Arc<dyn Tool>>, String>;

    /// What a server says of itself.
    async fn check(&self, server: &str) -> Result<ServerReport, McpCheckError>;

    /// What was opened for this run alone is closed.
    async fn release(&self, stay: ClaimId);

    /// Everything is closed.
    async fn close(&self);

    /// What must not be cut off in its middle comes to its end; it takes a bounded time.
    async fn finish_refreshes(&self);
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReport {
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the protocol that was agreed on.
    pub protocol: String,
    /// Its tools.
    pub tools: Vec<ReportedTool>,
    /// What should be known though nothing is wrong.
    pub notes: Vec<String>,
    /// How long it took until all of this was known.
    pub duration: Millis,
}

/// Why a server says nothing of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpCheckError {
    /// In a few words.
    pub message: String,
    /// Somebody has to see to its login; it does not pass by itself.
    pub needs_login: bool,
}

/// A tool as its server tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedTool {
    /// Its name in an agent's file.
    pub name: String,
    /// What its calls do to the world.
    pub class: EffectClass,
}
